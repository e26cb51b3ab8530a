"""What a step runs on: peak rates, what kernels reach of them, and the all-to-all kernels."""

from __future__ import annotations

from dataclasses import dataclass

from cost.calibration.alltoall import Kernel, default_kernel, find_kernel
from cost.efficiency import Efficiency
from cost.rates import Rates


@dataclass(frozen=True, eq=False)
class Kernels:
    """All-to-all kernels of a phase: for groups inside one domain, across domains, and for experts cut in parts.

    ``instead``: what a group inside one domain runs where that is faster (few tokens); None: nothing else. Where
    nobody names a kernel it is the one for across domains, which needs no border to work: a larger domain is then
    never slower than two smaller ones.
    """

    inside: Kernel
    across: Kernel
    gather: Kernel
    instead: Kernel | None = None

    def of(self, *, crosses: bool) -> tuple[Kernel, ...]:
        """Kernels that a group may run, of which it takes the fastest."""
        if crosses:
            return (self.across,)
        return (self.inside,) if self.instead is None else (self.inside, self.instead)


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
    inside, across = usual(crosses=False), usual(crosses=True)
    return Kernels(inside, across, gather, across if across is not inside else None)
