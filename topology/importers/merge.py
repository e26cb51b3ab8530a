"""Several files of one cluster: switches from one, domains from another, the inside of hosts from others."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path

from topology.base.errors import InputError
from topology.catalog import find_scale_out
from topology.fabrics.fabric import CabledFabric
from topology.importers.found import FabricFound, Found, GraphFound, NodeFound, Nodes, unlike
from topology.importers.hostlist import expand_hosts
from topology.importers.hosts import gpu_count
from topology.importers.parts import AskError, Parts
from topology.structures.domain import DomainSpec

_UNNAMED = "unnamed-"
_MOST_LISTED = 6


def merge_found(
    found: Sequence[Found], parts: Parts
) -> tuple[FabricFound | None, dict[str, NodeFound | None]]:
    """Return the fabric (if any) and the dump of each host.

    Raises
    ------
    InputError
        If files contradict each other; the message names both places.
    """
    fabrics = [one for one in found if isinstance(one, FabricFound)]
    nodes = [one for one in found if isinstance(one, NodeFound)]
    whole = [one for one in found if isinstance(one, GraphFound)]
    if whole and len(found) > 1:
        other = next(one for one in found if one is not whole[0])
        raise InputError(
            f"{whole[0].place}: describes a whole cluster, so {other.place} cannot be added to it."
        )
    fabric = _one_fabric(fabrics, parts)
    if fabric is None:
        if len(nodes) > 1:
            raise InputError(
                f"{nodes[0].place} and {nodes[1].place}: two nodes and no file that says how they are joined; add "
                "the fabric's (Slurm topology, ibnetdiscover, ...)."
            )
        return None, {}
    if (hosts := parts.options.hosts) is not None:
        every, fabric = fabric, _only(fabric, expand_hosts(hosts, "option `hosts`"))
        gone = len(every.hosts) - len(fabric.hosts)
        parts.take(f"Hosts with GPUs: {hosts} (option `hosts`); {gone} others left out.")
    by_host = _by_host(fabric, nodes, parts)
    own = {host: node for host, node in by_host.items() if node is not None}
    parts.anomalies += [
        f"{own[host].place}: {host} has {count} {what}, most hosts have {usual}."
        for what in ("GPUs", "NICs")
        for host, count, usual in unlike({h: len(getattr(node, what.lower())) for h, node in own.items()})
    ]
    return fabric, by_host


def _only(fabric: FabricFound, hosts: Sequence[str]) -> FabricFound:
    """Return the fabric with these hosts alone."""
    unknown = [host for host in hosts if host not in fabric.hosts]
    if unknown:
        raise InputError(
            f"option `hosts`: host {unknown[0]} is not in {fabric.place}.{_like(unknown[0], fabric)}"
        )
    keep = set(hosts)
    return replace(
        fabric,
        hosts={host: place for host, place in fabric.hosts.items() if host in keep},
        ports=tuple(port for port in fabric.ports if port.host in keep),
        domains={host: domain for host, domain in fabric.domains.items() if host in keep},
        subdomains={host: domain for host, domain in fabric.subdomains.items() if host in keep},
        pods={host: pod for host, pod in fabric.pods.items() if host in keep},
    )


def _one_fabric(fabrics: Sequence[FabricFound], parts: Parts) -> FabricFound | None:
    """Return one fabric of several files: at most one has switches, at most one domains."""
    if not fabrics:
        return None
    switched = [one for one in fabrics if one.switches]
    if len(switched) > 1:
        raise InputError(
            f"{switched[0].place} and {switched[1].place}: both describe switches, and names cannot be matched; give "
            "one."
        )
    base = switched[0] if switched else fabrics[0]
    for other in fabrics:
        if other is base:
            continue
        if base.domains and other.domains and base.domains != other.domains:
            raise InputError(
                f"{base.place} and {other.place}: both name domains of hosts, and differ; give one."
            )
        _same_hosts(base, other, parts)
        domains = base.domains or {h: d for h, d in other.domains.items() if h in base.hosts}
        base = replace(
            base,
            domains=_spread_to_unnamed(base, domains),
            subdomains=base.subdomains or other.subdomains,
            domains_place=base.domains_place if base.domains else other.place,
            blocks=base.blocks if base.domains else other.blocks,
        )
    return base


def _short(host: str) -> str:
    """Return a host's name in lower case without the domain behind it; an address stays whole."""
    name = host.casefold().partition(".")[0]
    return host if name.isdigit() else name


def near_host(name: str, hosts: Collection[str]) -> str | None:
    """Return the host that ``name`` is but for case or the domain behind it (``n1`` of ``n1.site.org``), if one."""
    if name in hosts:
        return name
    short = _short(name)
    found = [host for host in hosts if _short(host) == short]
    return found[0] if len(found) == 1 else None


def _same_hosts(base: FabricFound, other: FabricFound, parts: Parts) -> None:
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
        more = ", ..." * (len(only_other) > _MOST_LISTED)
        parts.anomalies.append(
            f"{other.place}: {', '.join(only_other[:_MOST_LISTED])}{more} are not named in {base.place}, which has "
            f"{len(unnamed)} hosts without a name."
        )


def _spread_to_unnamed(base: FabricFound, domains: Mapping[str, str]) -> dict[str, str]:
    """Give hosts without a name the domain of most hosts of their pod."""
    known = dict(domains)
    if not known or not base.pods:
        return known
    votes: dict[str, Counter[str]] = defaultdict(Counter)
    for host, pod in base.pods.items():
        if host in known:
            votes[pod][known[host]] += 1
    for host, pod in base.pods.items():
        if host not in known and votes[pod]:
            known[host] = votes[pod].most_common(1)[0][0]
    return known


def _by_host(fabric: FabricFound, nodes: Sequence[NodeFound], parts: Parts) -> dict[str, NodeFound | None]:
    """Return the dump of each host: the one given for it, or named like it, else the one for all."""
    own: dict[str, NodeFound] = {}
    general: list[NodeFound] = []
    for node in nodes:
        meant = near_host(_stem(node.place), fabric.hosts)
        hosts = node.hosts or (() if meant is None else (meant,))
        if not node.hosts and meant not in (None, _stem(node.place)):
            parts.anomalies.append(f"{node.place}: no host is called so, but {meant} is: taken as that.")
        for host in hosts:
            if host not in fabric.hosts:
                raise InputError(f"{node.place}: host {host} is not in {fabric.place}.{_like(host, fabric)}")
            if host in own:
                raise InputError(f"{node.place} and {own[host].place}: both are of host {host}.")
            own[host] = node
        if not hosts:
            general.append(node)
    if len(general) > 1:
        raise InputError(
            f"{general[0].place} and {general[1].place}: which hosts are they of? Write HOSTS=FILE, like "
            f"{next(iter(fabric.hosts))}={general[0].place}."
        )
    default = general[0] if general else None
    by_host: dict[str, NodeFound | None] = {host: own.get(host, default) for host in fabric.hosts}
    if nodes and default is None and any(node is None for node in by_host.values()):
        first = next(host for host, node in by_host.items() if node is None)
        some = next(iter(own.values()))
        raise InputError(
            f"{fabric.hosts[first]}: host {first} has no dump of its own, and {some.place} is of another; add one "
            "for all hosts, or write HOSTS=FILE."
        )
    return by_host


def _like(name: str, fabric: FabricFound) -> str:
    """Return the host that a name nearly is, as a question."""
    near = near_host(name, fabric.hosts) or next(iter(get_close_matches(name, fabric.hosts, 1, 0.8)), None)
    return f" Is it {near}?" if near else ""


def _stem(place: str) -> str:
    """Return a file's name without its suffix (names of hosts have dots too, so only a known suffix goes)."""
    path = Path(place)
    return path.stem if path.suffix in (".txt", ".xml", ".log", ".out") else path.name


def domains_of(fabric: FabricFound, nodes: Nodes, parts: Parts) -> dict[str, list[str]]:
    """Return hosts by domain, domains in the order of their first host.

    Raises
    ------
    InputError
        If a domain of the files is larger than that of the named system.
    AskError
        If domains hold several hosts and nothing says which.
    """
    system = parts.system
    wide = _wide(system, nodes)
    place = fabric.domains_place or fabric.place
    what = "blocks" if fabric.blocks else "accelerator domains"
    how = parts.options.domains
    if how == "node" or (how is None and not wide):
        if fabric.domains and how is None:
            parts.take(
                f"{what.capitalize()} of {place} hold several hosts, but each host is a scale-up domain of its own."
            )
        return {host: [host] for host in nodes}
    if how == "leaf":
        labels = _by_leaf(fabric)
        parts.take("Domains: hosts under the same leaves (option `domains` leaf).")
    elif fabric.domains:
        labels = {host: label for host, label in fabric.domains.items() if host in nodes}
        if _too_many(labels, system, nodes, parts) and fabric.subdomains:
            labels = {host: fabric.subdomains.get(host, label) for host, label in labels.items()}
            most = f"a domain of {system.part} has {system.gpus} GPUs" if system else ""
            parts.take(
                f"Domains: the accelerator sub-domains of {place}; its domains hold several of them ({most})."
            )
        else:
            parts.take(
                f"Domains: the {what} of {place}{', whole: not by sub-domain' * bool(fabric.subdomains)}."
            )
    elif (
        parts.options.gpu
        and system is not None
        and isinstance(design := find_scale_out(system.part), CabledFabric)
        and design.nodes_per_pod * system.gpus_per_node == system.gpus
    ):
        labels = _by_leaf(fabric)
        parts.take(
            f"Domains: hosts under the same leaves, as catalog system {system.part} is cabled (one set of leaves a "
            "domain)."
        )
    else:
        raise AskError(
            "which hosts share a scale-up domain", "a Slurm block file too, or option `domains` leaf or node"
        )
    groups: dict[str, list[str]] = defaultdict(list)
    for host in nodes:
        groups[labels.get(host, host)].append(host)
    _check_sizes(fabric, groups, nodes, parts)
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


def _too_many(labels: Mapping[str, str], system: DomainSpec | None, nodes: Nodes, parts: Parts) -> bool:
    """Whether a domain has more GPUs than one of the system."""
    gpus: Counter[str] = Counter()
    for host, label in labels.items():
        gpus[label] += gpu_count(nodes[host], parts)
    return system is not None and any(count > system.gpus for count in gpus.values())


def _check_sizes(fabric: FabricFound, groups: Mapping[str, list[str]], nodes: Nodes, parts: Parts) -> None:
    """Refuse a domain with more GPUs than the system has."""
    system = parts.system
    if system is None:
        return
    for label, hosts in groups.items():
        gpus = sum(gpu_count(nodes[host], parts) for host in hosts)
        if gpus > system.gpus:
            raise InputError(
                f"{fabric.hosts.get(hosts[0], fabric.place)}: {label} has {len(hosts)} hosts with {gpus} GPUs, but a "
                f"domain of {system.part} has {system.gpus}; give option `domains` node, or the option `gpu` it "
                "really is."
            )
