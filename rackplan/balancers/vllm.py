"""vLLM's policy: ``rebalance_experts`` with its signature, as a class and as a function.

References
----------
``vllm/distributed/eplb/policy`` of vLLM 0.33.0.
"""

from __future__ import annotations

from typing import Any

from rackplan.balancers.arrays import as_given, loads_of, refusing
from rackplan.balancers.balance import plan, request

__all__ = ["RackplanEplbPolicy", "rebalance_experts"]


def rebalance_experts(
    weight: Any,
    num_replicas: int,
    num_groups: int,
    num_nodes: int,
    num_ranks: int,
    old_global_expert_indices: Any = None,
) -> Any:
    """Return the expert of each slot after a few moves from the current placement.

    Parameters
    ----------
    weight:
        Tokens of each expert over the last window, ``[layers, experts]``; a layer of zeros stays as it is.
    num_replicas:
        Slots of a layer, a multiple of ``num_ranks``.
    num_groups, num_nodes:
        Groups of experts stay on one node where they divide over the nodes and lie so already; else they mean
        nothing.
    num_ranks:
        Ranks of the EP group.
    old_global_expert_indices:
        What lies in the slots now, ``[layers, num_replicas]``, -1 where nothing. Without it all is planned afresh.

    Returns
    -------
    torch.Tensor or numpy.ndarray
        int64 ``[layers, num_replicas]`` on the CPU. Copies that stay on their rank keep their slot.

    Raises
    ------
    ValueError
        If the numbers do not fit together or a load is no count.
    """
    with refusing():
        loads = loads_of(weight, "weight", ("layers", "experts"))
        old = old_global_expert_indices
        call = request(loads, num_replicas, num_ranks, num_groups, num_nodes, old=old)
        return as_given(plan(call), weight)


class RackplanEplbPolicy:
    """The function in the form of vLLM's ``AbstractEplbPolicy``."""

    rebalance_experts = staticmethod(rebalance_experts)
