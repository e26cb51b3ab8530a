"""How close the hosts of a replica must be: the level of the cluster's topology that the plan needs, for schedulers.

A scale-up domain of several hosts is required, for the plan's bytes take its links. Switches are preferred: a replica
further apart is slower, not broken. Node labels are those that topograph 1.0 writes
(NVIDIA/topograph at e2b625071e32, ``docs/reference/node-labels.md``).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

from placement.plan import Plan
from topology.cluster import Cluster
from topology.exporters.scheduler import switch_tree


@dataclass(frozen=True)
class Level:
    """A level of a topology: its name, and the node label whose value hosts below one part of it share."""

    name: str
    label: str


HOST = Level("host", "kubernetes.io/hostname")
DOMAIN = Level("domain", "accelerator.topograph.run/domain")
SWITCHES = tuple(
    Level(name, f"fabric.topograph.run/tier-{tier}") for tier, name in enumerate(("leaf", "block"))
)
"""Leaves, then what joins leaves; on rails the leaves that the same hosts share are one."""


MIN_INSIDE_SHARE = 0.5
"""Part of the caches that stay inside domains from which a scheduler is told to keep workers together."""


@dataclass(frozen=True)
class Packing:
    """Where the hosts of each replica must be.

    Attributes
    ----------
    levels:
        Of the cluster, the broadest first; each part of one lies within one of the level before.
    level, required:
        What holds all hosts of a replica, and whether it must.
    part, hosts:
        Where that is no domain but domains have several hosts: the level of each run of so many of its hosts; else
        None and 0.
    """

    levels: tuple[Level, ...]
    level: Level
    required: bool
    part: Level | None = None
    hosts: int = 0

    @property
    def words(self) -> str:
        """The same for a person."""
        must = "must" if self.required else "should"
        runs = f", each {self.hosts} in order under one {self.part.name}" if self.part else ""
        labels = ", ".join(sorted({level.label for level in (self.level, self.part) if level}))
        return f"hosts of a replica {must} share one {self.level.name}{runs}: nodes need the label {labels}"


def beside(plan: Plan) -> Level | None:
    """Return what workers that prefill should share with some that decode, so that caches stay on its links.

    None where less than half of the caches could, or there is one domain alone.
    """
    cluster, share = plan.deployment.cluster.whole, plan.requests and plan.requests.inside_share
    if (share or 0.0) < MIN_INSIDE_SHARE or len({gpu.domain for gpu in cluster.gpus}) == 1:
        return None
    hosts = {gpu.node: gpu.domain for gpu in cluster.gpus}
    return DOMAIN if len(set(hosts.values())) < len(hosts) else HOST


def packing_of(plan: Plan) -> Packing | None:
    """Return the closest level that holds each replica of a plan; None where one host does, or nothing says."""
    cluster = plan.deployment.cluster
    replicas = [
        list(dict.fromkeys(cluster.gpus[gpu].node for stage in stages for gpu in stage.gpus))
        for stages in plan.layout.replicas
    ]
    if max(map(len, replicas)) == 1:
        return None
    places = _places(cluster)
    levels = tuple(reversed(places))
    fitting = (
        level
        for level, of in places.items()
        if all(len({of[host] for host in hosts}) == 1 for hosts in replicas)
    )
    level = next(fitting, None)
    if level is None:
        return None
    sizes: set[int] = set()  # hosts of each domain that a replica has, one domain after the other
    if level != DOMAIN and DOMAIN in places:
        domain_of = places[DOMAIN].__getitem__
        sizes = {len(list(run)) for hosts in replicas for _, run in groupby(hosts, key=domain_of)}
    size = sizes.pop() if len(sizes) == 1 and sizes != {1} else 0
    return Packing(levels, level, level == DOMAIN, DOMAIN if size else None, size)


def _places(cluster: Cluster) -> dict[Level, dict[str, object]]:
    """Return the part of each level that a host is in, the narrowest level first; hosts alone are in none of it."""
    domains: dict[str, object] = {gpu.node: gpu.domain for gpu in cluster.gpus}
    levels: dict[Level, dict[str, object]] = {HOST: {host: host for host in domains}}
    wide = len(set(domains.values())) < len(domains)
    if wide:
        levels[DOMAIN] = domains
    tree = switch_tree(cluster)
    above = {child: switch.name for switch in tree for child in switch.below}
    at = {host: switch.name for switch in tree for host in switch.hosts}
    for level in SWITCHES:
        joined = {(domains[host], switch) for host, switch in at.items()}
        if len(at) == len(domains) and len(joined) == len(
            set(domains.values())
        ):  # no domain under two of them
            levels[level] = dict(at)
        at = {host: above[name] for host, name in at.items() if name in above}
    return levels
