"""Several files of one cluster: switches from one, domains from another, the inside of hosts from others."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path

from topology.base.errors import InputError, called, input_name
from topology.catalog import find_scale_out
from topology.fabrics.fabric import CabledFabric
from topology.importers.answers import Answers
from topology.importers.found import FabricFound, Found, GraphFound, NodeFound, commonest, listed
from topology.importers.hostlist import expand_hosts
from topology.importers.hosts import checked_host, usual_host

_UNNAMED = "unnamed-"


def merged(files: Sequence[Found], answers: Answers) -> tuple[FabricFound | None, dict[str, NodeFound]]:
    """Return the fabric of all files that are not of one host, None without any, and the dump of each host.

    Raises
    ------
    InputError
        If files contradict each other, or nothing says what a file is of.
    """
    graphs = sorted(files, key=lambda file: not isinstance(file, GraphFound))  # graphs first
    if len(files) > 1 and isinstance(graphs[0], GraphFound):
        others = f"so {graphs[1].place} cannot be added to it."
        raise InputError(f"{graphs[0].place}: describes a whole cluster, {others}")
    dumps = [file for file in files if isinstance(file, NodeFound)]
    fabrics = [file for file in files if isinstance(file, FabricFound)]
    if len(dumps) > 1 and not fabrics:
        places, remedy = _two(dumps), "add the fabric's (Slurm topology, ibnetdiscover, ...)"
        raise InputError(f"{places}: two nodes, but no file shows how they are connected; {remedy}.")
    fabric = _one_fabric(fabrics, answers) if fabrics else None
    nodes = {dump.hosts[0] if dump.hosts else "node0": dump for dump in dumps}
    if fabric is not None and dumps:
        nodes = _dumps_of_hosts(fabric, dumps, answers)
    elif fabric is not None:
        fabric = _numbered(_without_storage(fabric, answers), answers.per_node)
        return fabric, dict.fromkeys(fabric.hosts, usual_host(answers, answers.per_node))
    return fabric, {host: checked_host(node, host, answers) for host, node in nodes.items()}


def _two(files: Sequence[Found]) -> str:
    return f"{files[0].place} and {files[1].place}"


def _one_fabric(fabrics: Sequence[FabricFound], answers: Answers) -> FabricFound:
    """Return one fabric of several files, with the hosts that have GPUs alone."""
    switched = [fabric for fabric in fabrics if fabric.switches]
    if len(switched) > 1:
        problem = "both describe switches, but their names cannot be matched; give only one."
        raise InputError(f"{_two(switched)}: {problem}")
    base = switched[0] if switched else fabrics[0]
    for addition in [fabric for fabric in fabrics if fabric is not base]:
        if base.domains and addition.domains and base.domains != addition.domains:
            raise InputError(
                f"{_two([base, addition])}: both name domains of hosts but differ; give only one."
            )
        _same_hosts(base, addition, answers)
        source = base if base.domains else addition
        base = replace(
            base,
            domains=_with_unnamed(base, source.domains),
            subdomains=base.subdomains or addition.subdomains,
            domains_place=base.domains_place if source is base else addition.place,
            blocks=source.blocks,
        )
    return base if answers.options.hosts is None else _only(base, answers.options.hosts, answers)


def _only(fabric: FabricFound, text: str, answers: Answers) -> FabricFound:
    """Return the fabric with the hosts of a hostlist alone."""
    hosts = set(expand_hosts(text, input_name("hosts")))
    if unknown := hosts - fabric.hosts.keys():
        raise _unknown(input_name("hosts"), min(unknown), fabric)
    answers.say("option", f"Hosts with GPUs: {text} ({called('hosts')}).")
    if excluded := [host for host in fabric.hosts if host not in hosts]:
        answers.say("unused", f"{fabric.place}: {listed(excluded)}: not among the hosts with GPUs; left out.")
    return _with_hosts(fabric, hosts)


def _with_hosts(fabric: FabricFound, hosts: Collection[str]) -> FabricFound:
    """Return the fabric with some hosts alone."""
    chosen = {host: place for host, place in fabric.hosts.items() if host in hosts}
    return replace(fabric, hosts=chosen, ports=tuple(port for port in fabric.ports if port.host in chosen))


def _without_storage(fabric: FabricFound, answers: Answers) -> FabricFound:
    """Return the fabric without what only hosts join to the one part of it that has whole NICs for each GPU.

    That is assumed where no dump tells whose NICs are whose, and all NICs of a host do not go evenly to its GPUs.
    """
    parts = fabric.parts()
    part_of = {switch: number for number, part in enumerate(parts) for switch in part}
    nics: list[Counter[str]] = [Counter() for _ in parts]
    for port in fabric.ports:
        nics[part_of[port.switch]][port.host] += 1
    usual, gpus = [commonest(counts.values()) or 0 for counts in nics], answers.per_node
    even = [number for number, count in enumerate(usual) if count and count % gpus == 0]
    if len(even) != 1:
        return fabric
    hosts, usual_nics = nics[even[0]], usual[even[0]]
    storage = [number for number, on in enumerate(nics) if on.keys() & hosts.keys() and number != even[0]]
    count = sum(usual[number] for number in storage)
    if not (usual_nics + count) % gpus:
        return fabric
    names = listed((name for number in storage for name in parts[number]), 6)
    reason = f"{count} NICs of a host, whose {gpus} GPUs have {usual_nics} on {listed(parts[even[0]], 2)}"
    remedy = "the `nvidia-smi topo -m` of a node would tell"
    answers.say("assumed", f"{fabric.place}: {names}: {reason}: not for GPUs, and left out; {remedy}.")
    ports = tuple(port for port in fabric.ports if part_of[port.switch] not in storage)
    on = {port.host for port in ports}
    if alone := [host for host in fabric.hosts if host not in on]:
        answers.say("unused", f"{fabric.place}: {listed(alone)}: on these switches alone; left out.")
    return replace(_with_hosts(fabric, on), ports=ports)


def _numbered(fabric: FabricFound, gpus: int) -> FabricFound:
    """Return the fabric with rails numbered over the NICs that are left, where its own do not go evenly to GPUs."""
    if not fabric.rails or not (fabric.rails % gpus and gpus % fabric.rails):
        return fabric
    used = sorted({port.rail for port in fabric.ports if port.rail is not None})
    ranks: dict[int | None, int] = {rail: rank for rank, rail in enumerate(used)}
    ports = tuple(replace(port, rail=ranks.get(port.rail)) for port in fabric.ports)
    return replace(fabric, ports=ports, rails=len(used))


def _near_host(name: str, hosts: Collection[str]) -> str | None:
    """Return the host that ``name`` is but for case or the domain behind it (``n1`` of ``n1.site.org``), if one."""
    if name in hosts:
        return name

    def short(host: str) -> str:
        begin = host.casefold().partition(".")[0]
        return host if begin.isdigit() else begin  # an address stays whole

    matches = [host for host in hosts if short(host) == short(name)]
    return matches[0] if len(matches) == 1 else None


def _unknown(place: str, host: str, fabric: FabricFound, others: str = "") -> InputError:
    """Return the error of a host that a fabric does not have, with the one that its name nearly is."""
    near = _near_host(host, fabric.hosts) or next(iter(get_close_matches(host, fabric.hosts, 1, 0.8)), None)
    question = f" Is it {near}?" if near else ""
    return InputError(f"{place}: host {host} is not in {fabric.place}{others}.{question}")


def _same_hosts(base: FabricFound, addition: FabricFound, answers: Answers) -> None:
    """Check that two files are of the same hosts."""
    unnamed = [host for host in base.hosts if host.startswith(_UNNAMED)]
    only_other = [host for host in addition.hosts if host not in base.hosts]
    only_base = [host for host in base.hosts if host not in addition.hosts and host not in unnamed]
    for naming, lacks, lone, allowed in (
        (base, addition, only_base, 0),
        (addition, base, only_other, len(unnamed)),
    ):
        if len(lone) > allowed:
            others = f" (nor are {len(lone) - 1} others)" if len(lone) > 1 else ""
            raise _unknown(naming.hosts[lone[0]], lone[0], lacks, others)
    if only_other:
        named = f"{base.place}, which has {len(unnamed)} hosts without a name"
        answers.say("irregular", f"{addition.place}: {listed(only_other, 6)} are not named in {named}.")


def _with_unnamed(base: FabricFound, named: Mapping[str, str]) -> dict[str, str]:
    """Return the domain of each host of ``base``: of one that no file names, that of most hosts of its pod."""
    in_pod: dict[str, list[str]] = defaultdict(list)
    for host, pod in base.pods.items():
        in_pod[pod] += [named[host]] if host in named else []
    usual = {host: label for host, pod in base.pods.items() if (label := commonest(in_pod[pod])) is not None}
    return usual | {host: label for host, label in named.items() if host in base.hosts}


def _dumps_of_hosts(
    fabric: FabricFound, nodes: Sequence[NodeFound], answers: Answers
) -> dict[str, NodeFound]:
    """Return the dump of each host: given for it, named like it, or for all; refuse what is not clear."""
    dumps: dict[str, NodeFound] = {}
    general: list[NodeFound] = []
    for node in nodes:
        stem = _stem(node.place)
        meant = _near_host(stem, fabric.hosts)
        hosts = node.hosts or (() if meant is None else (meant,))
        if not node.hosts and meant not in (None, stem):
            answers.say("irregular", f"{node.place}: no host has this name; interpreted as {meant}.")
        for host in hosts:
            if host not in fabric.hosts:
                raise _unknown(node.place, host, fabric)
            if host in dumps:
                raise InputError(f"{node.place} and {dumps[host].place}: both describe host {host}.")
            dumps[host] = node
        if not hosts:
            general.append(node)
    if len(general) > 1:
        remedy = f"write HOSTS=FILE, like {next(iter(fabric.hosts))}={general[0].place}"
        raise InputError(f"{_two(general)}: it is unclear which hosts they describe; {remedy}.")
    if (lacking := [host for host in fabric.hosts if host not in dumps]) and not general:
        problem = f"host {lacking[0]} has no dump, and {nodes[0].place} describes another host"
        remedy = "add one for all hosts, or write HOSTS=FILE"
        raise InputError(f"{fabric.hosts[lacking[0]]}: {problem}; {remedy}.")
    by_host = {host: dumps[host] if host in dumps else general[0] for host in fabric.hosts}
    for noun in ("GPUs", "NICs"):
        counts = {host: len(getattr(node, noun.lower())) for host, node in by_host.items()}
        usual = commonest(counts.values())
        for host, count in counts.items():
            if count != usual:
                line = f"{by_host[host].place}: {host} has {count} {noun}, but most hosts have {usual}."
                answers.say("irregular", line)
    return by_host


def _stem(place: str) -> str:
    """Return a file's name without its suffix (names of hosts have dots too, so only a known suffix goes)."""
    path = Path(place)
    return path.stem if path.suffix in (".txt", ".xml", ".log", ".out") else path.name


def domains_of(fabric: FabricFound, nodes: Mapping[str, NodeFound], answers: Answers) -> dict[str, list[str]]:
    """Return hosts by domain, in the order of their first host; refuse one larger than the system's."""
    gpus = {host: node.gpu_count for host, node in nodes.items()}
    labels, system = _labels(fabric, nodes, gpus, answers), answers.system
    groups: dict[str, list[str]] = defaultdict(list)
    for host in nodes:
        groups[labels.get(host, host)].append(host)
    for label, hosts in groups.items() if labels else ():
        count = sum(gpus[host] for host in hosts)
        if system is not None and count > system.gpus:
            raise InputError(
                f"{fabric.hosts[hosts[0]]}: {label} has {len(hosts)} hosts with {count} GPUs, but a domain of "
                f"{system.part} has {system.gpus}; give {input_name('domains')} node, or the correct "
                f"{input_name('gpu')}."
            )
    return dict(groups)


def _labels(
    fabric: FabricFound, nodes: Mapping[str, NodeFound], gpus: Mapping[str, int], answers: Answers
) -> Mapping[str, str]:
    """Return the domain of each host; none where each host is one."""
    system, how = answers.system, answers.options.domains
    place, noun = fabric.domains_place or fabric.place, "blocks" if fabric.blocks else "accelerator domains"
    if how == "node" or (how is None and not _wide(answers, nodes)):
        if fabric.domains and how is None:
            several = f"{noun.capitalize()} of {place} contain several hosts"
            answers.say("assumed", f"{several}, but each host is a domain of its own.")
        return {}
    # the pod of each host, or its first switch where the file knows no pods
    by_leaf = fabric.pods or {port.host: port.switch for port in reversed(fabric.ports)}
    under = "Domains: hosts under the same leaves"
    if how == "leaf":
        answers.say("option", f"{under} ({called('domains')} leaf).")
        return by_leaf
    if fabric.domains:
        sizes: Counter[str] = Counter()
        for host, label in fabric.domains.items():
            sizes[label] += gpus.get(host, 0)
        if fabric.subdomains and system is not None and max(sizes.values()) > system.gpus:
            several = f"contain several of them (a domain of {system.part} has {system.gpus} GPUs)"
            answers.say("assumed", f"Domains: the accelerator sub-domains of {place}; its domains {several}.")
            return {**fabric.domains, **fabric.subdomains}
        remark = ", not by sub-domain" * bool(fabric.subdomains)
        answers.say("read", f"Domains: the {noun} of {place}{remark}.")
        return fabric.domains
    design = None if system is None else find_scale_out(system.part)
    in_pod = design.nodes_per_pod if isinstance(design, CabledFabric) else 0
    if system is not None and in_pod * system.gpus_per_node == system.gpus:
        line = f"{under}, as in catalog system {system.part} (one set of leaves per domain)."
        answers.say("assumed", line)
        return by_leaf
    if answers.named:
        options = f"a Slurm block file too, or {input_name('domains')} leaf or node"
        answers.ask("which hosts share a scale-up domain", options)
    return {}


def _wide(answers: Answers, nodes: Mapping[str, NodeFound]) -> bool:
    """Whether a domain holds several hosts: where the system says so and no dump shows the switches inside a host."""
    system = answers.system
    if system is None:
        return any(node.beyond for node in nodes.values())
    inside = all(not node.hidden for node in nodes.values())
    return system.gpus > system.gpus_per_node and not inside
