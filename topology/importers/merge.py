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
from topology.importers.answers import Answers, Questions
from topology.importers.found import FabricFound, NodeFound, Nodes, commonest, listed
from topology.importers.hostlist import expand_hosts
from topology.importers.options import Log
from topology.structures.domain import DomainSpec

_UNNAMED = "unnamed-"


def merged_fabric(fabrics: Sequence[FabricFound], hosts: str | None, log: Log) -> FabricFound:
    """Return one fabric of several files, with ``hosts`` alone; refuse files that contradict each other."""
    switched = [one for one in fabrics if one.switches]
    if len(switched) > 1:
        raise InputError(
            f"{switched[0].place} and {switched[1].place}: both describe switches, but their names cannot "
            "be matched; give only one."
        )
    base = switched[0] if switched else fabrics[0]
    for other in [one for one in fabrics if one is not base]:
        if base.domains and other.domains and base.domains != other.domains:
            raise InputError(
                f"{base.place} and {other.place}: both name domains of hosts but differ; give only one."
            )
        _same_hosts(base, other, log)
        source = base if base.domains else other
        domains = {host: label for host, label in source.domains.items() if host in base.hosts}
        base = replace(
            base,
            domains=_spread_to_unnamed(base, domains),
            subdomains=base.subdomains or other.subdomains,
            domains_place=base.domains_place if source is base else other.place,
            blocks=source.blocks,
        )
    return base if hosts is None else _only(base, hosts, log)


def _only(fabric: FabricFound, text: str, log: Log) -> FabricFound:
    """Return the fabric with the hosts of a hostlist alone."""
    hosts = expand_hosts(text, input_name("hosts"))
    unknown = [host for host in hosts if host not in fabric.hosts]
    if unknown:
        raise InputError(
            f"host {unknown[0]} is not in {fabric.place}.{_like(unknown[0], fabric)}", field="hosts"
        )
    keep = set(hosts)
    log.assume(
        f"Hosts with GPUs: {text} ({called('hosts')}); {len(fabric.hosts) - len(keep)} others left out."
    )

    def kept(table: Mapping[str, str]) -> dict[str, str]:
        return {host: value for host, value in table.items() if host in keep}

    return replace(
        fabric,
        hosts=kept(fabric.hosts),
        ports=tuple(port for port in fabric.ports if port.host in keep),
        domains=kept(fabric.domains),
        subdomains=kept(fabric.subdomains),
        pods=kept(fabric.pods),
    )


def _near_host(name: str, hosts: Collection[str]) -> str | None:
    """Return the host that ``name`` is but for case or the domain behind it (``n1`` of ``n1.site.org``), if one."""
    if name in hosts:
        return name

    def short(host: str) -> str:
        begin = host.casefold().partition(".")[0]
        return host if begin.isdigit() else begin  # an address stays whole

    found = [host for host in hosts if short(host) == short(name)]
    return found[0] if len(found) == 1 else None


def _same_hosts(base: FabricFound, other: FabricFound, log: Log) -> None:
    """Check that two files are of the same hosts."""
    unnamed = [host for host in base.hosts if host.startswith(_UNNAMED)]
    only_other = [host for host in other.hosts if host not in base.hosts]
    only_base = [host for host in base.hosts if host not in other.hosts and host not in unnamed]
    for has, lacks, lone, most in ((base, other, only_base, 0), (other, base, only_other, len(unnamed))):
        if len(lone) > most:
            rest = f" (nor are {len(lone) - 1} others)" if len(lone) > 1 else ""
            raise InputError(
                f"{has.hosts[lone[0]]}: host {lone[0]} is not in {lacks.place}{rest}.{_like(lone[0], lacks)}"
            )
    if only_other:
        log.anomalies.append(
            f"{other.place}: {listed(only_other, 6)} are not named in {base.place}, which has "
            f"{len(unnamed)} hosts without a name."
        )


def _spread_to_unnamed(base: FabricFound, domains: Mapping[str, str]) -> dict[str, str]:
    """Give hosts without a name the domain of most hosts of their pod."""
    votes: dict[str, Counter[str]] = defaultdict(Counter)
    for host, pod in base.pods.items():
        if host in domains:
            votes[pod][domains[host]] += 1
    others = {
        host: votes[pod].most_common(1)[0][0]
        for host, pod in base.pods.items()
        if host not in domains and pod in votes
    }
    return {**domains, **others}


def dumps_of_hosts(fabric: FabricFound, nodes: Sequence[NodeFound], log: Log) -> dict[str, NodeFound | None]:
    """Return the dump of each host: given for it, named like it, or for all; refuse what is not clear."""
    own: dict[str, NodeFound] = {}
    general: list[NodeFound] = []
    for node in nodes:
        stem = _stem(node.place)
        meant = _near_host(stem, fabric.hosts)
        hosts = node.hosts or (() if meant is None else (meant,))
        if not node.hosts and meant not in (None, stem):
            log.anomalies.append(f"{node.place}: no host has this name; interpreted as {meant}.")
        for host in hosts:
            if host not in fabric.hosts:
                raise InputError(f"{node.place}: host {host} is not in {fabric.place}.{_like(host, fabric)}")
            if host in own:
                raise InputError(f"{node.place} and {own[host].place}: both describe host {host}.")
            own[host] = node
        if not hosts:
            general.append(node)
    if len(general) > 1:
        raise InputError(
            f"{general[0].place} and {general[1].place}: it is unclear which hosts they describe; write "
            "HOSTS=FILE, like "
            f"{next(iter(fabric.hosts))}={general[0].place}."
        )
    by_host = {host: own.get(host, general[0] if general else None) for host in fabric.hosts}
    if nodes and None in by_host.values():
        first = next(host for host, node in by_host.items() if node is None)
        some = next(iter(own.values()))
        raise InputError(
            f"{fabric.hosts[first]}: host {first} has no dump, and {some.place} describes another host; "
            "add one for all hosts, or write HOSTS=FILE."
        )
    for what in ("GPUs", "NICs"):
        counts = {
            host: len(getattr(node, what.lower())) for host, node in by_host.items() if node is not None
        }
        usual = commonest(counts.values())
        log.anomalies += [
            f"{node.place}: {host} has {counts[host]} {what}, but most hosts have {usual}."
            for host, node in by_host.items()
            if node is not None and counts[host] != usual
        ]
    return by_host


def _like(name: str, fabric: FabricFound) -> str:
    """Return the host that a name nearly is, as a question."""
    near = _near_host(name, fabric.hosts) or next(iter(get_close_matches(name, fabric.hosts, 1, 0.8)), None)
    return f" Is it {near}?" if near else ""


def _stem(place: str) -> str:
    """Return a file's name without its suffix (names of hosts have dots too, so only a known suffix goes)."""
    path = Path(place)
    return path.stem if path.suffix in (".txt", ".xml", ".log", ".out") else path.name


def domains_of(
    fabric: FabricFound, nodes: Nodes, answers: Answers, questions: Questions, log: Log
) -> dict[str, list[str]]:
    """Return hosts by domain, in the order of their first host; refuse one larger than the system's."""
    system, how = answers.parts.system, answers.options.domains
    place = fabric.domains_place or fabric.place
    what = "blocks" if fabric.blocks else "accelerator domains"
    gpus = {host: answers.per_node if node is None else node.gpu_count for host, node in nodes.items()}
    if how == "node" or (how is None and not _wide(system, nodes)):
        if fabric.domains and how is None:
            log.assume(
                f"{what.capitalize()} of {place} contain several hosts, but each host is a separate scale-up domain."
            )
        return {host: [host] for host in nodes}
    design = None if system is None else find_scale_out(system.part)
    if how == "leaf":
        labels = _by_leaf(fabric)
        log.assume(f"Domains: hosts under the same leaves ({called('domains')} leaf).")
    elif fabric.domains:
        labels = {host: label for host, label in fabric.domains.items() if host in nodes}
        sizes: Counter[str] = Counter()
        for host, label in labels.items():
            sizes[label] += gpus[host]
        if fabric.subdomains and system is not None and max(sizes.values(), default=0) > system.gpus:
            labels = {host: fabric.subdomains.get(host, label) for host, label in labels.items()}
            log.assume(
                f"Domains: the accelerator sub-domains of {place}; its domains contain several of them (a "
                f"domain of {system.part} has {system.gpus} GPUs)."
            )
        else:
            whole = ", not by sub-domain" * bool(fabric.subdomains)
            log.assume(f"Domains: the {what} of {place}{whole}.")
    elif (
        system is not None
        and isinstance(design, CabledFabric)
        and design.nodes_per_pod * system.gpus_per_node == system.gpus
    ):
        labels = _by_leaf(fabric)
        log.assume(
            f"Domains: hosts under the same leaves, as in catalog system {system.part} (one set of leaves "
            "per domain)."
        )
    else:
        questions.ask(
            "which hosts share a scale-up domain",
            f"a Slurm block file too, or {input_name('domains')} leaf or node",
        )
        return {}
    groups: dict[str, list[str]] = defaultdict(list)
    for host in nodes:
        groups[labels.get(host, host)].append(host)
    for label, hosts in groups.items():
        count = sum(gpus[host] for host in hosts)
        if system is not None and count > system.gpus:
            raise InputError(
                f"{fabric.hosts.get(hosts[0], fabric.place)}: {label} has {len(hosts)} hosts with {count} "
                f"GPUs, but a domain of {system.part} has {system.gpus}; give {input_name('domains')} "
                f"node, or the correct {input_name('gpu')}."
            )
    return dict(groups)


def _wide(system: DomainSpec | None, nodes: Nodes) -> bool:
    """Whether a domain holds several hosts: where the system says so and no dump shows the switches inside a host."""
    if system is None:
        return any(node is not None and node.beyond for node in nodes.values())
    inside = all(node is not None and node.gpus and not node.hidden for node in nodes.values())
    return system.gpus > system.gpus_per_node and not inside


def _by_leaf(fabric: FabricFound) -> dict[str, str]:
    """Return the pod of each host, or its first switch where the file knows no pods."""
    if fabric.pods:
        return dict(fabric.pods)
    first: dict[str, str] = {}
    for port in fabric.ports:
        first.setdefault(port.host, port.switch)
    return first
