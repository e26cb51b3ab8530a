"""Complete an imported cluster; the only step that asks for details or makes assumptions."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from networkx.utils import UnionFind

from topology.base.errors import InputError, input_name
from topology.base.figures import Evidence, Figure
from topology.base.units import format_quantity, plural
from topology.build import GPUS
from topology.catalog import systems_of
from topology.graph import INSIDE_KINDS, SCALE_OUT_KINDS, SCALE_UP_KINDS
from topology.importers.answers import (
    Answers,
    Parts,
    Questions,
    answer,
    inner_fabric,
    named_parts,
    out_fabric,
    told_gpu,
)
from topology.importers.checks import check_gpu, check_links, checked_node
from topology.importers.completed import Completed, Draft, bytes_per_s
from topology.importers.found import (
    FabricFound,
    Found,
    GraphFound,
    NodeFound,
    Nodes,
    TrunkFound,
    commonest,
    listed,
    switch_kind,
)
from topology.importers.hosts import add_domain
from topology.importers.merge import domains_of, dumps_of_hosts, merged_fabric
from topology.importers.nics import add_nics, check_nics
from topology.importers.options import ImportOptions, Log
from topology.spec import FabricSpec, RawNode


def complete(found: Sequence[Found], options: ImportOptions) -> tuple[Completed, list[str]]:
    """Return the cluster that files describe, and what had to be assumed for it, a line for each.

    Raises
    ------
    InputError
        If files contradict each other or the options, or something is missing: then by its option's name.
    """
    log = Log(anomalies=[line for one in found for line in one.anomalies])
    for line in [line for one in found for line in one.readings]:
        log.assume(line)
    questions = Questions([one.place for one in found])
    fabric, nodes = _merged(found, options, log)
    names = [name for one in found for name in one.gpu_names]
    if (told := told_gpu(options, names)) is not None:
        options = replace(options, gpu=told.gpus[0])
    parts = named_parts(options, names, told, questions, log)
    if parts is not None:
        check_gpu(found, parts, str(options.gpu))
        nodes = _checked(nodes, parts, options, log)
    tops = [] if fabric is None else _tops(fabric)
    answers = answer(options, parts, nodes, fabric, len(tops), questions, log)
    domains = {host: [host] for host in nodes}
    if fabric is not None and answers is not None:
        domains = domains_of(fabric, nodes, answers, questions, log)
        _ask_design(fabric, answers, len(domains), questions, log)
    questions.refuse()
    if answers is None:
        raise TypeError("parts were neither named nor requested")
    draft = Draft(answers, log)
    if isinstance(found[0], GraphFound):
        domains = _add_graph(draft, found[0])
    elif fabric is None:
        _add_hosts(draft, found[0].place, domains, nodes)
        _note_lone_host(draft, nodes)
    else:
        check_nics(fabric, nodes, log)
        _add_hosts(draft, fabric.place, domains, nodes)
        for name, level in fabric.switches.items():
            draft.node(name, switch_kind(level), rail=fabric.switch_rails.get(name))
    _put_in_racks(draft)
    if fabric is not None:
        add_nics(draft, fabric, nodes)
        _add_trunks(draft, fabric)
        _join_tops(draft, fabric, tops)
    completed = Completed(
        name=Path(found[0].place).stem or "imported",
        place=" and ".join(one.place for one in found),
        raw=draft.raw,
        domains=domains,
        answers=answers,
        switched=fabric is None or bool(fabric.switches),
        anomalies=tuple(log.anomalies),
    )
    return completed, list(log.assumptions)


def _merged(
    found: Sequence[Found], options: ImportOptions, log: Log
) -> tuple[FabricFound | None, dict[str, NodeFound | None]]:
    """Return the fabric, if files have one, and the dump of each host."""
    graph = next((one for one in found if isinstance(one, GraphFound)), None)
    if graph is not None and len(found) > 1:
        other = next(one for one in found if one is not graph)
        raise InputError(f"{graph.place}: describes a whole cluster, so {other.place} cannot be added to it.")
    dumps = [one for one in found if isinstance(one, NodeFound)]
    if fabrics := [one for one in found if isinstance(one, FabricFound)]:
        fabric = merged_fabric(fabrics, options.hosts, log)
        return fabric, dumps_of_hosts(fabric, dumps, log)
    if len(dumps) > 1:
        raise InputError(
            f"{dumps[0].place} and {dumps[1].place}: two nodes, but no file shows how they are connected; "
            "add the fabric's (Slurm topology, ibnetdiscover, ...)."
        )
    return None, {dump.hosts[0] if dump.hosts else "node0": dump for dump in dumps}


def _checked(nodes: Nodes, parts: Parts, options: ImportOptions, log: Log) -> dict[str, NodeFound | None]:
    """Return the hosts with the links that their GPUs can have."""
    checked: dict[str, NodeFound | None] = dict.fromkeys(nodes)
    odd: dict[str, None] = {}
    for host, node in nodes.items():
        if node is not None:
            checked[host], lines = checked_node(node, host, parts, options)
            odd.update(dict.fromkeys(lines))
    log.anomalies += odd
    return checked


def _ask_design(fabric: FabricFound, answers: Answers, domains: int, questions: Questions, log: Log) -> None:
    """Where no file names switches, take the design of the named system, or ask for it."""
    parts = answers.parts
    if fabric.switches or domains < 2:
        return
    if parts.design is None:
        systems = ", ".join(one.part for one in systems_of(parts.gpu.name)) or "of the catalog"
        questions.ask(
            "how its domains are connected",
            f"the fabric's file too (Slurm tree, ibnetdiscover, ...) or {input_name('gpu')} SYSTEM ({systems})",
        )
    else:
        log.assume(f"Fabric between domains: {parts.design.kind}, as in catalog system {parts.name}.")


def _add_hosts(draft: Draft, place: str, domains: Mapping[str, Sequence[str]], nodes: Nodes) -> None:
    """Add the hosts of each domain."""
    gpus = sum(draft.answers.per_node if node is None else node.gpu_count for node in nodes.values())
    if gpus > GPUS:
        raise InputError(
            f"{place}: {plural(len(nodes), 'host')} with {gpus:,} GPUs; at most {GPUS:,} are "
            f"imported. Name those that have GPUs with {input_name('hosts')}, or write the cluster as a "
            f"YAML of parts."
        )
    for label, hosts in domains.items():
        add_domain(draft, label, {host: nodes[host] for host in hosts})


def _note_lone_host(draft: Draft, nodes: Nodes) -> None:
    """Return what the dump of one host leaves out of the cluster that it is part of."""
    node = next(node for node in nodes.values() if node is not None)
    system, gpus = draft.answers.parts.system, node.gpu_count
    if system is not None and system.gpus > max(system.gpus_per_node, gpus) and node.hidden:
        draft.log.anomalies.append(
            f"{node.place}: {gpus} GPUs of a domain that in {system.part} has {system.gpus}: the other hosts are not "
            "in this file; add a Slurm block file or the fabric's."
        )
    elif node.beyond and system is None:
        draft.log.anomalies.append(
            f"{node.place}: its links go to switches that may connect other hosts not shown in this file."
        )
    if not node.gpus:
        draft.log.anomalies.append(
            f"{node.place}: 0 GPUs; {node.devices} PCI devices are assumed to be GPUs, with links from the catalog."
        )
    if node.nics:
        draft.log.assume(
            f"{plural(len(node.nics), 'NIC port')} without a cable in this file, left out; add the fabric's file "
            "(Slurm topology, ibnetdiscover, ...) to join them."
        )


def _put_in_racks(draft: Draft) -> None:
    """Give hosts that share a domain the racks that the catalog's system of these GPUs has, in their order."""
    system = draft.answers.parts.system
    if system is None or system.gpus == system.gpus_per_node:
        return
    per_rack = system.gpus_per_node * system.nodes_in_rack
    by_host: dict[str, dict[str, list[RawNode]]] = defaultdict(lambda: defaultdict(list))
    for node in draft.nodes.values():
        if node.kind == "gpu" and node.domain is not None and node.node is not None:
            by_host[node.domain][node.node].append(node)
    for domain, hosts in by_host.items():
        before = 0
        for members in hosts.values() if len(hosts) > 1 else ():
            rack = f"{domain}.r{before // per_rack}"
            draft.nodes.update({node.id: replace(node, rack=rack) for node in members})
            before += len(members)
            draft.log.assume(f"Racks: {per_rack} GPUs of one domain in each: catalog system {system.part}.")


def _add_trunks(draft: Draft, fabric: FabricFound) -> None:
    """Add links between switches: as counted, else as many as the rate below them asks for."""
    for trunk in fabric.trunks:
        if trunk.count is not None and trunk.rate is not None:
            draft.link(*trunk.ends, out_fabric(trunk.rate, infiniband=draft.answers.infiniband), trunk.count)
    if rest := [trunk for trunk in fabric.trunks if trunk.count is None]:
        _sized_trunks(draft, fabric, rest)


def _sized_trunks(draft: Draft, fabric: FabricFound, trunks: list[TrunkFound]) -> None:
    """Size uplinks from the rate below a switch: over the oversubscription at leaves, in full above them."""
    ratio = draft.answers.oversubscription or 1.0
    down: dict[str, float] = defaultdict(float)
    one: dict[str, FabricSpec] = {}
    for link in draft.raw.links:
        for end in link.between:
            if end in fabric.switches:
                down[end] += bytes_per_s(link)
                one[end] = link.fabric
    above: dict[str, list[str]] = defaultdict(list)
    for trunk in trunks:
        lower, upper = sorted(trunk.ends, key=lambda name: fabric.switches[name])
        above[lower].append(upper)
    for name in sorted(above, key=lambda switch: fabric.switches[switch]):
        share = down[name] / (ratio if fabric.switches[name] == 1 else 1.0) / len(above[name])
        text = format_quantity(share, "byte/s", 12)
        figure = Figure(share, "byte/s", Evidence.DERIVED, "downlinks over the oversubscription", text)
        for upper in above[name] if share > 0 else ():
            uplink, count = _links_of(draft, figure, one.get(name))
            draft.link(name, upper, uplink, count)
            down[upper] += share
            one.setdefault(upper, uplink)


def _links_of(draft: Draft, rate: Figure, below: FabricSpec | None) -> tuple[FabricSpec, int]:
    """Return links of ``rate`` in all: whole links like those below, else one."""
    count = rate.value / below.link_bytes_per_s.value if below is not None else 0.0
    if below is not None and round(count) >= 1 and abs(count - round(count)) < 1e-6:
        return below, round(count)
    return out_fabric(rate, infiniband=draft.answers.infiniband), 1


def _join_tops(draft: Draft, fabric: FabricFound, tops: list[str]) -> None:
    """Put one switch over those that nothing joins, as the user says."""
    if not tops or draft.answers.join_leaves is None:
        return
    level = 1 + max(fabric.switches[name] for name in tops)
    root = draft.node(draft.free("root"), switch_kind(level))
    below = {link.between[1]: link.fabric for link in draft.raw.links}
    for name in tops:
        draft.link(name, root, *_links_of(draft, draft.answers.join_leaves, below.get(name)))


def _tops(fabric: FabricFound) -> list[str]:
    """Return the highest switches of a fabric that falls apart, none of one that hangs together."""
    joined: UnionFind[str] = UnionFind()
    for port in fabric.ports:
        joined.union(f"host {port.host}", f"switch {port.switch}")
    for trunk in fabric.trunks:
        joined.union(*(f"switch {end}" for end in trunk.ends))
    below = {joined[f"host {port.host}"] for port in fabric.ports}
    groups: dict[str, list[str]] = defaultdict(list)
    for name in fabric.switches:
        if (group := joined[f"switch {name}"]) in below:
            groups[group].append(name)
    highest = {group: max(fabric.switches[name] for name in own) for group, own in groups.items()}
    tops = [name for group, own in groups.items() for name in own if fabric.switches[name] == highest[group]]
    return tops if len(groups) > 1 else []


def _add_graph(draft: Draft, graph: GraphFound) -> dict[str, list[str]]:
    """Add the nodes and links of a file that has them all, and return the hosts of each domain.

    A link between GPUs and switch chips that runs at the catalog's rate for them is the catalog's.
    """
    own = {one.fabric.link_bytes_per_s.value: one.fabric for one in systems_of(draft.answers.parts.gpu.name)}
    kinds = {name: kind for name, kind, _, _ in graph.nodes}
    domains: dict[str, dict[str, None]] = defaultdict(dict)
    per: Counter[str] = Counter()
    for name, kind, domain, host in graph.nodes:
        draft.node(name, kind, domain, host)
        if kind == "gpu" and domain is not None and host is not None:
            domains[domain][host] = None
    for a, b, count, rate in graph.links:
        ends = {kinds[a], kinds[b]}
        scale_up = ends <= set(SCALE_UP_KINDS)
        if scale_up and rate.value in own:
            fabric = own[rate.value]
        elif scale_up or ends & set(INSIDE_KINDS):
            fabric = inner_fabric("scale-up" if scale_up else "pcie", rate, scale_up=scale_up)
        else:
            fabric = out_fabric(rate)
        draft.link(a, b, fabric, count)
        per.update({end: count * rate.value for end in (a, b) if scale_up and kinds[end] == "gpu"})
    usual = commonest(per.values())
    check_links(
        graph.place,
        [1] if usual else [],
        draft.answers.parts,
        draft.answers.options.gpu,
        bytes_per_s=usual or 0.0,
    )
    _note_gpus_without_nic(draft, graph, kinds)
    return {label: list(hosts) for label, hosts in domains.items()}


def _note_gpus_without_nic(draft: Draft, graph: GraphFound, kinds: Mapping[str, str]) -> None:
    """Name GPUs of hosts that leave their domain, with no way to a leaf but over another GPU."""
    inside = {"gpu", *INSIDE_KINDS, "nic"}
    near: UnionFind[str] = UnionFind(kinds)
    for a, b, _, _ in graph.links:
        if {kinds[a], kinds[b]} <= inside and {kinds[a], kinds[b]} != {"gpu"}:
            near.union(a, b)
    cabled = {
        near[one]
        for a, b, _, _ in graph.links
        for one, other in ((a, b), (b, a))
        if kinds[one] in inside and kinds[other] in SCALE_OUT_KINDS
    }
    lone = [name for name, kind in kinds.items() if kind == "gpu" and near[name] not in cabled]
    if cabled and lone:
        draft.log.anomalies.append(
            f"{graph.place}: {listed(lone)}: no NIC of {'its' if len(lone) == 1 else 'their'} own, unlike other GPUs."
        )
