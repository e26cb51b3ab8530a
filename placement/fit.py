"""Why nothing fits, by how much, and what would: the words of an infeasible plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from placement.search import fitting_shapes, tightest
from topology import build_cluster, load_domain
from topology.errors import InfeasibleError, InputError
from topology.resolve import fill_domains

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cost.setting import Setting
    from placement.options import PlanOptions
    from placement.search import Fitted
    from topology.spec import DomainSpec

__all__ = ["fastest_step_s", "refuse_capacity", "refuse_speed", "smallest_nodes"]

MOST_NODES = 4096


def refuse_capacity(setting: Setting, redundant: int | None) -> NoReturn:
    """Raise InfeasibleError: HBM capacity binds, by how much, and the nodes or the batch that would fit."""
    cluster = setting.cluster
    fitting = fitting_shapes(setting, redundant)
    if fitting:
        best = max(fit.max_batch for fit in fitting)
        raise InfeasibleError(
            f"HBM capacity binds: --batch {setting.workload.batch} does not fit on {cluster.name}; "
            f"the largest that fits is {best} sequences per GPU at {setting.workload.context:,} tokens of context."
        )
    shape, memory = tightest(setting, redundant)
    need, usable = memory.used(1) / 1e9, memory.usable / 1e9
    parts = memory.breakdown(1)
    nodes = smallest_nodes(setting, redundant)
    node = cluster.spec.domains[0]
    if nodes is None:
        remedy = f"no number of nodes up to {MOST_NODES:,} of this kind fits; use a GPU with more memory."
    else:
        remedy = (
            f"The smallest whole number of nodes that fits is {nodes} "
            f"({nodes * node.gpus_per_node} GPUs, {node.gpus_per_node} a node; batch 1)."
        )
    raise InfeasibleError(
        f"HBM capacity binds: {setting.model.name} needs {need:.1f} GB per GPU on {cluster.name} and {usable:.1f} GB "
        f"are usable, {need - usable:.1f} GB too few even at batch 1 (weights {parts['weights'] / 1e9:.1f}, "
        f"KV cache {parts['kv_cache'] / 1e9:.1f}, workspace {parts['workspace'] / 1e9:.1f}; best of the layouts: "
        f"{len(shape.replicas[0])} stages, TP {shape.tp}). {remedy}"
    )


def refuse_speed(setting: Setting, options: PlanOptions, fastest_s: float) -> NoReturn:
    """Raise InfeasibleError: no layout meets the time per token, and the fastest there is."""
    wanted = (options.tpot_s or 0.0) * 1e3
    batch = f"batch {setting.workload.batch}" if setting.workload.batch else "batch 1"
    raise InfeasibleError(
        f"--tpot-ms {wanted:g} is out of reach on {setting.cluster.name}: the fastest layout takes "
        f"{fastest_s * 1e3:.3g} ms per token at {batch}; ask for at least that, or use faster GPUs or more of them."
    )


def fastest_step_s(layouts: Sequence[Fitted]) -> float:
    """Return the shortest step over the layouts, at the user's batch or at 1."""
    return min(fit.scorer.at(fit.batch if fit.fixed else 1).step_s for fit in layouts)


def smallest_nodes(setting: Setting, redundant: int | None) -> int | None:
    """Return the fewest nodes of the cluster's kind on which batch 1 fits; None up to ``MOST_NODES``."""
    domain = _whole_domain(setting.cluster.spec.domains[0])
    start = -(-setting.cluster.spec.gpus // domain.gpus_per_node)
    for nodes in range(max(1, start), MOST_NODES + 1):
        if _fits(setting, domain, nodes, redundant):
            return nodes
    return None


def _whole_domain(domain: DomainSpec) -> DomainSpec:
    """The full domain that a partial one is a part of, with the user's own figures."""
    from dataclasses import replace

    try:
        return replace(domain, gpus=load_domain(domain.part).gpus)
    except InputError:
        return domain


def _fits(setting: Setting, domain: DomainSpec, nodes: int, redundant: int | None) -> bool:
    from dataclasses import replace

    spec = fill_domains(
        f"{nodes} nodes", domain, setting.cluster.spec.scale_out, nodes * domain.gpus_per_node
    )
    return bool(fitting_shapes(replace(setting, cluster=build_cluster(spec)), redundant))
