"""Built-in published runs, each with the prediction for its own conditions."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from cost.calibration.correction import Correction
from cost.calibration.serving import ANY_ENGINE, engine_version, require_engine
from cost.inputs.deployment import Deployment
from cost.model import Model
from cost.resolve import resolve_model
from cost.serving.lengths import Lengths
from cost.validation.predict import group_points, predict
from cost.validation.read import Point, read_measurements, shipped_files
from topology.base.units import plural
from topology.files.resolve import resolve_cluster

ONE_POOL, POOLS = ("decode",), ("disaggregated", "aggregated")
"""Phases of points that count the GPUs of a decode pool alone, and those that count the GPUs of prompts too."""
TPOT, RATE = "tpot_ms", "tok_s_per_gpu"
CONTEXT_TOLERANCE = 0.05
"""Part by which the context of a run may differ from that of a question about decode alone."""


@dataclass(frozen=True)
class MeasuredPoint:
    """One measured run.

    Attributes
    ----------
    row:
        Its throughput as published, with all that is known of how it ran. The GPUs are those that decode alone where
        its phase is ``decode``, else those of prompts too.
    chip:
        Catalog name of the GPU.
    tok_s_per_user, tok_s_per_gpu:
        Output tokens per second of one request (0: not published), and over the GPUs that the publication counts.
    """

    row: Point
    chip: str
    tok_s_per_user: float
    tok_s_per_gpu: float

    @property
    def isl(self) -> int:
        """Tokens of the prompt; of decode alone the context where only that is known, and then ``row.osl`` is 0."""
        return round(self.row.isl or self.row.context)

    @property
    def words(self) -> str:
        """The run in one line."""
        row, gpus = self.row, self.row.gpus or self.row.pool.gpus
        length = f"{self.isl:,} + {plural(row.osl, 'token')}"
        parts = (
            f"{row.model} on {gpus} {self.chip}" if gpus else f"{row.model} on {self.chip}",
            row.phase,
            (length if row.osl else f"{plural(self.isl, 'token')} of context") if self.isl else "",
            row.weights,
            f"{row.draft_tokens} drafted" if row.draft_tokens else "",
        )
        return ", ".join(filter(None, parts))


def measured_points(deployment: Deployment, phases: Iterable[str] = ONE_POOL + POOLS) -> list[MeasuredPoint]:
    """Return the built-in runs of the deployment's model (or one with the same layers) on a chip of its cluster.

    Those alone that publish the speed of a user.

    Parameters
    ----------
    phases:
        Those wanted.
    """
    return [run for run in published_runs(deployment) if run.row.phase in set(phases) and run.tok_s_per_user]


def comparable_points(deployment: Deployment, lengths: Lengths | None = None) -> list[MeasuredPoint]:
    """Return the runs at the requested conditions, which can be drawn on the frontier.

    The same lengths (of decode alone: the context, within :data:`CONTEXT_TOLERANCE`), formats of experts and cache,
    drafts and overlap, and the same engine where the question names one.
    """
    if deployment.workload.what_if or not deployment.workload.decodes:
        return []
    runs = measured_points(deployment, ONE_POOL if lengths is None else POOLS)
    return [run for run in runs if _comparable(run.row, deployment, lengths)]


def _comparable(row: Point, deployment: Deployment, lengths: Lengths | None) -> bool:
    work, engine = deployment.workload, require_engine(engine_version(deployment.engine)[0])
    same_lengths = (
        math.isclose(row.mean_context, work.context, rel_tol=CONTEXT_TOLERANCE)
        if lengths is None
        else (row.isl, row.osl) == (lengths.mean_isl, lengths.mean_osl)
    )
    (group, *_), _ = group_points([row])
    formats = [
        (model.precision[model.main_weights], kv_dtype)
        for model, kv_dtype in ((group.model, group.workload.kv_dtype), (deployment.model, work.kv_dtype))
    ]
    return (
        same_lengths
        and formats[0] == formats[1]
        and row.drafts_recorded
        and row.draft_tokens == work.draft_tokens
        and row.overlap == work.overlap
        and row.cache_hit == work.prefix_hit
        and engine in (ANY_ENGINE, group.engine)
    )


@cache
def predicted(run: MeasuredPoint, correction: Correction) -> float | None:
    """Return the predicted tok/s/GPU of a run at its own conditions; None if details are missing."""
    (prediction,) = predict([run.row], correction)
    return None if prediction.value is None else run.tok_s_per_gpu * prediction.value / run.row.measured


def published_runs(deployment: Deployment) -> list[MeasuredPoint]:
    """Return all built-in runs of the deployment's model (or one with the same layers) on a chip of its cluster."""
    chips = {domain.gpu.name for domain in deployment.cluster.spec.domains}
    return [run for run in _shipped() if run.chip in chips and _same_layers(run.row.model, deployment.model)]


def _same_layers(name: str, model: Model) -> bool:
    """Whether a model of the catalog does the work of ``model``: equal but for names and formats."""
    known = resolve_model(name)
    return known.name == model.name or (
        (known.hidden, known.vocab, known.layers) == (model.hidden, model.vocab, model.layers)
    )


@cache
def _shipped() -> tuple[MeasuredPoint, ...]:
    """Return all runs of the shipped files that have a throughput."""
    runs: dict[str, dict[str, Point]] = defaultdict(dict)
    for path in shipped_files():
        for point in read_measurements(path):
            if point.phase in ONE_POOL + POOLS:
                runs[point.id][point.quantity] = point
    points = (_run(run) for run in runs.values() if RATE in run)
    return tuple(point for point in points if point is not None)


def _run(run: dict[str, Point]) -> MeasuredPoint | None:
    """Return a run; None where it counts tokens that say nothing of its output."""
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
    chip = resolve_cluster(rate.cluster).spec.domains[0].gpu.name
    return MeasuredPoint(rate, chip, speed, per_gpu)
