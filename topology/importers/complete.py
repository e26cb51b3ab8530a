"""From what files hold to a cluster: its hosts, NICs and switches are put together, and built."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from topology.base.errors import InputError, input_name
from topology.base.figures import Evidence, Figure
from topology.base.names import natural
from topology.base.units import format_quantity, plural
from topology.build import MAX_GPUS
from topology.catalog import systems_of
from topology.cluster import ClusterSpec
from topology.files.plausible import check_raw_links
from topology.graph import INSIDE_KINDS, SCALE_OUT_KINDS, SCALE_UP_KINDS
from topology.importers.answers import Answers, ImportOptions, Remark, inner_fabric
from topology.importers.build import build
from topology.importers.draft import Draft
from topology.importers.found import (
    FabricFound,
    Found,
    GraphFound,
    NodeFound,
    TrunkFound,
    commonest,
    groups_of,
    listed,
    switch_kind,
)
from topology.importers.hosts import add_domain, check_rate
from topology.importers.merge import domains_of, merged
from topology.importers.nics import add_nics
from topology.spec import FabricSpec


@dataclass(frozen=True)
class Imported:
    """An imported cluster.

    ``spec`` is in the regular form of domains and a fabric where everything found is regular, else a raw graph.
    ``domains`` gives the hosts of each scale-up domain, ``hosts`` those of a regular form in its order, ``remarks``
    what was taken, assumed, not used, and is irregular; ``rates_unusual`` is set where rates are not those that the
    catalog knows for such parts.
    """

    spec: ClusterSpec
    files: tuple[Found, ...]
    domains: dict[str, list[str]]
    hosts: tuple[str, ...]
    remarks: tuple[Remark, ...]
    rates_unusual: bool = False

    @property
    def assumptions(self) -> list[str]:
        """How files were read, what options gave, and what was assumed."""
        return [text for kind, text in self.remarks if kind in ("read", "option", "assumed")]

    @property
    def anomalies(self) -> list[str]:
        """What was not used, and what is irregular."""
        return [text for kind, text in self.remarks if kind in ("unused", "irregular")]


def complete(files: Sequence[Found], options: ImportOptions) -> Imported:
    """Return the cluster that files describe, with what had to be assumed for it.

    Raises
    ------
    InputError
        If files contradict each other or the options, or something is missing: then by its option's name.
    """
    answers = Answers(files, options)
    fabric, nodes = merged(files, answers)
    draft, main = Draft(answers), files[0]
    try:
        if isinstance(main, GraphFound):
            _add_graph(draft, main)
        _add_hosts(draft, main.place, nodes, fabric)
        if fabric is not None:
            _add_fabric(draft, fabric, nodes)
        elif isinstance(main, NodeFound):
            _note_lone_host(main, answers)
    except InputError:
        answers.refuse()  # what is missing may be why
        raise
    answers.refuse()
    raw, unusual = draft.raw, False
    try:
        check_raw_links(raw, "rates")
    except InputError as error:
        answers.say("irregular", f"{error.problem} Kept as in the file.")
        unusual = True
    cabled = fabric is None or bool(fabric.switches)
    spec, hosts = build(Path(main.place).stem or "imported", draft, raw, cabled=cabled)
    answers.say_unused()
    domains = {label: list(hosts_in) for label, hosts_in in draft.domains.items()}
    return Imported(spec, tuple(files), domains, hosts, tuple(answers.remarks), unusual)


def _add_hosts(draft: Draft, place: str, nodes: Mapping[str, NodeFound], fabric: FabricFound | None) -> None:
    """Add hosts by their domains, and put them in racks."""
    gpus = sum(node.gpu_count for node in nodes.values())
    if gpus > MAX_GPUS:
        raise InputError(
            f"{place}: {plural(len(nodes), 'host')} with {gpus:,} GPUs; at most {MAX_GPUS:,} are imported. Name "
            f"those that have GPUs with {input_name('hosts')}, or write the cluster as a YAML of parts."
        )
    domains = {host: [host] for host in nodes}
    if fabric is not None:
        domains = domains_of(fabric, nodes, draft.answers)
    for label, hosts in domains.items():
        add_domain(draft, label, {host: nodes[host] for host in hosts})
    _put_in_racks(draft)


def _add_fabric(draft: Draft, fabric: FabricFound, nodes: Mapping[str, NodeFound]) -> None:
    """Add switches, NICs and the links between switches; else the domains are connected as in the named system."""
    answers = draft.answers
    for name, level in fabric.switches.items():
        draft.node(name, switch_kind(level), rail=fabric.switch_rails.get(name))
    if tops := _tops(fabric):
        answers.join_leaves(len(tops))
    add_nics(draft, fabric, nodes)
    _add_trunks(draft, _reached(draft, fabric))
    if fabric.switches or len(draft.domains) < 2:
        return
    if answers.design is not None:
        line = f"Fabric between domains: {answers.design.kind} with {answers.nic.name}, as in catalog system"
        answers.say("assumed", f"{line} {answers.name}.")
    elif answers.named:
        systems = answers.system_names or "of the catalog"
        file = "the fabric's file too (Slurm tree, ibnetdiscover, ...)"
        answers.ask("how its domains are connected", f"{file} or {input_name('gpu')} SYSTEM ({systems})")


def _reached(draft: Draft, fabric: FabricFound) -> FabricFound:
    """Return the fabric without the parts that no NIC of a GPU is cabled to, whose switches are taken out."""
    ends = {end for pair in draft.links for end in pair}
    parts = fabric.parts()
    reached = [part for part in parts if ends & set(part)]
    if out := [name for part in parts if part not in reached for name in part]:
        line = f"{fabric.place}: {listed(out)}: no NIC of a GPU is cabled to this fabric; left out."
        draft.answers.say("unused", line)
    if len(reached) > 1 and not _tops(fabric):
        line = f"{fabric.place}: {len(reached)} fabrics that only hosts join: planes, each GPU on those of its NICs."
        draft.answers.say("read", line)
    for name in out:
        del draft.nodes[name]
    return replace(
        fabric,
        switches={name: level for name, level in fabric.switches.items() if name not in out},
        trunks=tuple(trunk for trunk in fabric.trunks if trunk.ends[0] not in out),
    )


def _note_lone_host(node: NodeFound, answers: Answers) -> None:
    """Say what the dump of one host leaves out of the cluster that it is part of."""
    system, gpus, place = answers.system, node.gpu_count, node.place
    odd = []
    if system is not None and system.gpus > max(system.gpus_per_node, gpus) and node.hidden:
        odd.append(
            f"{gpus} GPUs of a domain that in {system.part} has {system.gpus}; add the file of blocks."
        )
    elif node.beyond and system is None:
        odd.append("its links go to switches that may connect other hosts not shown in this file.")
    if not node.gpus:
        odd.append(f"0 GPUs; {node.devices} PCI devices are assumed to be GPUs, with links from the catalog.")
    for line in odd:
        answers.say("irregular", f"{place}: {line}")
    if node.nics:
        ports = plural(len(node.nics), "NIC port")
        line = f"{place}: {ports} without a cable in this file, left out; add the fabric's file to join them."
        answers.say("unused", line)


def _put_in_racks(draft: Draft) -> None:
    """Give hosts that share a domain the racks that the catalog's system of these GPUs has, in their order."""
    system = draft.answers.system
    if system is None or system.gpus == system.gpus_per_node:
        return
    per_rack = system.gpus_per_node * system.nodes_in_rack
    for domain, hosts in draft.domains.items():
        filled = 0
        for members in hosts.values() if len(hosts) > 1 else ():
            rack = f"{domain}.r{filled // per_rack}"
            draft.nodes.update({node.id: replace(node, rack=rack) for node in members})
            filled += len(members)
            line = f"Racks: {per_rack} GPUs of one domain in each: catalog system {system.part}."
            draft.answers.say("assumed", line)


def _add_trunks(draft: Draft, fabric: FabricFound) -> None:
    """Add links between switches: as counted, else as many as the rate below them asks for."""
    for trunk in fabric.trunks:
        if trunk.count is not None and trunk.rate is not None:
            draft.link(*trunk.ends, draft.answers.out_fabric(trunk.rate), trunk.count)
    if uncounted := [trunk for trunk in fabric.trunks if trunk.count is None]:
        _sized_trunks(draft, fabric, uncounted)
    tops = _tops(fabric)
    if not tops:
        return
    rate = draft.answers.join_leaves(len(tops))
    level = 1 + max(fabric.switches[name] for name in tops)
    root = draft.node(draft.free("root"), switch_kind(level))
    below = {pair[1]: link for pair, (link, _) in draft.links.items()}
    for name in tops:
        draft.link(name, root, *_links_of(draft, rate, below.get(name)))


def _sized_trunks(draft: Draft, fabric: FabricFound, trunks: list[TrunkFound]) -> None:
    """Size uplinks from the rate below a switch: over the oversubscription at leaves, in full above them."""
    ratio = draft.answers.oversubscription
    down: dict[str, float] = defaultdict(float)
    beside: dict[str, FabricSpec] = {}
    for pair, (link, count) in draft.links.items():
        for end in pair:
            if end in fabric.switches:
                down[end] += count * link.link_bytes_per_s.value
                beside[end] = link
    above: dict[str, list[str]] = defaultdict(list)
    for trunk in trunks:
        lower, upper = sorted(trunk.ends, key=lambda name: fabric.switches[name])
        above[lower].append(upper)
    for name in sorted(above, key=lambda switch: fabric.switches[switch]):
        share = down[name] / (ratio if fabric.switches[name] == 1 else 1.0) / len(above[name])
        text = format_quantity(share, "byte/s", 12)
        figure = Figure(share, "byte/s", Evidence.DERIVED, "downlinks over the oversubscription", text)
        for upper in above[name] if share > 0 else ():
            uplink, count = _links_of(draft, figure, beside.get(name))
            draft.link(name, upper, uplink, count)
            down[upper] += share
            beside.setdefault(upper, uplink)


def _links_of(draft: Draft, rate: Figure, below: FabricSpec | None) -> tuple[FabricSpec, int]:
    """Return links of ``rate`` in all: whole links like those below, else one."""
    count = rate.value / below.link_bytes_per_s.value if below is not None else 0.0
    if below is not None and round(count) >= 1 and abs(count - round(count)) < 1e-6:
        return below, round(count)
    return draft.answers.out_fabric(rate), 1


def _tops(fabric: FabricFound) -> list[str]:
    """Return the highest switches of a fabric that falls apart, none of one that hangs together."""
    joins = [[port.switch for port in ports] for ports in fabric.ports_by_host.values()]
    joins += [list(trunk.ends) for trunk in fabric.trunks]
    cabled = {port.switch for port in fabric.ports}
    parts = [part for part in groups_of(fabric.switches, joins) if cabled & set(part)]
    highest = [max(fabric.switches[name] for name in part) for part in parts if len(parts) > 1]
    of_parts = zip(parts, highest, strict=False)
    return [name for part, level in of_parts for name in part if fabric.switches[name] == level]


def _add_graph(draft: Draft, graph: GraphFound) -> None:
    """Add the nodes and links of a file that has them all.

    A link between GPUs and switch chips that runs at the catalog's rate for them is the catalog's.
    """
    fabrics = (domain.fabric for domain in systems_of(draft.answers.gpu.name))
    catalog = {fabric.link_bytes_per_s.value: fabric for fabric in fabrics}
    kinds = {name: kind for name, kind, _, _ in graph.nodes}
    parts = groups_of(kinds, ((a, b) for a, b, _, _ in graph.links))
    out = {name for part in parts if not any(kinds[end] == "gpu" for end in part) for name in part}
    if out:
        line = f"{graph.place}: {listed(sorted(out, key=natural))}: no GPU is reachable from it; left out."
        draft.answers.say("unused", line)
    per: Counter[str] = Counter()
    for name, kind, domain, host in graph.nodes:
        if name not in out:
            draft.node(name, kind, domain, host)
    for a, b, count, rate in graph.links:
        if a in out:
            continue
        ends = {kinds[a], kinds[b]}
        scale_up = ends <= set(SCALE_UP_KINDS)
        if scale_up and rate.value in catalog:
            fabric = catalog[rate.value]
        elif scale_up or ends & set(INSIDE_KINDS):
            fabric = inner_fabric("scale-up" if scale_up else "pcie", rate, scale_up=scale_up)
        else:
            fabric = draft.answers.out_fabric(rate)
        draft.link(a, b, fabric, count)
        per.update({end: count * rate.value for end in (a, b) if scale_up and kinds[end] == "gpu"})
    check_rate(graph.place, commonest(per.values()) or 0.0, draft.answers)
    _note_gpus_without_nic(draft, graph, kinds)


def _note_gpus_without_nic(draft: Draft, graph: GraphFound, kinds: Mapping[str, str]) -> None:
    """Name GPUs of hosts that leave their domain, with no way to a leaf but over another GPU."""
    inside = {"gpu", *INSIDE_KINDS, "nic"}
    ends = [(a, b) for a, b, _, _ in graph.links]
    joins = [(a, b) for a, b in ends if {kinds[a], kinds[b]} <= inside and {kinds[a], kinds[b]} != {"gpu"}]
    leaving = {end for pair in ends for end in pair if {kinds[a] for a in pair} & set(SCALE_OUT_KINDS)}
    without = [part for part in groups_of(kinds, joins) if not leaving & set(part)]
    lone = [name for part in without for name in part if kinds[name] == "gpu"]
    if leaving and lone:
        pronoun = "its" if len(lone) == 1 else "their"
        line = f"{graph.place}: {listed(lone)}: no NIC of {pronoun} own, unlike other GPUs."
        draft.answers.say("irregular", line)
