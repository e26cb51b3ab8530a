"""Measured points: a figure with the configuration it was measured on, read from a CSV (``docs/trust.md``)."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

from cost.calibration.serving import MAX_DRAFTS
from cost.dtypes import DTYPES, format_called
from cost.resolve import checkpoint_called
from topology.base.errors import InputError
from topology.base.names import plain_words
from topology.base.table import Row, Table, spellings
from topology.files.resolve import cluster_called

ALLTOALL = "alltoall"
"""The phase of points that are the time of one dispatch or combine; all others are of served models."""
OF_STEPS = ("tpot_ms", "step_ms", "tok_s_per_gpu")
"""Quantities that follow from the time of a step; the last falls as it grows."""
LEGS = {"dispatch_us": "dispatch", "combine_us": "combine"}
"""Direction of an all-to-all by the quantity that is its time."""


@dataclass(frozen=True)
class Pool:
    """GPUs that do one job: ``workers`` independent engines with the same parallel layout.

    Attributes
    ----------
    tp, attention_dp:
        Width of tensor parallelism in attention, and groups of that width that attend to their own sequences.
    ep, moe_tp:
        GPUs that a layer's experts are spread over, and into how many parts each expert is cut.
    stages:
        Pipeline stages.
    slots:
        Expert copies per layer over the whole EP group; 0: one of each expert.
    best:
        Whether the model chooses the widths (and workers) that are 0 (:func:`cost.validation.predict.choices`).

    All four widths are 0 where a row gives no layout (:data:`NO_LAYOUT`).
    """

    tp: int = 1
    attention_dp: int = 1
    ep: int = 1
    moe_tp: int = 1
    stages: int = 1
    workers: int = 1
    slots: int = 0
    best: bool = False

    @property
    def gpus_per_worker(self) -> int:
        """GPUs of one engine."""
        return self.tp * self.attention_dp * self.stages

    @property
    def gpus(self) -> int:
        """GPUs of all engines of the pool."""
        return self.workers * self.gpus_per_worker


NO_LAYOUT = Pool(tp=0, attention_dp=0, ep=0, moe_tp=0)
"""The pool of a row that does not say how its GPUs work together: nothing can be predicted for it."""


@dataclass(frozen=True)
class AllToAll:
    """One dispatch or combine of one MoE layer.

    Attributes
    ----------
    kernel:
        Kernel family or implementation, in any spelling that :func:`cost.calibration.alltoall.find_kernel` knows.
    tokens:
        Tokens per GPU.
    hidden, experts, top_k:
        Shape of the layer; ``groups`` of which a token may use ``topk_groups`` (0, 0: no such limit).
    dispatch_dtype, combine_dtype:
        Format of the vectors on the way there and back.
    """

    kernel: str
    tokens: float
    hidden: int
    experts: int
    top_k: int
    dispatch_dtype: str
    combine_dtype: str
    groups: int = 0
    topk_groups: int = 0


@dataclass(frozen=True)
class Point:
    """One measured figure.

    Attributes
    ----------
    id, source:
        Name of the row, and where it was published.
    quantity, measured:
        ``tpot_ms``, ``ttft_ms``, ``tok_s_per_gpu``, ``step_ms``, ``dispatch_us`` or ``combine_us``, and the figure
        in that unit.
    phase:
        ``decode`` or ``prefill`` (one pool, that phase alone), ``aggregated`` (one pool serves both phases of each
        request), ``disaggregated`` (``pool`` decodes, ``prefill_pool`` prefills), ``alltoall``.
    model:
        Catalog name; empty for ``alltoall``.
    cluster:
        Catalog name of the cluster (``hgx-h100``, ``gb200-nvl72``), without a count of GPUs.
    gpus:
        GPUs that a figure per GPU is divided by; 0: those of the pools.
    weights, experts_dtype, kv_dtype:
        Formats; empty: the checkpoint's own (weights), the weights' (experts), BF16 (cache).
    batch:
        Decode: sequences per GPU of the pool (0: not stated, see ``concurrency``; infinite: the largest that fits).
    tpot_limit_ms:
        Time per output token that nothing the model chooses may exceed; 0: none.
    concurrency:
        Requests in the system (serving), 0: not stated.
    in_step:
        Whether all requests have the same lengths, so that prompts come together between answers.
    tokens:
        Prefill: prompt tokens per GPU in one step; 0: not stated.
    isl, osl:
        Tokens of prompt and answer of a request; ``context`` is the mean context of a decode step, 0: isl + osl/2.
    cache_hit:
        Fraction of prompt tokens that were found in a cache; a figure that counts them says so in ``token_kind``.
    overlap:
        Whether two half batches overlap computing and sending.
    draft_tokens, accept_length:
        Tokens drafted a step (0: no multi-token prediction), tokens a step yields on average (1 without drafts; 0: as
        calibrated).
    drafts_recorded:
        False where a model that can draft may have done so and the row does not say.
    imbalance:
        Busiest GPU's expert load over the mean; 0: not stated.
    kernel:
        All-to-all kernel family of the decode or prefill pool; empty: the phase's default on that fabric.
    token_kind:
        ``output``, ``input`` or ``total``: what a throughput counts; ``input_cached``: input, cached tokens too.
    gpus_per_domain:
        GPUs of one scale-up domain where the row's differs from the cluster's; 0: as the cluster.
    up_bytes_per_s, out_bytes_per_s:
        Bytes/s per GPU and direction of the scale-up and the scale-out fabric where the row's differ from the
        cluster's; 0: as the cluster.
    engine, engine_version:
        ``trtllm``, ``sglang``, ``vllm``..., or empty.
    date:
        Day of the run, ``2026-04-17``; empty: not stated.
    saturated:
        Whether requests waited so long for their first token that the engine was always full: told apart in errors.
    pair:
        Rows of one A/B comparison share a name.
    """

    id: str
    source: str
    quantity: str
    measured: float
    phase: str
    cluster: str
    model: str = ""
    gpus: int = 0
    pool: Pool = field(default_factory=Pool)
    prefill_pool: Pool | None = None
    weights: str = ""
    experts_dtype: str = ""
    kv_dtype: str = ""
    batch: float = 0.0
    tpot_limit_ms: float = 0.0
    concurrency: int = 0
    in_step: bool = False
    tokens: float = 0.0
    isl: int = 0
    osl: int = 0
    context: float = 0.0
    cache_hit: float = 0.0
    overlap: bool = False
    draft_tokens: int = 0
    drafts_recorded: bool = True
    accept_length: float = 1.0
    imbalance: float = 0.0
    kernel: str = ""
    token_kind: str = "output"  # noqa: S105 - tokens of text
    gpus_per_domain: int = 0
    up_bytes_per_s: float = 0.0
    out_bytes_per_s: float = 0.0
    engine: str = ""
    engine_version: str = ""
    date: str = ""
    saturated: bool = False
    pair: str = ""
    notes: str = ""
    alltoall: AllToAll | None = None

    @property
    def label(self) -> str:
        """The quantity, saturated runs apart."""
        return f"{self.quantity} (saturated)" if self.saturated else self.quantity

    @property
    def is_open(self) -> bool:
        """Whether the row leaves its layout or its batch to the model."""
        return self.batch == math.inf or self.pool.best or bool(self.prefill_pool and self.prefill_pool.best)

    @property
    def requests(self) -> float:
        """Requests in the system, or that decode at a time."""
        return self.concurrency or self.batch * self.pool.gpus

    @property
    def mean_context(self) -> float:
        """Mean context of a decode step."""
        return self.context or self.isl + self.osl / 2

    @property
    def stated_prefill(self) -> Pool | None:
        """The pool that prefills, where the row says how its GPUs work together."""
        return self.prefill_pool if self.prefill_pool and self.prefill_pool.tp else None


_DATA = Path(__file__).parent / "data"

COLUMNS = (
    "id", "source", "quantity", "measured", "phase", "model", "cluster", "gpus", "gpus_per_domain", "engine",
    "engine_version", "date", "saturated", "weights", "experts_dtype", "kv_dtype", "tp", "ep", "moe_tp",
    "attention_dp", "stages", "slots", "workers", "prefill_tp", "prefill_ep", "prefill_moe_tp",
    "prefill_attention_dp", "prefill_stages", "prefill_workers", "batch_per_gpu", "tpot_limit_ms",
    "concurrency", "tokens_per_gpu", "isl", "osl", "context", "cache_hit", "overlap", "draft_tokens",
    "accept_length", "imbalance", "kernel", "token_kind", "link_gb_s", "nic_gb_s", "pair", "hidden", "experts",
    "top_k", "groups", "topk_groups", "dispatch_dtype", "combine_dtype", "notes",
)  # fmt: skip
"""Every column, in the order in which files are written; docs/trust.md has what each means."""

NEEDED = ("id", "quantity", "measured", "phase", "cluster")
"""Columns that a file must have; every other one may be left out."""

BEST = "best"
"""A width that the model chooses."""
LARGEST = "largest"
"""``batch_per_gpu`` where the largest batch that fits was served."""
UNKNOWN = "unknown"
"""``draft_tokens`` of a model that can draft where it was not recorded whether it did."""

_TIMES = ("tpot_ms", "ttft_ms", "step_ms", *LEGS)
_QUANTITIES = spellings({"tok_s_per_gpu": "", **{name: name.partition("_")[0] for name in _TIMES}})
_PHASES = spellings(
    {"decode": "", "prefill": "", "aggregated": "agg", "disaggregated": "disagg", ALLTOALL: ""}
)
_TOKEN_KINDS = spellings(dict.fromkeys(("output", "input", "total", "input_cached"), ""))
_TEXTS = ("id", "source", "kernel", "engine_version", "pair", "notes")
_COUNTS = ("concurrency", "isl", "osl", "gpus_per_domain")
_FIGURES = ("tpot_limit_ms", "context", "imbalance")
_FLAGS = ("overlap", "saturated")
_GB = 1e9


def shipped_files() -> list[Path]:
    """Return the files of published measurements that ship with the package, sorted by name."""
    return [_DATA / "alltoall.csv", _DATA / "published.csv"]


def read_measurements(path: str | Path) -> list[Point]:
    """Read a CSV of measured points (docs/trust.md).

    Raises
    ------
    InputError
        If it is none, or a column or a value is not known; the message names the row and the column.
    """
    return measurements_of(Table.read(path))


def measurements_of(table: Table) -> list[Point]:
    """Return the measured points of a table.

    Raises
    ------
    InputError
        As of :func:`read_measurements`.
    """
    path = table.path
    if not {"quantity", "measured"} <= set(table.names):
        raise InputError(
            f"{path}: no measured points; expected columns id, quantity, measured, phase, cluster, ... "
            "(docs/trust.md)."
        )
    return [_point(row) for row in table.of_columns(COLUMNS).rows(NEEDED)]


def _point(row: Row) -> Point:
    phase, quantity = row.named("phase", _PHASES), row.named("quantity", _QUANTITIES)
    for column in NEEDED:
        row.need(column)
    if (quantity in LEGS) != (phase == ALLTOALL):
        row.fail(
            "quantity", f"{quantity} does not go with phase {phase}; alltoall has dispatch_us, combine_us."
        )
    cluster, counted = _cluster(row.text("cluster"))
    model, named = _model(row.text("model")) if row.text("model") else ("", "")
    if not model and phase != ALLTOALL:
        row.fail("model", "it is blank; every row that is not alltoall needs it.")
    recorded = row.text("draft_tokens").lower() != UNKNOWN
    drafts = row.count("draft_tokens") if recorded else 0
    plain: dict[str, Any] = {
        **{name: row.text(name) for name in _TEXTS},
        **{name: row.count(name) for name in _COUNTS},
        **{name: row.number(name) for name in _FIGURES},
        **{name: row.flag(name) for name in _FLAGS},
    }
    point = Point(
        **plain,
        quantity=quantity,
        measured=row.positive("measured"),
        phase=phase,
        cluster=cluster,
        model=model,
        gpus=row.count("gpus", counted),
        pool=Pool(ep=row.count("ep", None, least=2)) if phase == ALLTOALL else _pool(row),
        prefill_pool=_pool(row, "prefill_") if phase == "disaggregated" else None,
        weights=_dtype(row, "weights", named),
        experts_dtype=_dtype(row, "experts_dtype"),
        kv_dtype=_dtype(row, "kv_dtype"),
        batch=math.inf if row.text("batch_per_gpu").lower() == LARGEST else row.number("batch_per_gpu"),
        tokens=row.number("tokens_per_gpu"),
        cache_hit=row.number("cache_hit", most=1.0),
        draft_tokens=drafts,
        drafts_recorded=recorded,
        accept_length=_accepted(row, drafts),
        token_kind=row.named("token_kind", _TOKEN_KINDS, "input" if phase == "prefill" else "output"),
        up_bytes_per_s=row.number("link_gb_s") * _GB,
        out_bytes_per_s=row.number("nic_gb_s") * _GB,
        engine=row.text("engine").lower(),
        date=_date(row),
        alltoall=_alltoall(row) if phase == ALLTOALL else None,
    )
    _require_consistent(row, point)
    return point


def _require_consistent(row: Row, point: Point) -> None:
    """Reject values that contradict each other, most of them about what is left to the model."""
    if 0 < point.imbalance < 1:
        row.fail(
            "imbalance", f"{point.imbalance:g} must be 1 or more: the busiest GPU's load over the mean load."
        )
    if point.batch == math.inf and point.concurrency:
        row.fail("batch_per_gpu", f"{LARGEST!r} and concurrency {point.concurrency}: give one of them.")
    if point.batch == math.inf and point.phase in ("prefill", ALLTOALL):
        row.fail(
            "batch_per_gpu", f"{LARGEST!r} does not apply to phase {point.phase}, which does not decode."
        )
    if point.tpot_limit_ms and (not point.is_open or point.phase == "prefill"):
        row.fail(
            "tpot_limit_ms",
            "it limits what the model chooses, but no width is 'best', batch_per_gpu is not 'largest', or "
            "nothing decodes.",
        )


@cache
def _model(text: str) -> tuple[str, str]:
    """Return a model's name in the catalog and the format in its name; as given where there is none."""
    try:
        return (text, "") if text.lower().endswith(".json") else checkpoint_called(text)
    except InputError:
        return text, ""


@cache
def _cluster(text: str) -> tuple[str, int]:
    """Return a cluster's name in the catalog and the GPUs after ``@`` (0 for none); as given where there is none."""
    head, _, count = text.partition("@")
    gpus = int(count) if re.fullmatch(r"\s*[0-9]{1,9}\s*", count) else 0
    try:
        return cluster_called(head), gpus
    except InputError:
        return head.strip(), gpus


def _pool(row: Row, prefix: str = "") -> Pool:
    """Return the pool of the columns that begin with ``prefix``; blank cells follow from the others.

    The GPUs of a stage are ``tp * attention_dp`` for attention and ``ep * moe_tp`` for the experts, so one of the
    four follows from the other three: a blank ``attention_dp`` from the experts' side, else 1; a blank ``ep`` is
    all GPUs of the stage where attention is data-parallel, else 1; a blank ``moe_tp`` is what remains; a blank
    ``tp`` is 1, or ``moe_tp`` where nothing else is given. Where one of them is ``best``, the model chooses it and
    those that are blank, and the workers if they are blank too.
    """
    widths = [prefix + name for name in ("tp", "ep", "moe_tp", "attention_dp")]
    chosen = [row.text(name).lower() == BEST for name in widths]
    tp, ep, moe_tp, dp = (0 if best else row.count(name) for name, best in zip(widths, chosen, strict=True))
    stages = row.count(prefix + "stages", 1) or 1
    slots = 0 if prefix else row.count("slots")
    if any(chosen):
        if stages > 1:
            row.fail(prefix + "stages", f"widths that are {BEST!r} are chosen for one stage; leave it blank.")
        return Pool(tp, dp, ep, moe_tp, 1, row.count(prefix + "workers"), slots, best=True)
    workers = row.count(prefix + "workers", 1) or 1
    if not (tp or ep or moe_tp or dp):
        return NO_LAYOUT
    tp = tp or (moe_tp if not (ep or dp) else 1)
    dp = dp or max(1, (ep or 1) * (moe_tp or 1) // tp)
    width = tp * dp
    if not ep:
        ep = width // moe_tp if moe_tp else width if dp > 1 else 1
    moe_tp = moe_tp or width // max(ep, 1)
    if ep * moe_tp != width:
        row.fail(
            f"{prefix}ep",
            f"ep {ep} x moe_tp {moe_tp} is not tp {tp} x attention_dp {dp}: both are the GPUs of one stage.",
        )
    return Pool(tp, dp, ep, moe_tp, stages, workers, slots)


def _date(row: Row) -> str:
    text = row.text("date")
    try:
        return date.fromisoformat(text).isoformat() if text else ""
    except ValueError:
        row.must_be("date", "a day like 2026-04-17")


def _dtype(row: Row, column: str, default: str = "") -> str:
    return row.known(column, lambda text: format_called(plain_words(text)), DTYPES, default)


def _accepted(row: Row, drafts: int) -> float:
    """Tokens that a step yields; 0: as calibrated."""
    accepted = row.number("accept_length")
    if drafts == 0 and not accepted:
        return 1.0
    if not accepted and drafts > MAX_DRAFTS:
        row.fail("accept_length", f"it is blank; {drafts} draft tokens have no measured default.")
    if accepted and not 1 <= accepted <= 1 + drafts:
        row.fail("accept_length", f"{accepted:g} must be from 1 to 1 + draft_tokens = {1 + drafts}.")
    return accepted


def _alltoall(row: Row) -> AllToAll:
    return AllToAll(
        kernel=row.need("kernel"),
        tokens=row.positive("tokens_per_gpu"),
        hidden=row.count("hidden", None, least=1),
        experts=row.count("experts", None, least=1),
        top_k=row.count("top_k", None, least=1),
        dispatch_dtype=_dtype(row, "dispatch_dtype", "fp8"),
        combine_dtype=_dtype(row, "combine_dtype", "bf16"),
        groups=row.count("groups"),
        topk_groups=row.count("topk_groups"),
    )
