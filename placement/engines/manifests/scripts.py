"""Scripts with a step for each replica: Slurm's and Open MPI's; both keep the hosts in the order of a file."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace

from placement.engines.manifests.pools import ExpertGroup, Pool
from placement.engines.manifests.templates import render
from topology.base.errors import InputError, input_name

VISIBLE = {
    "NVIDIA": "CUDA_VISIBLE_DEVICES",
    "AMD": "HIP_VISIBLE_DEVICES",
    "Huawei": "ASCEND_RT_VISIBLE_DEVICES",
}
"""The variable that shows a process some GPUs of its host, by vendor."""
PORT_STEP = 100
"""Between the ports of replicas that share their first host."""


RANK = {"slurm": "$SLURM_PROCID", "mpi": "$OMPI_COMM_WORLD_RANK"}
"""The kinds of scripts, and the variable that numbers the tasks of a step."""


def script(kind: str, pools: Sequence[Pool]) -> str:
    """Return a script of a kind that starts all replicas of all pools.

    Raises
    ------
    InputError
        If an engine cannot be started on several hosts with ranks in the plan's order.
    """
    return render(
        f"{kind}.sh.j2",
        pools=pools,
        hosts=list(dict.fromkeys(host for pool in pools for group in pool.groups for host in group.hosts)),
        gpus_per_node=max(max(group.devices) + 1 for pool in pools for group in pool.groups),
        steps=[_step(kind, pool, replica) for pool in pools for replica in pool.replicas],
    )


def _step(kind: str, pool: Pool, groups: Sequence[ExpertGroup]) -> dict[str, object]:
    """Return what starts one replica: its hosts, one for each task, its files and its command."""
    engine, replica = pool.engine, groups[0].replica
    hosts = list(dict.fromkeys(host for group in groups for host in group.hosts))
    offset = 0 if pool.whole_hosts else PORT_STEP * replica
    launch = replace(pool.launch, rank=RANK[kind], address=hosts[0], offset=offset)
    reason = engine.cannot_spread(launch)
    if reason and not engine.ranks_are_tasks:
        raise InputError(f"{input_name('launch')} {kind}, {engine.title}: {reason}.")
    tasks_per_host = pool.launch.gpus_per_node if engine.ranks_are_tasks else 1
    lines = [*engine.command(launch), engine.listen(engine.port + offset)]
    return {
        "pool": pool,
        "replica": replica,
        "name": f"{pool.name}-{replica}",
        "tasks": [host for host in hosts for _ in range(tasks_per_host)],
        "files": engine.files(pool.launch),
        "visible": _visible(kind, pool, groups),
        "mpi": engine.ranks_are_tasks,
        "command": shlex.quote(" \\\n  ".join(lines)),
    }


def _visible(kind: str, pool: Pool, groups: Sequence[ExpertGroup]) -> str:
    """Return what shows a step its GPUs alone, in the order of their ranks; nothing where those are all of a host."""
    host = groups[0].hosts[0]
    devices = [device for group in groups if host in group.hosts for device in group.devices]
    if pool.whole_hosts and devices == list(range(len(devices))):
        return ""
    if pool.gpu_vendor not in VISIBLE:
        raise InputError(
            "replicas use part of the GPUs of a host, but the way to restrict a process to some GPUs of "
            f"{pool.gpu_vendor} is unknown.",
            field="launch",
            value=kind,
        )
    return f"{VISIBLE[pool.gpu_vendor]}={','.join(map(str, devices))}"
