"""The coefficients that are fitted: their place in the vector, their bounds, what a chip gets of them.

A fraction is a curve over the peak that it derates, through one value per architecture, so that the order of chips
cannot be inverted: rates may not fall from an architecture to a faster one, delays may not rise
(:meth:`Space.against`), and no fraction exceeds what a published kernel reaches (cost/calibration/kernels.yaml).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from cost.calibration.kernels import published_best
from cost.calibration.serving import ANY_ENGINE, Tables, peak_of
from cost.inputs.machine import COEFFICIENTS, Efficiency
from topology.base.errors import MissingFigureError
from topology.base.figures import Evidence, Figure
from topology.catalog import load_gpu

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    Points = list[tuple[float, float]]

__all__ = ["CHIPS", "ENGINES", "FIXED", "Space", "efficiency"]

ENGINES = ("trtllm", "sglang", "vllm")
CHIPS = (
    "h100-sxm",
    "h200-sxm",
    "h800-sxm",
    "h20-sxm",
    "b200-sxm",
    "b300-sxm",
    "gb200",
    "gb300",
    "ascend-910c",
)
"""Chips that may be fitted; those of an architecture share its coefficients."""
ANCHORS = {"hopper": "h200-sxm", "blackwell": "b200-sxm"}
"""Architectures in the order of their figures, and the chip whose peaks their fractions are entered at."""
FRACTIONS = [name for name in COEFFICIENTS if name.startswith(("gemm.", "experts.", "attention.", "hbm."))]
OF_ENGINE = [
    "delay.all_reduce",
    "delay.all_reduce_out",
    "delay.layer",
    "delay.latent_layer",
    "delay.moe_layer",
    "delay.sequence",
    "delay.step",
    "engine.share",
    "prefill_share",
    "prefill_share.in_step",
]
SHARED = ["columns.gemm", "columns.experts", "ranks.uneven"]
ACCEPTED = [name for name in COEFFICIENTS if name.startswith("accept.")]
START = {
    "gemm": 0.4,
    "experts": 0.3,
    "attention": 0.4,
    "hbm": 0.7,
    "prefill_share": 0.4,
    "delay.all_reduce": 5e-6,
    "delay.all_reduce_out": 20e-6,
    "delay.layer": 35e-6,
    "delay.latent_layer": 20e-6,
    "delay.moe_layer": 20e-6,
    "delay.sequence": 1e-5,
    "delay.step": 5e-4,
    "columns": 500.0,
    "ranks": 0.5,
    "engine": 0.1,
    "accept.1": 1.7,
    "accept.2": 2.1,
    "accept.3": 2.4,
    "accept.unrecorded": 1.5,
}
LEAST = {
    "attention.decode.bf16": 0.75,
    "attention.decode.fp8": 0.75,
    "attention.prefill": 0.35,
    "hbm.weights": 0.75,
    "hbm.experts": 0.75,
    "hbm.cache": 0.75,
}
"""Least part of the best published kernel that a fraction may be: what is left over belongs to the engine, to unequal
ranks or to delays, and is not hidden in a kernel that is known to be better."""
INDEX_LAYER_S = {"sglang": 40e-6, "trtllm": 70e-6, "vllm": 65e-6}
COMPRESS_LAYER_S = 50e-6
"""Not fitted: no row has such attention. Modules of DeepSeek-V3.2 less those of V3, of CSA less HCA, and of HCA with
the mixing of residual streams less MLA (data/sparse_kernels.csv; docs/calibration.md)."""
FIXED = {
    "overlap": 0.6,
    "links.all_reduce": 0.82,
    "links.hop": 0.82,
    "delay.compress_layer": COMPRESS_LAYER_S,
}
"""Not fitted. Overlap: both of SGLang's ablations. Links: 370 of 450 GB/s that NCCL reaches inside a node (jax-ml
scaling book)."""
MORE_DRAFTS = 0.02
"""A drafted token more yields at least so much more (in logarithms)."""
LOW = "h20-sxm"
"""A chip with a seventh of the flop: its fractions are those of its architecture times one factor."""
HOST = "gb200"
"""A chip beside a host of its own kind, on the same board: its delays are its architecture's times one factor."""
FIRM = 0.25
"""How firmly coefficients are held to where they start: loosely."""


@dataclass
class Space:
    """Where each coefficient stands in the vector that is fitted; logarithms throughout."""

    names: list[tuple[str, ...]]

    @classmethod
    def make(cls, chips: Sequence[str]) -> Space:
        """Return the space of the fit to points on ``chips``."""
        names: list[tuple[str, ...]] = [("fraction", arch, n) for arch in ANCHORS for n in FRACTIONS]
        names += [("engine", arch, engine, n) for arch in ANCHORS for engine in ENGINES for n in OF_ENGINE]
        names += [("shared", n) for n in (*SHARED, *ACCEPTED)]
        names += [("factor", HOST, "delay")] if HOST in chips else []
        names += [("factor", LOW, "compute")] if LOW in chips else []
        return cls([n for n in names if n[:2] != ("fraction", "hopper") or not n[2].endswith(".fp4")])

    def start(self) -> NDArray[np.float64]:
        """Return where the fit starts, which is also what it is held to."""

        def of(name: tuple[str, ...]) -> float:
            if name[0] == "factor":
                return 1.5 if name[1] == LOW else 1.0
            last = name[-1]
            return START.get(last, START.get(last.partition(".")[0], 1.0))

        return np.log([of(name) for name in self.names])

    def prior_weight(self) -> NDArray[np.float64]:
        """How firmly each is held to its start."""
        return np.array([2.0 if name == ("shared", "ranks.uneven") else FIRM for name in self.names])

    def bounds(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Least and largest values: no fraction above a published kernel's, no share above 1."""
        low, high = np.full(len(self.names), -np.inf), np.full(len(self.names), np.inf)
        for i, name in enumerate(self.names):
            if name[0] == "fraction":
                high[i] = np.log(_published(name[1], name[2]))
                if name[2] in LEAST:
                    low[i] = np.log(LEAST[name[2]] * _published(name[1], name[2]))
            elif name[:2] == ("factor", HOST) or name[-1].startswith("prefill_share"):
                high[i] = 0.0
            elif name[-1].startswith("accept."):
                low[i] = 0.0
                high[i] = np.log(1.0 + int(name[-1][-1])) if name[-1][-1].isdigit() else np.log(2.5)
            elif name == ("shared", "ranks.uneven"):
                high[i] = np.log(1.5)
        return low, high

    def against(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """By how much (in logarithms) ``x`` would let a better figure give a slower kernel."""
        value = dict(zip(self.names, x, strict=True))
        found = []
        for name in FRACTIONS:
            if ("fraction", "hopper", name) in value:
                ratio = np.log(
                    peak_of(load_gpu(ANCHORS["hopper"]), name) / peak_of(load_gpu(ANCHORS["blackwell"]), name)
                )
                found.append(value["fraction", "hopper", name] + ratio - value["fraction", "blackwell", name])
        formats = [
            (kind, *pair) for kind in ("gemm", "experts") for pair in (("bf16", "fp8"), ("fp8", "fp4"))
        ]
        found += [
            value["fraction", arch, f"{kind}.{wide}"]
            - np.log(2)
            - value["fraction", arch, f"{kind}.{narrow}"]
            for kind, wide, narrow in (*formats, ("attention.decode", "bf16", "fp8"))
            for arch in ANCHORS
            if ("fraction", arch, f"{kind}.{narrow}") in value
        ]
        found += [
            value["engine", "blackwell", engine, name] - value["engine", "hopper", engine, name]
            for engine in ENGINES
            for name in OF_ENGINE
        ]
        for fewer, more in (("1", "2"), ("2", "3")):
            found.append(value["shared", f"accept.{fewer}"] - value["shared", f"accept.{more}"] + MORE_DRAFTS)
        return np.maximum(0.0, np.array(found))

    def tables(self, x: NDArray[np.float64]) -> Tables:
        """Return the coefficients as the cost model reads them: rates never fall, delays never rise."""
        value = dict(zip(self.names, np.exp(x), strict=True))
        return Tables(
            curves={name: _rising(self._curve(value, name)) for name in FRACTIONS},
            delays={engine or ANY_ENGINE: _delays(value, engine) for engine in ("", *ENGINES)},
            shared=FIXED | {name: float(value["shared", name]) for name in (*SHARED, *ACCEPTED)},
        )

    @property
    def _chips(self) -> set[str]:
        return {name[1] for name in self.names if name[0] == "factor"}

    def _curve(self, value: Mapping[tuple[str, ...], float], name: str) -> Points:
        """One fraction over the peak that it derates."""
        points: Points = []
        for arch, chip in ANCHORS.items():
            if ("fraction", arch, name) not in value:
                continue
            if arch == "hopper" and LOW in self._chips and not name.startswith("hbm."):
                low = value["factor", LOW, "compute"] * value["fraction", arch, name]
                points.append((peak_of(load_gpu(LOW), name), min(_published("hopper-h20", name), low)))
            points.append((peak_of(load_gpu(chip), name), value["fraction", arch, name]))
        if name.endswith(".fp4"):
            points += [(peak, points[-1][1] * of_b200) for peak, of_b200 in _beyond(name)]
        return points

    def table(self, x: NDArray[np.float64], chip: str, engine: str) -> dict[str, float]:
        """Coefficients of a chip under an engine."""
        return self.tables(x).of(load_gpu(chip), engine or ANY_ENGINE)

    def linear(
        self, cells: Sequence[tuple[str, str]]
    ) -> tuple[list[str], NDArray[np.float64], NDArray[np.float64]]:
        """Names of coefficients, and ``A``, ``b``: their logarithms for each (chip, engine) are ``A x + b``.

        Where nothing is cut off they are linear in the logarithms that are fitted, since curves are interpolated in
        logarithms. ``A`` is ``[cells, coefficients, parameters]``.
        """
        faster = [name[:2] in (("engine", "blackwell"), ("factor", HOST)) for name in self.names]
        inside = self.start() - 0.1 * np.array(faster)
        names = list(COEFFICIENTS)

        def logs(x: NDArray[np.float64]) -> NDArray[np.float64]:
            tables = self.tables(x)
            rows = [tables.of(load_gpu(chip), engine or ANY_ENGINE) for chip, engine in cells]
            return np.log([[row[name] for name in names] for row in rows])

        at, step = logs(inside), 1e-3
        slopes = np.stack([(logs(inside + step * unit) - at) / step for unit in np.eye(len(inside))], axis=-1)
        return names, slopes, at - slopes @ inside


def _delays(value: Mapping[tuple[str, ...], float], engine: str) -> dict[str, Points]:
    """What belongs to an engine, over BF16 flop/s; "" is the mean of all, which gives the mean of their steps."""
    each = [engine] if engine else list(ENGINES)
    found = {}
    for name in OF_ENGINE:
        points = [
            (peak_of(load_gpu(chip), "gemm.bf16"), _mean([value["engine", arch, one, name] for one in each]))
            for arch, chip in ANCHORS.items()
        ]
        if ("factor", HOST, "delay") in value and name.startswith("delay."):
            peak = peak_of(load_gpu(HOST), "gemm.bf16")
            points.append((peak, points[-1][1] * value["factor", HOST, "delay"]))
        least = np.minimum.accumulate([v for _, v in points])
        found[name] = [(p, float(v)) for (p, _), v in zip(points, least, strict=True)]
    first = peak_of(load_gpu(ANCHORS["hopper"]), "gemm.bf16")
    return found | {"delay.index_layer": [(first, _mean([INDEX_LAYER_S[one] for one in each]))]}


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))


def _rising(points: Points) -> Points:
    """Raise fractions until no rate falls."""
    rates = np.maximum.accumulate([peak * fraction for peak, fraction in points])
    return [(peak, float(rate / peak)) for (peak, _), rate in zip(points, rates, strict=True)]


@cache
def _beyond(name: str) -> Points:
    """Peaks above B200's FP4, and what published kernels reach there as a part of what they do on B200."""
    first = published_best("blackwell", name, chip="b200-sxm").value
    chips = ("gb200", "b300-sxm", "gb300")
    return [
        (peak_of(load_gpu(c), name), published_best("blackwell", name, chip=c).value / first) for c in chips
    ]


@cache
def _published(architecture: str, name: str) -> float:
    """Largest fraction of a published kernel; of the architecture where its lower-clocked kind has no figure."""
    try:
        return published_best(architecture, name).value
    except MissingFigureError:
        return published_best(architecture.partition("-")[0], name).value


def efficiency(space: Space, x: NDArray[np.float64], chip: str, engine: str) -> Efficiency:
    """The coefficients as the cost model takes them."""
    table = space.table(x, chip, engine)
    figures = {name: Figure(table[name], "1", Evidence.DERIVED, "fit") for name in COEFFICIENTS}
    return Efficiency(figures, chip, engine)
