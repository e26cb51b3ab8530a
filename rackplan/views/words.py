"""Words that several views say: names, serving, what is supposed, and how far off a figure may be."""

from __future__ import annotations

import math
from collections.abc import Sequence

from cost.attention.sparse import as_if_sparse, cache_bound_context, most_tokens_read
from cost.calibration.errors import (
    ANY_PHASE,
    EACH_ENGINE,
    KINDS,
    LEAST_ROWS,
    ErrorOf,
    error_of,
    widest,
)
from cost.calibration.serving import ANY_ENGINE
from cost.experts.loads import ExpertLoads
from cost.inputs.deployment import Deployment
from cost.inputs.machine import Efficiency
from cost.inputs.workload import Workload
from cost.recipe import OtherRecipe
from placement.analysis.compare import cluster_status
from placement.analysis.failures import count_spread
from placement.plan import Plan
from rackplan.views.blocks import GAP, Block, Table, Text, labelled
from topology.base.units import plural
from topology.cluster import Cluster

UNITS = {"gpu": "GPU", "node": "node", "rack": "rack"}
_SPLITS = {"source": "by source rank", "lp": "by LP", "rank": "by the source rank's number"}


def sentence(text: str) -> str:
    """Return words as a sentence: with a capital letter and a full stop; empty of none."""
    return f"{text[0].upper()}{text[1:]}." if text else ""


def limit_words(plan: Plan, name: str = "") -> str:
    """Return that a plan exceeds the limit it was made for, and by how much; empty where it does not."""
    if plan.limit_s is None or plan.over_limit is None:
        return ""
    decodes = plan.deployment.workload.decodes
    given = (plan.request.tpot_s if decodes else plan.request.ttft_s) is not None
    return (
        f"{f'{name} misses' if name else 'Misses'} its limit: {plan.score.tpot_s * 1e3:,.1f} ms per "
        f"{'token' if decodes else 'step'}, "
        f"{plan.limit_s * 1e3:,.4g} ms {'asked for' if given else 'by default'} ({plan.over_limit * 100:.3g}% over)"
    )


def limit_blocks(plan: Plan, name: str = "") -> list[Block]:
    """Return the limit that a plan exceeds, which comes before all else; nothing where it holds."""
    words = limit_words(plan, name)
    return [Text(words, style="missed")] if words else []


def load_names(names: Sequence[str], word: str = "scenario") -> str:
    """Join the names of loads, those of one recording's windows (``NAME#WINDOW``) counted as ``word``."""
    windows: dict[str, list[str]] = {}
    for name in names:
        windows.setdefault(name.rpartition("#")[0] or name, []).append(name)
    return ", ".join(
        each[0] if len(each) == 1 else f"{recording} ({len(each)} {word}s)"
        for recording, each in windows.items()
    )


def baseline_name(key: str) -> str:
    """Return how a baseline of the plan file is called in tables."""
    return key.replace("eplb_", "EPLB ").replace("_", " ")


def phase_words(workload: Workload) -> str:
    """Return the phase and its length, as titles print them."""
    if workload.phase == "both":
        return f"requests of {workload.prompt:,.0f} + {workload.answer:,.0f} tokens in one pool"
    if workload.decodes:
        return f"decode at {plural(workload.context, 'token')} of context"
    return f"prefill of prompts of {plural(workload.context, 'token')}"


def title_words(plan: Plan, *, hint: bool = False) -> str:
    """Return what is planned: whole requests with their pools, or one pool alone, with a ``hint`` of the other."""
    work, found = plan.deployment.workload, plan.requests
    where = f"{plan.deployment.model.name} on {plan.deployment.cluster.name}"
    if work.phase == "both":
        return f"{where}: requests of {work.prompt:,.0f} + {work.answer:,.0f} tokens, one pool"
    if found is not None and plan.prefill is not None:
        gpus = {one.role: one.gpus for one in found.pools}
        return (
            f"{plan.deployment.model.name} on {plan.deployment.cluster.whole.name}: requests of {found.isl:,} + "
            f"{found.osl:,} tokens, two pools: {plural(gpus['prefill'], 'GPU')} prefill, {gpus['decode']} decode"
        )
    more = " (whole requests: `isl`, `osl`)" * hint
    what = f"at {plural(work.context, 'token')} of context"
    if not work.decodes:
        what = f"prompts of {plural(work.context, 'token')}"
    return f"{where}: one {work.phase} pool alone, {what}{more}"


def next_token(workload: Workload) -> str:
    """Return the token that a step of this phase yields to a request."""
    return "next token" if workload.decodes else "first token"


def serving_words(workload: Workload, engine: str) -> list[str]:
    """Return what was asked of the serving besides phase and batch: drafts, overlap, the engine."""
    drafts = plural(workload.draft_tokens, "draft token")
    found = [
        f"{drafts} a step, which yields {workload.accept_length:.3g} tokens" if workload.draft_tokens else "",
        "two half batches take turns at computing and sending" if workload.overlap else "",
        _sparse_words(workload) if workload.sparse_attention else "",
        f"fixed delays of {engine}" if engine else "",
    ]
    return [text for text in found if text]


def _sparse_words(workload: Workload) -> str:
    """Return what is supposed of attention, and from which context on it reads less than dense attention."""
    most, context = most_tokens_read(workload.sparse_attention), workload.context
    read, fewer = (math.sqrt(context), 2) if most is None else (min(context, most), most + 1)
    rule = "the square root of the context" if most is None else f"at most {most:,}"
    return (
        f"attention as if sparse (what-if, not measured): a query reads {read:,.0f} of {context:,} cached "
        f"tokens ({rule}), fewer than dense attention from {fewer:,} tokens on; all stay cached"
    )


def what_if_words(deployment: Deployment) -> str:
    """Return the context at which caches overtake weights, as supposed and dense; empty without a what-if."""
    if not deployment.workload.sparse_attention:
        return ""
    gpu, kv_dtype = deployment.cluster.spec.domains[0].gpu, deployment.workload.kv_dtype
    sparse, dense = (
        cache_bound_context(model, gpu, kv_dtype)
        for model in (deployment.model, as_if_sparse(deployment.model, ""))
    )
    here = f"from {sparse:,.0f} tokens of context on" if math.isfinite(sparse) else "at no context"
    there = f"from {dense:,.0f} on" if math.isfinite(dense) else "at none"
    return (
        f"caches take longer to read than weights {here} (dense: {there}) on {gpu.name}, at the batch that balances "
        "computing and reading the weights"
    )


def what_if_blocks(deployment: Deployment) -> list[Block]:
    """Return what is supposed as a paragraph; nothing where nothing is."""
    if not deployment.workload.what_if:
        return []
    return labelled("What if", f"{_sparse_words(deployment.workload)}; {what_if_words(deployment)}")


def recipe_lines(*deployments: Deployment) -> list[str]:
    """Return the recipe in force of each cluster or model, with its source; none where none was asked for."""
    names: dict[str, list[str]] = {}
    sides = len({one.cluster.name for one in deployments}) > 1
    for one in deployments:
        names.setdefault(one.recipe, []).append(one.cluster.name if sides else one.model.name)
    whose = (f"{', '.join(some)}: " * (len(names) > 1) for some in names.values())
    return [f"{some}{recipe}" for some, recipe in zip(whose, names, strict=True) if recipe]


def other_recipe_blocks(others: Sequence[OtherRecipe]) -> list[Block]:
    """Return what the recipe that is not in force would bring on each cluster where that is much."""
    lines = []
    for name in dict.fromkeys(one.cluster for one in others):
        mine = [one for one in others if one.cluster == name]
        whose = "the recipe of published runs" if mine[0].recipe == "usual" else "the checkpoint's formats"
        speeds = (f" at {one.tok_s_per_user:.4g}" if one.tok_s_per_user else "" for one in mine)
        rates = ", ".join(f"{one.ratio:.2g}x{speed}" for one, speed in zip(mine, speeds, strict=True))
        unit = " tok/s/user" if mine[0].tok_s_per_user else ""
        words = f"{whose} (--recipe {mine[0].recipe}: {mine[0].words})"
        lines.append(f"{name} with {words}: {rates}{unit}, in tok/s/GPU")
    return labelled("Recipes", *lines)


def load_blocks(loads: ExpertLoads | None) -> list[Block]:
    """Return which loads were used, and how to pass measured ones where they are synthetic."""
    if loads is None:
        return []
    names = load_names(loads.names)
    kind = "" if "synthetic" in names else "synthetic; "
    return labelled("Loads", names + f"; {kind}pass measured loads with --loads" * loads.synthetic)


def doubts(status: str) -> str:
    """Return why figures of a machine of this ``status`` are not those of one that runs; empty if they are."""
    if "hypothetical" in status:
        return "hypothetical: no such machine is announced"
    return "announced, not shipping" if "announced" in status else ""


def cluster_doubts(cluster: Cluster) -> str:
    """Return the same of a cluster, with its name."""
    doubt = doubts(cluster_status(cluster))
    return f"{cluster.name} is {doubt}" if doubt else ""


def placement_words(plan: Plan) -> str:
    """Return what was asked of the experts' placement besides balance; empty where nothing was."""
    found = []
    if counts := count_spread(plan):
        part = "all" if counts.apart == counts.experts else f"{counts.apart:,} of"
        together = f", {counts.together:,} several in one {UNITS[plan.spread]}" if counts.together else ""
        but = f" ({counts.single:,} have one copy{together}: {counts.missing})" if counts.missing else ""
        found.append(
            f"copies of an expert in different {UNITS[plan.spread]}s: {part} {counts.experts:,}{but}"
        )
    if plan.split != "even":
        how, tp = plan.split.partition("-tp")[::2]
        more = f", attention with tensor parallelism {tp}" if tp else ""
        found.append(f"the engine splits an expert's tokens {_SPLITS[how]}{more}")
    if plan.scenarios is not None:
        word = "mean" if plan.scenarios.objective == "mean" else "worst"
        found.append(
            f"least {word} over {len(plan.scenarios.rows)} loads of the largest GPU load, {plan.scenarios.votes}"
        )
    return "; ".join(found)


def worst_words(plan: Plan) -> str:
    """Return what a balance was taken over where it is not the mean; empty where it is."""
    several = plan.loads is not None and len(plan.loads.tokens) > 1
    return " in the worst scenario" if several and plan.objective == "worst" else ""


def coefficient_words(efficiency: Efficiency, deployment: Deployment) -> str:
    """Return what the coefficients of kernels and engines rest on, with the error of a deployment's predictions."""
    if efficiency.ideal:
        return "every part at its data-sheet peak"
    error = error_of(efficiency, deployment)
    if error is None:
        return f"what kernels reach is given for {efficiency.chip}"
    return chip_words(error)


def chip_words(error: ErrorOf) -> str:
    """Return what the coefficients of a chip are fitted to, how far off they are, and whose they are in its place."""
    engine = "all engines" if error.engine in (ANY_ENGINE, EACH_ENGINE) else error.engine
    which = ", ".join(filter(None, [engine, "" if error.phase == ANY_PHASE else error.phase, error.note]))
    text = f"{error.stand_in_for} is not measured, its neighbour stands in: " if error.stand_in_for else ""
    text += f"what kernels reach is fitted to {KINDS[error.rows_of]} on {error.chip} "
    text += f"({which}; {error.rows:,} measured rows, "
    if error.rows < LEAST_ROWS:
        text += "too few for an error of their own"
    else:
        text += f"cross-validated median error {error.median:.1%}, {error.within_20_percent:.0%} within 20%"
    out = error.left_out
    if out is not None:
        chip = error.left_out_chip
        name = (
            f"a chip left out of the fit, {chip}:" if error.borrowed else f"with {chip} left out of the fit"
        )
        text += f"; {name} {out.median:.1%} and {out.within_20_percent:.0%}"
    return f"{text})"


def measured_words(plan: Plan) -> str:
    """Return what measured runs did to a plan's step; empty for prefill."""
    if not plan.deployment.workload.decodes:
        return ""
    if plan.deployment.correction.bare:
        return "the physics alone (--physics)"
    return near_words(*plan.deployment.near_runs(plan.layout, plan.score.batch))


_ROUNDS_TO_ONE = 0.005


def near_words(factor: float, runs: int) -> str:
    """Return what measured runs did to a step: ``x1.08 from 54 measured runs near``."""
    if not runs:
        further = f" (x{factor:.2f} from those further off)" if abs(factor - 1) >= _ROUNDS_TO_ONE else ""
        return f"no measured run is near{further}"
    return f"x{factor:.2f} from {plural(runs, 'measured run')} near"


def error_blocks(errors: Sequence[tuple[str, ErrorOf]]) -> list[Block]:
    """Return a table of errors and what its columns are: the name of each, whose coefficients, how far off."""

    def measured(error: ErrorOf, text: str) -> str:
        return "-" if error.rows < LEAST_ROWS else text

    def left_out(error: ErrorOf) -> str:
        out = error.left_out
        return "-" if out is None else f"{out.median:.1%}, {out.within_20_percent:.0%}"

    table = Table.of(
        errors,
        ("how far off", lambda one: one[0]),
        ("coefficients of", lambda one: ", for ".join(filter(None, (one[1].chip, one[1].stand_in_for)))),
        ("rows", lambda one: f"{one[1].rows:,}"),
        ("median", lambda one: measured(one[1], f"{one[1].median:.1%}")),
        ("within 20%", lambda one: measured(one[1], f"{one[1].within_20_percent:.0%}")),
        ("chip left out", lambda one: left_out(one[1])),
        ("factor", lambda one: f"{one[1].band:.2f}"),
        words=(0, 1),
    )
    return [table, GAP, Text(_table_words([error for _, error in errors]), "Error", style="note")]


def _table_words(errors: Sequence[ErrorOf]) -> str:
    text = "measured rows, cross-validated; 80% of them are within the factor of the predicted tok/s/GPU"
    borrowed = next((error.left_out_chip for error in errors if error.borrowed), "")
    if borrowed:
        text += f"; where a chip has none of its own, of those of a chip left out of the fit ({borrowed}, the widest)"
    notes = (f"{error.chip}: all rows, {error.note}" for error in errors if error.note)
    return "; ".join([text, *dict.fromkeys(notes)])


def range_words(rate: float, errors: Sequence[ErrorOf]) -> str:
    """Return the band of a rate (``4,400 to 7,500``), empty where nothing was measured."""
    found = widest(errors)
    if found is None:
        return ""
    return f"{_two_digits(rate / found.band)} to {_two_digits(rate * found.band)}"


def factor_words(errors: Sequence[ErrorOf]) -> str:
    """Return what the band is: the factor, and of which rows 80 % are within it."""
    found = widest(errors)
    if found is None:
        return ""
    rows = f"measured rows{of_words(found)}"
    return f"80% of {rows} are within a factor {found.band:.2f}"


def of_words(error: ErrorOf) -> str:
    """Return of which rows an error is, where they are not simply those of the chip; begins with a space."""
    left_out = [word for word, out in (("chip", error.borrowed), ("model", not error.model_seen)) if out]
    text = f" of a {' or '.join(left_out)} left out of the fit" if left_out else ""
    return text + (f" and of {plural(error.own_runs, 'run')} of your own" if error.own_runs else "")


def band_words(rate: float, errors: Sequence[ErrorOf]) -> str:
    """Return the band of a throughput in brackets, to stand behind it; empty where nothing was measured."""
    return f" ({range_words(rate, errors)}: {factor_words(errors)})" if errors else ""


def _two_digits(value: float) -> str:
    """A number to two digits, as a band deserves; a small one as short as that makes it."""
    if value <= 0 or not math.isfinite(value):
        return f"{value:g}"
    digits = 1 - math.floor(math.log10(value))
    return f"{round(value, digits):,.{max(0, digits)}f}"
