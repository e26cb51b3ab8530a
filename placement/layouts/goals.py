"""Goals of layouts: quality by goal, replicas considered, and time to first token."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cost.inputs.deployment import Deployment
from cost.inputs.layout import Layout
from cost.layouts.candidates import Arrangement
from cost.step.score import Score
from placement.layouts.fitting import Fitted, fitted_layouts, wanted_batch
from placement.layouts.price import LayoutKey, key_of
from placement.layouts.refuse import refuse_first_token
from placement.layouts.shapes import single_replicas
from placement.options import USUAL_TPOT, Goal, PlanOptions
from topology.base.errors import MissingFigureError, called


@dataclass(frozen=True, eq=False)
class Aim:
    """Quality of a layout by a goal.

    ``rates``: by domain, what one of its GPUs costs (USD/h) or draws (W) where that is the goal.
    """

    goal: Goal
    deployment: Deployment
    rates: Mapping[int, float]

    def __call__(self, layout: Layout, score: Score) -> tuple[float, float]:
        """Return a level and a figure, the larger the better: of one level the figure says which is better.

        Throughput: output tokens/s over all GPUs. Latency: tokens/s of a sequence. GPUs: fewer in use are a level
        higher, then tokens/s of each. Dollars and power: tokens for what the GPUs in use cost or draw.
        """
        if self.goal == "latency":
            return 0.0, 1 / score.tpot_s
        if self.goal == "gpus":
            return -float(layout.gpus_used), score.tok_s_per_gpu_used
        if self.goal == "throughput":
            return 0.0, score.tok_s_per_gpu
        gpus, rates = self.deployment.cluster.gpus, set(self.rates.values())
        if len(rates) == 1:
            return 0.0, score.tok_s_per_gpu_used / rates.pop()
        used = (gpus[gpu].domain for gpu in layout.gpus_in_use)
        return 0.0, score.tok_s_per_gpu_used * layout.gpus_used / sum(self.rates[domain] for domain in used)


def aim_of(deployment: Deployment, goal: Goal) -> Aim:
    """Return the quality function of a goal.

    Raises
    ------
    MissingFigureError
        If the goal is dollars or power and a GPU of the cluster has no figure.
    """
    rates: dict[int, float] = {}
    if goal in ("usd", "power"):
        figure = deployment.prices.price if goal == "usd" else deployment.prices.power
        domains = dict.fromkeys(gpu.domain for gpu in deployment.cluster.gpus)
        try:
            rates = {domain: figure(deployment.cluster.spec.domains[domain].gpu).value for domain in domains}
        except MissingFigureError as error:
            raise MissingFigureError(f"{error}", field="goal", value=goal) from None
    return Aim(goal, deployment, rates)


def with_parts(deployment: Deployment, layouts: Sequence[Fitted], goal: Goal) -> list[Fitted]:
    """Return the layouts that a goal chooses from: whole ones, and some of their replicas alone.

    For the fewest GPUs one replica of each kind; for the least cost or energy of a token all replicas of one kind,
    since kinds together are never better than the best of them.
    """
    if goal in ("throughput", "latency"):
        return list(layouts)
    chosen = [] if goal == "gpus" else list(layouts)
    for fit in layouts:
        kinds = fit.scorer.alike
        if goal == "gpus":
            chosen += _parts(deployment, fit, [row[:1] for row in kinds])
        elif len(kinds) > 1:
            chosen += _parts(deployment, fit, kinds)
    return chosen


def admitted(deployment: Deployment, arranged: Iterable[Arrangement], options: PlanOptions) -> list[Fitted]:
    """Return the layouts of arrangements that fit and match the request."""
    fits = fitted_layouts(
        deployment, options.copies, options.spread, arranged, cut_experts=options.cuts_experts
    )
    return [fit for fit in fits if options.admits(fit.layout)]


def fewer_gpus(
    deployment: Deployment, layouts: Sequence[Fitted], limit_s: float | None, options: PlanOptions
) -> list[Fitted]:
    """Return single replicas on fewer GPUs than any of ``layouts`` that holds the limit has in one of its own."""
    able = (
        len(fit.layout.gpus_of(row[0]))
        for fit in layouts
        if limit_s is None or fit.scorer.at(fit.least_batch).tpot_s <= limit_s
        for row in fit.scorer.alike
    )
    below = min(able, default=len(deployment.cluster.gpus))
    return admitted(deployment, single_replicas(deployment, below), options)


def _parts(deployment: Deployment, fit: Fitted, rows: Sequence[tuple[int, ...]]) -> Iterator[Fitted]:
    """Yield the layout of each row of replicas alone, at the batch asked for or its own largest."""
    for row in rows:
        layout, scorer = fit.scorer.of_replicas(row)
        batch = fit.batch
        if not fit.fixed:
            batch = wanted_batch(deployment.workload, scorer.max_batch, layout.group_gpus)
        yield replace(fit, layout=layout, scorer=scorer, batch=batch)


def soon_enough(
    deployment: Deployment, layouts: Sequence[Fitted], first_s_of: Mapping[LayoutKey, float], limit_s: float
) -> list[Fitted]:
    """Return the layouts of which ``first_s_of``, the seconds to a prompt's first token, is at most ``limit_s``.

    Raises
    ------
    InfeasibleError
        If there is none.
    """
    seconds = [first_s_of.get(key_of(fit.layout), np.inf) for fit in layouts]
    if min(seconds) > limit_s:
        refuse_first_token(deployment, limit_s, min(seconds))
    return [fit for fit, first_token_s in zip(layouts, seconds, strict=True) if first_token_s <= limit_s]


GOAL_WORDS: dict[Goal, str] = {
    "throughput": "highest tok/s/GPU",
    "latency": "lowest time per token",
    "gpus": "fewest GPUs",
    "usd": "lowest cost per token",
    "power": "lowest energy per token",
}


def service_words(
    deployment: Deployment,
    options: PlanOptions,
    limit_s: float | None,
    fastest_s: float,
    first_s: float | None,
) -> str:
    """Return the goal and the limits of a plan in words.

    Parameters
    ----------
    limit_s:
        The time per token (prefill: of a step) that it holds; None for none.
    fastest_s:
        The shortest that any layout has.
    first_s:
        Seconds in which a prompt alone is prefilled; None where nobody asked.
    """
    workload, level = deployment.workload, options.service_level(deployment.workload)
    text = GOAL_WORDS[options.goal]
    if options.goal == "latency" and not workload.decodes:
        text = "shortest step"
    if not workload.decodes:
        return text + (
            f", with a step of at most {limit_s * 1e3:g} ms ({called('ttft_ms')})"
            if limit_s is not None
            else ""
        )
    if level.usual:
        text += f" {usual_words(fastest_s, held=limit_s is not None)} "
        hint = "; none: largest batch that fits" * (limit_s is not None)
        text += f"(default; {called('tpot_ms')} changes it{hint})"
    elif limit_s is not None:
        text += f" at {limit_s * 1e3:g} ms per token or less ({called('tpot_ms')})"
    elif not workload.batch and options.goal != "latency":
        text += f" at the largest batch that fits ({called('tpot_ms')} none)"
    if workload.batch:
        text += f" at {called('batch')} {workload.batch:,}"
    if level.first_s is not None and first_s is not None:
        text += (
            f"; first token within {level.first_s * 1e3:g} ms ({called('ttft_ms')}): {first_s * 1e3:,.0f} ms for a "
            "single prompt "
            f"of {workload.context:,} tokens on these GPUs, queueing excluded"
        )
    return text


def usual_words(fastest_s: float, *, held: bool) -> str:
    """Return the default limit on the time per token in words; ``fastest_s`` is the shortest possible."""
    usual = f"{USUAL_TPOT.value * 1e3:g} ms per token"
    if held:
        return f"at {usual} or less, {USUAL_TPOT.text}"
    return (
        f"at the largest batch that fits, since {usual} is out of reach: {fastest_s * 1e3:.3g} ms with one sequence "
        "a group"
    )
