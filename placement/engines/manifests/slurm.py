"""Slurm: a batch script with the hosts of each stage and expert group, and a step for each replica.

Slurm sorts the hosts of a step; ``--distribution=arbitrary`` with ``SLURM_HOSTFILE`` keeps the order of a file, one
line a task (https://slurm.schedmd.com/srun.html).
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from placement.engines.manifests.pools import ExpertGroup, Pool
from topology.base.errors import InputError, input_name
from topology.importers.hostlist import compress_hosts

VISIBLE = {
    "NVIDIA": "CUDA_VISIBLE_DEVICES",
    "AMD": "HIP_VISIBLE_DEVICES",
    "Huawei": "ASCEND_RT_VISIBLE_DEVICES",
}
"""The variable that shows a process some GPUs of its host, by vendor."""
PORT_STEP = 100
"""Between the ports of replicas that share their first host."""


def batch_script(pools: Sequence[Pool]) -> str:
    """Return a script for sbatch that starts all replicas of all pools.

    Raises
    ------
    InputError
        If an engine cannot be started on several hosts with ranks in the plan's order.
    """
    hosts = list(dict.fromkeys(host for pool in pools for group in pool.groups for host in group.hosts))
    most = max(max(group.devices) + 1 for pool in pools for group in pool.groups)
    head = [
        "#!/bin/bash",
        f"#SBATCH --job-name={pools[0].name}",
        f"#SBATCH --nodes={len(hosts)}",
        f"#SBATCH --nodelist={compress_hosts(hosts)}",
        f"#SBATCH --gpus-per-node={most}",
        "#SBATCH --exclusive",
        "",
        "# stages and expert groups of the plan, hosts in the order of their ranks",
        *(f"# {pool.name}, {group.words}" for pool in pools for group in pool.groups),
        "",
        "set -euo pipefail",
    ]
    steps: list[str] = []
    for pool in pools:
        for replica in pool.replicas:
            steps += ["", *_step(pool, replica)]
    return "\n".join([*head, *steps, "", "wait"]) + "\n"


def _step(pool: Pool, groups: Sequence[ExpertGroup]) -> list[str]:
    """Return the lines of one replica: its hosts in a file, its processes in the background."""
    hosts = list(dict.fromkeys(host for group in groups for host in group.hosts))
    offset = 0 if pool.whole_hosts else PORT_STEP * groups[0].replica
    launch = pool.launched(rank="$SLURM_PROCID", address=hosts[0], offset=offset)
    reason = pool.engine.cannot_spread(launch)
    if reason and not pool.engine.ranks_are_tasks:
        raise InputError(f"{input_name('launch')} slurm, {pool.engine.title}: {reason}.")
    each = pool.launch.gpus_per_node if pool.engine.ranks_are_tasks else 1
    lines = [*pool.engine.command(launch), pool.engine.listen(pool.engine.port + offset)]
    name = f"{pool.name}-{groups[0].replica}"
    written = [
        f"cat > {name}.hosts <<'HOSTS'",
        *(host for host in hosts for _ in range(each)),
        "HOSTS",
        *_other_files(pool),
    ]
    start = " \\\n  ".join(lines)
    options = ["--distribution=arbitrary", f"--ntasks={len(hosts) * each}"]
    options += ["--mpi=pmix"] * pool.engine.ranks_are_tasks + ["--overlap"] * (not pool.whole_hosts)
    step = f"{_visible(pool, groups)}SLURM_HOSTFILE={name}.hosts srun {' '.join(options)} \\"
    run = f"  bash -c {shlex.quote(start)} &"
    return [f"# {pool.name}, replica {groups[0].replica}", *written, step, run]


def _visible(pool: Pool, groups: Sequence[ExpertGroup]) -> str:
    """Return what shows a step its GPUs alone, in the order of their ranks; nothing where those are all of a host."""
    first = groups[0].hosts[0]
    devices = [device for group in groups if first in group.hosts for device in group.devices]
    if pool.whole_hosts and devices == list(range(len(devices))):
        return ""
    if pool.gpu_vendor not in VISIBLE:
        raise InputError(
            f"replicas have a part of the GPUs of a host, and nobody says how a process is "
            f"shown some of those of {pool.gpu_vendor}.",
            field="launch",
            value="slurm",
        )
    return f"{VISIBLE[pool.gpu_vendor]}={','.join(map(str, devices))} "


def _other_files(pool: Pool) -> list[str]:
    found: list[str] = []
    for file, text in pool.engine.files(pool.launch).items():
        found += [f"cat > {file} <<'FILE'", text.rstrip("\n"), "FILE"]
    return found
