"""Sentences that several results share: names, serving, what-if assumptions and prediction error."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

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
from cost.inputs.deployment import USABLE_HBM, Deployment
from cost.inputs.layout import StageSpec
from cost.inputs.machine import Efficiency
from cost.inputs.workload import Workload
from cost.serving.pools import POOL_DERATE
from cost.step.fair_sharing import sharing_words
from cost.terms.pipeline import BUBBLE, Hop, hop_list
from placement.analysis.compare import cluster_status
from placement.analysis.evidence import kernel_notes
from placement.analysis.failures import count_spread
from placement.analysis.lever import Lever, rate_of
from placement.analysis.levers import Levers
from placement.plan import Plan
from rackplan.report.fields import FIELDS
from topology.base.figures import Figure
from topology.base.units import format_quantity, plural
from topology.changes.overrides import SET_BY_USER, figures_set
from topology.cluster import Cluster

_MOST_DOMAINS = 4
"""Domains of a stage that are named."""
UNITS = {"gpu": "GPU", "node": "node", "rack": "rack"}
_SPLITS = {"source": "by source rank", "lp": "by LP", "rank": "by the source rank's number"}


def sentence(text: str) -> str:
    """Return text as a sentence, capitalized and with a full stop; empty text stays empty."""
    bare = text.removesuffix(".")
    return f"{bare[0].upper()}{bare[1:]}." if bare else ""


def limit_words(plan: Plan, name: str = "") -> str:
    """Return by how much a plan exceeds its latency limit; empty if it meets the limit."""
    if plan.limit_s is None or plan.over_limit is None:
        return ""
    decodes = plan.deployment.workload.decodes
    given = (plan.request.tpot_s if decodes else plan.request.ttft_s) is not None
    return (
        f"{f'{name} misses' if name else 'Misses'} its limit: {plan.score.tpot_s * 1e3:,.1f} ms per "
        f"{'token' if decodes else 'step'}, "
        f"{plan.limit_s * 1e3:,.4g} ms {'asked for' if given else 'by default'} ({plan.over_limit * 100:.3g}% over)"
    )


def load_names(names: Sequence[str], word: str = "scenario") -> str:
    """Join the names of loads; windows of one recording (``NAME#WINDOW``) are counted as ``word``."""
    windows: dict[str, list[str]] = {}
    for name in names:
        windows.setdefault(name.rpartition("#")[0] or name, []).append(name)
    return ", ".join(
        each[0] if len(each) == 1 else f"{recording} ({len(each)} {word}s)"
        for recording, each in windows.items()
    )


def baseline_name(key: str) -> str:
    """Return the display name of a baseline."""
    return key.replace("eplb_", "EPLB ").replace("_", " ")


def phase_words(workload: Workload) -> str:
    """Return phase and length as shown in titles."""
    if workload.phase == "both":
        return f"requests of {workload.prompt:,.0f} + {workload.answer:,.0f} tokens in one pool"
    if workload.decodes:
        return f"decode at {plural(workload.context, 'token')} of context"
    return f"prefill of {plural(workload.context, 'token')} per prompt"


def title_words(plan: Plan) -> str:
    """Return the title of a plan: whole requests with their pools, or one phase."""
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
    what = f"at {plural(work.context, 'token')} of context"
    if not work.decodes:
        what = f"prompts of {plural(work.context, 'token')}"
    return f"{where}: {work.phase} only, {what}"


def next_token(workload: Workload) -> str:
    """Return which token of a request a step of this phase yields."""
    return "next token" if workload.decodes else "first token"


def serving_words(workload: Workload, engine: str) -> list[str]:
    """Return serving options besides phase and batch: drafts, overlap, engine."""
    drafts = plural(workload.draft_tokens, "draft token")
    found = [
        f"{drafts} per step, yielding {workload.accept_length:.3g} tokens on average"
        if workload.draft_tokens
        else "",
        "compute and communication of two half-batches overlap" if workload.overlap else "",
        _sparse_words(workload) if workload.sparse_attention else "",
        f"fixed overheads of {engine}" if engine else "",
    ]
    return [text for text in found if text]


def _sparse_words(workload: Workload) -> str:
    """Return the assumed sparse attention, and the context above which it reads less than dense attention."""
    most, context = most_tokens_read(workload.sparse_attention), workload.context
    read, fewer = (math.sqrt(context), 2) if most is None else (min(context, most), most + 1)
    rule = "the square root of the context" if most is None else f"at most {most:,}"
    return (
        f"sparse attention (what-if, not measured): a query reads {read:,.0f} of {context:,} cached "
        f"tokens ({rule}), fewer than dense attention from {fewer:,} tokens of context; all tokens stay cached"
    )


def what_if_words(deployment: Deployment) -> str:
    """Return the context at which reading caches overtakes reading weights; empty without a what-if."""
    if not deployment.workload.sparse_attention:
        return ""
    gpu, kv_dtype = deployment.cluster.spec.domains[0].gpu, deployment.workload.kv_dtype
    sparse, dense = (
        cache_bound_context(model, gpu, kv_dtype)
        for model in (deployment.model, as_if_sparse(deployment.model, ""))
    )
    here = f"above {sparse:,.0f} tokens of context" if math.isfinite(sparse) else "at no context length"
    there = f"above {dense:,.0f}" if math.isfinite(dense) else "never"
    return (
        f"reading caches takes longer than reading weights {here} (dense attention: {there}) on {gpu.name}, at the "
        "batch where compute time equals weight reads"
    )


def sparse_lines(deployment: Deployment) -> list[str]:
    """Return the what-if assumption of sparse attention in a sentence; none without it."""
    if not deployment.workload.what_if:
        return []
    return [f"{sentence(_sparse_words(deployment.workload))[:-1]}; {what_if_words(deployment)}."]


def derate_words() -> str:
    """Return the derating of two pools."""
    return (
        f"two pools serve {POOL_DERATE.value:g} of the rate of the slower pool ({POOL_DERATE.kind.label}: "
        f"{POOL_DERATE.source})"
    )


def recipe_lines(*deployments: Deployment) -> list[str]:
    """Return the recipe of each cluster or model with its source; none if none was requested."""
    names: dict[str, list[str]] = {}
    sides = len({one.cluster.name for one in deployments}) > 1
    for one in deployments:
        names.setdefault(one.recipe, []).append(one.cluster.name if sides else one.model.name)
    whose = (f"{', '.join(some)}: " * (len(names) > 1) for some in names.values())
    return [f"{some}{recipe}" for some, recipe in zip(whose, names, strict=True) if recipe]


def doubts(status: str) -> str:
    """Return why figures of a machine with this ``status`` are uncertain; empty for one in production."""
    if "hypothetical" in status:
        return "hypothetical: no such machine has been announced"
    return "announced but not shipping" if "announced" in status else ""


def cluster_doubts(cluster: Cluster) -> str:
    """Return the same for a cluster, with its name."""
    doubt = doubts(cluster_status(cluster))
    return f"{cluster.name} is {doubt}" if doubt else ""


def placement_words(plan: Plan) -> str:
    """Return placement constraints besides balance; empty without any."""
    found = []
    if counts := count_spread(plan):
        part = "all" if counts.apart == counts.experts else f"{counts.apart:,} of"
        together = (
            f", {counts.together:,} have several in one {UNITS[plan.spread]}" if counts.together else ""
        )
        but = f" ({counts.single:,} have one copy{together}: {counts.missing})" if counts.missing else ""
        found.append(f"copies in different {UNITS[plan.spread]}s: {part} {counts.experts:,} experts{but}")
    if plan.split != "even":
        how, tp = plan.split.partition("-tp")[::2]
        more = f", attention with tensor parallelism {tp}" if tp else ""
        found.append(f"the engine splits tokens of an expert {_SPLITS[how]}{more}")
    if plan.scenarios is not None:
        word = "mean" if plan.scenarios.objective == "mean" else "worst"
        found.append(
            f"minimizes the {word} of the largest GPU load over {len(plan.scenarios.rows)} loads, "
            f"{plan.scenarios.votes}"
        )
    return "; ".join(found)


def worst_words(plan: Plan) -> str:
    """Return over what a balance was taken, if not the mean; else empty."""
    several = plan.loads is not None and len(plan.loads.tokens) > 1
    return " in the worst scenario" if several and plan.objective == "worst" else ""


def coefficient_words(efficiency: Efficiency, deployment: Deployment) -> str:
    """Return the basis of kernel and engine coefficients, with the prediction error of a deployment."""
    if efficiency.ideal:
        return "all parts run at data-sheet peak"
    error = error_of(efficiency, deployment)
    if error is None:
        return f"kernel efficiency is given for {efficiency.chip}"
    return chip_words(error)


def chip_words(error: ErrorOf) -> str:
    """Return what the coefficients of a chip are fitted to, their error, and the chip that stands in for it."""
    engine = "all engines" if error.engine in (ANY_ENGINE, EACH_ENGINE) else error.engine
    which = ", ".join(filter(None, [engine, "" if error.phase == ANY_PHASE else error.phase, error.note]))
    text = (
        f"{error.stand_in_for} has no measurements, so a related chip stands in: "
        if error.stand_in_for
        else ""
    )
    text += f"kernel efficiency is fitted to {KINDS[error.rows_of]} on {error.chip} "
    text += f"({which}; {plural(error.rows, 'measured run')}, "
    if error.rows < LEAST_ROWS:
        text += "too few for a separate error"
    else:
        text += f"cross-validated median error {error.median:.1%}, {error.within_20_percent:.0%} within 20%"
    out = error.left_out
    if out is not None:
        chip = error.left_out_chip
        name = (
            f"with another chip, {chip}, left out of the fit"
            if error.borrowed
            else f"with {chip} left out of the fit"
        )
        text += f"; {name} {out.median:.1%} and {out.within_20_percent:.0%}"
    return f"{text})"


def measured_words(plan: Plan) -> str:
    """Return how measured runs corrected a plan's step; empty for prefill."""
    if not plan.deployment.workload.decodes:
        return ""
    if plan.deployment.correction.bare:
        return "no correction by measured runs (--physics)"
    return near_words(*plan.deployment.near_runs(plan.layout, plan.score.batch))


def turns_words(turns: Iterable[tuple[str, float, float]]) -> str:
    """Return which way of serving is ahead at which speeds (:meth:`cost.serving.serving.Serving.turns`)."""
    return ", ".join(f"{way} at {low:,.0f} to {high:,.0f} tok/s/user" for way, low, high in turns)


_ROUNDS_TO_ONE = 0.005


def near_words(factor: float, runs: int) -> str:
    """Return how measured runs corrected a step: ``x1.08 from 54 nearby measured runs``."""
    if not runs:
        further = f" (x{factor:.2f} from more distant ones)" if abs(factor - 1) >= _ROUNDS_TO_ONE else ""
        return f"no measured run nearby{further}"
    return f"x{factor:.2f} from {plural(runs, 'nearby measured run')}"


def range_words(rate: float, errors: Sequence[ErrorOf]) -> str:
    """Return the band of a rate (``4,400 to 7,500``); empty without measurements."""
    found = widest(errors)
    if found is None:
        return ""
    return f"{_two_digits(rate / found.band)} to {_two_digits(rate * found.band)}"


def accuracy_words(errors: Iterable[ErrorOf]) -> str:
    """Return the band of throughput and price, and the runs that it is taken from."""
    found = widest(errors)
    if found is None:
        return "unknown, no measurements on this chip"
    seen = found.model_seen and not found.borrowed
    of = f"{found.rows:,} measured runs on {found.chip}" if seen else "measured runs"
    why = "" if seen else "; this model has no measurements"
    if found.stand_in_for:
        why = f"; {found.stand_in_for} has no measurements"
    elif found.borrowed:
        why = f"; {found.chip} has fewer than {LEAST_ROWS} measured runs"
    return f"80% of {of}{of_words(found)} are within {found.band:.2f}x{why}"


def of_words(error: ErrorOf) -> str:
    """Return which runs an error is from, if not simply those of the chip; begins with a space."""
    left_out = [word for word, out in (("chip", error.borrowed), ("model", not error.model_seen)) if out]
    text = f" with the {' and '.join(left_out)} left out of the fit" if left_out else ""
    return text + (f" and of {plural(error.own_runs, 'run')} of your own" if error.own_runs else "")


def band_words(rate: float, errors: Sequence[ErrorOf]) -> str:
    """Return the band of a throughput in brackets, to follow the number; empty without measurements."""
    return f" ({range_words(rate, errors)}: {accuracy_words(errors)})" if errors else ""


def _two_digits(value: float) -> str:
    """Return a number to two significant digits."""
    if value <= 0 or not math.isfinite(value):
        return f"{value:g}"
    digits = 1 - math.floor(math.log10(value))
    return f"{round(value, digits):,.{max(0, digits)}f}"


MOST_NAMED = 3
"""Levers that a sentence names."""


def lever_name(lever: Lever) -> str:
    """Return a lever with its change: ``half the context``, ``HBM bandwidth x2``."""
    if lever.kind == "layout":
        return lever.name
    if lever.change == "half":
        return f"half the {lever.name}"
    return f"{lever.name} {lever.to if lever.kind == 'precision' else lever.change}"


def level_words(levers: Levers) -> str:
    """Return the limit that every change has to meet."""
    level = levers.level
    if not levers.plan.deployment.workload.decodes:
        return "prompts per GPU in a step stay as they are"
    if rate_of(levers.plan) == "tok_s_per_user":
        return "the batch is fixed, since the plan minimizes time per token"
    if level.tpot_s is None:
        return "memory alone limits: no time per token is, and the batch is the largest that fits"
    time = f"{level.tpot_s * 1e3:,.4g} ms per token are kept"
    return f"{time}, as in the plan" if level.asked else f"{time}, the time of the plan"


def largest_words(levers: Levers) -> str:
    """Return the largest levers at the same layout in one sentence."""
    named = []
    tenth = {lever.name: lever for lever in levers.rows if lever.change == "+10%"}
    for lever in levers.largest[:MOST_NAMED]:
        to = f" ({lever.to})" if lever.to and lever.kind != "precision" else ""
        less = tenth.get(lever.name) if lever.kind == "hardware" and lever.change == "x2" else None
        beside = f" (+10%: {less.gain:+.1%})" if less else ""
        named.append(f"{lever_name(lever)}{to} {lever.gain:+.1%}{beside}")
    if not named:
        return "No change improves this layout."
    rate = FIELDS[rate_of(levers.plan)].label
    return (
        f"At the same layout {', then '.join(named)} gains most, in {rate}."
        if len(named) == 1
        else (f"At the same layout these gain most, in {rate}: {'; '.join(named)}.")
    )


def assumptions(plan: Plan) -> list[str]:
    """Return the assumptions of a plan, most important first."""
    deployment, loads = plan.deployment, plan.loads
    workload, model = deployment.workload, deployment.model
    what = "has {} of context in the costed step" if workload.decodes else "is a prompt of {}"
    coefficients = (
        coefficient_words(deployment.machine(stage).efficiency, deployment)
        for stages in plan.layout.replicas
        for stage in stages
    )
    rows: list[tuple[str, str | None]] = [
        ("", f"Expert loads are synthetic ({load_names(loads.names)}); measured ones are better")
        if loads is not None and loads.synthetic
        else ("", ""),
        ("", cluster_doubts(deployment.cluster)),
        ("Set by the user: ", set_words(deployment.cluster)),
        ("", f"Engines may use {USABLE_HBM:.0%} of the HBM reported by the driver; the rest is reserved"),
        ("", f"Every sequence {what.format(plural(workload.context, 'token'))}"),
        *(("", text) for text in serving_words(workload, deployment.engine)),
        ("What if: ", what_if_words(deployment)),
        *(("Coefficients: ", text) for text in dict.fromkeys(coefficients)),
        *(("All-to-all: ", text) for text in kernel_notes(plan)),
        *(("Not modelled: ", text) for text in model.omitted),
        *(("", text) for text in deployment.notes),
        ("", deployment.fabric_note),
        ("", sharing_words(deployment, plan.layout.replicas[0])),
        *(("", text) for text in model.notes),
        *(("Loads: ", text) for text in (loads.notes if loads is not None else ())),
    ]
    return [sentence(f"{label}{text.removesuffix('.')}") for label, text in rows if text]


def set_words(*clusters: Cluster) -> str:
    """Return what was set, with what it was before; empty where nothing was."""
    said = (
        f"{part} {name} {figure.text} ({', '.join(filter(None, _notes(cluster, part, name, figure)))})"
        for cluster in clusters
        for part, name, figure in figures_set(cluster.spec)
    )
    return "; ".join(dict.fromkeys(said))


def _notes(cluster: Cluster, part: str, name: str, figure: Figure) -> tuple[str, str]:
    """Return what a figure was before, and of a link how many a GPU has."""
    before = figure.source.removeprefix(SET_BY_USER).lstrip(": ") or "previously unset"
    if name != "link_bytes_per_s" or cluster.spec.raw is not None:
        return before, ""
    links = next(
        (
            count
            for domain in cluster.spec.domains
            for count, fabric in domain.scale_up_links
            if fabric.name == part and count > 1
        ),
        1,
    )
    total = format_quantity(links * figure.value, figure.unit)
    return before, f"each of a GPU's {links} links: {total} in total" if links > 1 else ""


def plan_hops(plan: Plan) -> list[Hop]:
    """Return the hops of the first replica of a plan, at its batch."""
    return hop_list(plan.deployment, plan.layout.replicas[0], plan.deployment.workload.batch)


def hop_words(hop: Hop) -> str:
    """Bytes and time of a hop, in words."""
    return f"{format_quantity(hop.bytes, 'byte', 3)} in {format_quantity(hop.seconds, 's', 3)}"


def bubble_words(plan: Plan) -> str:
    """Return the time that stages wait for the slowest one, in words."""
    seconds, step_s = plan.score.terms_s.get(BUBBLE.name, 0.0), plan.score.step_s
    return f"{seconds * 1e3:.2f} ms per step ({seconds / step_s:.1%}): {BUBBLE.meaning}"


def domain_words(cluster: Cluster, stage: StageSpec) -> str:
    """Return the domains of a stage, or their number if there are many."""
    domains = list(dict.fromkeys(cluster.gpus[gpu].domain for gpu in stage.gpus))
    if len(domains) > _MOST_DOMAINS:
        return f"{len(domains)} domains from d{min(domains)}"
    return "+".join(f"d{domain}" for domain in domains)
