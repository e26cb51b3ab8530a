"""A sweep and matched pools: the frontier, the best at each speed, what they rest on; every configuration as CSV."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cost.calibration.errors import ErrorOf, error_to_dict, errors_in
from cost.calibration.serving import MOST_DRAFTS, accept_length
from cost.inputs.workload import CHUNK_TOKENS, EXPERT_IMBALANCE, IMBALANCE_FROM_EP
from cost.layouts import Sweep, best_at
from cost.money.bill import Bill, Totals
from cost.serving.pools import (
    DECODE_DERATE,
    PREFILL_DERATE,
    TTFT_LIMIT,
    RateMatch,
    RateMatches,
)
from cost.step.fair_sharing import bound_words
from cost.step.step import token_wait_s
from placement.layouts.shapes import TP_WIDTHS
from rackplan.schemas.clusters import ImbalanceData, SourcedData
from rackplan.views.blocks import Block, Heading, Table, Text, View, labelled, picked, sections, thinned
from rackplan.views.money import money_columns, money_legend, totals_blocks
from rackplan.views.settings import set_blocks, set_data
from rackplan.views.table_csv import csv_text
from rackplan.views.words import band_words, chip_words, factor_words, next_token, what_if_blocks
from topology.base.figures import EvidenceLabel, Figure, weakest
from topology.base.shown import Shown
from topology.base.units import plural

TARGETS = (25.0, 50.0, 75.0, 100.0, 125.0, 150.0, 200.0)
"""Speeds per user that comparisons of chips usually stand at."""
MOST_ROWS = 16
"""Points of a frontier that are printed."""
_NUMBERS = "tp attention_dp ep moe_tp stages replicas"
_FIGURES = "batch max_batch step_s lower_step_s tok_s_per_user tok_s_per_gpu tok_s_per_gpu_used tok_s longest_wait_ms"
_MATCH = (
    "requests_per_s output_tok_s_per_gpu total_tok_s_per_gpu output_tok_s_per_gpu_used tok_s_per_user ttft_s "
    "prefill_s transfer_s gpus_used prefill_gpus decode_gpus"
)


@dataclass(frozen=True, eq=False, repr=False)
class Pools(Shown):
    """Matched pools.

    Attributes
    ----------
    ttft_s, ttft_default:
        Limit on the time to first token (None: none), and whether nobody asked for it.
    """

    matches: RateMatches
    decode: Sweep
    prefill: Sweep
    ttft_s: float | None = None
    ttft_default: bool = False

    def brief(self) -> str:
        """Return what is served, and the best pair of pools."""
        best, what = self.matches.best(), self.decode.deployment
        lengths = f"{self.matches.isl:,.0f} + {self.matches.osl:,.0f} tokens"
        if best is None:
            return f"{what.model.name} on {what.cluster.name}, {lengths}: no pair keeps the limits"
        return (
            f"{what.model.name} on {what.cluster.name}, {lengths}: {best.output_tok_s_per_gpu:,.0f} output tok/s/GPU "
            f"at {best.tok_s_per_user:,.3g} tok/s/user, TTFT {best.ttft_s:,.2f} s"
        )

    @property
    def errors(self) -> tuple[ErrorOf, ...]:
        """The errors of the chips of both pools, each once, as rows with a pool for each phase have them."""
        sides = (errors_in(side.deployment, phase="disaggregated") for side in (self.decode, self.prefill))
        return tuple(dict.fromkeys(error for errors in sides for error in errors))

    @property
    def bill(self) -> Bill:
        """What the GPUs of both pools cost and draw, and those left over; a cluster of both is paid for once."""
        decode, prefill = self.decode.deployment, self.prefill.deployment
        bills = [decode.bill] if decode.cluster is prefill.cluster else [decode.bill, prefill.bill]
        return Bill.together(bills)

    def totals(self, row: RateMatch) -> Totals:
        """Return what a pair of pools gives, costs and draws, GPUs of neither pool too."""
        return self.bill.totals(
            row.requests_per_s * row.osl,
            requests_per_s=row.requests_per_s,
            gpus_idle=row.gpus - row.gpus_used,
        )

    def sides(self, row: RateMatch) -> tuple[tuple[str, Sweep, int, int], ...]:
        """Both pools of a pair: name, sweep, configuration in it, workers."""
        return (
            ("prefill", self.prefill, row.prefill, row.prefill_workers),
            ("decode", self.decode, row.decode, row.decode_workers),
        )


def sweep_view(sweeps: Sequence[Sweep], pools: Pools | None, targets: Sequence[float]) -> View:
    """Return what ``rackplan sweep`` says: of decode and prefill where both are swept, then of both together."""
    first, *rest = sweeps
    data = {"model": first.deployment.model.name, **_sweep_data(first, targets)}
    parts = [_sweep_blocks(first, targets), *(_sweep_blocks(found, []) for found in rest)]
    if pools is not None:
        data |= {"prefill": _sweep_data(rest[0], []), "rate_matching": _match_data(pools)}
        parts.append(_match_blocks(pools))
    return View(sections(*parts), data)


def sweep_csv(sweeps: Sequence[Sweep]) -> str:
    """Return all configurations, a row each; a part of the step that a sweep does not have stays empty."""
    columns = [found.columns() for found in sweeps]
    names = list(dict.fromkeys(name for one in columns for name in one))
    rows: list[tuple[object, ...]] = []
    for found, one in zip(sweeps, columns, strict=True):
        workload = found.deployment.workload
        head = (found.deployment.cluster.name, workload.phase, workload.context)
        values = [one[name].tolist() if name in one else [""] * len(found) for name in names]
        rows += [(*head, *row) for row in zip(*values, strict=True)]
    return csv_text(["cluster", "phase", "context", *names], rows)


def _sweep_blocks(found: Sweep, targets: Sequence[float]) -> list[Block]:
    """Return the frontier of a sweep, its best at each speed, and what the figures rest on."""
    deployment, workload, edge = found.deployment, found.deployment.workload, found.frontier()
    shown = found.rows(thinned(edge.tolist(), MOST_ROWS))
    most = found.totals(int(edge[0]))
    title = f"{deployment.model.name} on {deployment.cluster.name} ({plural(len(deployment.cluster.gpus), 'GPU')})"
    swept = f"{len(found):,} configurations (layouts x batches); {len(edge)} on the frontier"
    fastest, slowest = (token_wait_s(float(found.step_s[edge[end]]))[1] * 1e3 for end in (-1, 0))
    word = workload.token_word
    legend = [
        Text(f"tok/s are {word} tokens; tok/s/GPU over all GPUs of the cluster, idle ones too; at best: no"),
        Text("schedule is faster at data-sheet peaks; batch: sequences per GPU in use. EP, ETP: GPUs of the"),
        Text("experts, parts of each; TP: tensor-parallel width; PP: stages; x: replicas."),
        *money_legend([deployment.bill]),
        Text(
            f"a request with a place waits at most two steps for its {next_token(workload)}: {fastest:,.2f} to "
            f"{slowest:,.2f} ms on the frontier, three quarters of that on average",
            "Waiting",
        ),
        *what_if_blocks(deployment),
        *_as_plans(found, targets),
        *labelled("Experts", _experts(found) if deployment.model.moe is not None else ""),
        *_workload(found),
        *_kernels(found),
        *labelled("Faults", deployment.fabric_note),
        *labelled("Links", bound_words(deployment)),
    ]
    return sections(
        [Heading(f"{title}, {workload.phase} at {plural(workload.context, 'token')}")],
        [Text(swept, "Swept"), *set_blocks("Set", deployment.cluster)],
        [_frontier_table(shown)],
        [_speed_table(found, targets)] if targets else [],
        [Text("At most throughput, the first of the frontier:"), *totals_blocks(most)],
        legend,
    )


def _imbalance(found: Sweep) -> ImbalanceData:
    """Return the imbalance of experts that a sweep counts."""
    if found.imbalance is None:
        usual = EXPERT_IMBALANCE[found.deployment.workload.phase]
        return {"value": usual, "from_gpus": IMBALANCE_FROM_EP, "kind": "assumed"}
    kind: EvidenceLabel = "user" if found.imbalance > 1 else "assumed"
    return {"value": found.imbalance, "from_gpus": 1, "kind": kind}


def _experts(found: Sweep) -> str:
    said = _imbalance(found)
    if said["value"] == 1:
        return "perfectly balanced, beaten only where experts get no token: `rackplan plan` places them"
    where = f"in groups of {said['from_gpus']} GPUs or more" if said["from_gpus"] > 1 else "everywhere"
    return f"the busiest GPU has {said['value']:g} times the mean load {where} ({said['kind']}; --imbalance)"


def _workload(found: Sweep) -> list[Block]:
    """Return what of the workload changes a step: drafts and how many are accepted, the chunk, the cached prefix."""
    workload = found.deployment.workload
    drafts, accepted = workload.draft_tokens, workload.accept_length
    usual = 0 < drafts <= MOST_DRAFTS and accept_length(drafts) == accepted
    source = " (derived: fitted to served requests)" if usual else ""
    drafted = f"{drafts} a step, which yields {accepted:.3g} tokens on average{source}" if drafts else ""
    chunk = f"an attention group prefills {CHUNK_TOKENS:,.0f} tokens a step, one prompt at least"
    prefix = (
        f"{workload.prompt_cached:,.0f} of {workload.context:,} tokens of a prompt are found in a cache: "
        "attended to, not prefilled; tok/s counts them"
    )
    return [
        *labelled("Drafts", drafted),
        *labelled("Chunk", "" if workload.decodes else chunk),
        *labelled("Prefix", prefix if workload.prompt_cached else ""),
    ]


def _frontier_table(found: Sweep) -> Table:
    return Table.of(
        range(len(found)),
        ("on the frontier", found.label),
        ("batch", lambda index: f"{found.batch[index]:.4g}"),
        ("tok/s/user", lambda index: f"{found.tok_s_per_user[index]:,.1f}"),
        ("tok/s/GPU", lambda index: f"{found.tok_s_per_gpu[index]:,.0f}"),
        ("step ms", lambda index: f"{found.step_s[index] * 1e3:,.2f}"),
        ("at best", lambda index: f"{found.lower_step_s[index] * 1e3:,.2f}"),
        ("bound by", found.bound),
        *money_columns(found.totals, [found.deployment.bill]),
    ).narrowed()


def _speed_table(found: Sweep, targets: Sequence[float]) -> Table:
    def cell(shown: Callable[[int], str], absent: str = "-") -> Callable[[tuple[float, int | None]], str]:
        return lambda row: absent if row[1] is None else shown(row[1])

    best = [best_at(found, target) for target in targets]
    there = [index for index in best if index is not None]
    found = found.rows(there)
    place = iter(range(len(there)))
    return Table.of(
        [
            (target, None if index is None else next(place))
            for target, index in zip(targets, best, strict=True)
        ],
        ("at tok/s/user", lambda row: f"{row[0]:g}"),
        ("tok/s/GPU", cell(lambda index: f"{found.tok_s_per_gpu[index]:,.0f}", "unreachable")),
        ("layout", cell(found.label)),
        ("batch", cell(lambda index: f"{found.batch[index]:.4g}")),
        ("bound by", cell(found.bound)),
        *((name, cell(shown)) for name, shown in money_columns(found.totals, [found.deployment.bill])),
    ).narrowed()


def _plan_at(found: Sweep, target: float) -> int | None:
    """Return the best configuration at a speed that a plan may have; None where there is none."""
    may = (
        (found.moe_tp == 1)
        & (found.batch >= 1)
        & np.isin(found.tp, TP_WIDTHS)
        & (found.tok_s_per_user >= target)
    )
    rows = np.flatnonzero(may)
    return int(rows[np.argmax(found.tok_s_per_gpu[rows])]) if len(rows) else None


def _as_plans(found: Sweep, targets: Sequence[float]) -> list[Block]:
    """Say what plans reach at those speeds at which the best is none: experts cut, fewer sequences than GPUs."""
    said = []
    for target in targets:
        best, plan = best_at(found, target), _plan_at(found, target)
        if best is not None and best != plan:
            what = "none" if plan is None else f"{found.tok_s_per_gpu[plan]:,.0f} ({found.label(plan)})"
            said.append(f"at {target:g} tok/s/user {what}")
    note = "; plans have no ETP and at least one sequence a GPU"
    return labelled("As a plan", f"{'; '.join(said)}{note}" if said else "")


def _kernels(found: Sweep) -> list[Block]:
    reached, errors = found.deployment.kernels_reach(), errors_in(found.deployment)
    kind = weakest(figure.kind for figure in reached.figures().values()).label
    text = f"as calibrated for {reached.chip}, engine {reached.engine or 'any'}; weakest figure of theirs: {kind}"
    band = f"of tok/s/GPU: {factor_words(errors)}" if errors else ""
    return [*labelled("Kernels", text, *map(chip_words, errors)), *labelled("Band", band)]


def _match_blocks(pools: Pools) -> list[Block]:
    """Return the best pair of pools, and the frontier of pairs."""
    matches, best = pools.matches, pools.matches.best()
    lengths = f"prompts of {matches.isl:,} and answers of {matches.osl:,} tokens"
    title = [Heading(f"Both phases: {lengths}, {plural(matches.gpus, 'GPU')} in all")]
    if best is None:
        fastest = f"the fastest prefill and transfer take {matches.fastest_ttft_s:,.2f} s"
        limits = Text(f"{_limit(pools)}; {fastest}", "Limits")
        return sections(title, [Text("No pair of pools keeps the limits."), limits])
    shown = _match_table(
        [matches.row(index) for index in thinned(matches.frontier().tolist(), MOST_ROWS)], pools
    )
    last = "; move: transfer" * ("move ms" in shown.columns)
    last += "; idle: GPUs in neither pool" * ("idle" in shown.columns)
    derates = (
        f"{PREFILL_DERATE.value:g} of the prefill and {DECODE_DERATE.value:g} of the decode rate "
        f"({PREFILL_DERATE.kind.label}: {PREFILL_DERATE.source})"
    )
    legend = [
        Text("tok/s/GPU: output tokens over all GPUs given, idle ones too; total: input and output tokens."),
        Text(
            "TTFT: the prefill step and the transfer of its caches; waiting for it is not counted. P:D: GPUs"
        ),
        Text(f"that prefill and that decode{last}."),
        Text(derates, "Derates"),
    ]
    return sections(title, [*_best(best, pools), *_first_token(best, pools)], [shown], legend)


def _best(best: RateMatch, pools: Pools) -> list[Block]:
    blocks = [
        Text(
            # as many as workers, not as the cluster holds
            f"{plural(workers, 'worker')} of {plural(int(found.gpus[index]), 'GPU')}, {_worker(found, index)}, "
            f"batch {float(found.batch[index]):.4g} per GPU, {found.deployment.cluster.name}",
            name.capitalize(),
        )
        for name, found, index, workers in pools.sides(best)
    ]
    used = f", {best.output_tok_s_per_gpu_used:,.0f} output over the {best.gpus_used} in use"
    used *= best.gpus_used < best.gpus
    band = band_words(best.output_tok_s_per_gpu, pools.errors)
    shared = f"{best.prefill_gpus} that prefill : {best.decode_gpus} that decode"
    text = (
        f"{best.output_tok_s_per_gpu:,.0f} output tok/s/GPU{band} over {plural(best.gpus, 'GPU')}, "
        f"{best.total_tok_s_per_gpu:,.0f} total{used}; {best.requests_per_s:,.2f} requests/s, "
        f"{best.tok_s_per_user:,.1f} tok/s/user, TTFT {best.ttft_s:,.2f} s"
    )
    return [
        *blocks,
        Text(f"{shared}, {best.gpus - best.gpus_used} idle", "GPUs"),
        Text(text, "Together"),
        *totals_blocks(pools.totals(best)),
    ]


def _worker(found: Sweep, index: int) -> str:
    """Return the layout of one worker, without how many replicas the cluster holds."""
    return found.label(index).rpartition(" ")[0]


def _limit(pools: Pools) -> str:
    if pools.ttft_s is None:
        return "no TTFT limit"
    origin = f" (default; --ttft-ms; {TTFT_LIMIT.source})" if pools.ttft_default else ""
    return f"TTFT limit {pools.ttft_s:g} s{origin}"


def _first_token(best: RateMatch, pools: Pools) -> list[Block]:
    matches, path = pools.matches, pools.matches.path
    parts = [f"prefill {best.prefill_s * 1e3:,.0f} ms", f"transfer {best.transfer_s * 1e3:,.1f} ms"]
    transfer = (
        f"{matches.cache_bytes / 1e6:,.1f} MB of cache a prompt over {path.name} at "
        f"{path.bytes_per_s / 1e9:,.1f} GB/s a GPU ({path.reach.kind.label}: {path.reach.source})"
    )
    return [Text(f"{' + '.join(parts)}; {_limit(pools)}", "First token"), Text(transfer, "Transfer")]


def _match_table(rows: Sequence[RateMatch], pools: Pools) -> Table:
    return Table.of(
        rows,
        ("prefill workers", lambda row: f"{row.prefill_workers} x {_worker(pools.prefill, row.prefill)}"),
        ("decode workers", lambda row: f"{row.decode_workers} x {_worker(pools.decode, row.decode)}"),
        ("P:D", lambda row: f"{row.prefill_gpus}:{row.decode_gpus}"),
        ("batch", lambda row: f"{pools.decode.batch[row.decode]:.4g}"),
        ("tok/s/user", lambda row: f"{row.tok_s_per_user:,.1f}"),
        ("tok/s/GPU", lambda row: f"{row.output_tok_s_per_gpu:,.0f}"),
        *money_columns(pools.totals, [pools.bill])[:1],
        ("TTFT s", lambda row: f"{row.ttft_s:,.2f}"),
        ("move ms", lambda row: f"{row.transfer_s * 1e3:,.1f}"),
        ("idle", lambda row: str(row.gpus - row.gpus_used)),
    ).narrowed()


def _sweep_data(found: Sweep, targets: Sequence[float]) -> dict[str, Any]:
    """Return a sweep's frontier and its best at each target; null where nobody is as fast."""
    deployment, workload, edge = found.deployment, found.deployment.workload, found.frontier()
    layouts = np.unique(np.stack([found.layout, found.tp, found.moe_tp]), axis=1)
    return {
        "cluster": deployment.cluster.name,
        "gpus": len(deployment.cluster.gpus),
        "phase": workload.phase,
        "context": workload.context,
        "tokens": workload.token_word,
        **({"what_if": workload.what_if} if workload.what_if else {}),
        **set_data(deployment.cluster),
        "imbalance": _imbalance(found),
        "configurations": len(found),
        "layouts": layouts.shape[1],
        "pareto": _configurations(found, edge),
        "iso": [{"target_tok_s_per_user": target, **_at(found, target)} for target in targets],
        "totals": found.totals(int(edge[0])).to_dict(),
        "calibration": error_to_dict(errors_in(deployment)),
    }


def _at(found: Sweep, target: float) -> dict[str, Any]:
    index, plan = best_at(found, target), _plan_at(found, target)
    if index is None:
        return {"tok_s_per_gpu": None}
    best, *planned = _configurations(found, [index] if plan is None else [index, plan])
    return {**best, "plan": planned[0] if planned else None}


def _configurations(found: Sweep, which: Sequence[int] | NDArray[np.int64]) -> list[dict[str, Any]]:
    """Return some configurations as data."""
    shown = found.rows(which)
    numbers = {name: list(map(int, getattr(shown, name).tolist())) for name in _NUMBERS.split()}
    figures = {name: list(map(float, getattr(shown, name).tolist())) for name in _FIGURES.split()}
    terms = {name: seconds.tolist() for name, seconds in shown.terms_s.items()}
    return [
        _configuration(
            shown,
            index,
            {name: values[index] for name, values in (numbers | figures).items()},
            {name: seconds[index] for name, seconds in terms.items() if seconds[index]},
        )
        for index in range(len(shown))
    ]


def _configuration(
    found: Sweep, index: int, figures: dict[str, Any], terms_s: dict[str, float]
) -> dict[str, Any]:
    data: dict[str, Any] = {"layout": found.label(index), **figures}
    totals = found.totals(index)
    data |= {"usd_per_million_tokens": totals.usd_per_million_tokens, "tok_s_per_mw": totals.tok_s_per_mw}
    data["bound_by"] = found.bound(index)
    data["terms_s"] = terms_s
    return data


def _match_data(pools: Pools) -> dict[str, Any]:
    """Return the frontier of both pools together, and their best."""
    matches, prefill = pools.matches, pools.prefill
    best, workload = matches.best(), prefill.deployment.workload
    data: dict[str, Any] = {
        "isl": matches.isl,
        "osl": matches.osl,
        "gpus": matches.gpus,
        "tokens": "output, over all GPUs of both pools and those left over",
        "ttft": "prefill step and transfer of the cache, queueing excluded",
        "ttft_limit_s": pools.ttft_s,
        "ttft_limit_source": TTFT_LIMIT.source if pools.ttft_default else "--ttft-ms",
        "fastest_ttft_s": matches.fastest_ttft_s,
        "derates": {"prefill": _figure(PREFILL_DERATE), "decode": _figure(DECODE_DERATE)},
        "transfer": {
            "bytes_per_prompt": matches.cache_bytes,
            "over": matches.path.name,
            "bytes_per_s_per_gpu": matches.path.bytes_per_s,
            "latency_s": matches.path.latency_s,
            "reach": _figure(matches.path.reach),
        },
        "prefix_hit": workload.prefix_hit,
        "cached_tokens": workload.prompt_cached,
        "best": None if best is None else _matches([best], pools)[0],
        "calibration": error_to_dict(pools.errors),
        "pareto": _matches([matches.row(int(index)) for index in matches.frontier()], pools),
    }
    return data


def _figure(figure: Figure) -> SourcedData:
    return {"value": figure.value, "kind": figure.kind.label, "source": figure.source}


def _matches(rows: Sequence[RateMatch], pools: Pools) -> list[dict[str, Any]]:
    """Return pairs of pools as data."""
    sides = [pools.sides(row) for row in rows]
    workers = (
        _configurations(found[0][1], [index for _, _, index, _ in found])
        for found in zip(*sides, strict=True)
    )
    told = zip(*workers, strict=True) if rows else ()
    return [_match(row, side, of, pools) for row, side, of in zip(rows, sides, told, strict=True)]


def _match(
    row: RateMatch,
    sides: Sequence[tuple[str, Sweep, int, int]],
    told: Sequence[dict[str, Any]],
    pools: Pools,
) -> dict[str, Any]:
    data: dict[str, Any] = {
        name: {"workers": workers, "gpus_per_worker": int(found.gpus[index]), **of}
        for (name, found, index, workers), of in zip(sides, told, strict=True)
    }
    return {**data, **picked(row, _MATCH), "totals": pools.totals(row).to_dict()}
