"""The parallel layouts of a sweep: for each arrangement of GPUs the widths that its groups can be cut into."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cost.model import Model, MoeFfn
from cost.sweep.stages import Variant
from cost.terms.experts import expert_columns
from topology.errors import InputError


@dataclass(frozen=True, eq=False)
class LayoutTable:
    """Layouts side by side, ``[layouts]``: their variant, width of tensor parallelism, parts of an expert."""

    variant: NDArray[np.int64]
    tp: NDArray[np.int64]
    moe_tp: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.tp)

    def rows(self, which: NDArray[np.bool_]) -> LayoutTable:
        """Some of them."""
        return LayoutTable(self.variant[which], self.tp[which], self.moe_tp[which])


def layouts_of(
    model: Model, variants: Sequence[Variant], redundant: int | None, *, cut_experts: bool
) -> LayoutTable:
    """Return every layout of ``variants``, those of a variant next to each other.

    Tensor parallelism stays in a domain and divides the query heads. A model without experts has one
    tensor-parallel group a stage. With ``cut_experts``, groups that lie in one domain may also cut each expert into
    ``moe_tp`` parts of whole columns and spread them over ``ep = group / moe_tp`` places. No GPU holds two copies of
    one expert.
    """
    rows = []
    for number, variant in enumerate(variants):
        what = variant.arrangement
        widths, parts = [1], [1]
        if what.cut:
            widths, parts = widths_of(model, what.group, what.runs, cut_experts=cut_experts)
        elif model.moe is None:
            widths = [1] if what.group == 1 else []
        if model.moe is not None:
            smallest = min(len(stage) for stage in what.replicas[0])
            parts = [part for part in parts if _distinct(model.moe.experts, smallest // part, redundant)]
        rows += [(number, tp, part) for tp in widths for part in parts]
    table = np.array(rows, dtype=np.int64).reshape(-1, 3)
    return LayoutTable(table[:, 0], table[:, 1], table[:, 2])


def widths_of(
    model: Model, group: int, runs: Collection[int], *, cut_experts: bool
) -> tuple[list[int], list[int]]:
    """Return the widths of tensor parallelism, and the parts of an expert, that ``group`` GPUs may have.

    ``runs`` are the numbers of GPUs that the group has in one scale-up domain.
    """
    heads = int(np.gcd.reduce([layer.attention.heads for layer in model.kinds]))
    widths = [w for w in _divisors(group) if heads % w == 0 and all(run % w == 0 for run in runs)]
    if model.moe is None:
        return ([group] if group in widths else []), [1]
    if not cut_experts or set(runs) != {group}:
        return widths, [1]
    return widths, [part for part in _divisors(group) if _whole_columns(model, part)]


def _divisors(number: int) -> list[int]:
    return [part for part in range(1, number + 1) if number % part == 0]


def _distinct(experts: int, ep: int, redundant: int | None) -> bool:
    """Whether the fullest of ``ep`` places can hold its share of the copies without two of one expert."""
    return redundant is None or -(-(experts + redundant) // ep) <= experts


def _whole_columns(model: Model, parts: int) -> bool:
    ffns = [layer.ffn for layer in model.kinds if isinstance(layer.ffn, MoeFfn)]
    return all(expert_columns(ffn, model.expert_hidden) % parts == 0 for ffn in ffns)


def slots_of(experts: int, ep: NDArray[np.float64], redundant: int | None) -> NDArray[np.float64]:
    """Expert copies of a layer over ``ep`` places: ``redundant`` more than experts; None: the fewest that divide.

    Raises
    ------
    InputError
        If there would be fewer copies than experts.
    """
    if redundant is None:
        return np.ceil(experts / ep) * ep
    if redundant < 0:
        raise InputError(f"--redundant {redundant}: expected 0 or more copies above one of each expert.")
    return np.full_like(ep, experts + redundant)
