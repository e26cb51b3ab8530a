"""The coefficients that are fitted: their place in the vector, their bounds, what a chip gets of them.

A fraction is a curve over the peak that it derates, through one value per architecture of a family, so that the
order of its chips cannot be inverted: rates may not fall from an architecture to a faster one, delays may not rise
(:meth:`Space.against`), and no fraction exceeds what a published kernel reaches (cost/calibration/kernels.yaml).
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from cost.calibration.kernels import kernel_rates, published_best
from cost.calibration.serving import ANY_ENGINE, Tables, peak_of
from cost.inputs.machine import COEFFICIENTS, Efficiency
from topology.base.errors import InputError
from topology.base.figures import Evidence, Figure
from topology.catalog import load_gpu

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    Points = list[tuple[float, float]]

__all__ = ["AMD", "FIXED", "NVIDIA", "Family", "Space", "efficiency"]


@dataclass(frozen=True)
class Family:
    """Chips that are fitted together.

    Attributes
    ----------
    anchors:
        Architectures in the order of their figures, and the chip whose peaks their fractions are entered at.
    engines:
        Those that are fitted; ``any`` is their mean.
    chips:
        Those that may be fitted; those of an architecture share its coefficients.
    beyond:
        Chips with more FP4 than the last anchor, by their FP4.
    int4:
        Whether its kernels run slower on INT4 weights.
    least:
        As :data:`LEAST`, by kind of fraction, where runs alone do not hold it: few of AMD's have large batches.
    """

    anchors: Mapping[str, str]
    engines: tuple[str, ...]
    chips: tuple[str, ...]
    beyond: tuple[str, ...] = ()
    int4: bool = False
    least: Mapping[str, float] = field(default_factory=dict)

    @property
    def first(self) -> str:
        """The anchor of the first architecture."""
        return next(iter(self.anchors.values()))


NVIDIA = Family(
    {"hopper": "h200-sxm", "blackwell": "b200-sxm"},
    ("trtllm", "sglang", "vllm"),
    (
        "h100-sxm",
        "h200-sxm",
        "h800-sxm",
        "h20-sxm",
        "b200-sxm",
        "b300-sxm",
        "gb200",
        "gb300",
        "ascend-910c",
    ),
    beyond=("gb200", "b300-sxm", "gb300"),
)
AMD = Family(
    {"cdna3": "mi300x", "cdna4": "mi355x"},
    ("sglang", "vllm"),
    ("mi300x", "mi325x", "mi355x"),
    int4=True,
    least={"gemm": 0.4, "experts": 0.3},
)
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
]
SHARED = ["columns.gemm", "columns.experts", "ranks.uneven"]
INT4 = "experts.int4"
ACCEPTED = [name for name in COEFFICIENTS if name.startswith("accept.")]
START = {
    "gemm": 0.4,
    "experts": 0.3,
    "attention": 0.4,
    "hbm": 0.7,
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
the mixing of residual streams less MLA (data/sparse_kernels.csv; docs/trust.md)."""
FIXED = {
    "overlap": 0.6,
    "links.all_reduce": 0.82,
    "links.hop": 0.82,
    "delay.compress_layer": COMPRESS_LAYER_S,
    "prompts.gemm": 0.7,
    "prompts.scores": 0.55,
    "prompts.experts": 1.5,
    "experts.int4": 1.0,
}
"""Not fitted; INT4 by a family alone. Overlap: both of SGLang's ablations. Links: 370 of 450 GB/s that NCCL reaches
inside a node (jax-ml scaling book). Prompts: full tiles of projections and scores reach more than those that
decode, experts less, whose tiles are partly filled and whose steps run outside CUDA graphs; bounds 0.6 to 1, 0.45 to
0.75, 1 to 2 (serving rows in which prompts are more than 30 % of the time)."""
OF_PROMPTS = {
    "prompts.first": {"sglang": 0.12, "trtllm": 0.01, "vllm": 0.03},
    "prompts.uneven": {"sglang": 1.0, "trtllm": 0.05, "vllm": 1.0},
}
"""Not fitted, by engine: SGLang pauses decoding for prompts; TensorRT-LLM holds prompts until ranks start them
together (``batching_wait_iters``)."""
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
    """Where each coefficient stands in the vector that is fitted; logarithms throughout.

    ``shared``: what is not fitted of what is the same on every chip of every family that has no curve of it.
    """

    names: list[tuple[str, ...]]
    family: Family
    shared: Mapping[str, float]

    @classmethod
    def make(cls, chips: Sequence[str], family: Family, shared: Mapping[str, float] | None = None) -> Space:
        """Return the space of the fit to points on ``chips``; what is ``shared`` is fitted if it is not given."""
        without, anchors = kernel_rates().without, family.anchors
        fractions = [n for n in FRACTIONS if n != INT4 or family.int4]
        names: list[tuple[str, ...]] = [
            ("fraction", arch, n) for arch in anchors for n in fractions if n not in without.get(arch, {})
        ]
        names += [
            ("engine", arch, engine, n) for arch in anchors for engine in family.engines for n in OF_ENGINE
        ]
        names += [("shared", n) for n in (*SHARED, *ACCEPTED)] if shared is None else []
        names += [("factor", HOST, "delay")] if HOST in chips else []
        names += [("factor", LOW, "compute")] if LOW in chips else []
        return cls(names, family, shared or FIXED)

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
                most = _published(name[1], name[2], *self.family.anchors)
                high[i] = np.log(most)
                least = LEAST.get(name[2]) or self.family.least.get(name[2].partition(".")[0])
                if least and name[2] != INT4:
                    low[i] = np.log(least * most)
            elif name[:2] == ("factor", HOST):
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
        anchors, engines = self.family.anchors, self.family.engines
        for (slow, slower), (fast, faster) in pairwise(anchors.items()):
            for name in FRACTIONS:
                if ("fraction", slow, name) in value:
                    ratio = np.log(peak_of(load_gpu(slower), name) / peak_of(load_gpu(faster), name))
                    found.append(value["fraction", slow, name] + ratio - value["fraction", fast, name])
        formats = [
            (kind, *pair) for kind in ("gemm", "experts") for pair in (("bf16", "fp8"), ("fp8", "fp4"))
        ]
        found += [
            value["fraction", arch, f"{kind}.{wide}"]
            - np.log(2)
            - value["fraction", arch, f"{kind}.{narrow}"]
            for kind, wide, narrow in (*formats, ("attention.decode", "bf16", "fp8"))
            for arch in anchors
            if ("fraction", arch, f"{kind}.{narrow}") in value
        ]
        found += [
            value["engine", fast, engine, name] - value["engine", slow, engine, name]
            for slow, fast in pairwise(anchors)
            for engine in engines
            for name in OF_ENGINE
        ]
        for fewer, more in (("accept.1", "accept.2"), ("accept.2", "accept.3")):
            if ("shared", fewer) in value:
                found.append(value["shared", fewer] - value["shared", more] + MORE_DRAFTS)
        return np.maximum(0.0, np.array(found))

    def tables(self, x: NDArray[np.float64]) -> Tables:
        """Return the coefficients as the cost model reads them: rates never fall, delays never rise."""
        value = dict(zip(self.names, np.exp(x), strict=True))
        return Tables(
            curves={n: _rising(points) for n in FRACTIONS if (points := self._curve(value, n))},
            delays={
                engine or ANY_ENGINE: _delays(value, self.family, engine)
                for engine in ("", *self.family.engines)
            },
            shared={**self.shared, **{n[1]: float(v) for n, v in value.items() if n[0] == "shared"}},
        )

    @property
    def _chips(self) -> set[str]:
        return {name[1] for name in self.names if name[0] == "factor"}

    def _curve(self, value: Mapping[tuple[str, ...], float], name: str) -> Points:
        """One fraction over the peak that it derates."""
        points: Points = []
        for arch, chip in self.family.anchors.items():
            if ("fraction", arch, name) not in value:
                continue
            if arch == "hopper" and LOW in self._chips and not name.startswith("hbm."):
                low = value["factor", LOW, "compute"] * value["fraction", arch, name]
                points.append(
                    (peak_of(load_gpu(LOW), name), min(_published("hopper-h20", name, "hopper"), low))
                )
            points.append((peak_of(load_gpu(chip), name), value["fraction", arch, name]))
        if name.endswith(".fp4"):
            points += [(peak, points[-1][1] * part) for peak, part in _beyond(name, self.family.beyond)]
        return points

    def table(self, x: NDArray[np.float64], chip: str, engine: str) -> dict[str, float]:
        """Coefficients of a chip under an engine."""
        return self.tables(x).of(load_gpu(chip), self._measured(engine))

    def _measured(self, engine: str) -> str:
        return engine if engine in self.family.engines else ANY_ENGINE

    def linear(
        self, cells: Sequence[tuple[str, str]]
    ) -> tuple[list[str], NDArray[np.float64], NDArray[np.float64]]:
        """Names of coefficients, and ``A``, ``b``: their logarithms for each (chip, engine) are ``A x + b``.

        Where nothing is cut off they are linear in the logarithms that are fitted, since curves are interpolated in
        logarithms. ``A`` is ``[cells, coefficients, parameters]``.
        """
        rank = {("engine", arch): i for i, arch in enumerate(self.family.anchors)} | {("factor", HOST): 1}
        inside = self.start() - 0.1 * np.array([rank.get(name[:2], 0) for name in self.names])
        names = list(COEFFICIENTS)

        def logs(x: NDArray[np.float64]) -> NDArray[np.float64]:
            tables = self.tables(x)
            rows = [tables.of(load_gpu(chip), self._measured(engine)) for chip, engine in cells]
            return np.log(np.maximum([[row[name] for name in names] for row in rows], 1e-12))

        at, step = logs(inside), 1e-3
        slopes = np.stack([(logs(inside + step * unit) - at) / step for unit in np.eye(len(inside))], axis=-1)
        return names, slopes, at - slopes @ inside


def _delays(value: Mapping[tuple[str, ...], float], family: Family, engine: str) -> dict[str, Points]:
    """What belongs to an engine, over BF16 flop/s; "" is the mean of all, which gives the mean of their steps."""
    each = [engine] if engine else family.engines
    found = {}
    for name in OF_ENGINE:
        points = [
            (peak_of(load_gpu(chip), "gemm.bf16"), _mean([value["engine", arch, one, name] for one in each]))
            for arch, chip in family.anchors.items()
        ]
        if ("factor", HOST, "delay") in value and name.startswith("delay."):
            peak = peak_of(load_gpu(HOST), "gemm.bf16")
            points.append((peak, points[-1][1] * value["factor", HOST, "delay"]))
        least = np.minimum.accumulate([v for _, v in points])
        found[name] = [(p, float(v)) for (p, _), v in zip(points, least, strict=True)]
    first = peak_of(load_gpu(family.first), "gemm.bf16")
    of_engine = {"delay.index_layer": INDEX_LAYER_S, **OF_PROMPTS}
    return found | {
        name: [(first, _mean([values[one] for one in each]))] for name, values in of_engine.items()
    }


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))


def _rising(points: Points) -> Points:
    """Raise fractions until no rate falls."""
    rates = np.maximum.accumulate([peak * fraction for peak, fraction in points])
    return [(peak, float(rate / peak)) for (peak, _), rate in zip(points, rates, strict=True)]


@cache
def _beyond(name: str, chips: tuple[str, ...]) -> Points:
    """Peaks above B200's FP4, and what published kernels reach there as a part of what they do on B200."""
    first = published_best("blackwell", name, chip="b200-sxm").value
    return [
        (peak_of(load_gpu(c), name), published_best("blackwell", name, chip=c).value / first) for c in chips
    ]


@cache
def _published(architecture: str, name: str, *others: str) -> float:
    """Largest fraction of a published kernel, of ``others`` where the architecture has no figure, or else 1."""
    for arch in (architecture, *others):
        with suppress(InputError):
            return published_best(arch, name).value
    return 1.0


def efficiency(space: Space, x: NDArray[np.float64], chip: str, engine: str) -> Efficiency:
    """The coefficients as the cost model takes them."""
    table = space.table(x, chip, engine)
    figures = {name: Figure(table[name], "1", Evidence.DERIVED, "fit") for name in COEFFICIENTS}
    return Efficiency(figures, chip, engine)
