"""SGLang's balancer: ``rebalance_experts`` with its signature and its three maps.

References
----------
``sglang/srt/eplb/eplb_algorithms`` and ``expert_location.py`` of SGLang 0.5.23.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from placement.arrays import Bools, Ints
from rackplan.balancers.arrays import as_given, is_tensor, loads_of, refusing, whole
from rackplan.balancers.balance import plan, request
from rackplan.balancers.maps import logical_count, logical_to_physical
from topology.base.errors import InputError

__all__ = ["rebalance_experts"]


_ALGORITHMS = tuple(
    f"{name}{'_hierarchical' * hierarchical}"
    for name in ("deepseek", "deepseek_vec", "elasticity_aware")
    for hierarchical in (False, True)
)
"""By their names: whether groups stay on nodes, ranks may be lost, and maps have the form of ``deepseek_vec``."""


def rebalance_experts(
    tokens_per_expert: Any,
    num_physical_experts: int,
    num_local_physical_experts: int,
    num_groups: int | None,
    num_nodes: int,
    algorithm: Any,
) -> tuple[Any, Any, Any]:
    """Return expert of each slot, slots of each expert and copies of each expert, after a few moves.

    What lies in the slots now is the engine's ``get_global_expert_location_metadata()``; outside the engine, and
    before it has any, all is planned afresh.

    Parameters
    ----------
    tokens_per_expert:
        ``[steps, layers, experts]``, summed over the steps; rows of dense layers are zero and stay as they are.
    num_physical_experts, num_local_physical_experts:
        Slots of a layer and of a rank.
    num_groups, num_nodes:
        Groups of experts stay on one node where the algorithm is a hierarchical one.
    algorithm:
        ``EplbAlgorithm`` or its name: whether groups stay on nodes, whether ranks may be lost
        (``elasticity_aware``), and the form of the maps.

    Returns
    -------
    tuple
        ``physical_to_logical_map`` ``[layers, slots]``, ``logical_to_physical_map`` ``[layers, experts, width]``
        padded with -1, ``logical_count`` ``[layers, experts]``. Width, types and device are those of the algorithm's
        own answer.

    Raises
    ------
    ValueError
        If the numbers do not fit together, a load is no count, or there is no such algorithm.
    """
    with refusing():
        how = getattr(algorithm, "name", algorithm)
        if how not in _ALGORITHMS:
            raise InputError(f"algorithm {algorithm!r}: expected one of {', '.join(_ALGORITHMS)}.")
        loads = _summed(tokens_per_expert)
        slots = whole(num_physical_experts, "num_physical_experts")
        size = whole(num_local_physical_experts, "num_local_physical_experts")
        if slots % size:
            raise InputError(
                f"num_physical_experts {slots} is not a multiple of num_local_physical_experts {size}: "
                "every rank needs the same number."
            )
        groups, nodes = _groups(how, num_groups, num_nodes)
        old = _running(len(loads), slots)
        alive = _alive(slots // size) if "elasticity" in how else np.ones(slots // size, dtype=bool)
        phy2log = _placed(loads, alive, size, groups, nodes, old)
    experts = loads.shape[1]
    counted = phy2log if alive.all() else np.where(np.repeat(alive, size), phy2log, experts)
    count = logical_count(counted, experts + 1)[:, :experts]
    width = slots - experts + 1 if "vec" in how else int(count.max())
    maps = phy2log, _slots_of(counted, experts, width), count
    return _in_form(maps, how, tokens_per_expert)


def _summed(tokens: Any) -> Any:
    """Return ``[layers, experts]`` float64 of tokens of many steps, summed where they are before they are copied."""
    if getattr(tokens, "ndim", 3) == 2:
        return loads_of(tokens, "tokens_per_expert", ("layers", "experts"))
    if is_tensor(tokens) and _counts(tokens):
        return loads_of(tokens.sum(dim=0), "tokens_per_expert", ("layers", "experts"))
    return loads_of(tokens, "tokens_per_expert", ("steps", "layers", "experts")).sum(axis=0)


def _counts(tokens: Any) -> bool:
    """Whether a tensor holds whole numbers from 0 for steps, layers and experts: they are summed without rounding."""
    whole_numbers = not tokens.is_floating_point() and not tokens.is_complex()
    return bool(whole_numbers and tokens.ndim == 3 and tokens.numel() and tokens.min() >= 0)


def _groups(how: str, groups: int | None, nodes: int) -> tuple[int, int]:
    if "hierarchical" not in how:
        return 1, 1
    if groups is None or whole(groups, "num_groups") % whole(nodes, "num_nodes"):
        raise InputError(
            f"num_groups {groups} do not divide evenly over num_nodes {nodes}: the algorithm keeps each "
            "group on one node."
        )
    return groups, nodes


def _running(layers: int, slots: int) -> Ints | None:
    """Return what the engine's slots hold now, ``[layers, slots]``; None outside it, or in another shape."""
    module = sys.modules.get("sglang.srt.eplb.expert_location")
    metadata = None if module is None else module.get_global_expert_location_metadata()
    if metadata is None or tuple(metadata.physical_to_logical_map_cpu.shape) != (layers, slots):
        return None
    placed: Ints = metadata.physical_to_logical_map_cpu.numpy().astype(np.int64)
    return placed


def _alive(ranks: int) -> Bools:
    """Return which ranks the engine has not lost, ``[ranks]``; all where it does not say."""
    module = sys.modules.get("sglang.srt.elastic_ep.elastic_ep")
    state = None if module is None else module.ElasticEPStateManager.instance()
    if state is None:
        return np.ones(ranks, dtype=bool)
    alive: Bools = state.active_ranks.cpu().numpy()[:ranks].astype(bool)
    if alive.size != ranks or not alive.any():
        raise InputError(
            f"active_ranks {alive.tolist()}: expected {ranks} ranks, at least one of them active."
        )
    return alive


def _placed(loads: Any, alive: Bools, size: int, groups: int, nodes: int, old: Ints | None) -> Ints:
    """Return the expert of each slot; slots of lost ranks hold expert 0, as SGLang's own policy has it."""
    called = "num_physical_experts", "ranks"
    lives = np.repeat(alive, size)
    whole_world = bool(alive.all())
    if not whole_world:
        groups = nodes = 1
        old = None if old is None else old[:, lives]
    placed = plan(request(loads, int(lives.sum()), int(alive.sum()), groups, nodes, old=old, called=called))
    if whole_world:
        return placed
    phy2log = np.zeros((len(loads), lives.size), dtype=np.int64)
    phy2log[:, lives] = placed
    return phy2log


def _slots_of(phy2log: Ints, experts: int, width: int) -> Ints:
    """Return :func:`logical_to_physical` of slots that may hold no expert (``experts``), which have no row."""
    if phy2log.max() < experts:
        return logical_to_physical(phy2log, experts, width)
    widest = max(width, int((phy2log == experts).sum(axis=1).max()))
    return logical_to_physical(phy2log, experts + 1, widest)[:, :experts, :width]


def _in_form(maps: tuple[Ints, Ints, Ints], how: str, sample: Any) -> tuple[Any, Any, Any]:
    """Return the maps as the algorithm has them: ``deepseek_vec``'s in int32, and where the tokens are."""
    phy2log, log2phy, count = maps
    if "vec" in how:
        log2phy, count = log2phy.astype(np.int32), count.astype(np.int32)
    if how == "deepseek_vec":
        phy2log = phy2log.astype(np.int32)
    device = sample.device if how == "deepseek_vec" and is_tensor(sample) else "cpu"
    placed, slots_of, copies = (as_given(table, sample, device) for table in (phy2log, log2phy, count))
    return placed, slots_of, copies
