"""Served runs that others measured: what ships with rackplan, as dots beside predicted throughput and speed."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from cost.inputs.deployment import Deployment
from cost.model import Model
from cost.serving.lengths import Lengths
from cost.validation.read import Point
from topology.base.units import plural

ONE_POOL, POOLS = ("decode",), ("disaggregated", "aggregated")
"""Phases of points that count the GPUs of a decode pool alone, and those that count the GPUs of prompts too."""
TPOT, RATE = "tpot_ms", "tok_s_per_gpu"


@dataclass(frozen=True)
class MeasuredPoint:
    """One run: speed and throughput as measured, under lengths, drafts and formats of its own.

    Attributes
    ----------
    tok_s_per_user, tok_s_per_gpu:
        Output tokens per second of one request, and over the GPUs that the publication counts.
    chip:
        Catalog name of the GPU.
    phase:
        ``decode`` (the GPUs that decode alone), ``disaggregated`` or ``aggregated`` (those of prompts too).
    isl, osl:
        Tokens of prompt and answer; of ``decode`` ``isl`` is the context and ``osl`` 0 where only that is known.
    drafts:
        Tokens drafted a step; 0 where none or not said.
    """

    id: str
    source: str
    model: str
    chip: str
    phase: str
    tok_s_per_user: float
    tok_s_per_gpu: float
    gpus: int
    isl: int
    osl: int
    weights: str
    drafts: int

    @property
    def words(self) -> str:
        """The run in one line."""
        length = (
            f"{self.isl:,} + {plural(self.osl, 'token')}"
            if self.osl
            else f"{plural(self.isl, 'token')} of context"
        )
        parts = (
            f"{self.model} on {self.gpus} {self.chip}" if self.gpus else f"{self.model} on {self.chip}",
            self.phase,
            length if self.isl else "",
            self.weights,
            f"{self.drafts} drafted" if self.drafts else "",
        )
        return ", ".join(filter(None, parts))


def measured_points(deployment: Deployment, phases: Iterable[str] = ONE_POOL + POOLS) -> list[MeasuredPoint]:
    """Return the shipped runs of the deployment's model (or one with the same layers) on a chip of its cluster.

    Parameters
    ----------
    phases:
        Those wanted.
    """
    chips = {domain.gpu.name for domain in deployment.cluster.spec.domains}
    wanted = set(phases)
    return [
        point
        for point in _shipped()
        if point.phase in wanted and point.chip in chips and _same_layers(point.model, deployment.model)
    ]


def served_points(deployment: Deployment, lengths: Lengths) -> list[MeasuredPoint]:
    """Return those that served whole requests of these lengths, by one pool or two."""
    asked = (lengths.mean_isl, lengths.mean_osl)
    found = measured_points(deployment, ("aggregated", "disaggregated"))
    return [point for point in found if (point.isl, point.osl) == asked]


def _same_layers(name: str, model: Model) -> bool:
    """Whether a model of the catalog does the work of ``model``: equal but for names and formats."""
    from cost.resolve import resolve_model

    known = resolve_model(name)
    return known.name == model.name or (
        (known.hidden, known.vocab, known.layers) == (model.hidden, model.vocab, model.layers)
    )


@cache
def _shipped() -> tuple[MeasuredPoint, ...]:
    """Return all runs of the shipped files that have both a speed and a throughput."""
    from cost.validation.read import read_measurements, shipped_files

    runs: dict[str, dict[str, Point]] = defaultdict(dict)
    for path in shipped_files():
        for point in read_measurements(path):
            if point.phase in ONE_POOL + POOLS:
                runs[point.id][point.quantity] = point
    found = (_run(run) for run in runs.values() if RATE in run)
    return tuple(point for point in found if point is not None)


def _run(run: dict[str, Point]) -> MeasuredPoint | None:
    """Return a run; None where its speed for a user, or which tokens it counts, is not published."""
    from topology.files.resolve import resolve_cluster

    rate = run[RATE]
    speed = 1e3 / run[TPOT].measured if TPOT in run else 0.0
    per_gpu = rate.measured
    if rate.token_kind == "total" and rate.isl and rate.osl:  # noqa: S105 - tokens of text
        per_gpu *= rate.osl / (rate.isl + rate.osl)
    elif rate.token_kind != "output":  # noqa: S105
        return None
    # every GPU of a pool that decodes alone has so many sequences
    if not speed and rate.phase in ONE_POOL and math.isfinite(rate.batch) and rate.batch > 0:
        speed = per_gpu / rate.batch
    if not speed:
        return None
    chip = resolve_cluster(rate.cluster).spec.domains[0].gpu.name
    return MeasuredPoint(
        id=rate.id,
        source=rate.source,
        model=rate.model,
        chip=chip,
        phase=rate.phase,
        tok_s_per_user=speed,
        tok_s_per_gpu=per_gpu,
        gpus=round(rate.gpus or rate.pool.gpus),
        isl=round(rate.isl or rate.context),
        osl=round(rate.osl),
        weights=rate.weights,
        drafts=max(0, round(rate.draft_tokens)),
    )
