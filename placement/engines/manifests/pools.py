"""The replicas of a plan as hosts with ranks in the plan's order, and several plans as pools of one deployment."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import PurePath

from placement.engines.engine import Engine, Launch, Role
from placement.engines.export import Exported
from placement.engines.manifests.packing import Level, Packing, packing_of
from placement.engines.mapping import device_numbers
from placement.plan import Plan
from topology.base.errors import InputError, input_name
from topology.cluster import Cluster
from topology.importers.hostlist import compress_hosts

_SYNTHETIC = re.compile(r"d\d+\.n\d+")
"""A host as clusters of the catalog, and regular ones, call it."""


@dataclass(frozen=True)
class ExpertGroup:
    """One pipeline stage of a replica: the GPUs over which its experts are spread.

    Attributes
    ----------
    layers:
        The layers of the stage.
    first_rank:
        Of its GPUs, counted from 0 in the replica; they follow each other, host by host.
    hosts:
        Names of its hosts in the order of the ranks.
    devices:
        Numbers of the GPUs on each host, in the order of the ranks; the same on all of them.
    """

    replica: int
    stage: int
    layers: range
    first_rank: int
    hosts: tuple[str, ...]
    devices: tuple[int, ...]

    @property
    def ranks(self) -> range:
        """Its ranks in the replica."""
        return range(self.first_rank, self.first_rank + len(self.hosts) * len(self.devices))

    @property
    def hostlist(self) -> str:
        """Its hosts as Slurm writes them."""
        return compress_hosts(self.hosts)

    @property
    def words(self) -> str:
        """Its place in the plan, in words."""
        layers = f"layers {self.layers.start}-{self.layers.stop - 1}"
        ranks = f"ranks {self.ranks.start}-{self.ranks.stop - 1}"
        return f"replica {self.replica}, stage {self.stage} ({layers}), {ranks}: {self.hostlist}"


@dataclass(frozen=True, eq=False)
class Pool:
    """The replicas of one plan, all alike.

    Attributes
    ----------
    name:
        Unique among the pools, and a name that Kubernetes takes.
    groups:
        Of all replicas, those of a replica one after the other.
    whole_hosts:
        Whether a replica has all GPUs of its hosts.
    named:
        Whether hosts have names of the user's, not those that clusters of the catalog have.
    number:
        Which of several pools of its role it is; empty where there is one.
    beside, shared:
        The pool with which it should share a level of the topology (:func:`.packing.beside`), and that; empty, None:
        none.
    """

    name: str
    plan: Plan
    exported: Exported
    groups: tuple[ExpertGroup, ...]
    whole_hosts: bool
    named: bool
    number: str = ""
    beside: str = ""
    shared: Level | None = None

    @property
    def engine(self) -> Engine:
        """What serves."""
        return self.exported.engine

    @property
    def launch(self) -> Launch:
        """What a replica is started with."""
        return self.exported.launch

    @property
    def role(self) -> Role:
        """What it does."""
        return self.launch.role

    @property
    def replicas(self) -> tuple[tuple[ExpertGroup, ...], ...]:
        """The groups of each replica."""
        return tuple(tuple(part) for _, part in groupby(self.groups, key=lambda group: group.replica))

    @property
    def hosts(self) -> tuple[str, ...]:
        """Hosts of a replica: of the first one."""
        return tuple(dict.fromkeys(host for group in self.replicas[0] for host in group.hosts))

    @property
    def map_name(self) -> str:
        """Name of the plan file without its folder."""
        return PurePath(self.launch.file).name

    @cached_property
    def packing(self) -> Packing | None:
        """How close the hosts of a replica must be."""
        return packing_of(self.plan)

    @property
    def gpu_vendor(self) -> str:
        """Who makes its GPUs."""
        cluster = self.plan.deployment.cluster
        return cluster.spec.domains[cluster.gpus[self.plan.layout.replicas[0][0].gpus[0]].domain].gpu.vendor


def make_pool(exported: Exported, plan: Plan, names: Mapping[str, str], name: str, number: str = "") -> Pool:
    """Return the replicas of ``plan`` on hosts called as ``names`` says, by id of the plan's node.

    Raises
    ------
    InputError
        If ranks do not follow each other host by host, or hosts of a replica have unequal numbers of GPUs: nothing
        that starts a process for each host could number them as the plan does.
    """
    cluster = plan.deployment.cluster
    numbers = device_numbers(cluster)
    groups: list[ExpertGroup] = []
    for replica, stages in enumerate(plan.layout.replicas):
        everything = [gpu for part in stages for gpu in part.gpus]
        _require_alike(cluster, numbers, everything, f"replica {replica}")
        rank = 0
        for stage, part in enumerate(stages):
            runs = _require_alike(cluster, numbers, part.gpus, f"replica {replica}, stage {stage}")
            hosts = tuple(names[node] for node, _ in runs)
            groups.append(ExpertGroup(replica, stage, part.layers, rank, hosts, runs[0][1]))
            rank = groups[-1].ranks.stop
    first_replica = [gpu for part in plan.layout.replicas[0] for gpu in part.gpus]
    used = {cluster.gpus[gpu].node for gpu in first_replica}
    whole_hosts = sum(gpu.node in used for gpu in cluster.gpus) == len(first_replica)
    named = not all(_SYNTHETIC.fullmatch(names[node]) for node in used)
    return Pool(name, plan, exported, tuple(groups), whole_hosts, named, number)


def _require_alike(
    cluster: Cluster, numbers: Sequence[int], gpus: Sequence[int], where: str
) -> list[tuple[str, tuple[int, ...]]]:
    """Return the hosts of GPUs in their order with the numbers of those, which are as many and follow each other."""
    runs = [
        (node, tuple(numbers[gpu] for gpu in run))
        for node, run in groupby(gpus, key=lambda gpu: cluster.gpus[gpu].node)
    ]
    nodes = [node for node, _ in runs]
    twice = next((node for node in nodes if nodes.count(node) > 1), None)
    if twice is not None:
        raise InputError(
            f"{where}: its ranks return to host {twice}, but launchers with one process per host number "
            f"ranks host by host; {input_name('launch')} shell lists which GPU is which rank."
        )
    if len({numbered for _, numbered in runs}) > 1:
        sizes = "; ".join(f"{node}: {', '.join(map(str, numbered))}" for node, numbered in runs[:3])
        raise InputError(
            f"{where}: its hosts contribute different GPUs ({sizes}), but launchers with one process per "
            f"host use the same GPUs on each; {input_name('launch')} shell lists which GPU is which rank."
        )
    return runs


def used_nodes(plan: Plan) -> list[str]:
    """Return the nodes that a plan uses, in the order of its cluster."""
    gpus = plan.deployment.cluster.gpus
    used = {gpus[gpu].node for gpu in plan.layout.gpus_in_use}
    return [node for node in dict.fromkeys(gpu.node for gpu in gpus) if node in used]


def host_names(plan: Plan, names: Sequence[str] | None) -> dict[str, str]:
    """Return what each node of the plan's cluster is called: ``names`` in their order, None: as the cluster says.

    There is one for each node of the cluster, or for each that the plan uses.

    Raises
    ------
    InputError
        If there are more or fewer.
    """
    nodes = list(dict.fromkeys(gpu.node for gpu in plan.deployment.cluster.gpus))
    if names is None:
        return {node: node for node in nodes}
    used = used_nodes(plan)
    for named in (nodes, used):
        if len(named) == len(names):
            return dict(zip(named, names, strict=True))
    raise InputError(
        f"{input_name('hosts')} has {len(names)} names, the cluster has {len(nodes)} hosts and the plan uses "
        f"{len(used)}; give one name per host, in cluster order."
    )
