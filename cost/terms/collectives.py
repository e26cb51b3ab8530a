"""Collectives of tensor parallelism inside a switched domain: fixed part and bytes, the fastest algorithm of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from topology.figures import Evidence, Figure

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

__all__ = [
    "DIRECT",
    "IN_SWITCH",
    "PROTOCOLS",
    "Protocol",
    "all_gather_seconds",
    "all_reduce_seconds",
    "reduce_scatter_seconds",
]

_NCCL = "NVIDIA/nccl src/graph/tuning.cc, constants of its own latency model"
_BOOK = "jax-ml scaling book, chapter on GPUs: about 370 of 450 GB/s measured in an 8-GPU H100 node"
_ACHIEVED = 370 / 450


def _delay(microseconds: float, source: str, kind: Evidence = Evidence.DERIVED) -> Figure:
    return Figure(microseconds * 1e-6, "s", kind, source, f"{microseconds:g} us")


def _fraction(value: float, source: str, kind: Evidence = Evidence.DERIVED) -> Figure:
    return Figure(value, "1", kind, source, f"{value:.2f}")


@dataclass(frozen=True)
class Protocol:
    """One way to run a collective.

    Attributes
    ----------
    base_s, step_s:
        Seconds to start, and of each step that waits for the one before.
    fraction:
        Of the links' rate that its bytes get.
    """

    name: str
    base_s: Figure
    step_s: Figure
    fraction: Figure

    def figures(self) -> dict[str, Figure]:
        """All coefficients by name."""
        return {"base_s": self.base_s, "step_s": self.step_s, "fraction": self.fraction}

    def seconds(self, steps: ArrayLike, sent: NDArray[np.float64], rate: ArrayLike) -> NDArray[np.float64]:
        """Seconds of ``steps`` steps in which a GPU sends ``sent`` bytes at ``rate`` bytes/s at most."""
        fixed = self.base_s.value + self.step_s.value * np.asarray(steps, dtype=np.float64)
        return np.asarray(fixed + sent / (self.fraction.value * np.asarray(rate, dtype=np.float64)))


_FLAGS = f"{_NCCL}: a flag for every 4 bytes of data halves the rate"
_LINES = f"{_BOOK}; {_NCCL}: a flag in every 128 bytes, 120 of them data"

PROTOCOLS = (
    Protocol("LL", _delay(6.6, _NCCL), _delay(0.6, _NCCL), _fraction(_ACHIEVED / 2, f"{_BOOK}; {_FLAGS}")),
    Protocol("LL128", _delay(14.0, _NCCL), _delay(1.9, _NCCL), _fraction(_ACHIEVED * 120 / 128, _LINES)),
    Protocol("Simple", _delay(8.4, _NCCL), _delay(3.4, _NCCL), _fraction(_ACHIEVED, _BOOK)),
)
"""Rings of NCCL: from small messages to large ones."""

DIRECT = Protocol(
    "direct",
    _delay(6.6, f"{_NCCL}: as its fastest ring, in one step", Evidence.ASSUMED),
    _delay(0.6, f"{_NCCL}: as its fastest ring, in one step", Evidence.ASSUMED),
    _fraction(_ACHIEVED, f"{_BOOK}; a one-shot kernel is taken to reach as much", Evidence.ASSUMED),
)
"""One-shot all-reduce of serving engines: every GPU sends all it has to every other."""

IN_SWITCH = Protocol(
    "in-switch",
    _delay(25.0, f"{_NCCL}: NVLS"),
    _delay(0.6, f"{_NCCL}: NVLS counts one fixed delay; a step of the fastest ring", Evidence.ASSUMED),
    _fraction(
        480 * 8 / (2 * 7) / 450,
        "jax-ml scaling book, chapter on GPUs: 480 GB/s effective with SHARP on 8 H100, where 2 (n - 1)/n bytes "
        "of each are counted and one is sent",
    ),
)
"""The switch adds up (NVLink SHARP, fourth generation of NVLink and later): each byte is sent once."""


def all_reduce_seconds(
    size: ArrayLike, gpus: ArrayLike, *, up_bytes_per_s: ArrayLike, in_switch: bool = False
) -> NDArray[np.float64]:
    """Seconds to add up ``size`` bytes that each of ``gpus`` GPUs holds, on all of them.

    Parameters
    ----------
    up_bytes_per_s:
        Peak bytes/s per GPU and direction of the scale-up fabric; all arguments broadcast.
    in_switch:
        Whether the switches of the domain can add up.

    Notes
    -----
    The fastest of ring (``2 (n - 1)`` steps, ``2 (n - 1) / n`` of the bytes), one-shot (one step, ``n - 1`` times
    the bytes) and, where there is one, in-switch reduction (all bytes once); formulas as in the jax-ml scaling
    book, chapter on GPUs. Engines and NCCL choose by size in the same way.
    """
    n, whole = np.asarray(gpus, dtype=np.float64), np.asarray(size, dtype=np.float64)
    times = [protocol.seconds(2 * (n - 1), 2 * (n - 1) / n * whole, up_bytes_per_s) for protocol in PROTOCOLS]
    times.append(DIRECT.seconds(1, (n - 1) * whole, up_bytes_per_s))
    if in_switch:
        times.append(IN_SWITCH.seconds(2, whole, up_bytes_per_s))
    return _fastest(times, n)


def all_gather_seconds(size: ArrayLike, gpus: ArrayLike, *, up_bytes_per_s: ArrayLike) -> NDArray[np.float64]:
    """Seconds until each of ``gpus`` GPUs has all ``size`` bytes, of which it held one part of ``gpus``.

    A ring of ``n - 1`` steps or every GPU to all others at once: ``(n - 1) / n`` of the bytes either way.
    """
    n, whole = np.asarray(gpus, dtype=np.float64), np.asarray(size, dtype=np.float64)
    sent = (n - 1) / n * whole
    times = [protocol.seconds(n - 1, sent, up_bytes_per_s) for protocol in PROTOCOLS]
    return _fastest([*times, DIRECT.seconds(1, sent, up_bytes_per_s)], n)


def reduce_scatter_seconds(
    size: ArrayLike, gpus: ArrayLike, *, up_bytes_per_s: ArrayLike
) -> NDArray[np.float64]:
    """Seconds to add up ``size`` bytes of each of ``gpus`` GPUs and leave one part of ``gpus`` on each.

    The same bytes and steps as an all-gather, the other way round.
    """
    return all_gather_seconds(size, gpus, up_bytes_per_s=up_bytes_per_s)


def _fastest(times: list[NDArray[np.float64]], gpus: NDArray[np.float64]) -> NDArray[np.float64]:
    best = times[0]
    for other in times[1:]:
        best = np.minimum(best, other)
    return np.where(gpus > 1, best, 0.0)
