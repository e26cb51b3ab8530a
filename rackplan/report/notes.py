"""Sentences that several results share: names, serving, what-if assumptions and prediction error."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from cost.attention.sparse import as_if_sparse, cache_bound_context, most_tokens_read
from cost.calibration.errors import EACH_ENGINE, KINDS, ErrorOf, error_of
from cost.calibration.serving import ANY_ENGINE
from cost.inputs.deployment import Deployment
from cost.inputs.layout import Layout, StageSpec
from cost.inputs.machine import Efficiency
from cost.inputs.workload import Workload
from cost.memory.budget import Ranks
from cost.memory.stages import CacheRoom
from cost.step.fair_sharing import sharing_words
from cost.terms.pipeline import Hop, hop_list
from placement.analysis.compare import cluster_status
from placement.analysis.evidence import kernel_notes
from placement.analysis.failures import count_spread
from placement.plan import Plan
from topology.base.units import format_quantity, plural
from topology.changes.overrides import SET_BY_USER, figures_set
from topology.cluster import Cluster

_MAX_DOMAINS = 4
"""Domains of a stage that are named."""
UNITS = {"gpu": "GPU", "node": "node", "rack": "rack"}
_ROUNDS_TO_ONE = 0.005
"""Distance from 1 below which a factor reads as 1.00."""
_MILLION = 999_500
"""Tokens that read as 1.00 M in three digits."""
_SPLITS = {
    "source": "by source rank",
    "lp": "by LP",
    "quota": "by quota",
    "rank": "by the source rank's number",
}


def sentence(text: str) -> str:
    """Return text as a sentence, capitalized and with a full stop; empty text stays empty."""
    bare = text.removesuffix(".")
    return f"{bare[0].upper()}{bare[1:]}." if bare else ""


def limit_words(plan: Plan, name: str = "") -> str:
    """Return by how much a plan exceeds its latency limit; empty if it meets the limit."""
    if plan.limit_s is None or plan.over_limit is None:
        return ""
    decodes = plan.deployment.workload.decodes
    explicit = (plan.request.tpot_s if decodes else plan.request.ttft_s) is not None
    time_words = f"{plan.score.tpot_s * 1e3:,.1f} ms per {'token' if decodes else 'step'}"
    limit = f"{plan.limit_s * 1e3:,.4g} ms {'asked for' if explicit else 'by default'}"
    misses = f"{name} misses" if name else "Misses"
    return f"{misses} its limit: {time_words}, {limit} ({plan.over_limit * 100:.3g}% over)"


def load_names(names: Sequence[str], word: str = "scenario") -> str:
    """Join the names of loads; windows of one recording (``NAME#WINDOW``) are counted as ``word``."""
    windows: dict[str, list[str]] = {}
    for name in names:
        windows.setdefault(name.rpartition("#")[0] or name, []).append(name)
    return ", ".join(
        group[0] if len(group) == 1 else f"{recording} ({len(group)} {word}s)"
        for recording, group in windows.items()
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


_COUNTS = {2: "two", 3: "three", 4: "four"}


def title_words(plan: Plan) -> str:
    """Return the title of a plan: whole requests with their pools, or one phase."""
    deployment, work, requests = plan.deployment, plan.deployment.workload, plan.requests
    subject = f"{work.phase} only, at {plural(work.context, 'token')} of context"
    if work.phase == "prefill":
        subject = f"prefill only, prompts of {plural(work.context, 'token')}"
    elif work.phase == "both":
        subject = f"requests of {work.prompt:,.0f} + {work.answer:,.0f} tokens, one pool"
    if requests is not None and plan.beside:
        gpus = Counter[str]()
        for pool in requests.pools:
            gpus[pool.role] += pool.gpus
        lengths = f"requests of {requests.isl:,} + {requests.osl:,} tokens" if requests.osl else subject
        several = f"{_COUNTS.get(len(requests.pools), len(requests.pools))} pools"
        parts = ", ".join(
            f"{plural(gpus[role], 'GPU')} {role}" for role in ("both", "prefill", "decode") if gpus[role]
        )
        subject = f"{lengths}, {several}: {parts}"
    models = " + ".join(dict.fromkeys(pool.deployment.model.name for pool in plan.pools))
    return f"{models} on {deployment.cluster.whole.name}: {subject}"


def serving_words(workload: Workload, engine: str) -> list[str]:
    """Return serving options besides phase and batch: drafts, overlap, engine."""
    drafts = plural(workload.draft_tokens, "draft token")
    options = {
        f"{drafts} per step, yielding {workload.accept_length:.3g} tokens on average": workload.draft_tokens,
        "compute and communication of two half-batches overlap": workload.overlap,
        _sparse_words(workload): workload.sparse_attention,
        f"fixed overheads of {engine}": engine,
    }
    return [text for text, is_set in options.items() if is_set]


def _sparse_words(workload: Workload) -> str:
    """Return the assumed sparse attention, and the context above which it reads less than dense; empty without."""
    if not workload.sparse_attention:
        return ""
    max_tokens, context = most_tokens_read(workload.sparse_attention), workload.context
    read, fewer = (
        (math.sqrt(context), 2) if max_tokens is None else (min(context, max_tokens), max_tokens + 1)
    )
    rule = "the square root of the context" if max_tokens is None else f"at most {max_tokens:,}"
    return (
        f"sparse attention (what-if, not measured): a query reads {read:,.0f} of {context:,} cached "
        f"tokens ({rule}), fewer than dense attention from {fewer:,} tokens of context; all tokens stay cached"
    )


def what_if_words(deployment: Deployment) -> str:
    """Return the context at which reading caches overtakes reading weights; empty without a what-if."""
    if not deployment.workload.sparse_attention:
        return ""
    model, gpu = deployment.model, deployment.cluster.spec.domains[0].gpu
    contexts = (
        cache_bound_context(model, gpu, deployment.workload.kv_dtype)
        for model in (model, as_if_sparse(model, ""))
    )
    sparse, dense = (
        f"above {context:,.0f} tokens of context" if math.isfinite(context) else "at no context"
        for context in contexts
    )
    return (
        f"reading caches takes longer than reading weights {sparse} (dense attention: {dense}) on {gpu.name}, at the "
        "batch where compute time equals weight reads"
    )


def busy_words() -> str:
    """Return how busy two pools are (:func:`cost.serving.steady_state.busy_share`)."""
    return (
        "two pools serve the rate of the slower one; where that is prefill, it is busy 1 / (1 + 1 / sqrt(2 n)) of "
        "the time, with n steps of prompts in flight: requests do not come one exactly after the other"
    )


def recipe_lines(*deployments: Deployment) -> list[str]:
    """Return the recipe of each cluster or model with its source; none if none was requested."""
    names: dict[str, list[str]] = {}
    sides = len({side.cluster.name for side in deployments}) > 1
    for side in deployments:
        names.setdefault(side.recipe, []).append(side.cluster.name if sides else side.model.name)
    several = len(names) > 1
    return [f"{', '.join(users)}: " * several + recipe for recipe, users in names.items() if recipe]


def cluster_doubts(cluster: Cluster) -> str:
    """Return why figures of a cluster are uncertain; empty for one in production."""
    status = cluster_status(cluster)
    if "hypothetical" in status:
        return f"{cluster.name} is hypothetical: no such machine has been announced"
    return f"{cluster.name} is announced but not shipping" if "announced" in status else ""


def placement_words(plan: Plan) -> str:
    """Return placement constraints besides balance; empty without any."""
    clauses = []
    if counts := count_spread(plan):
        part, unit = "all" if counts.apart == counts.experts else f"{counts.apart:,} of", UNITS[plan.spread]
        together = f", {counts.together:,} have several in one {unit}" if counts.together else ""
        but = f" ({counts.single:,} have one copy{together}: {counts.missing})" if counts.missing else ""
        clauses.append(f"copies in different {unit}s: {part} {counts.experts:,} experts{but}")
    if plan.split != "even":
        how, tp = plan.split.partition("-tp")[::2]
        detail = f", attention with tensor parallelism {tp}" if tp else ""
        if how == "quota":
            slots = plural(plan.deployment.workload.quota_slots, "slot")
            detail = f", {slots} of each GPU filled in every micro-batch"
        clauses.append(f"the engine splits tokens of an expert {_SPLITS[how]}{detail}")
    if plan.scenarios is not None:
        word = "mean" if plan.scenarios.objective == "mean" else "worst"
        over = f"{len(plan.scenarios.rows)} loads, {plan.scenarios.votes}"
        clauses.append(f"minimizes the {word} of the largest GPU load over {over}")
    return "; ".join(clauses)


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
    """Return what the coefficients of a chip are fitted to, and the chip that stands in for it."""
    engine = "all engines" if error.engine in (ANY_ENGINE, EACH_ENGINE) else error.engine
    which = ", ".join(filter(None, [engine, error.note]))
    text = f"kernel efficiency is fitted to {KINDS[error.rows_of]} on {error.chip} ({which}; "
    text += f"{plural(error.rows, 'measured run')})"
    if not error.stand_in_for:
        return text
    return f"{error.stand_in_for} has no measurements, so a related chip stands in: {text}"


def measured_words(plan: Plan) -> str:
    """Return how measured runs corrected a plan's step (``x1.08 from 54 nearby ones``); empty for prefill."""
    if not plan.deployment.workload.decodes:
        return ""
    if plan.deployment.correction.bare:
        return "no correction by measured runs (--physics)"
    near = plan.near
    if near.runs:
        return f"x{near.factor:.2f} from {plural(near.runs, 'nearby measured run')}"
    if near.lender:
        return f"x{near.factor:.2f}, as on {near.lender}, since no run on this chip was measured"
    further = (
        f" (x{near.factor:.2f} from more distant ones)" if abs(near.factor - 1) >= _ROUNDS_TO_ONE else ""
    )
    return f"no measured run nearby{further}"


def turns_words(turns: Iterable[tuple[str, float, float]]) -> str:
    """Return which way of serving is ahead at which speeds (:meth:`cost.serving.serving.Serving.turns`)."""
    return ", ".join(f"{way} at {low:,.0f} to {high:,.0f} tok/s/user" for way, low, high in turns)


def assumptions(plan: Plan) -> list[str]:
    """Return the assumptions of a plan, most important first."""
    deployment, loads = plan.deployment, plan.loads
    workload, model = deployment.workload, deployment.model
    template = "has {} of context in the costed step" if workload.decodes else "is a prompt of {}"
    coefficients = (
        coefficient_words(deployment.machine(stage).efficiency, deployment)
        for stages in plan.layout.replicas
        for stage in stages
    )
    synthetic = loads is not None and loads.synthetic and load_names(loads.names)
    rows: list[tuple[str, str | None]] = [
        ("", f"Expert loads are synthetic ({synthetic}); measured ones are better" if synthetic else ""),
        ("", cluster_doubts(deployment.cluster)),
        ("Set by the user: ", set_words(deployment.cluster)),
        ("Memory: ", memory_words(deployment, plan.layout)),
        ("", f"Every sequence {template.format(plural(workload.context, 'token'))}"),
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


def memory_words(deployment: Deployment, layout: Layout) -> str:
    """Return whose formulas say what weights and the cache of a layout may fill, and the running cap."""
    budgets = (deployment.budget(row[0], Ranks.of(layout)) for row in layout.replicas)
    words = "; ".join(dict.fromkeys(budget.words for budget in budgets))
    return f"{words}; at most {deployment.most_sequences:,} sequences of an attention group at a time"


def cache_words(cache: CacheRoom) -> str:
    """Return ``KV cache 1.02 M tokens a replica (0.94 to 1.09 M), 124 sequences of 8,192``."""
    scale, letter = (1e6, "M") if cache.high >= _MILLION else (1e3, "k")
    tokens, low, high = (f"{part / scale:,.3g}" for part in (cache.tokens, cache.low, cache.high))
    words = f"KV cache {tokens} {letter} tokens a replica ({low} to {high} {letter}), "
    words += f"{plural(cache.sequences, 'sequence')} of {cache.context:,}"
    return f"{words}{'; the engine may not start' * cache.may_not_start}"


def context_words(layout: Layout) -> str:
    """Return which engines have the context parallelism of a layout, by the versions read; empty without any."""
    from placement.engines.registry import ENGINES

    name = "dcp" if layout.dcp > 1 else "pcp"
    if layout.dcp * layout.pcp == 1:
        return ""
    engines = (
        engine.contexts.get(name) or f"{engine.title} has none beside a map of experts"
        for engine in ENGINES.values()
    )
    return f"{name.upper()} {layout.dcp * layout.pcp}: {'; '.join(engines)}"


def set_words(cluster: Cluster) -> str:
    """Return what was set, with what it was before, and of a link how many a GPU has; empty where nothing was."""
    spec, clauses = cluster.spec, []
    for part, name, figure in figures_set(spec):
        words = figure.source.removeprefix(SET_BY_USER).lstrip(": ") or "previously unset"
        if name == "link_bytes_per_s" and spec.raw is None:
            links = {fabric.name: count for domain in spec.domains for count, fabric in domain.scale_up_links}
            total = format_quantity(links.get(part, 1) * figure.value, figure.unit)
            if links.get(part, 1) > 1:
                words += f", each of a GPU's {links[part]} links: {total} in total"
        clauses.append(f"{part} {name} {figure.text} ({words})")
    return "; ".join(clauses)


def plan_hops(plan: Plan) -> list[Hop]:
    """Return the hops of the first replica of a plan, at its batch."""
    return hop_list(plan.deployment, plan.layout.replicas[0], plan.deployment.workload.batch)


def stage_lines(deployment: Deployment, layout: Layout, batch: float) -> list[str]:
    """Return a line for each stage of the first replica: layers, GPUs, domains, what it hands on, how fast."""
    stages, prefix = layout.replicas[0], "R0 " * (len(layout.replicas) > 1)
    sequences = batch * sum(len(stage.gpus) for stage in stages) / len(stages)
    tokens, lines = sequences * deployment.workload.tokens_per_pass, list[str]()
    for number, (stage, hop) in enumerate(zip(stages, hop_list(deployment, stages, batch), strict=True)):
        sent, per_token = (format_quantity(size, "byte", 3) for size in (hop.bytes, hop.bytes / tokens))
        rate, time = format_quantity(hop.bytes_per_s, "byte/s", 3), format_quantity(hop.seconds, "s", 3)
        where = f"{layer_words(stage)}, {prefix}on {domain_words(deployment.cluster, stage)}"
        to = (number + 1) % len(stages)
        lines.append(
            f"S{number}: {where}; to S{to} {sent} ({per_token} a token) in {time} at {rate} a GPU, {hop.fabric}"
        )
    return lines


def layer_words(stage: StageSpec) -> str:
    """Return the layers and the GPUs of a stage."""
    layers, gpus = stage.layers, plural(len(stage.gpus), "GPU")
    if len(layers) == 1:
        return f"layer {layers[0]}, {gpus}"
    return f"layers {layers[0]} to {layers[-1]}, {gpus}"


def domain_words(cluster: Cluster, stage: StageSpec) -> str:
    """Return the domains of a stage, or their number if there are many."""
    domains = list(dict.fromkeys(cluster.gpus[gpu].domain for gpu in stage.gpus))
    if len(domains) > _MAX_DOMAINS:
        return f"{len(domains)} domains from d{min(domains)}"
    return "+".join(f"d{domain}" for domain in domains)
