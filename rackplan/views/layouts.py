"""View of a sweep of one phase: the frontier, the best at each speed, and the evidence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic.dataclasses import dataclass

from cost.calibration.errors import CalibrationData, error_to_dict, errors_in
from cost.calibration.serving import MOST_DRAFTS, accept_length
from cost.inputs.workload import CHUNK_TOKENS, EXPERT_IMBALANCE, IMBALANCE_FROM_EP
from cost.layouts import Sweep, best_at
from cost.money.bill import Totals
from cost.step.fair_sharing import bound_words
from cost.step.step import token_wait_s
from placement.layouts.price import plan_rows
from rackplan.report.notes import accuracy_words, chip_words, near_words, next_token, recipe_lines
from rackplan.views.blocks import Block, Table, Text, labelled, sections, thinned
from rackplan.views.data import LEFT_OUT, Maybe, SetData
from rackplan.views.money import money_columns, money_legend, totals_blocks
from rackplan.views.settings import set_blocks, set_data
from rackplan.views.words import what_if_blocks
from topology.base.figures import EvidenceLabel, weakest

MOST_ROWS, MOST_SPEEDS = 16, 5
"""Maximum frontier points printed."""
_NUMBERS = "tp attention_dp ep moe_tp stages replicas"
_FIGURES = "batch max_batch step_s lower_step_s tok_s_per_user tok_s_per_gpu tok_s_per_gpu_used tok_s longest_wait_ms"


@dataclass(frozen=True, kw_only=True)
class ImbalanceData:
    """The assumed imbalance of experts.

    Attributes
    ----------
    value, from_gpus, kind:
        Load of the busiest GPU over the mean, in groups of how many GPUs and more, and how it is known.
    """

    value: float
    from_gpus: int
    kind: EvidenceLabel


@dataclass(frozen=True, kw_only=True)
class ConfigurationData:
    """A layout at a batch.

    Attributes
    ----------
    layout:
        In short.
    tp, attention_dp, ep, moe_tp, stages, replicas:
        Tensor-parallel width and groups of attention, GPUs that experts are spread over, width that they are cut by,
        pipeline stages, and copies of the model.
    batch, max_batch:
        Sequences per GPU in use, and the most that fit.
    step_s, lower_step_s:
        The expected step and the pure roofline.
    tok_s_per_user, tok_s_per_gpu, tok_s_per_gpu_used, tok_s:
        Of one user, over all GPUs, over those in use, of all.
    longest_wait_ms:
        What a request with a place waits for its next token at most.
    usd_per_million_tokens, tok_s_per_mw:
        Null where there is no figure.
    bound_by, terms_s:
        What takes most of the step, and the step by part.
    """

    layout: str
    tp: int
    attention_dp: int
    ep: int
    moe_tp: int
    stages: int
    replicas: int
    batch: float
    max_batch: float
    step_s: float
    lower_step_s: float
    tok_s_per_user: float
    tok_s_per_gpu: float
    tok_s_per_gpu_used: float
    tok_s: float
    longest_wait_ms: float
    usd_per_million_tokens: float | None
    tok_s_per_mw: float | None
    bound_by: str
    terms_s: dict[str, float]


@dataclass(frozen=True, kw_only=True)
class AtSpeedData(ConfigurationData):
    """The best at a speed per user.

    Attributes
    ----------
    target_tok_s_per_user:
        The speed.
    plan:
        The best that ``rackplan plan`` can make; null: none.
    """

    target_tok_s_per_user: float
    plan: ConfigurationData | None


@dataclass(frozen=True, kw_only=True)
class UnreachedData:
    """A speed per user out of reach.

    Attributes
    ----------
    target_tok_s_per_user, tok_s_per_gpu:
        The speed, and null.
    """

    target_tok_s_per_user: float
    tok_s_per_gpu: None = None


@dataclass(frozen=True, kw_only=True)
class SweptData(SetData):
    """All layouts at all batches, of one phase.

    Attributes
    ----------
    cluster, gpus, phase, context, tokens:
        Where, what is priced, and which tokens are counted.
    what_if:
        What was assumed that no engine does, in words.
    imbalance:
        Of experts.
    configurations, layouts:
        How many were priced.
    pareto, iso:
        The frontier from the most throughput to the fastest, and the best at each speed.
    totals, calibration:
        Of the most throughput within the limit; how far off it may be (null: no rows are measured).
    """

    cluster: str
    gpus: int
    phase: str
    context: int
    tokens: str
    what_if: Maybe[str] = LEFT_OUT
    imbalance: ImbalanceData
    configurations: int
    layouts: int
    pareto: list[ConfigurationData]
    iso: list[AtSpeedData | UnreachedData]
    totals: Totals
    calibration: CalibrationData | None


def swept_data(found: Sweep, targets: Sequence[float]) -> dict[str, Any]:
    """Return the fields of :class:`SweptData`: the frontier, and the best at each target."""
    deployment, workload, edge = found.deployment, found.deployment.workload, found.frontier()
    layouts = np.unique(np.stack([found.layout, found.tp, found.moe_tp]), axis=1)
    return {
        "cluster": deployment.cluster.name,
        "gpus": len(deployment.cluster.gpus),
        "phase": workload.phase,
        "context": workload.context,
        "tokens": workload.token_word,
        "what_if": workload.what_if or LEFT_OUT,
        **set_data(deployment.cluster),
        "imbalance": _imbalance(found),
        "configurations": len(found),
        "layouts": layouts.shape[1],
        "pareto": configurations(found, edge),
        "iso": [_at(found, target) for target in targets],
        "totals": found.totals(int(edge[0]) if found.best is None else found.best),
        "calibration": error_to_dict(errors_in(deployment)),
    }


def _at(found: Sweep, target: float) -> AtSpeedData | UnreachedData:
    index, plan = best_at(found, target), _plan_at(found, target)
    if index is None:
        return UnreachedData(target_tok_s_per_user=target)
    best, *planned = configurations(found, [index] if plan is None else [index, plan])
    return AtSpeedData(**vars(best), target_tok_s_per_user=target, plan=planned[0] if planned else None)


def configurations(found: Sweep, which: Sequence[int] | NDArray[np.int64]) -> list[ConfigurationData]:
    """Return some configurations as data."""
    shown = found.rows(which)
    columns = {name: getattr(shown, name).tolist() for name in f"{_NUMBERS} {_FIGURES}".split()}
    terms = {name: seconds.tolist() for name, seconds in shown.terms_s.items()}
    result = []
    for index in range(len(shown)):
        totals = shown.totals(index)
        result.append(
            ConfigurationData(
                layout=shown.label(index),
                **{name: values[index] for name, values in columns.items()},
                usd_per_million_tokens=totals.usd_per_million_tokens,
                tok_s_per_mw=totals.tok_s_per_mw,
                bound_by=shown.bound(index),
                terms_s={name: seconds[index] for name, seconds in terms.items() if seconds[index]},
            )
        )
    return result


def _imbalance(found: Sweep) -> ImbalanceData:
    """Return the imbalance of experts that a sweep counts."""
    if found.imbalance is None:
        usual = EXPERT_IMBALANCE[found.deployment.workload.step_phase]
        return ImbalanceData(value=usual, from_gpus=IMBALANCE_FROM_EP, kind="assumed")
    return ImbalanceData(
        value=found.imbalance, from_gpus=1, kind="user" if found.imbalance > 1 else "assumed"
    )


def _plan_at(found: Sweep, target: float) -> int | None:
    """Return the best configuration at a speed that a plan may have; None where there is none."""
    rows = np.flatnonzero(plan_rows(found) & (found.moe_tp == 1) & (found.tok_s_per_user >= target))
    return int(rows[np.argmax(found.tok_s_per_gpu[rows])]) if len(rows) else None


def swept_blocks(found: Sweep, targets: Sequence[float]) -> list[Block]:
    """Return the frontier of a sweep, the best at each speed, and the evidence."""
    edge = found.frontier()
    counts = f"{len(found):,} configurations (layouts x batches); {len(edge)} on the frontier"
    return sections(
        [Text(counts, "Swept"), *set_blocks("Set", found.deployment.cluster)],
        [_frontier_table(found.rows(thinned(edge.tolist(), MOST_ROWS)))],
        [Text("Highest throughput:"), *totals_blocks(found.totals(int(edge[0])))],
        _legend(found, targets),
    )


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


def swept_table(found: Sweep, targets: Sequence[float]) -> Table:
    """Return the best layouts at each speed; without speeds, a few of the frontier."""
    if not targets:
        return _frontier_table(found.rows(thinned(found.frontier().tolist(), MOST_SPEEDS)))
    return _speed_table(found, targets)


def _speed_table(found: Sweep, targets: Sequence[float]) -> Table:
    best = [best_at(found, target) for target in targets]
    there = [index for index in best if index is not None]
    places, found = {index: place for place, index in enumerate(there)}, found.rows(there)

    def cell(shown: Callable[[int], str], absent: str = "-") -> Callable[[tuple[float, int | None]], str]:
        return lambda row: absent if row[1] is None else shown(places[row[1]])

    return Table.of(
        zip(targets, best, strict=True),
        ("at tok/s/user", lambda row: f"{row[0]:g}"),
        ("tok/s/GPU", cell(lambda index: f"{found.tok_s_per_gpu[index]:,.0f}", "unreachable")),
        ("layout", cell(found.label)),
        ("batch", cell(lambda index: f"{found.batch[index]:.4g}")),
        ("bound by", cell(found.bound)),
        *((name, cell(shown)) for name, shown in money_columns(found.totals, [found.deployment.bill])),
    ).narrowed()


def _legend(found: Sweep, targets: Sequence[float]) -> list[Block]:
    """Return the legend of the columns, and the settings that affect a step."""
    deployment, workload, edge = found.deployment, found.deployment.workload, found.frontier()
    fastest, slowest = (token_wait_s(float(found.step_s[edge[end]]))[1] * 1e3 for end in (-1, 0))
    drafts, accepted = workload.draft_tokens, workload.accept_length
    usual = 0 < drafts <= MOST_DRAFTS and accept_length(drafts) == accepted
    fitted = " (derived: fitted to served requests)" if usual else ""
    reached, errors = deployment.kernels_reach(), errors_in(deployment)
    kind = weakest(figure.kind for figure in reached.figures().values()).label
    rows = {
        "Waiting": f"a scheduled request waits at most two steps for its {next_token(workload)}: {fastest:,.2f} to "
        f"{slowest:,.2f} ms on the frontier, three quarters of that on average",
        "Deployable": _as_plans(found, targets),
        "Experts": _experts(found) if deployment.model.moe is not None else "",
        "Drafts": f"{drafts} per step, yielding {accepted:.3g} tokens on average{fitted}" if drafts else "",
        "Chunk": ""
        if workload.decodes
        else f"an attention group prefills {CHUNK_TOKENS:,.0f} tokens per step, at least one prompt",
        "Prefix": f"{workload.prompt_cached:,.0f} of {workload.context:,} tokens of each prompt are cached: attended "
        "to but not prefilled; tok/s includes them"
        if workload.prompt_cached
        else "",
    }
    calibrated = f"calibrated for {reached.chip}, engine {reached.engine or 'any'}; weakest figure: {kind}"
    return [
        Text(
            f"tok/s: {workload.token_word} tokens; tok/s/GPU: over all GPUs of the cluster, idle ones included; at "
            "best: lower bound of the step at data-sheet peaks; batch: sequences per GPU in use; EP: GPUs that share "
            "the experts; ETP: slices of each expert; TP: tensor-parallel width; PP: stages; x: replicas."
        ),
        *money_legend([deployment.bill]),
        *labelled("Recipe", *recipe_lines(deployment)),
        *what_if_blocks(deployment),
        *(block for label, text in rows.items() for block in labelled(label, text)),
        *labelled("Kernels", calibrated, *map(chip_words, errors)),
        *labelled("Band", f"tok/s/GPU: {accuracy_words(errors)}" if errors else ""),
        *labelled("Measured", _measured(found, targets)),
        *labelled("Faults", deployment.fabric_note),
        *labelled("Links", bound_words(deployment)),
    ]


def _measured(found: Sweep, targets: Sequence[float]) -> str:
    """Return how measured runs corrected the rows at the given speeds; by default the two ends of the frontier."""
    if not found.deployment.workload.decodes:
        return ""
    edge = found.frontier()
    at = [index for target in targets if (index := best_at(found, target)) is not None]
    texts: dict[str, None] = {}
    for index in dict.fromkeys(at or [int(edge[0]), int(edge[-1])]):
        near = found.deployment.near_runs(found.layout_of(index), float(found.batch[index]))
        texts[f"{found.label(index)}: {near_words(*near)}"] = None
    return "; ".join(texts)


def _experts(found: Sweep) -> str:
    one = _imbalance(found)
    if one.value == 1:
        return "assumed perfectly balanced; `rackplan plan` places them"
    where = f"in EP groups of {one.from_gpus} GPUs or more" if one.from_gpus > 1 else "in all EP groups"
    return f"the busiest GPU has {one.value:g} times the mean load {where} ({one.kind}; --imbalance)"


def _as_plans(found: Sweep, targets: Sequence[float]) -> str:
    """Return what plans reach at speeds where the best configuration is not deployable as a plan."""
    texts = []
    for target in targets:
        best, plan = best_at(found, target), _plan_at(found, target)
        if best is not None and best != plan:
            what = (
                "no plan"
                if plan is None
                else f"{found.tok_s_per_gpu[plan]:,.0f} tok/s/GPU ({found.label(plan)})"
            )
            texts.append(f"{what} at {target:g} tok/s/user")
    return (
        f"{'; '.join(texts)} (a plan needs at least one sequence per GPU and cannot use ETP)" if texts else ""
    )
