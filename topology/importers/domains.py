"""Which hosts share a scale-up domain: what the files say, else what the named system says of leaves and hosts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from topology.errors import InputError
from topology.importers.found import FabricFound, NodeFound
from topology.importers.inside import gpu_count
from topology.importers.parts import AskError, Parts
from topology.spec import DomainSpec


def domains_of(
    fabric: FabricFound, nodes: Mapping[str, NodeFound | None], parts: Parts
) -> tuple[dict[str, list[str]], list[str]]:
    """Return hosts by domain, domains in the order of their first host, and what was taken.

    Raises
    ------
    InputError
        If a domain of the files is larger than that of the named system.
    AskError
        If domains hold several hosts and nothing says which.
    """
    system, notes = parts.system, []
    wide = _wide(system, nodes)
    how = parts.options.domains
    if how == "node" or (how is None and not wide):
        if fabric.domains and how is None:
            what = "Blocks" if fabric.blocks else "Accelerator domains"
            place = fabric.domains_place or fabric.place
            notes.append(
                f"{what} of {place} hold several hosts, but each host is a scale-up domain of its own."
            )
        return {host: [host] for host in nodes}, notes
    if how == "leaf":
        labels = _by_leaf(fabric)
        notes.append("Domains: hosts under the same leaves (--domains leaf).")
    elif fabric.domains:
        labels = {host: label for host, label in fabric.domains.items() if host in nodes}
        what = "blocks" if fabric.blocks else "accelerator domains"
        notes.append(f"Domains: the {what} of {fabric.domains_place or fabric.place}.")
    elif _leaves_are_domains(system, parts):
        labels = _by_leaf(fabric)
        name = system.part if system is not None else ""
        notes.append(
            f"Domains: hosts under the same leaves, as catalog system {name} is cabled (one set of leaves a domain)."
        )
    else:
        raise AskError(
            "which hosts share a scale-up domain", "a Slurm block file too, or --domains leaf or node"
        )
    groups: dict[str, list[str]] = defaultdict(list)
    for host in nodes:
        groups[labels.get(host, host)].append(host)
    _check_sizes(fabric, groups, nodes, parts)
    return dict(groups), notes


def _wide(system: DomainSpec | None, nodes: Mapping[str, NodeFound | None]) -> bool:
    """Whether a domain holds several hosts: where the system says so and no dump shows the switches inside a host."""
    if system is None:
        return any(node is not None and node.beyond for node in nodes.values())
    inside = all(node is not None and node.gpus and not node.hidden for node in nodes.values())
    return system.gpus > system.gpus_per_node and not inside


def _leaves_are_domains(system: DomainSpec | None, parts: Parts) -> bool:
    """Whether the catalog cables exactly one domain to a set of leaves."""
    from topology.catalog import find_scale_out

    if system is None:
        return False
    design = find_scale_out(system.part)
    return (
        design is not None
        and design.nodes_per_pod * system.gpus_per_node == system.gpus
        and bool(parts.options.gpu)
    )


def _by_leaf(fabric: FabricFound) -> dict[str, str]:
    """Return the pod of each host, or its first switch where the file knows no pods."""
    if fabric.pods:
        return dict(fabric.pods)
    first: dict[str, str] = {}
    for port in fabric.ports:
        first.setdefault(port.host, port.switch)
    return first


def _check_sizes(
    fabric: FabricFound, groups: Mapping[str, list[str]], nodes: Mapping[str, NodeFound | None], parts: Parts
) -> None:
    """Refuse a domain with more GPUs than the system has."""
    system = parts.system
    if system is None:
        return
    for label, hosts in groups.items():
        gpus = sum(gpu_count(nodes[host], parts) for host in hosts)
        if gpus > system.gpus:
            raise InputError(
                f"{fabric.hosts.get(hosts[0], fabric.place)}: {label} has {len(hosts)} hosts with {gpus} GPUs, but a "
                f"domain of {system.part} has {system.gpus}; give --domains node, or the --gpu it really is."
            )
