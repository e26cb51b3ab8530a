"""DeepSeek's EPLB: ``rebalance_experts`` with its signature and its three maps.

References
----------
``eplb.py`` of https://github.com/deepseek-ai/EPLB, d52c72d5b2f2.
"""

from __future__ import annotations

from typing import Any

from rackplan.balancers.arrays import as_given, loads_of, refusing
from rackplan.balancers.balance import plan, request
from rackplan.balancers.maps import logical_count, logical_to_physical

__all__ = ["rebalance_experts"]


def rebalance_experts(
    weight: Any, num_replicas: int, num_groups: int, num_nodes: int, num_gpus: int, old: Any = None
) -> tuple[Any, Any, Any]:
    """Return expert of each slot, slots of each expert and copies of each expert, for one window of loads.

    Parameters
    ----------
    weight:
        Tokens of each expert, ``[layers, experts]``, tensor or array of any numbers.
    num_replicas:
        Slots of a layer, a multiple of ``num_gpus``.
    num_groups, num_nodes:
        Groups of experts stay on one node where the groups divide over the nodes; else they mean nothing.
    num_gpus:
        GPUs of the EP group.
    old:
        Ours alone, as vLLM has it: what lies in the slots now, ``[layers, num_replicas]``. Without it all is
        planned afresh.

    Returns
    -------
    tuple
        ``phy2log`` ``[layers, num_replicas]``, ``log2phy`` ``[layers, experts, most copies]`` padded with -1,
        ``logcnt`` ``[layers, experts]``: int64, on the CPU.

    Raises
    ------
    ValueError
        If the numbers do not fit together or a load is no count.
    """
    with refusing():
        loads = loads_of(weight, "weight", ("layers", "experts"))
        called = "num_replicas", "num_gpus"
        call = request(loads, num_replicas, num_gpus, num_groups, num_nodes, old=old, called=called)
        placed = plan(call)
    experts = loads.shape[1]
    maps = placed, logical_to_physical(placed, experts), logical_count(placed, experts)
    phy2log, log2phy, logcnt = (as_given(table, weight) for table in maps)
    return phy2log, log2phy, logcnt
