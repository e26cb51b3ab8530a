"""What a step runs on: peaks of the slowest GPU, the fractions of them that kernels reach, and all-to-all kernels."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from cost.calibration.alltoall import Kernel, default_kernel, find_kernel
from cost.dtypes import dtype, multiply_dtype, wider_units
from cost.inputs.fabric_faults import FaultyLinks, faulty_links
from cost.inputs.workload import StepShape
from cost.model import Model
from cost.quantity import Quantity
from topology.base.errors import InputError, MissingFigureError
from topology.base.figures import Evidence, Figure
from topology.cluster import Cluster
from topology.scale_out import leaves_and_pods
from topology.spec import GpuSpec

COEFFICIENTS = {
    "gemm.bf16": "flop/s of projections, dense and shared feed-forward in BF16",
    "gemm.fp8": "the same in FP8",
    "gemm.fp4": "the same in FP4",
    "experts.bf16": "flop/s of routed experts (grouped GEMM) in BF16",
    "experts.fp8": "the same in FP8",
    "experts.fp4": "the same in FP4",
    "experts.int4": "part of their flop/s and HBM bandwidth that routed experts reach on INT4 weights",
    "attention.decode.bf16": "BF16 flop/s of scores over a cache in BF16",
    "attention.decode.fp8": "FP8 flop/s of scores over a cache in FP8",
    "attention.prefill": "BF16 flop/s of scores inside prompts",
    "hbm.weights": "HBM bandwidth of reading weights that every token uses",
    "hbm.experts": "HBM bandwidth of reading routed experts",
    "hbm.cache": "HBM bandwidth of reading the KV cache",
    "links.all_reduce": "link rate in a tensor-parallel all-reduce",
    "links.hop": "link rate in a hand-over between pipeline stages",
    "columns.gemm": "columns at which a slice of a weight reaches half of its fraction",
    "columns.experts": "the same for routed experts",
    "delay.all_reduce": "fixed seconds of one all-reduce",
    "delay.all_reduce_out": "additional fixed seconds of each round of one between domains",
    "delay.layer": "fixed seconds of a layer (launches, norms, synchronisation)",
    "delay.latent_layer": "additional fixed seconds of a layer with latent attention (more kernels)",
    "delay.moe_layer": "additional fixed seconds of a MoE layer (routing, sorting tokens)",
    "delay.index_layer": "additional fixed seconds of a layer that selects what it attends to (index, top-k, gather)",
    "delay.compress_layer": "additional fixed seconds of a layer with compressed entries (compressors, streams)",
    "delay.sequence": "seconds of a step for each sequence (sampling, scheduling)",
    "delay.step": "fixed seconds of a step",
    "engine.share": "time that an engine loses between and beside kernels, over the time of its kernels",
    "ranks.uneven": "unequal work of data-parallel attention ranks over that of requests assigned at random",
    "overlap": "fraction of the shorter of compute and communication that two half-batches hide",
    "accept.1": "tokens that a step yields with 1 drafted token",
    "accept.2": "the same with 2",
    "accept.3": "the same with 3",
    "accept.unrecorded": "tokens per step if drafting is unknown",
    "prompts.gemm": "time of projections of prompts on weights of 8 bits or fewer over what decode's fraction says",
    "prompts.scores": "the same of scores inside prompts",
    "prompts.experts": "the same of routed experts",
    "prompts.first": "part of others' prompts that a request waits for before its first token",
    "prompts.uneven": "part of waiting for the attention rank with most prompts that an engine does not avoid",
}
"""Every coefficient by name. ``gemm``, ``experts``, ``attention``, ``hbm`` and ``links`` are fractions of a peak."""

_FRACTIONS = ("gemm.", "experts.", "attention.", "hbm.", "links.")


@dataclass(frozen=True, eq=False)
class Efficiency:
    """One value for each of :data:`COEFFICIENTS`.

    Attributes
    ----------
    table:
        Figures by name: fractions in (0, 1], delays in seconds, columns, shares in [0, 1].
    chip, engine:
        What they were fitted for, as summaries print it.
    ideal:
        Links and kernels lose nothing either: the pure roofline.
    stand_in_for:
        The chip that nobody measured and whose place ``chip`` takes; empty where it is the chip itself.
    """

    table: Mapping[str, Figure]
    chip: str = ""
    engine: str = ""
    ideal: bool = False
    stand_in_for: str = ""

    def __getitem__(self, name: str) -> float:
        """Value of the coefficient called ``name``."""
        return self._values[name]

    @cached_property
    def _values(self) -> dict[str, float]:
        return {name: figure.value for name, figure in self.table.items()}

    def compute_times(self, units: Sequence[Unit]) -> float:
        """Seconds that kernels take on some units, one after the other, over those at peak.

        Each reaches a fraction of its peak, or that of a wider unit over the same peak, if higher: a chip whose FP4
        kernels are slow may always run the FP8 ones, so another unit never makes it slower.
        """
        return sum(
            unit.part / (self._unpacked(unit) * max(self[name] * ratio for name, ratio in unit.kernels))
            for unit in units
        )

    def read_times(self, units: Sequence[Unit], hbm: str) -> float:
        """Seconds that kernels take to read over those at peak; ``hbm``: the name of what they reach of it."""
        return sum(unit.read / (self._unpacked(unit) * self[hbm]) for unit in units)

    def _unpacked(self, unit: Unit) -> float:
        return self[unit.unpacking] if unit.unpacking else 1.0

    def figures(self) -> Mapping[str, Figure]:
        """All coefficients by name."""
        return self.table

    def on_prompts(self, *, mixed: bool) -> Efficiency:
        """Return what kernels reach on prompts, by :func:`on_prompts`; at peaks the same."""
        if self.ideal:
            return self
        table = {
            name: replace(figure, value=float(on_prompts(name, figure.value, self.__getitem__, mixed=mixed)))
            for name, figure in self.table.items()
        }
        return replace(self, table=table)


_EIGHT_BITS = ("gemm.fp8", "gemm.fp4")
_MAX_GEMM, _MAX_SCORES = 0.85, 0.75
"""Parts of the peak that no kernel of prompts is taken to exceed unless decode's does."""


def on_prompts(
    name: str, value: Quantity, times: Callable[[str], Quantity], *, mixed: bool = True
) -> Quantity:
    """Return what kernels reach on prompts where they reach ``value`` in steps that decode.

    Full tiles of projections and scores reach more, partly filled ones of experts less. ``times``: the coefficients
    that say how much (``prompts.gemm``...), by name. ``mixed``: in steps that decode too, whose chunks fill tiles of
    experts in part and leave CUDA graphs.
    """
    if name in _EIGHT_BITS:
        return np.maximum(value, np.minimum(_MAX_GEMM, value / times("prompts.gemm")))
    if name == "attention.prefill":
        return np.maximum(value, np.minimum(_MAX_SCORES, value / times("prompts.scores")))
    if mixed and name.startswith("experts.") and name != "experts.int4":
        return value / times("prompts.experts")
    return value


def is_fraction(name: str) -> bool:
    """Whether a coefficient is a fraction of a peak."""
    return name.startswith(_FRACTIONS)


def _peak(name: str) -> Figure:
    unit = "s" if name.startswith("delay.") else "1"
    return Figure(
        1.0 if is_fraction(name) or name.startswith("accept.") else 0.0,
        unit,
        Evidence.DATASHEET,
        "data-sheet peak",
    )


PEAK = Efficiency({name: _peak(name) for name in COEFFICIENTS}, "data-sheet peak", ideal=True)
"""All parts at data-sheet peak without delays: the pure roofline."""


UP_LINKS = 2
OUT_LINKS = 4


class Unit(NamedTuple):
    """A multiply unit of a chip, as weights of one format use it.

    Attributes
    ----------
    fraction:
        Name of the fraction of its peak that kernels reach.
    wider:
        Names of those of wider units that can multiply it too, each with the wider unit's peak over this one's.
    unpacking:
        Name of the part of that fraction, and of HBM's, that kernels reach on the format; empty: all.
    part, read:
        Part of the seconds at peak and of the bytes read that the format has: 1, less in a mixture.
    """

    fraction: str
    wider: tuple[tuple[str, float], ...] = ()
    unpacking: str = ""
    part: float = 1.0
    read: float = 1.0

    @property
    def kernels(self) -> tuple[tuple[str, float], ...]:
        """All fractions that it may reach, each with the peak of its unit over this one's."""
        return ((self.fraction, 1.0), *self.wider)


@dataclass(frozen=True)
class Rates:
    """Peak rates of the slowest GPU among some GPUs.

    Attributes
    ----------
    flop_per_s:
        Dense peak in flop/s by weight dtype name: the rate of the unit that multiplies it; of a mixture, of its
        formats one after the other.
    unit:
        That unit (``bf16``, ``fp8``, ``fp4``), the widest where GPUs differ; none of mixtures.
    wider:
        By weight dtype name, the wider units of the chip that can multiply it too, and their peaks over that of
        ``unit``: where kernels for the narrow unit reach little of its peak, a wider one may be faster.
    chip:
        Name of the slowest GPU: what kernels reach is taken from it.
    hbm_bytes_per_s:
        HBM bandwidth.
    up_bytes_per_s, out_bytes_per_s:
        Bytes/s per GPU and direction on the scale-up and the scale-out fabric (0 where there is none; no limit inside
        domains of one GPU, where nothing is sent). Traffic
        between domains is taken to cross the spine, so oversubscription divides the rate of the NICs; where links
        are broken or slow, it is what they leave to an all-to-all (:mod:`cost.inputs.fabric_faults`).
    alltoall_bytes_per_s:
        Bytes/s per GPU of a uniform all-to-all inside the domain: the sum of a GPU's links behind switches, less on
        a torus, where bytes take several links.
    up_latency_s, out_latency_s:
        Latency of one crossing of the fabric: GPU, switch, GPU is two links; GPU, leaf, spine, leaf, GPU four.
    up_fabric, out_fabric:
        Names of the fabrics.
    notes:
        What runs at a wider type than it is stored in.
    """

    flop_per_s: Mapping[str, float]
    unit: Mapping[str, str]
    chip: str
    hbm_bytes_per_s: float
    up_bytes_per_s: float
    alltoall_bytes_per_s: float
    up_latency_s: float
    up_fabric: str
    out_bytes_per_s: float
    out_latency_s: float
    out_fabric: str
    notes: tuple[str, ...] = ()
    wider: Mapping[str, tuple[tuple[str, float], ...]] = field(default_factory=dict)

    def units(self, kind: str, weights: str) -> tuple[Unit, ...]:
        """Return the units that kernels of ``kind`` (``gemm``, ``experts``) use on weights, one a format of them."""
        stored = dtype(weights)
        return tuple(
            Unit(
                _fraction(kind, self.unit[form.name]),
                tuple((_fraction(kind, unit), ratio) for unit, ratio in self.wider[form.name]),
                "experts.int4" if kind == "experts" and form.name.startswith("int4") else "",
                share * self.flop_per_s[weights] / self.flop_per_s[form.name] if stored.mixed else 1.0,
                share * form.bytes_per_param / stored.bytes_per_param if stored.mixed else 1.0,
            )
            for form, share in stored.parts
        )

    def on_chip(self, gpu: GpuSpec, dtypes: Iterable[str]) -> Rates:
        """Return the rates of another chip on the same links, for weights stored as each of ``dtypes``.

        Raises
        ------
        MissingFigureError
            If the catalog lacks a figure of it.
        """
        peaks, units, wider, _ = _products([(gpu, 1.0)], dtypes)
        return replace(
            self,
            flop_per_s=peaks,
            unit=units,
            wider=wider,
            chip=gpu.name,
            hbm_bytes_per_s=gpu.hbm_bytes_per_s,
        )

    def is_on_chip_of(self, other: Rates) -> bool:
        """Whether others are the rates of the same chip."""
        return self.hbm_bytes_per_s == other.hbm_bytes_per_s and all(
            self.flop_per_s[dtype] == peak for dtype, peak in other.flop_per_s.items()
        )

    def require_scale_out(self) -> None:
        """Check that something joins the domains, where GPUs of several must talk.

        Raises
        ------
        InputError
            If nothing does.
        """
        if self.out_bytes_per_s <= 0:
            raise InputError(
                "GPUs in different domains exchange data, but no `fabric:` connects them; add one."
            )


def _fraction(kind: str, unit: str) -> str:
    """The coefficient of a unit; INT8 is derated as FP8, which is as wide: no row that was fitted multiplies it."""
    return f"{kind}.{'fp8' if unit == 'int8' else unit}"


@dataclass(frozen=True, eq=False)
class GpuRates:
    """How many times faster than the rates of its stage, those of the slowest GPU, each GPU runs experts.

    Attributes
    ----------
    compute, read:
        Of what kernels reach, float64 ``[gpus]``.
    peak_compute, peak_read:
        Of data-sheet peaks, float64 ``[gpus]``, at least 1.
    """

    compute: NDArray[np.float64]
    read: NDArray[np.float64]
    peak_compute: NDArray[np.float64]
    peak_read: NDArray[np.float64]


def stage_rates(cluster: Cluster, gpus: Sequence[int], dtypes: Sequence[str]) -> Rates:
    """Return the rates of the slowest of ``gpus``, for weights stored as each of ``dtypes``.

    A synchronous step waits for its slowest GPU, so each rate is the smallest among them.

    Raises
    ------
    MissingFigureError
        If the catalog lacks a figure of a GPU or of its links.
    InputError
        If a GPU has no scale-up link that works.
    """
    members: dict[int, None] = dict.fromkeys(cluster.gpus[gpu].domain for gpu in gpus)
    factor = slowest_factor(cluster, gpus)
    domains = [cluster.spec.domains[member] for member in members]
    parts = [factor.get(member, 1.0) for member in members]
    chips = [(domain.gpu, part) for domain, part in zip(domains, parts, strict=True)]
    peaks, units, wider, notes = _products(chips, dtypes)
    # a GPU that is a domain of its own sends nothing inside it, over links that it may not have
    joined = [domain for domain in domains if domain.gpus > 1]
    slowest = min(joined or domains, key=lambda domain: domain.scale_up_bytes_per_s)
    up = _scale_up(cluster, gpus, slowest.scale_up_bytes_per_s) if joined else math.inf
    out = cluster.spec.scale_out
    return Rates(
        flop_per_s=peaks,
        unit=units,
        chip=min(chips, key=lambda chip: (chip[0].dense_flop_per_s("bf16"), chip[0].hbm_bytes_per_s))[0].name,
        hbm_bytes_per_s=min(part * gpu.hbm_bytes_per_s for gpu, part in chips),
        up_bytes_per_s=up,
        alltoall_bytes_per_s=up,
        up_latency_s=UP_LINKS * slowest.fabric.latency_s.value,
        up_fabric=slowest.fabric.name,
        out_bytes_per_s=out.scale_out_bytes_per_s / out.total_oversubscription if out else 0.0,
        out_latency_s=OUT_LINKS * out.fabric.latency_s.value if out else 0.0,
        out_fabric=out.fabric.name if out else "",
        notes=notes,
        wider=wider,
    )


def _products(
    chips: Sequence[tuple[GpuSpec, float]], dtypes: Iterable[str]
) -> tuple[dict[str, float], dict[str, str], dict[str, tuple[tuple[str, float], ...]], tuple[str, ...]]:
    """Return the peaks, units, wider units and notes of :class:`Rates` for GPUs that work at parts of their rates."""
    peaks: dict[str, float] = {}
    units: dict[str, str] = {}
    notes: dict[str, None] = {}
    stored = {name: dtype(name) for name in dtypes}
    for form in dict.fromkeys(part.name for weights in stored.values() for part, _ in weights.parts):
        for gpu, part in chips:
            unit, note = multiply_dtype(form, gpu)
            peak = part * gpu.dense_flop_per_s(unit)
            if peak <= peaks.get(form, peak):
                peaks[form], units[form] = peak, unit
            if note:
                notes[note] = None
    wider = {
        form: tuple(
            (wider_unit, min(part * gpu.dense_flop_per_s(wider_unit) for gpu, part in chips) / peak)
            for wider_unit in wider_units(units[form])
            if all(gpu.multiplies(wider_unit) for gpu, _ in chips)
        )
        for form, peak in peaks.items()
    }
    for name, weights in stored.items():
        if weights.mixed:
            peaks[name] = weights.rate(peaks)
    return peaks, units, wider, tuple(notes)


def slowest_factor(cluster: Cluster, gpus: Sequence[int]) -> dict[int, float]:
    """Return the smallest part of its rates that one of ``gpus`` works at, by domain; those that have a slow one."""
    slow: dict[int, float] = {}
    if cluster.spec.slow_gpus:
        for gpu in gpus:
            part = cluster.spec.slow_gpus.get(cluster.gpus[gpu].id, 1.0)
            domain = cluster.gpus[gpu].domain
            slow[domain] = min(part, slow.get(domain, 1.0))
    return slow


def unlike_gpus(cluster: Cluster) -> dict[int, tuple[float, int]]:
    """Return what sets GPUs apart from others of their kind, by GPU: slower chips, and all of a domain with faults.

    Groups whose GPUs in the same places are equally unlike cost the same. Where links between switches are faulty,
    GPUs on different leaves are apart too, by a number below -1.
    """
    spec, faulty = cluster.spec, faulty_links(cluster)
    if not spec.slow_gpus and faulty == FaultyLinks() and spec.raw is None:
        return {}
    leaf = leaves_and_pods(spec, cluster.gpus)[0] if faulty.above else None
    unlike = {}
    for index, gpu in enumerate(cluster.gpus):
        rate = spec.slow_gpus.get(gpu.id, 1.0) if spec.raw is None else cluster.scale_up_bytes_per_s(index)
        apart = gpu.domain in faulty.domains or gpu.node in faulty.nodes
        if apart or rate != 1.0 or leaf is not None:
            unlike[index] = rate, index if apart else -1 if leaf is None else -2 - leaf[index]
    return unlike


def _scale_up(cluster: Cluster, gpus: Sequence[int], slowest: float) -> float:
    """Return scale-up bytes/s of the GPU that has least, less what is broken."""
    if math.isnan(slowest):
        names = sorted({cluster.domain_of(gpu).fabric.name for gpu in gpus})
        raise MissingFigureError(
            f"{cluster.name}: the rate of a link of {', '.join(names)} is not published, so the cluster "
            "cannot be scored."
        )
    if not cluster.spec.reshaped and cluster.spec.raw is None:
        return slowest
    rates = {gpu: cluster.scale_up_bytes_per_s(gpu) for gpu in gpus}
    slowest_gpu = min(rates, key=lambda gpu: rates[gpu])
    if rates[slowest_gpu] <= 0 and len(gpus) > 1:
        raise InputError(
            f"{cluster.name}: GPU {cluster.gpus[slowest_gpu].id} has no working scale-up link; mark the GPU as "
            "broken, or put it in a separate domain."
        )
    return max(rates[slowest_gpu], 0.0)


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


class Corrects(Protocol):
    """What measured decode steps took over the physics on a machine (:class:`cost.calibration.order.Bound`).

    ``price`` gives the seconds of a step by physics.
    """

    def applied(self, shape: StepShape, price: Price) -> StepShape:
        """Return a shape with the correction by nearby measured steps."""

    def near(self, shape: StepShape, price: Price) -> NearRuns:
        """Return what runs say of one step."""


@dataclass(frozen=True)
class NearRuns:
    """What measured runs say of a step.

    ``factor`` over the physics, how many are near, and the ``band``: the factor either way that holds four of five
    runs like it. ``lender``: another chip that the factor is of.
    """

    factor: float = 1.0
    runs: int = 0
    band: float | None = None
    lender: str = ""


NO_RUNS = NearRuns()
"""Of steps that no run corrects."""


@dataclass(frozen=True)
class Machine:
    """Rates at peak, fractions of them that kernels reach, and formats on the way.

    Attributes
    ----------
    kv_dtype:
        Format of the KV cache.
    dispatch_dtype:
        Format of hidden vectors on their way to experts; empty: by the experts' weights.
    correction:
        What measured decode steps took over the physics; None: the physics alone.
    pads:
        Whether steps that decode run at the next size of a CUDA graph.
    """

    rates: Rates
    efficiency: Efficiency
    kernels: Kernels
    kv_dtype: str = "bf16"
    dispatch_dtype: str = ""
    correction: Corrects | None = None
    pads: bool = False

    @cached_property
    def of_prompts(self) -> Machine:
        """The same with what kernels reach on prompts beside sequences that decode."""
        return replace(self, efficiency=self.efficiency.on_prompts(mixed=True))

    @cached_property
    def of_prefill(self) -> Machine:
        """The same with what kernels reach in steps of prompts alone."""
        return replace(self, efficiency=self.efficiency.on_prompts(mixed=False))


Price = Callable[[Model, StepShape, Machine], Quantity]
"""Seconds of a step by physics."""


def kernels_for(rates: Rates, phase: str, name: str = "") -> Kernels:
    """Return the kernels of a phase on these fabrics: those called ``name``, else the phase's own.

    Raises
    ------
    InputError
        If no kernel has that name.
    """
    return _kernels_for(rates.up_fabric, phase, name)


@cache
def _kernels_for(up_fabric: str, phase: str, name: str) -> Kernels:
    """The kernels of a fabric: one object for each."""

    def named(kernel_name: str, *, crosses: bool) -> Kernel:
        return find_kernel(kernel_name, up_fabric=up_fabric, crosses=crosses).kernel

    def usual(*, crosses: bool) -> Kernel:
        return default_kernel(phase, up_fabric=up_fabric, crosses=crosses)

    gather = named("all-gather", crosses=False)
    if name:
        return Kernels(named(name, crosses=False), named(name, crosses=True), gather)
    inside, across = usual(crosses=False), usual(crosses=True)
    return Kernels(inside, across, gather, across if across is not inside else None)
