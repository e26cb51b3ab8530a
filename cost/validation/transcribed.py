"""Tables of published throughput with the configuration in free text, as they are collected: one run a row.

Their columns are those of :data:`TRANSCRIBED`; parallelism, drafts, overlap and the kind of tokens stand in words.
What they say is read, what they leave out is left to the model (``best``, ``largest``), and the point's notes say so.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cost.model import Model
from cost.validation.names import cluster_name, dtype_name, model_name
from cost.validation.point import Point, Pool
from cost.validation.recipes import with_unstated_drafts
from topology.table import Row, Table, spellings

TRANSCRIBED = (
    *("id", "source", "model", "chip", "n_chips", "domain_size", "phase", "parallelism", "weight_dtype"),
    *("kv_dtype", "batch_per_gpu", "isl_or_context", "osl", "tok_s_per_gpu", "tpot_ms", "notes"),
)
"""The columns of such a table."""

_TWO_DIES = "cm384"  # one package is two GPUs of the catalog
_NODE = 8
_PHASES = spellings(
    {
        "decode": "",
        "prefill": "",
        "e2e": "",
        "aggregated": "e2e-agg agg",
        "disaggregated": "e2e-disagg disagg",
    }
)
_SPLIT_ENGINES = re.compile(r"\b(dynamo|mori|disagg\w*|prefill|pd)\b", re.IGNORECASE)
_SIDE = {"prefill": r"\b(?:prefill|ctx|context)\b", "decode": r"\b(?:decode|gen|generation)\b"}
_WHOLE, _REAL = r"(\d{1,9})", r"(\d{1,9}(?:\.\d{1,9})?)"
_KIND = r"(?:DEP|TEP|ETP|TP|DP|EP|PP)[- ]?"
_OVERLAP = re.compile(r"(?<!no )\b(?:TBO|DBO|two-batch|dual-batch|micro-?batch)\b", re.IGNORECASE)
_ENGINES = {
    "trtllm": r"tensorrt-llm|trt-?llm|dynamo[ -]trt",
    "vllm": r"vllm",
    "sglang": r"sglang|\bsgl|lmsys",
}
_FP4_OF_AMD = ("mi3", "mi4", "helios")


def is_transcribed(header: Sequence[str]) -> bool:
    """Whether a header is that of such a table."""
    return {"parallelism", "isl_or_context", "tok_s_per_gpu"} <= set(header)


@dataclass(frozen=True)
class Words:
    """What the words of one pool say, 0 where they do not; ``gpus`` are those of the pool."""

    tp: int = 0
    dp: int = 0
    ep: int = 0
    moe_tp: int = 0
    stages: int = 0
    workers: int = 0
    gpus: int = 0

    def pool(self, gpus: int = 0, slots: int = 0) -> Pool:
        """Return the pool; open where the words leave widths, or how the GPUs are split into engines, to the reader.

        ``TP8`` alone cuts the experts as well; ``EP8`` alone leaves open how attention is split; ``EP8 DP8`` and
        ``TP4 EP16`` give the rest. A width that does not divide the pool's GPUs, or is no power of two in tensor
        parallelism, cannot have run: it is left to the model.
        """
        gpus = self.gpus or gpus
        tp, dp, ep, moe_tp = self.tp, self.dp, self.ep, self.moe_tp
        open_ = Pool(0, 0, 0, 0, workers=self.workers, slots=slots, best=True)
        if tp & (tp - 1) or self.stages > 1 or not (tp or dp or ep):
            return open_
        if not tp and not dp:
            part = moe_tp or (1 if ep > 1 else 0)
            found = replace(open_, ep=ep, moe_tp=part)
            width = ep * part
        else:
            experts = ep * (moe_tp or 1)
            tp = tp or max(1, experts // dp if ep else 1)
            dp = dp or max(1, experts // tp)
            width = tp * dp
            ep = ep or (width // (moe_tp or 1) if dp > 1 else width // moe_tp if moe_tp else 1)
            if width % ep:
                return open_
            found = Pool(tp, dp, ep, width // ep, workers=self.workers or 1, slots=slots)
        if width and gpus and gpus % width and not self.workers:
            return open_
        if not self.workers and not found.best and gpus:
            found = replace(found, workers=gpus // width)
        return found


def parallel_words(text: str, gpus: int = 0) -> dict[str, Words]:
    """Return what a text like ``CTX 1xTP4 + GEN 4xTEP8`` says of ``prefill`` and ``decode``, or of "" (one pool).

    ``gpus`` are all GPUs of the row, for words like "4 nodes, large EP".
    """
    closed, end, rest = text.rpartition(")")  # an open bracket alone would be looked at to the end, each anew
    plain = _spaced(re.sub(r"\([^)]*\)", " ", closed + end) + rest)
    wide = gpus if re.search(r"\b(?:large|wide)[ -]EP\b", text, re.IGNORECASE) else 0
    sides = [side for side, pattern in _SIDE.items() if re.search(pattern, plain, re.IGNORECASE)]
    if not sides:
        return {"": _words(plain, wide)}
    parts = re.split(r"[;+,]", plain)
    return {
        side: _words(" ".join(part for part in parts if re.search(_SIDE[side], part, re.IGNORECASE)))
        for side in sides
    }


def _spaced(text: str) -> str:
    """``4xTEP8`` as ``4 x TEP8``."""
    return re.sub(rf"(?<!\d)(\d++)\s*+x\s*+(?={_KIND}\d)", r"\1 x ", text, flags=re.IGNORECASE)


def _count(pattern: str, text: str) -> int:
    """Return the whole number at the ``#`` of a pattern, 0 where the text has no such words."""
    found = re.search(pattern.replace("#", _WHOLE), text, re.IGNORECASE)
    return int(found[1]) if found else 0


def _number(pattern: str, text: str) -> float:
    """Return the number at the ``#`` of a pattern, 0 where the text has no such words."""
    found = re.search(pattern.replace("#", _REAL), text, re.IGNORECASE)
    return float(found[1]) if found else 0.0


def _words(text: str, wide: int = 0) -> Words:
    """What one pool's words say; ``wide`` are the GPUs of "large EP" without a number."""

    def kind(name: str) -> int:
        return _count(rf"(?<![A-Z<=]){name}[- ]?#", text)

    both, narrow = kind("DEP"), kind("TEP")
    tp, dp, ep = kind("TP") or narrow, kind("DP") or both, kind("EP") or both or narrow
    workers, instances = _count(rf"# x (?={_KIND}\d)", text), _count(r"\bx # instances", text)
    gpus = _count(r"\b# ?GPUs?\b", text)
    if re.search(r"\bDP ?\+ ?EP\b", text):
        ep = dp = gpus
    if not (tp or dp or ep):
        ep = _count(r"\b# ranks\b", text) or wide
    return Words(
        tp, dp, ep, kind("ETP"), kind("PP"), workers or instances, gpus * instances if instances else gpus
    )


def transcribed_from_table(table: Table) -> list[Point]:
    """Return the points of such a table; a row gives a point for each of its figures.

    Where a row gives a time per token and neither batch nor concurrency, that time is the condition of its
    throughput, no figure of its own.

    Raises
    ------
    InputError
        If a column is missing or a value cannot be read; the message names the row and the column.
    """
    return [point for row in table.rows(TRANSCRIBED) for point in _points(row)]


def _points(row: Row) -> list[Point]:
    point = _configuration(row)
    rate, tpot = row.figure("tok_s_per_gpu"), row.figure("tpot_ms")
    dies = 2 if point.cluster == _TWO_DIES else 1
    if rate and tpot and point.batch == math.inf:
        point = replace(point, tpot_limit_ms=tpot)
        tpot = 0.0
    found = [replace(point, measured=rate / dies)] if rate else []
    if tpot:
        found.append(replace(point, quantity="tpot_ms", measured=tpot, token_kind="output"))  # noqa: S106
    return found


def _configuration(row: Row) -> Point:
    """The row's configuration, without a figure."""
    words, notes = row.text("parallelism"), row.text("notes")
    said = f"{words}; {notes}"
    cluster, _ = cluster_name(row.need("chip"))
    dies = 2 if cluster == _TWO_DIES else 1
    model, named = model_name(row.need("model"))
    row.need("phase")
    row_phase = row.known("phase", lambda text: _PHASES.get(text.lower()), _PHASES, "")
    gpus = row.count("n_chips") * dies
    ran = _pools(row_phase, parallel_words(words, gpus), said, model, gpus)
    phase, pool, prefill = ran.phase, ran.pool, ran.prefill
    batch, concurrency = row.number("batch_per_gpu") / dies, _concurrency(said, pool, ran.gpus)
    drafts, accepted, recorded = _drafts(notes)
    length, osl, told = row.count("isl_or_context"), row.count("osl"), []
    if not length:
        length = _usual_length()
        told.append(f"length not stated: {length:,} tokens, as rackplan takes where nobody says")
    limit = 0.0
    if phase != "prefill" and not batch and not concurrency:
        batch = _batch_cap(notes, row.text("chip"), dies)
        told.append(f"batch not stated: {'the most allowed' if batch else 'the largest that fits'}")
        batch, limit = (batch, 0.0) if batch else (math.inf, _limit(said))
    if pool.best or (prefill is not None and prefill.best):
        told.append("layout not or not wholly stated: the best")
    decodes = phase == "decode" and not osl
    point = Point(
        id=row.need("id"),
        source=row.text("source"),
        quantity="tok_s_per_gpu",
        measured=1.0,
        phase=phase,
        cluster=cluster,
        model=model,
        gpus=ran.gpus,
        prefill_gpus=ran.prefill_gpus,
        pool=ran.pool,
        prefill_pool=ran.prefill,
        weights=_weights(row, model, cluster) or named,
        kv_dtype=dtype_name(row.text("kv_dtype")) or "",
        batch=0.0 if phase == "prefill" else batch,
        tpot_limit_ms=limit,
        concurrency=concurrency,
        tokens=batch if phase == "prefill" else 0.0,
        isl=0 if decodes else length,
        osl=osl or (_usual_answer(phase)),
        context=float(length) if decodes else 0.0,
        cache_hit=_cache_hit(notes),
        overlap=bool(_OVERLAP.search(said)),
        draft_tokens=drafts or 0,
        drafts_recorded=recorded,
        accept_length=accepted,
        imbalance=1.0 if re.search(r"perfect(?:ly)?[ -](?:balanced|EPLB)", said, re.IGNORECASE) else 0.0,
        kernel=_kernel(said),
        token_kind=_token_kind(notes, phase),
        gpus_per_domain=_domain(row, notes, cluster, dies),
        out_bytes_per_s=_nic(notes),
        engine=_engine(f"{notes}; {row.text('source')}"),
        notes="; ".join(filter(None, [notes, *told])),
    )
    return with_unstated_drafts(point) if drafts is None else point


@dataclass(frozen=True)
class _Ran:
    """How a run was laid out: its phase, the pool that decodes or serves both, what prefills, GPUs of the figure."""

    phase: str
    pool: Pool
    gpus: int
    prefill: Pool | None = None
    prefill_gpus: int = 0


def _pools(phase: str, pools: dict[str, Words], said: str, model: str, gpus: int) -> _Ran:
    """Return the pools that the words name; two of them are two phases apart, whatever the row calls it."""
    if phase == "e2e":
        split = "" not in pools or bool(_SPLIT_ENGINES.search(said))
        phase = "disaggregated" if split else "aggregated"
    if phase in ("decode", "aggregated") and len(pools) == 2:
        phase = "disaggregated"
    slots = _slots(said, model, pools)
    if phase != "disaggregated":
        chosen = pools.get("") or pools.get(phase) or next(iter(pools.values()))
        pool = chosen.pool(gpus, slots)
        return _Ran(phase, pool, 0 if pool.gpus > gpus else gpus)
    first, last = pools.get("prefill", Words()), pools.get("decode", pools.get("", Words()))
    if last == Words():
        last = _of_batch_cap(said)
    prefill = first.pool()
    return _Ran(phase, last.pool(slots=slots), gpus, prefill, first.gpus if prefill.best else 0)


def _usual_length() -> int:
    from cost.workload import Workload

    return Workload().context


def _usual_answer(phase: str) -> int:
    """Tokens of an answer where a row of served requests does not say: as many as of a prompt."""
    return _usual_length() if phase in ("aggregated", "disaggregated") else 0


def _model(name: str) -> Model | None:
    from cost.resolve import model_names, resolve_model

    return resolve_model(name) if name in model_names() else None


def _slots(said: str, model: str, pools: dict[str, Words]) -> int:
    stated = _count("# slots", said)
    if stated:
        return stated
    more, found = _count("# redundant", said), _model(model)
    if not more or found is None or found.moe is None:
        return 0
    return max(found.moe.experts + more, *(one.ep for one in pools.values()))


def _concurrency(said: str, pool: Pool, gpus: int) -> int:
    found = re.search(r"\bconcurrency (?:up to )?~?(\d[\d,]{0,11})(\s*/\s*GPU)?", said, re.IGNORECASE)
    if not found:
        return 0
    number = int(found.group(1).replace(",", ""))
    return number * (gpus or pool.gpus or 1) if found.group(2) else number


def _batch_cap(notes: str, chip: str, dies: int) -> float:
    """The batch per GPU that a row says is the most of its chip: ``batch cap 36 (GB300) / 20 (GB200)``."""
    if "batch cap" not in notes:
        return 0.0
    for number, name in re.findall(rf"{_WHOLE} \(([^)]+)\)", notes.split("batch cap", 1)[1]):
        if name.lower() in chip.lower():
            return float(number) / dies
    return 0.0


def _of_batch_cap(notes: str) -> Words:
    """The layout that the largest batch is said of: ``batch cap 36 (GB300) / 20 (GB200) req/GPU at DEP16``."""
    found = re.search(r"batch cap [^;]* at ([^;,]+)", notes)
    return _words(found.group(1)) if found else Words()


def _limit(said: str) -> float:
    """The slowest time per token that the row allows, in ms: ``TPOT<50ms``, ``TPS/user ~23``."""
    speed = _number(r"(?:TPS|tok/s)\s*/\s*user\s*(?:>=?|~)?\s*#", said)
    return _number(r"TPOT\s*(?:<=?|~)\s*#\s*ms", said) or (1e3 / speed if speed else 0.0)


def _cache_hit(notes: str) -> float:
    counted = re.search(r"\bincl", notes, re.IGNORECASE)
    return min(0.99, _number("# ?% cache hit", notes) / 100) if counted else 0.0


def _drafts(notes: str) -> tuple[int | None, float, bool]:
    """Tokens drafted (None: some), tokens a step yields (0: as calibrated), and whether the row says.

    An accept length that is a range counts as its middle, a share of one draft token
    as 1 more than it.
    """
    if re.search(r"(MTP|draft|spec)[^;]*not recorded", notes, re.IGNORECASE):
        return 0, 1.0, False
    if not re.search(r"\bMTP|\bdraft|\bEAGLE", notes, re.IGNORECASE) or re.search(
        r"\bno (MTP|spec|draft)", notes, re.IGNORECASE
    ):
        return 0, 1.0, True
    drafts = None
    for pattern, less in (
        ("# draft tokens?", 0),
        ("# draft steps?", 0),
        ("# tokens/step", 1),
        ("mtp-?#", 0),
    ):
        if (said := _count(pattern, notes)) > less:
            drafts = said - less
            break
    length = re.search(
        rf"accept(?:ance)?(?: length)? {_REAL}(?:\s*-\s*{_REAL})?(?![\d.]*%)", notes, re.IGNORECASE
    )
    share = _number("# ?% accept", notes)
    if length:
        first = float(length.group(1))
        accepted = (first + float(length.group(2) or first)) / 2
    elif share:
        accepted = 1 + (drafts or 1) * share / 100
    else:
        return drafts, 0.0, True
    return drafts, max(1.0, accepted if drafts is None else min(accepted, 1.0 + drafts)), True


def _kernel(said: str) -> str:
    if re.search(r"DeepEP[- ]?(LL|low)", said, re.IGNORECASE):
        return "DeepEP LL"
    return "DeepEP normal" if re.search(r"DeepEP[- ]normal", said, re.IGNORECASE) else ""


def _token_kind(notes: str, phase: str) -> str:
    if re.search(r"\bTOTAL\b|in\+out|input\+output", notes, re.IGNORECASE) and phase.endswith("gated"):
        return "total"
    if phase == "prefill":
        return "input_cached" if re.search(r"incl[^;]*cache", notes, re.IGNORECASE) else "input"
    return "output"


def _domain(row: Row, notes: str, cluster: str, dies: int) -> int:
    """GPUs of a scale-up domain where the row's differs from the catalog's."""
    from topology.catalog import cluster_names
    from topology.resolve import resolve_cluster

    size = _count("#-GPU partial rack", notes) or row.count("domain_size") * dies
    if not size or cluster not in cluster_names():
        return 0
    return 0 if resolve_cluster(cluster).spec.domains[0].gpus == size else size


def _nic(notes: str) -> float:
    """Scale-out bytes/s per GPU of ``4x400G NIC/node`` (nodes of 8 GPUs, Gb/s)."""
    found = re.search(rf"{_WHOLE}x{_WHOLE}G NIC/node", notes)
    return int(found.group(1)) * int(found.group(2)) / 8 * 1e9 / _NODE if found else 0.0


def _engine(text: str) -> str:
    return next((name for name, words in _ENGINES.items() if re.search(words, text, re.IGNORECASE)), "")


def _weights(row: Row, model: str, cluster: str) -> str:
    """Format of the weights; plain FP4 is the checkpoint's own if that is FP4, MXFP4 on AMD's chips, else NVFP4.

    One that is not known stays as it is, and is not predicted.
    """
    text = row.text("weight_dtype").lower()
    if text == "fp4":
        found = _model(model)
        if found is not None and "fp4" in found.precision["experts" if found.moe else "dense"]:
            return ""
        return "mxfp4" if cluster.startswith(_FP4_OF_AMD) else "nvfp4"
    return (dtype_name(text) or text) if text else ""
