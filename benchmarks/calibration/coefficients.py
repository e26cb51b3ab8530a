"""The coefficients that are fitted: their place in the vector, how firmly each is held, what a chip gets of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from cost.efficiency import COEFFICIENTS, Efficiency
from topology.catalog_files import load_gpu
from topology.figures import Evidence, Figure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = [
    "CLASSES",
    "ENGINES",
    "FIXED",
    "FRACTIONS",
    "LARGEST",
    "OF_ENGINE",
    "SHARED",
    "Space",
    "distance",
    "efficiency",
    "peaks",
]

ENGINES = ("trtllm", "sglang", "vllm")
CLASSES = {
    "h100-sxm": "hopper",
    "h200-sxm": "hopper",
    "h800-sxm": "hopper",
    "h20-sxm": "hopper",
    "b200-sxm": "blackwell",
    "b300-sxm": "blackwell",
    "gb200": "blackwell",
    "ascend-910c": "hopper",
}
FRACTIONS = [name for name in COEFFICIENTS if name.startswith(("gemm.", "experts.", "attention.", "hbm."))]
START = {
    "gemm": 0.4,
    "experts": 0.3,
    "attention": 0.35,
    "hbm": 0.7,
    "prefill_share": 0.5,
    "delay.all_reduce": 6e-6,
    "delay.all_reduce_out": 20e-6,
    "delay.layer": 50e-6,
    "delay.latent_layer": 20e-6,
    "delay.moe_layer": 35e-6,
    "delay.sequence": 1e-5,
    "delay.step": 1e-3,
    "columns.gemm": 500.0,
    "columns.experts": 500.0,
    "accept.1": 1.7,
    "accept.2": 2.1,
    "accept.3": 2.4,
    "accept.unrecorded": 1.7,
}
OF_ENGINE = [name for name in COEFFICIENTS if name.startswith("delay.") or name == "prefill_share"]
SHARED = ["columns.gemm", "columns.experts"]
ACCEPT = [name for name in COEFFICIENTS if name.startswith("accept.")]
FIXED = {"overlap": 0.6, "links.all_reduce": 0.82, "links.hop": 0.82}
"""Not fitted. Overlap: both of SGLang's ablations. Links: 370 of 450 GB/s that NCCL reaches inside a node (jax-ml
scaling book)."""
BALANCE = 300.0
"""Flop per byte at which the columns are those shared: chips with fewer flop fill their multipliers more easily."""
SCALES = ("compute", "memory", "delay")
LARGEST = 0.95
FIRM = {"compute": 40.0, "memory": 15.0, "delay": 1.0, "shared": 0.3}
"""How firmly a chip is held to its class: its compute most, since one class has the same multipliers and what the
rows seem to show beyond that comes from the layouts that ran on each; memory and delays less (hosts differ)."""
OTHERS_FIRM = 0.5
"""How firmly chips are held that stand in a class of others: the H20 has a seventh of the flop, Ascend is no GPU."""
OTHERS = ("h20-sxm", "ascend-910c")


@dataclass
class Space:
    """Where each coefficient stands in the vector that is fitted; logarithms throughout."""

    names: list[tuple[str, ...]]

    @classmethod
    def make(cls, chips: Sequence[str]) -> Space:
        """Return the space of the fit to points on ``chips``."""
        classes = sorted({CLASSES[chip] for chip in chips})
        names: list[tuple[str, ...]] = [("fraction", c, name) for c in classes for name in FRACTIONS]
        names += [("engine", c, engine, name) for c in classes for engine in ENGINES for name in OF_ENGINE]
        names += [("chip", chip, scale) for chip in chips for scale in SCALES]
        return cls(names + [("shared", name) for name in (*SHARED, *ACCEPT)])

    def start(self) -> NDArray[np.float64]:
        """Return where the fit starts, which is also what it is held to."""
        values = []
        for name in self.names:
            if name[0] == "chip":
                values.append(1.0)
            else:
                values.append(START.get(name[-1], START.get(name[-1].partition(".")[0], 1.0)))
        return np.log(values)

    def prior_weight(self) -> NDArray[np.float64]:
        """How firmly each is held to its start: chips to their class, coefficients loosely."""

        def firm(name: tuple[str, ...]) -> float:
            if name[0] == "chip" and name[1] in OTHERS:
                return OTHERS_FIRM
            return FIRM.get(name[-1], FIRM.get(name[0], 0.25))

        return np.array([firm(name) for name in self.names])

    def table(self, x: NDArray[np.float64], chip: str, engine: str) -> dict[str, float]:
        """Coefficients of a chip under an engine."""
        values = dict(zip(self.names, np.exp(x), strict=True))
        kind = CLASSES[chip]
        scale = {name: values["chip", chip, name] for name in SCALES}
        found = dict(FIXED)
        for name in FRACTIONS:
            by = "memory" if name.startswith(("hbm.", "links.")) else "compute"
            found[name] = min(LARGEST, values["fraction", kind, name] * scale[by])
        for name in OF_ENGINE:
            each = [values["engine", kind, one, name] for one in ([engine] if engine else ENGINES)]
            middle = float(np.exp(np.mean(np.log(each))))
            found[name] = min(1.0, middle) if name == "prefill_share" else middle * scale["delay"]
        flop_per_s, bytes_per_s = peaks(chip)
        found |= {name: values["shared", name] for name in ACCEPT}
        found |= {name: values["shared", name] * flop_per_s / bytes_per_s / BALANCE for name in SHARED}
        return found


def efficiency(space: Space, x: NDArray[np.float64], chip: str, engine: str) -> Efficiency:
    """The coefficients as the cost model takes them."""
    table = space.table(x, chip, engine)
    figures = {name: Figure(table[name], "1", Evidence.DERIVED, "fit") for name in COEFFICIENTS}
    return Efficiency(figures, chip, engine)


@cache
def peaks(chip: str) -> tuple[float, float]:
    """BF16 flop/s and HBM bytes/s of a chip of the catalog."""
    gpu = load_gpu(chip)
    return gpu.dense_flop_per_s("bf16"), gpu.hbm_bytes_per_s


def distance(first: str, second: str) -> float:
    """How far two chips are apart: in the logarithms of both peaks."""
    return float(np.hypot(*(np.log(a / b) for a, b in zip(peaks(first), peaks(second), strict=True))))
