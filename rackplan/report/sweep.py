"""Documents of sweeps: all layouts at all batches of one phase, and whole requests served by one pool or by two."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from cost.calibration.errors import errors_in
from cost.inputs.machine import NO_RUNS
from cost.inputs.workload import CHUNK_TOKENS, EXPERT_IMBALANCE, IMBALANCE_FROM_EP
from cost.layouts import Sweep, best_at
from cost.layouts.contexts import copies_words
from cost.memory.stages import NO_CACHE
from cost.money.bill import Totals
from cost.serving.pools import TTFT_LIMIT, RateMatch
from cost.serving.result import SPEEDS as USUAL
from cost.serving.result import Pools, sweeps_of
from cost.serving.serving import TWO_POOLS, way_of
from cost.step.fair_sharing import bound_words
from cost.step.step import near_runs
from cost.terms.registry import TERMS
from placement.layouts.apart import price_ratios
from placement.layouts.price import fitted_row, plan_rows
from placement.options import OFF, USUAL_TPOT, PlanOptions
from rackplan.report import shared
from rackplan.report.doc import Block, Doc, Late, Note, Record, Row, Shape, Table
from rackplan.report.fields import phrase
from rackplan.report.frontier import POINTS, frontier_chart, measured_blocks
from rackplan.report.notes import phase_words, recipe_lines, sentence, turns_words, what_if_words
from rackplan.report.pictures.memory import memory_picture
from topology.base.units import plural

_PARTS = tuple(f"{name}_s" for name in TERMS)
_STEP = " ".join(
    (
        "tp attention_dp ep moe_tp dcp pcp stages batch max_batch step_s lower_step_s longest_wait_ms bound_by",
        *_PARTS,
    )
)
_RATES = "tok_s_per_user tok_s_per_gpu tok_s_per_gpu_used tok_s usd_per_million_tokens tok_s_per_mw"
_WHOLE = "requests_per_s total_tok_s_per_gpu ttft_s prefill_s transfer_s in_flight prefill_gpus decode_gpus"
_ROW = f"serving layout {_RATES} {_WHOLE} gpus_used replicas {_STEP}"
_ALONE = "layout batch tok_s_per_user tok_s_per_gpu usd_per_million_tokens step_s bound_by"
_TOGETHER = "layout tok_s_per_user tok_s_per_gpu usd_per_million_tokens ttft_s"
"""What text shows of a layout of one phase, and of whole requests."""
_ASKED = f"""cluster model phase recipe what_if context isl osl prefix_hit cached_tokens tpot_limit_s ttft_limit_s
    ttft_p99_limit_ms fastest_ttft_s {shared.CACHE} low_tok_s_per_gpu high_tok_s_per_gpu
    measured_factor measured_runs"""
BEST = Record.of(
    "",
    " ".join(dict.fromkeys(f"{_ASKED} {_ROW} {shared.TOTALS} {shared.USED}".split())),
    shown="tok_s_per_gpu tok_s_per_user usd_per_million_tokens requests_per_s ttft_s step_s batch bound_by",
    tiles="tok_s_per_gpu tok_s_per_user usd_per_million_tokens ttft_s step_s",
)
SPEEDS = Table.of(
    "speeds",
    f"target_tok_s_per_user {_ROW} plan_layout plan_batch plan_tok_s_per_gpu",
    "Best layouts by speed",
)
APART = Table.of(
    "apart",
    "target_tok_s_per_user layout tok_s_per_gpu apart_layout micro_batches apart_tok_s_per_gpu gain "
    "apart_bound_tok_s_per_gpu",
    "Attention apart from the experts",
)
WAYS = Table.of("ways", _ROW, "One pool or two", shown=f"{_TOGETHER} in_flight")
POOLS = shared.pools(
    f"serving {_STEP}", shown="serving role layout workers gpus gpus_per_worker batch step_s bound_by"
)
FRONTIER = Table.of("frontier", _ROW, "Frontier", max_rows=16, even=True)
LAYOUTS = Table.of("layouts", f"phase {_ROW}", "Frontier of one phase", per="phase", even=True, shown=_ALONE)
PHASES = Table.of("phases", "phase cluster gpus context counted_tokens configurations layouts imbalance "
                  "imbalance_from_gpus imbalance_evidence", "What was priced")  # fmt: skip
TRANSFER = Record.of("transfer", "fabric bytes_per_prompt bytes_per_s_per_gpu latency_s", "Caches move over")
SWEEP = Shape(
    "sweep",
    "All layouts of a cluster at all batches: the best at the root, the best at usual speeds, and the frontier.",
    (BEST, SPEEDS, APART, WAYS, shared.TURNS, POOLS, FRONTIER, LAYOUTS, PHASES, TRANSFER, *shared.GROUNDS),
)
_BLANK = dict.fromkeys(_ROW.split()) | dict.fromkeys(_PARTS, 0.0)
ROWS = Table.of("", f"cluster phase context layout gpus_per_worker gpus_used replicas {_RATES} {_STEP}")
"""All configurations, for a file."""
_MAX_POINTS = 600
"""Layouts besides the frontier that the chart shows, evenly spaced."""


def sweep_rows(result: Sweep | Pools) -> Table:
    """Return all configurations of a sweep."""
    return ROWS(
        row | {"cluster": swept.deployment.cluster.name, "phase": workload.phase, "context": workload.context}
        for swept in sweeps_of(result)
        for workload in [swept.deployment.workload]
        for row in configuration_rows(swept, range(len(swept)))
    )


def sweep_doc(result: Sweep | Pools, speeds: Sequence[float] = ()) -> Doc:
    """Return the document of ``rackplan sweep``, with the best at each of ``speeds`` per user (usual ones)."""
    sweeps = sweeps_of(result)
    deployment, prompts = sweeps[0].deployment, sweeps[:2][-1].deployment.workload
    workload, cluster = deployment.workload, deployment.cluster
    row = BEST.row(
        workload,
        None,
        prefix_hit=prompts.prefix_hit,
        cached_tokens=prompts.prompt_cached,
        cluster=cluster.name,
        model=deployment.model.name,
        recipe=" ".join(recipe_lines(deployment)),
        what_if=workload.what_if or None,
        counted_tokens=workload.token_word,
    )
    if isinstance(result, Sweep):
        bill, best, near = deployment.bill, result.best, NO_RUNS
        if best is not None and workload.decodes:
            near = near_runs(deployment, result.layout_of(best), float(result.batch[best]))
            row |= shared.near_row(near)
        errors = errors_in(deployment, near=near)
        outcome = _phase(result, speeds or USUAL, {**row, **shared.bill_row(bill)})
    else:
        bill, errors = result.bill, result.errors
        outcome = _whole(result, speeds or USUAL, {**row, **shared.bill_row(bill)})
    fullest, at = outcome.fullest
    cache, copied = NO_CACHE, ""
    if at is not None:
        cache = fullest.cache(at)
        copied = sentence(copies_words(deployment.model, int(fullest.tp[at]), int(fullest.dcp[at])))
    row = {**outcome.row, **shared.band_row(outcome.row["tok_s_per_gpu"], errors), **shared.cache_row(cache)}
    sure = [shared.price_sentence(row), shared.accuracy_sentence(errors)] if row["layout"] else []
    what_if = f"what-if: {workload.what_if}; {what_if_words(deployment)}" if workload.what_if else ""
    return Doc(
        SWEEP,
        f"{row['model']} on {cluster.name} ({plural(row['gpus'], 'GPU')}), {outcome.subject}",
        [outcome.answer, *sure],
        [
            Note(shared.doubt_sentence(cluster), kind="warning"),
            Note(sentence(what_if)),
            shared.set_table(cluster),
            BEST(row),
            shared.cache_note(cache),
            Note(copied),
            *outcome.blocks,
            *_usual_notes(result, row),
            *shared.missing_notes(bill),
            Late(lambda: [*_hbm(*outcome.fullest), *measured_blocks([deployment])]),
        ],
        [
            PHASES(_priced(swept) for swept in sweeps if len(swept)),
            *outcome.details,
            *shared.grounds(
                [(deployment, bill, errors)],
                (text for swept in sweeps for text in _methods(swept)),
                beside=[swept.deployment for swept in sweeps[1:]],
                figures=outcome.figures,
            ),
        ],
        outcome.frame,
    )


class _Outcome(NamedTuple):
    """What differs between one phase and whole requests.

    ``subject`` is in the title, ``fullest`` the configuration whose HBM is drawn.
    """

    subject: str
    row: Mapping[str, Any]
    answer: str
    blocks: list[Block]
    details: list[Block]
    fullest: tuple[Sweep, int | None]
    frame: Callable[[], Any]
    figures: Sequence[Row] = ()


def _phase(sweep: Sweep, speeds: Sequence[float], row: dict[str, Any]) -> _Outcome:
    deployment, workload, best = sweep.deployment, sweep.deployment.workload, sweep.best
    row["tpot_limit_s" if workload.decodes else "ttft_limit_s"] = sweep.limit_s
    lacks = f": the smallest lacks {sweep.shortage_bytes / 1e9:.1f} GB of HBM per GPU for one sequence"
    answer = f"No layout serves this{lacks * (not len(sweep))}."
    if best is not None:
        row |= _best(sweep.totals(best), configuration_rows(sweep, [best])[0])
        limit = f" within {' and '.join(limits)}" if (limits := shared.limits(row)) else " of all layouts"
        answer = f"{_rate(row)} is the most{limit}, with {row['layout']} at batch {row['batch']:,.4g}."
    at = {speed: best_at(sweep, speed) for speed in speeds if workload.decodes}
    best_rows = iter(configuration_rows(sweep, [index for index in at.values() if index is not None]))
    by_speed = {s: None if index is None else next(best_rows) | _planned(sweep, s) for s, index in at.items()}
    frontier = FRONTIER(configuration_rows(sweep, sweep.frontier().tolist() if len(sweep) else []))
    figures = ("batch", "step_s", "tok_s_per_user", "tok_s_per_gpu")  # what a step is spent on costs time
    points = (
        {"layout": sweep.label(index), **{name: float(getattr(sweep, name)[index]) for name in figures}}
        for index in range(0, len(sweep), 1 + len(sweep) // _MAX_POINTS)
    )
    return _Outcome(
        phase_words(workload),
        row,
        answer,
        [
            frontier_chart([*frontier.rows, *points], [row] * (best is not None), [deployment]),
            *_by_speed(by_speed, row, _ALONE),
            *([APART(_apart(sweep, by_speed))] if sweep.afd != OFF else []),
            Note(f"Rates and prices are of {workload.phase} alone.", "requests_per_s", "missing"),
        ],
        [replace(frontier, shown=f"{_ALONE} lower_step_s")],
        (sweep, best),
        sweep.columns,
    )


def _whole(pools: Pools, speeds: Sequence[float], row: dict[str, Any]) -> _Outcome:
    serving, best, lengths = pools.serving, pools.best, pools.serving.lengths
    row |= {"phase": "both", "isl": lengths.mean_isl, "osl": lengths.mean_osl, "tpot_limit_s": pools.tpot_s}
    row |= {"ttft_limit_s": serving.ttft_s, "fastest_ttft_s": serving.fastest_ttft_s}
    row |= {"ttft_p99_limit_ms": pools.ttft_p99_s and 1e3 * pools.ttft_p99_s}
    bests = [pools.loaded] if pools.loaded else list(serving.bests(pools.tpot_s).values())
    ways, answer = WAYS(match_rows(pools, bests)), "No layout meets the limits"
    if best is not None:
        row |= _best(pools.totals(best), ways.rows[0])
        answer = f"{row['serving'].capitalize()} ({row['layout']}): {_rate(row)}, "
        answer += f"{phrase(row, 'requests_per_s')}, first token after {phrase(row, 'ttft_s')}"
        if pools.loaded:
            answer += f"; 99% of requests get it within {phrase(row, 'ttft_p99_limit_ms')}, waiting included"
    for rival in ways.rows[1:]:
        gain = rival["tok_s_per_gpu"] / row["tok_s_per_gpu"] - 1
        answer += f"; {rival['serving']} {abs(gain):.0%} {'less' if gain < 0 else 'more'} per GPU"
    at = {speed: serving.best(1 / speed) for speed in speeds}
    best_rows = iter(match_rows(pools, [match for match in at.values() if match]))
    by_speed = {speed: next(best_rows) if match else None for speed, match in at.items()}
    frontier = FRONTIER(match_rows(pools, serving.frontier()), shown=f"{_TOGETHER} transfer_s")
    points = (
        POINTS.row(
            match, None, serving=way, layout=serving.label(match), tok_s_per_gpu=match.output_tok_s_per_gpu
        )
        for way, matches in serving.ways().items()
        for match in map(matches.row, matches.frontier().tolist())
    )
    turns, two_pools = serving.turns(), serving.ways(pools.tpot_s).get(TWO_POOLS)
    moved, figures = list[Row](), list[Row]()
    if two_pools is not None and (path := two_pools.path) is not None:
        rate = {"bytes_per_prompt": two_pools.cache_bytes, "bytes_per_s_per_gpu": path.bytes_per_s}
        moved.append(TRANSFER.row(path, fabric=path.name, **rate))
        figures.append(shared.figure_row(path.reach, "caches", "part of the links' rate that they reach"))
    decode, stars = serving.decode.deployment, [row] * (best is not None)
    return _Outcome(
        lengths.brief(),
        row,
        f"{answer}.",
        [
            frontier_chart(points, stars, [decode], lengths, by="serving"),
            ways,
            shared.TURNS(turns, max_rows=0),
            *_by_speed(by_speed, row, _TOGETHER),
            Note(f"Ahead: {turns_words(turns)}." if len(turns) > 1 else ""),
            Note(f"Two pools: {serving.refused}" if serving.refused else ""),
        ],
        [
            frontier,
            POOLS(row for pair in zip(bests, ways.rows, strict=True) for row in _pools(pools, *pair)),
            *map(TRANSFER, moved),
            LAYOUTS(
                layout | {"phase": swept.deployment.workload.phase}
                for swept in sweeps_of(pools)
                for layout in configuration_rows(swept, swept.frontier().tolist())
            ),
        ],
        serving.sides(best)[-1][1:3] if best else (serving.decode, None),
        lambda: frontier.data,
        figures,
    )


def configuration_rows(sweep: Sweep, which: Sequence[int]) -> list[dict[str, Any]]:
    """Return configurations of one phase as rows."""
    columns = sweep.rows(which).columns() if len(which) else {}
    blank = {**_BLANK, "serving": sweep.deployment.workload.phase}
    values = zip(*(column.tolist() for column in columns.values()), strict=True)
    return [blank | dict(zip(columns, row, strict=True)) for row in values]


def match_rows(pools: Pools, which: Sequence[RateMatch]) -> list[dict[str, Any]]:
    """Return ways of serving whole requests as rows, each with the step of the pool that decodes."""
    serving, steps = pools.serving, dict[int, dict[str, Any]]()
    # all of a pool at once: pricing one takes as long as pricing a hundred
    for swept in filter(None, (serving.both, serving.decode)):
        held = [at for at, match in enumerate(which) if match.one_pool is (swept is serving.both)]
        if held:
            batches = np.array([(which[at].step_batch, which[at].batch) for at in held]).T
            run = swept.run([which[at].decode for at in held], *batches)
            steps |= dict(zip(held, configuration_rows(run, range(len(run))), strict=True))
    extra = ({"serving": way_of(match), "layout": serving.label(match), "replicas": match.decode_workers,
             "tok_s_per_gpu_used": match.output_tok_s_per_gpu_used} for match in which)  # fmt: skip
    return [
        {**steps[at], **WAYS.row(pools.totals(match)), **WAYS.row(match), **row}
        for at, (match, row) in enumerate(zip(which, extra, strict=True))
    ]


def _pools(pools: Pools, match: RateMatch, way: Row) -> Iterator[Row]:
    """Yield the pools of a way of serving whole requests."""
    for role, swept, at, workers in pools.serving.sides(match):
        step = configuration_rows(swept, [at])[0] if role == "prefill" else way
        pool = shared.pool_row(role, swept.worker_label(at), workers, int(swept.gpus[at]))
        yield {**step, "serving": way["serving"], **pool, **shared.cache_row(swept.cache(at))}


def _best(totals: Totals, row: Row) -> dict[str, Any]:
    """Return the best with what all GPUs cost and draw."""
    return {**shared.totals_row(totals), **{key: value for key, value in row.items() if value is not None}}


def _rate(row: Row) -> str:
    return f"{phrase(row, 'tok_s_per_gpu', row['counted_tokens'])} at {phrase(row, 'tok_s_per_user')}"


def _usual_notes(result: Sweep | Pools, row: Row) -> list[Note]:
    """Return which limits are by default, those of them that gave way, and how many GPUs are idle."""
    tpot = result.limit_default if isinstance(result, Sweep) else result.tpot_default
    ttft = not isinstance(result, Sweep) and result.ttft_default
    gone, late = tpot and row["tpot_limit_s"] is None, ttft and row["ttft_limit_s"] != TTFT_LIMIT.value
    words = f"{USUAL_TPOT.text}" * (tpot and not gone) + " and " * (tpot and ttft and not gone)
    words += (
        f"{phrase(row, 'ttft_limit_s')} to the first token{' (twice the fastest)' * late}" if ttft else ""
    )
    idle = f"{row['gpus_idle']} of {row['gpus']} GPUs are idle, and are counted."
    return [
        Note(f"The default of {USUAL_TPOT.text} is out of reach." if gone else "", "tpot_limit_s", "missing"),
        Note(f"Limits by default: {words}." if words else ""),
        Note(idle if row["gpus_idle"] else ""),
    ]


def _by_speed(rows: Mapping[float, Row | None], best: Row, shown: str) -> Iterator[Block]:
    """Yield the best at each speed, and their steps by part with that of the ``best``."""
    cells = (
        SPEEDS.row(None, **{**(row or {}), "target_tok_s_per_user": speed}) for speed, row in rows.items()
    )
    yield SPEEDS(cells, shown=f"target_tok_s_per_user {shown}")
    reached = {row["tok_s_per_user"]: row for row in (*rows.values(), best) if row and row["step_s"]}
    steps = {f"{speed:,.4g} tok/s/user": reached[speed] for speed in sorted(reached)}
    times = ((speed, name, row[f"{name}_s"]) for speed, row in steps.items() for name in TERMS)
    if steps:
        alt = "; ".join(f"{phrase(row, 'step_s')} at {speed}" for speed, row in steps.items())
        yield shared.bars("Steps by part", "at part step_s", times, alt)
    beyond = ", ".join(f"{speed:g}" for speed, row in rows.items() if row is None)
    yield Note(f"No layout reaches {beyond} tok/s/user." if beyond else "", "tok_s_per_gpu", "missing")


def _apart(sweep: Sweep, rows: Mapping[float, Row | None]) -> Iterator[Row]:
    """Yield the best at each speed with attention apart from the experts, beside that with both together."""
    gpus, options = len(sweep.deployment.cluster.gpus), PlanOptions(afd=sweep.afd)
    for speed, row in rows.items():
        ratios = price_ratios(sweep.deployment, options, 1 / speed)
        known = {
            "target_tok_s_per_user": speed,
            **{key: row and row[key] for key in ("layout", "tok_s_per_gpu")},
        }
        if not len(ratios.order):
            yield APART.row(None, **known)
            continue
        best = int(ratios.order[0])
        layout, rate = ratios.layouts[best], float(ratios.tok_s[best]) / gpus
        yield APART.row(
            layout.apart,
            **known,
            apart_layout=layout.short(moe=True),
            apart_tok_s_per_gpu=rate,
            apart_bound_tok_s_per_gpu=ratios.most_tok_s / gpus,
            gain=rate / row["tok_s_per_gpu"] - 1 if row else None,
        )


def _planned(sweep: Sweep, speed: float) -> dict[str, Any]:
    """Return the best at a speed that a plan may have."""
    rows = np.flatnonzero(plan_rows(sweep) & (sweep.moe_tp == 1) & (sweep.tok_s_per_user >= speed))
    if not len(rows):
        return {}
    at = int(rows[np.argmax(sweep.tok_s_per_gpu[rows])])
    figures = {f"plan_{name}": float(getattr(sweep, name)[at]) for name in ("batch", "tok_s_per_gpu")}
    return {"plan_layout": sweep.label(at), **figures}


def _hbm(sweep: Sweep, at: int | None) -> Iterator[Block]:
    """Yield the HBM of a configuration, where a plan may have it."""
    fit = None if at is None else fitted_row(sweep, at)
    if fit is not None:
        picture = memory_picture(sweep.deployment, fit.layout, fit.scorer.at(fit.batch))
        yield replace(picture, title="HBM of the fullest GPU")


def _priced(sweep: Sweep) -> Row:
    """Return what of one phase was priced."""
    cluster, workload, usual = sweep.deployment.cluster, sweep.deployment.workload, sweep.imbalance is None
    return PHASES.row(
        workload,
        cluster=cluster.name,
        gpus=len(cluster.gpus),
        counted_tokens=workload.token_word,
        configurations=len(sweep),
        layouts=np.unique(
            np.stack([sweep.layout, sweep.tp, sweep.moe_tp, sweep.dcp, sweep.pcp]), axis=1
        ).shape[1],
        imbalance=EXPERT_IMBALANCE[workload.step_phase] if usual else sweep.imbalance,
        imbalance_from_gpus=IMBALANCE_FROM_EP if usual else 1,
        imbalance_evidence="user" if (sweep.imbalance or 1) > 1 else "assumed",
    )


def _methods(sweep: Sweep) -> Iterator[str]:
    """Yield how a sweep counts."""
    deployment, workload = sweep.deployment, sweep.deployment.workload
    yield (
        "Rates count tokens over all GPUs, idle ones included. Of layouts, EP GPUs share the experts, ETP slices of "
        "each, TP is the width, PP the stages, x the replicas."
    )
    yield "Experts are assumed perfectly balanced." if deployment.model.moe and sweep.imbalance == 1 else ""
    if workload.phase == "prefill":
        yield f"An attention group prefills {CHUNK_TOKENS:,.0f} tokens per step, at least one prompt."
    yield sentence(deployment.fabric_note)
    yield sentence(bound_words(deployment))
