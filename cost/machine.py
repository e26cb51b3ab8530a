"""What a step runs on: peak rates, what kernels reach of them, and the all-to-all kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cost.calibration.alltoall import default_kernel, find_kernel

if TYPE_CHECKING:
    from cost.calibration.alltoall import Kernel
    from cost.efficiency import Efficiency
    from cost.rates import Rates

__all__ = ["Kernels", "Machine", "kernels_for"]


@dataclass(frozen=True, eq=False)
class Kernels:
    """All-to-all kernels of a phase: for groups inside one domain, across domains, and for experts cut in parts."""

    inside: Kernel
    across: Kernel
    gather: Kernel


@dataclass(frozen=True, eq=False)
class Machine:
    """Rates at peak, fractions of them that kernels reach, and formats on the way.

    Attributes
    ----------
    kv_dtype:
        Format of the KV cache.
    dispatch_dtype:
        Format of hidden vectors on their way to experts; empty: by the experts' weights.
    """

    rates: Rates
    efficiency: Efficiency
    kernels: Kernels
    kv_dtype: str = "bf16"
    dispatch_dtype: str = ""


def kernels_for(rates: Rates, phase: str, name: str = "") -> Kernels:
    """Return the kernels of a phase on these fabrics: those called ``name``, else the phase's own.

    Raises
    ------
    InputError
        If no kernel has that name.
    """

    def named(asked: str, *, crosses: bool) -> Kernel:
        return find_kernel(asked, up_fabric=rates.up_fabric, crosses=crosses).kernel

    def usual(*, crosses: bool) -> Kernel:
        return default_kernel(phase, up_fabric=rates.up_fabric, crosses=crosses)

    gather = named("all-gather", crosses=False)
    if name:
        return Kernels(named(name, crosses=False), named(name, crosses=True), gather)
    return Kernels(usual(crosses=False), usual(crosses=True), gather)
