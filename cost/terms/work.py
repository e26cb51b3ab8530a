"""One part of a step on one GPU: what it computes, reads and sends, in seconds at data-sheet peaks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cost.quantity import Quantity

__all__ = ["LinkPart", "Work"]


@dataclass(frozen=True, eq=False)
class Work:
    """Computing and reading HBM for one part of ``layers`` equal layers.

    The two run at once, so no kernel is faster than ``max(compute_s, memory_s)`` (the roofline of Williams,
    Waterman and Patterson, CACM 2009). Real kernels reach a fraction of each peak
    (:class:`cost.efficiency.Efficiency`), found under the names kept here.

    Attributes
    ----------
    term:
        The part of the step that reports name: ``attention``, ``experts``, ``dense``, ``head``.
    fraction, hbm:
        Names of the fraction of flop/s and of HBM bandwidth that such kernels reach.
    compute_s, memory_s:
        Seconds at peak of one layer on one GPU.
    layers:
        How many equal layers the part stands for.
    columns:
        Columns of the weight that one GPU multiplies with: narrow slices use the multipliers badly.
    """

    term: str
    fraction: str
    hbm: str
    compute_s: Quantity
    memory_s: Quantity
    layers: float = 1.0
    columns: Quantity = math.inf


@dataclass(frozen=True, eq=False)
class LinkPart:
    """Sending over the two fabrics for one part of ``layers`` equal layers.

    Attributes
    ----------
    term:
        ``dispatch``, ``combine``, ``all_reduce``.
    up_s, out_s:
        Seconds at the links' peak on the scale-up and the scale-out fabric; both work at the same time.
    expected_s:
        Seconds as kernels were measured, fixed parts included.
    """

    term: str
    up_s: Quantity
    out_s: Quantity
    expected_s: Quantity
    layers: float = 1.0
