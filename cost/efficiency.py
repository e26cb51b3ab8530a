"""Which fraction of a data-sheet peak real kernels reach, and the fixed delays around them, each with its source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from topology.figures import Evidence, Figure

COEFFICIENTS = {
    "gemm.bf16": "flop/s of projections, dense and shared feed-forward in BF16",
    "gemm.fp8": "the same in FP8",
    "gemm.fp4": "the same in FP4",
    "experts.bf16": "flop/s of routed experts (grouped GEMM) in BF16",
    "experts.fp8": "the same in FP8",
    "experts.fp4": "the same in FP4",
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
    "delay.all_reduce_out": "fixed seconds besides of each round of one between domains",
    "delay.layer": "fixed seconds of a layer (launches, norms, synchronisation)",
    "delay.latent_layer": "fixed seconds of a layer with latent attention besides (more kernels)",
    "delay.moe_layer": "fixed seconds of a MoE layer besides (routing, sorting tokens)",
    "delay.index_layer": "fixed seconds of a layer that picks what it attends to besides (index, top-k, gather)",
    "delay.compress_layer": "fixed seconds of a layer with compressed entries besides (compressors, streams)",
    "delay.sequence": "seconds of a step for each sequence (sampling, scheduling)",
    "delay.step": "fixed seconds of a step",
    "engine.share": "time that an engine loses between and beside kernels, over the time of its kernels",
    "ranks.uneven": "unequal work of data-parallel attention ranks over that of requests assigned at random",
    "overlap": "part of the shorter of computing and sending that two half batches hide",
    "accept.1": "tokens that a step yields with 1 drafted token",
    "accept.2": "the same with 2",
    "accept.3": "the same with 3",
    "accept.unrecorded": "tokens that a step yields where nobody says whether it drafted",
    "prefill_share": "part of the prefill of other requests that delays a decoding one, engines that mix phases",
    "prefill_share.in_step": "the same where requests of equal lengths keep in step",
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

    def reached(self, fraction: str, wider: tuple[tuple[str, float], ...] = ()) -> float:
        """Part of a unit's peak that kernels reach, or what those of a wider unit reach over the same peak, if more.

        ``wider``: names of those fractions, each with the wider unit's peak over the unit's. A chip whose FP4 kernels
        are slow may always run the FP8 ones: another unit never makes it slower.
        """
        return max(self[fraction], *(self[name] * ratio for name, ratio in wider), 0.0)

    def figures(self) -> Mapping[str, Figure]:
        """All coefficients by name."""
        return self.table


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
"""Every part at its data-sheet peak, no delays: the pure roofline."""
