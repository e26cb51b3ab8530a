"""Hosts in a graph: their GPUs, switch chips, direct links and PCIe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from topology.base.errors import InputError, input_name
from topology.base.units import format_quantity
from topology.importers.answers import Answers
from topology.importers.draft import Draft
from topology.importers.found import NodeFound, commonest, groups_of, links_of, listed
from topology.spec import FabricSpec
from topology.structures.domain import DomainSpec
from topology.structures.mesh import MeshDomain
from topology.structures.switch import SwitchDomain
from topology.structures.torus import TorusDomain

_RATE_MARGIN = 0.25
"""Part by which the rate of a GPU's links may differ from the catalog's: what files call usable is somewhat less."""


def gpu_id(host: str, number: int) -> str:
    """Return the id of a host's GPU."""
    return f"{host}.g{number}"


def socket_id(host: str, node: NodeFound, socket: str) -> str:
    """Return the id of the node that represents a socket of a host; that of the first where it has no GPUs."""
    sockets = list(dict.fromkeys(node.sockets))
    return f"{host}.socket{sockets.index(socket) if socket in sockets else 0}"


def usual_host(answers: Answers, gpus: int) -> NodeFound:
    """Return a host of the system that the user named, for one whose inside no file has.

    Raises
    ------
    InputError
        If hosts of such a system cannot have so many GPUs and nothing else.
    """
    names, system = tuple(f"GPU{number}" for number in range(gpus)), answers.system
    if system is not None and system.switched:
        to_chips = tuple((name, "switch", system.links_per_gpu) for name in names)
        return NodeFound(names, ("switch",), to_chips, hidden=True)
    if system is None and answers.named:
        option = "a node's `nvidia-smi topo -m` or NCCL XML too"
        if systems := answers.system_names:
            option = f"{input_name('gpu')} SYSTEM ({systems})"
        answers.ask("how the GPUs of a node are connected", option)
    elif system is not None and not (isinstance(system, MeshDomain) and system.gpus == gpus):
        structure = f"{system.part} is a {system.structure} of {system.gpus} GPUs"
        problem = f"{structure}, which hosts of an imported fabric cannot have; use it by name, like {system.part}@N."
        raise InputError(problem, field="gpu", value=answers.options.gpu)
    count = system.links_per_neighbour if isinstance(system, MeshDomain) else 1
    links = tuple((a, b, count) for a, b in combinations(names, 2))
    return NodeFound(names, (), links)


def checked_host(node: NodeFound, host: str, answers: Answers) -> NodeFound:
    """Return a host with the links that its GPUs can have.

    Equal bundles to all peers may be all the links that a GPU has: then they are direct. GPUs that the file only has
    as devices are linked as in the named system.

    Raises
    ------
    InputError
        If it has other GPUs or links than the options say, or its links do not say what they join.
    """
    expected, system = answers.options.gpus_per_node, answers.system
    if expected is not None and node.gpu_count != expected:
        raise InputError(
            f"{node.place}: {host} has {node.gpu_count} GPUs, but {input_name('gpus_per_node')} says {expected}."
        )
    if not node.gpus:
        usual_node = usual_host(answers, node.devices)
        inside = {key: getattr(usual_node, key) for key in ("gpus", "chips", "links", "hidden")}
        return replace(node, **inside)
    per = node.links_of_gpus
    fitted = list(links_of(node.gpus, (*node.links, *node.down)).values())
    if node.hidden and not node.beyond and node.kind == "topo-m":
        catalog_links, bundle = system.links_per_gpu if system else 0, max(per.values())
        if set(per.values()) == {bundle} and bundle != catalog_links == bundle * (len(per) - 1):
            links = tuple((a, b, bundle) for a, b in combinations(node.gpus, 2))
            return replace(node, chips=(), links=links, hidden=False)
    count = max(set(fitted) - {0}, key=fitted.count, default=0)
    if known := _comparable(answers) if count else []:
        to_peers = any(a in per and b in per for a, b, _ in node.links)
        meshes = [domain for domain in known if isinstance(domain, MeshDomain)]
        joins = ((a, b) for a, b, _ in (*node.links, *node.down))
        peers = max(map(len, groups_of(node.gpus, joins))) - 1 if to_peers else 0
        can = [mesh.links_per_neighbour * peers for mesh in meshes]
        bundles = ("mesh", "nested")  # of whose links files may name the pairs alone
        counted = [domain for domain in known if domain.structure not in bundles and not domain.links_bundled]
        can += [domain.links_per_gpu for domain in counted]
        if can and count not in can:
            _refuse_links(node.place, f"{count} scale-up links", f"{can[0]}", answers)
        nested = [domain for domain in known if domain.structure == "nested" and domain.links_per_gpu > count]
        for domain in nested[:1]:
            pairs = f"{count} direct links, one to each GPU, as the file has pairs alone"
            several = f"{domain.part} has {domain.links_per_gpu}: several join some pairs"
            answers.say("irregular", f"{node.place}: a GPU has {pairs}; {several}.")
    if node.link_rate is not None and answers.inner is None:
        check_rate(node.place, max(fitted) * node.link_rate.value, answers)
    usual = commonest(per.values())
    for gpu, count in per.items():
        if count != usual:
            reported = f"{count} scale-up links" if count else "no scale-up link"
            answers.say("irregular", f"{node.place}: {gpu} has {reported}, other GPUs {usual}.")
    if node.over_pcie:
        _check_groups(node, answers)
    return node


def _check_groups(node: NodeFound, answers: Answers) -> None:
    """Say what is odd about GPUs that scale-up links do not join; refuse those that hang on separate switches."""
    groups = "; ".join(listed(group, 4) for group in node.groups)
    several = sum(len(group) > 1 for group in node.groups) > 1
    expected = max((domain.links_per_gpu for domain in answers.systems), default=0)
    if node.chips and several:
        raise InputError(
            f"{node.place}: GPUs on separate switches that the file does not connect: {groups}. Give the "
            "host's `nvidia-smi topo -m`, or a CSV of links that includes those between the switches."
        )
    if not node.links and expected:
        line = f"{node.place}: no GPU has a scale-up link, {answers.gpu.name} has {expected} in the catalog"
        remark = "using PCIe only, as in the file; a virtual machine or container may hide the links."
        answers.say("irregular", f"{line}: {remark}")
    elif several:
        line = f"{node.place}: {len(node.groups)} groups of GPUs are connected only by PCIe: {groups}."
        answers.say("irregular", line)


def check_rate(place: str, bytes_per_s: float, answers: Answers) -> None:
    """Reject a file whose GPUs have scale-up links of another rate (of all links together) than the catalog's."""
    rates = [domain.scale_up_bytes_per_s for domain in _comparable(answers)]
    if bytes_per_s and rates and all(abs(bytes_per_s / rate - 1) > _RATE_MARGIN for rate in rates):
        reported, published = (format_quantity(rate, "byte/s") for rate in (bytes_per_s, rates[0]))
        _refuse_links(place, f"{reported} each way of scale-up links", f"{published} each way", answers)


def _comparable(answers: Answers) -> list[DomainSpec]:
    """Return the systems that its GPUs can be in whose links are those of every GPU."""
    domains = (domain for domain in answers.systems if not isinstance(domain, TorusDomain))
    return [domain for domain in domains if domain.scale_up_bytes_per_s > 0]


def _refuse_links(place: str, reported: str, published: str, answers: Answers) -> None:
    option = f"{input_name('gpu')} {answers.options.gpu}"
    remedy = f"give the actual GPU, or a custom name with {input_name('hbm')} and {input_name('fabric')}"
    raise InputError(
        f"{place}: its GPUs have {reported}, but {answers.gpu.name} has {published} ({option}); {remedy}."
    )


def add_domain(draft: Draft, label: str, hosts: Mapping[str, NodeFound]) -> None:
    """Add the GPUs of one scale-up domain and the links between them."""
    for host, node in hosts.items():
        for number in range(node.gpu_count):
            draft.node(gpu_id(host, number), "gpu", label, host, rail=number)
    to_chips: dict[str, int] = {}
    for host, node in hosts.items():
        names = {gpu: gpu_id(host, number) for number, gpu in enumerate(node.gpus)}
        if node.hidden:
            to_chips |= {names[gpu]: count for gpu, count in node.links_of_gpus.items()}
            continue
        names |= {chip: draft.node(f"{host}.{chip}", "switch", label, host) for chip in node.chips}
        for a, b, count in node.links:
            draft.link(names[a], names[b], draft.answers.scale_up, count)
    if to_chips:
        _add_chips(draft, label, to_chips, draft.answers.scale_up)
    for host, node in hosts.items():
        if node.over_pcie:
            _add_pcie(draft, host, node)


def _add_chips(draft: Draft, label: str, gpus: dict[str, int], fabric: FabricSpec) -> None:
    """Add the switch chips of a domain: the catalog's where every GPU has as many links, else one for all."""
    answers, system = draft.answers, draft.answers.system
    chips = system.links_per_switch if isinstance(system, SwitchDomain) else ()
    if system is not None and chips and set(gpus.values()) <= {0, sum(chips)}:
        names = [f"{label}.s{i}" for i in range(len(chips))]
        counts = "/".join(map(str, chips[:1] if len(set(chips)) == 1 else chips))
        line = f"{len(chips)} switch chips, {counts} links of each GPU: catalog system {system.part}."
    else:
        names, chips = [f"{label}.switch"], ()
        line = "The files do not distinguish the switch chips of a domain, so one represents all of them."
    answers.say("assumed", line)
    for name in names:
        draft.node(name, "switch", label)
    for gpu, count in gpus.items():
        for name, links in zip(names, chips or (count,), strict=True) if count else ():
            draft.link(gpu, name, fabric, links)


def _add_pcie(draft: Draft, host: str, node: NodeFound) -> None:
    """Join the GPUs of a host over PCIe: their switches, and one `host` node a socket."""
    names = dict.fromkeys(socket_id(host, node, socket) for socket in node.sockets)
    sockets = [draft.node(name, "host", host=host) for name in names]
    chains = node.switches or ((),) * len(node.gpus)
    for number, (chain, socket) in enumerate(zip(chains, node.sockets, strict=True)):
        link = pcie_link(draft, node, number)
        if link is None:
            why = ", the way between GPUs whose links are disabled" if node.down else ""
            draft.answers.ask(f"the PCIe rate of a GPU{why}", f"{input_name('pcie')} RATE (like '64 GB/s')")
            continue
        at = add_switches(draft, host, node, chain, socket_id(host, node, socket), link)
        draft.link(gpu_id(host, number), at, link)
    if node.between_sockets:
        for a, b in combinations(sockets, 2):
            draft.link(a, b, draft.answers.socket_link)


def pcie_link(draft: Draft, node: NodeFound, gpu: int) -> FabricSpec | None:
    """Return the PCIe link of a GPU: the dump's, else the option's, if either has it."""
    return draft.answers.pcie(node.pcie[gpu] if gpu < len(node.pcie) else None)


def add_switches(
    draft: Draft, host: str, node: NodeFound, chain: Sequence[str], root: str, below: FabricSpec
) -> str:
    """Add the PCIe switches of ``chain``, from ``root`` (an id, or empty) down, and return the id of the last.

    Where no file gives the rate of a switch's uplink it is the option's, else that of ``below``.
    """
    for name in chain:
        identity = f"{host}.{name}"
        if identity not in draft.nodes:
            draft.node(identity, "pcie", host=host)
            if root:
                link = draft.answers.pcie(node.uplinks.get(name)) or below
                draft.link(identity, root, link)
                if name not in node.uplinks:
                    rate = format_quantity(link.link_bytes_per_s.value, "byte/s")
                    line = f"Uplink of {name}, {node.place}: {rate}; no file gives its rate."
                    draft.answers.say("assumed", line)
        root = identity
    return root
