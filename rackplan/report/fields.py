"""Every figure that results show, declared once: key, label, meaning, form.

Headings, hints, axes, number formats, JSON Schema, types of Parquet columns and the reference page derive from here.
A figure is two lines: its entry here, and its place in a document. A key ends in its unit (counts, shares and factors
have none) and means the same in every result.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from topology.base.units import format_quantity


def number(value: float) -> str:
    """Return a number: three significant digits, but whole from 100 to a million."""
    if not math.isfinite(value):
        return "-"
    size = abs(value)
    if size >= 999_500:
        power, letter = next(one for one in ((1e12, "T"), (1e9, "B"), (999_500, "M")) if size >= one[0])
        return f"{value / (1e6 if letter == 'M' else power):#.3g}".rstrip(".") + f" {letter}"
    return f"{value:,.0f}" if size >= 100 or value == round(value) else f"{value:#.3g}"


def usd(value: float) -> str:
    """Return dollars: whole from 1,000, with cents from 10, else with three significant digits."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:,.2f}" if value >= 10 else f"{value:#.3g}"


def quantity(value: float, unit: str, digits: int = 4) -> str:
    """Return a quantity in SI with a prefix that fits."""
    if not value:
        return f"0 {unit.replace('byte', 'B')}"
    return format_quantity(value, unit, digits)


FORMS: Mapping[str, tuple[str, Callable[[Any, str], str]]] = {
    "text": ("string", lambda value, _: str(value)),
    "flag": ("boolean", lambda value, _: "yes" if value else "no"),
    "list": ("array", lambda value, _: ", ".join(map(str, value))),
    "count": ("number", lambda value, _: f"{value:,.0f}" if value == round(value) else f"{value:,.4g}"),
    "number": ("number", lambda value, _: number(value)),
    "usd": ("number", lambda value, _: usd(value)),
    "share": ("number", lambda value, _: f"{value:.1%}"),
    "change": ("number", lambda value, _: f"{value:+.1%}"),
    "factor": ("number", lambda value, _: f"{value:.2f}x"),
    "balance": ("number", lambda value, _: f"{value:.3f}"),
    "ms": ("number", lambda value, _: f"{number(value)} ms"),
    "quantity": ("number", quantity),
}
"""How a value is shown: its type in JSON, and its text, of the value and its unit."""
UNITS = (
    ("usd_per_million_tokens", "USD per million tokens", "USD per million tokens", "usd"),
    ("usd_per_hour", "USD/h", "USD/h", "usd"),
    ("usd_per_year", "USD a year", "USD a year", "usd"),
    ("tok_s_per_gpu", "token/s per GPU", "tok/s/GPU", "number"),
    ("tok_s_per_user", "token/s per user", "tok/s/user", "number"),
    ("tok_s_per_rack", "token/s per rack", "tok/s per rack", "number"),
    ("tok_s_per_replica", "token/s per replica", "tok/s per replica", "number"),
    ("tok_s_per_mw", "token/s per MW", "tok/s per MW", "number"),
    ("tok_s", "token/s", "tok/s", "number"),
    ("requests_per_s", "request/s", "requests/s", "number"),
    ("bytes_per_s_per_gpu", "byte/s", "", "quantity"),
    ("bytes_per_s", "byte/s", "", "quantity"),
    ("flop_per_s", "flop/s", "", "quantity"),
    ("bytes_per_prompt", "byte", "", "quantity"),
    ("bytes_per_step", "byte", "", "quantity"),
    ("bytes", "byte", "", "quantity"),
    ("_ms", "ms", "", "ms"),
    ("_kg", "kg", "", "quantity"),
    ("power_w", "W", "", "quantity"),
    ("seconds", "s", "", "quantity"),
    ("_s", "s", "", "quantity"),
    ("_share", "", "", "share"),
)
"""The end of a key, its unit, the unit in a sentence, and the form; the first that fits."""
_VARIANTS = re.compile(r"_(used|full|mean|worst|limit|moved)$")


def unit_of(key: str) -> tuple[str, str, str]:
    """Return the unit that a key says, the unit in a sentence, and the usual form."""
    bare = _VARIANTS.sub("", key)
    fitting = (rest for end, *rest in UNITS if bare == end.strip("_") or bare.endswith(end))
    unit, spoken, form = next(fitting, ("", "", "text"))
    return unit, spoken, form


@dataclass(frozen=True)
class Field:
    """A figure or a text that results show.

    Attributes
    ----------
    key, label:
        Its name in JSON, frames, Parquet and CSV; what heads tables and axes.
    meaning:
        What schema, hints and the reference say of it, in a sentence.
    form:
        One of :data:`FORMS`; empty: as the end of the key says, else text.
    long:
        Whether only pages and JSON show it: sources, reasons, lists of GPUs.
    """

    key: str
    label: str
    meaning: str
    form: str = ""
    long: bool = False

    @cached_property
    def unit(self) -> str:
        """The unit, in SI; empty: it has none."""
        return "" if self.kind in ("text", "list", "flag") else unit_of(self.key)[0]

    @cached_property
    def kind(self) -> str:
        """The form, one of :data:`FORMS`."""
        return self.form or unit_of(self.key)[2]

    @property
    def is_number(self) -> bool:
        """Whether it is a number."""
        return FORMS[self.kind][0] == "number"

    def text(self, value: Any) -> str:
        """Return a value as people read it; null is a dash."""
        return "-" if value is None else FORMS[self.kind][1](value, self.unit)

    def said(self, value: Any, of: str = "") -> str:
        """Return a value with its unit, for sentences: ``80 GPUs``, ``1,702 output tok/s/GPU`` (``of`` output)."""
        spoken = unit_of(self.key)[1]
        if self.kind == "count" and not spoken:
            spoken = self.label.removesuffix("s") if value == 1 else self.label
        if self.kind == "quantity" and value is not None:
            return quantity(value, self.unit, 3)
        return " ".join(filter(None, (self.text(value), of, spoken)))

    @property
    def schema(self) -> dict[str, Any]:
        """Its JSON Schema."""
        kind = FORMS[self.kind][0]
        words = {"type": [kind, "null"], "title": self.label, "description": self.meaning}
        return words | ({"x-unit": self.unit} if self.unit else {})


def said(row: Mapping[str, Any], key: str, of: str = "") -> str:
    """Return a figure of a row with its unit, for sentences (:meth:`Field.said`)."""
    return FIELDS[key].said(row[key], of)


_DECLARED = (
    # what was asked
    Field("cluster", "cluster", "Name of the cluster."),
    Field("model", "model", "Name of the model."),
    Field("phase", "phase", "decode, prefill, or both: whole requests."),
    Field("serving", "serving", "one pool for both phases of a request, two pools, or the one phase alone."),
    Field("isl", "prompt, tokens", "Mean tokens of a prompt.", "count"),
    Field("osl", "answer, tokens", "Mean tokens of an answer.", "count"),
    Field("context", "context, tokens", "Tokens of a sequence that are cached, or of a prompt in prefill.", "count"),
    Field("prefix_hit_share", "prefix hit", "Part of a prompt that a cache holds already."),
    Field("tpot_limit_s", "limit per token", "The longest time per output token that is allowed; null: any."),
    Field("ttft_limit_s", "limit to first token", "The longest time to the first token that is allowed; null: any."),
    Field("recipe", "recipe", "Formats and drafts in use, and whose they are; empty: the checkpoint's.", long=True),
    # layouts and pools
    Field("layout", "layout", "Workers and their widths: replicas, EP, TP, PP."),
    Field("role", "pool", "What a pool of GPUs does: prefill, decode, or both."),
    Field("gpus", "GPUs", "GPUs that are paid for, idle ones and spares included.", "count"),
    Field("gpus_used", "GPUs in use", "GPUs that work.", "count"),
    Field("gpus_idle", "idle GPUs", "GPUs that are paid for and have no work; null where nobody looked.", "count"),
    Field("domains", "domains", "Scale-up domains.", "count"),
    Field("nodes", "nodes", "Hosts.", "count"),
    Field("racks", "racks", "Racks.", "count"),
    Field("workers", "workers", "Copies of the model in a pool.", "count"),
    Field("gpus_per_worker", "GPUs a worker", "GPUs of one copy of the model.", "count"),
    Field("replicas", "replicas", "Copies of the model.", "count"),
    Field("batch", "batch", "Concurrent sequences per GPU in use.", "count"),
    Field("max_batch", "largest batch", "Sequences per GPU in use that fit.", "count"),
    Field("kv_tokens", "KV cache, tokens", "Tokens of KV cache that fit beside the weights, of all GPUs.", "count"),
    Field("bound_by", "bound by", "The resource that the largest part of a step waits for."),
    Field("resource", "resource", "What a step waits for: compute, HBM bandwidth, a fabric, overhead, or stages."),
    Field("origin", "origin", "Whether it was planned, replanned or imported."),
    Field("pool", "pool", "The pool that a row is of, by its role."),
    Field("replica", "replica", "Number of a replica, from 0.", "count"),
    Field("stage", "stage", "Number of a pipeline stage, from 0.", "count"),
    Field("to_stage", "hands on to", "Stage that takes what this one hands on; the last hands tokens back.", "count"),
    Field("first_layer", "first layer", "The first layer of a stage.", "count"),
    Field("last_layer", "last layer", "The last layer of a stage.", "count"),
    Field("gpu_ids", "GPUs by id", "Ids of the GPUs.", "list", long=True),
    Field("reason", "reason", "Why it is so; empty: there is nothing to say.", long=True),
    Field("ep", "EP", "GPUs that the experts of a layer are spread over.", "count"),
    Field("tp", "TP", "Tensor-parallel width of attention.", "count"),
    Field("moe_tp", "MoE TP", "Parts that tensor parallelism cuts each expert into.", "count"),
    Field("attention_dp", "attention DP", "Groups of attention of a stage, each with its own sequences.", "count"),
    Field("stages", "stages", "Pipeline stages of a replica.", "count"),
    Field("limit_s", "limit", "Longest time per output token (prefill: of a step) that is allowed; null: any."),
    Field("over_limit", "over the limit", "Fraction by which that limit is exceeded; null: it is kept.", "share"),
    Field("goal", "goal", "What the layout was chosen for, and the speed that it keeps."),
    Field("passed_over", "passed over", "A faster layout, less simple, that was not taken.", long=True),
    Field("from_tok_s_per_user", "from", "The lowest speed at which it is ahead."),
    Field("to_tok_s_per_user", "to", "The highest speed at which it is ahead."),
    Field("total_params", "parameters", "Parameters of the model.", "number"),
    Field("active_params", "active", "Parameters that a token uses, output head included.", "number"),
    Field("precision", "formats", "Format of the weights by part, and who says so."),
    Field("kv_dtype", "format of the cache", "Format of the KV cache."),
    Field("options", "serving options", "Drafts, overlap and engine; empty: none."),
    Field("loads", "loads", "Tokens per expert that experts are placed for."),
    Field("constraints", "placed so that", "What the placement keeps besides balance; empty: nothing."),
    Field("supposed", "supposed", "What a hypothetical attention changes; empty: none is supposed."),
    Field("what_if", "what if", "What is supposed that no engine does; empty: nothing."),
    # throughput and time
    Field("counted_tokens", "counts", "Which tokens rates count: output or input."),
    Field("tok_s", "tok/s", "Tokens per second of all GPUs."),
    Field("tok_s_per_gpu", "tok/s/GPU", "Tokens per second over all GPUs that are paid for."),
    Field("tok_s_per_gpu_used", "tok/s/GPU in use", "Tokens per second over the GPUs that work."),
    Field("tok_s_per_user", "tok/s/user", "Tokens per second of one sequence."),
    Field("requests_per_s", "requests/s", "Whole requests per second; null where one phase alone is priced."),
    Field("users", "users", "Sequences at a time.", "count"),
    Field("step_s", "step", "Expected time of a step."),
    Field("lower_step_s", "lower bound", "Time of a step by pure roofline, everything at its peak."),
    Field("tokens_per_step", "tokens a step", "Tokens that a sequence yields in a step.", "factor"),
    Field("step_share", "of the step", "That time relative to the step."),
    Field("compute_s", "compute", "Time that is bound by computing."),
    Field("hbm_s", "HBM", "Time that is bound by HBM bandwidth."),
    Field("scale_up_s", "scale-up", "Time that is bound by links inside domains."),
    Field("scale_out_s", "scale-out", "Time that is bound by links between domains."),
    Field("fixed_s", "fixed", "Time that no resource of a chip bounds: delays."),
    Field("imbalance_s", "waiting", "Time that pipeline stages wait for the slowest."),
    Field("peak_s", "at peak", "The same time with everything at its data-sheet peak."),
    Field("floor_s", "busy at peak", "Time that a resource is busy at its peak; 0: it has none."),
    Field("mean_wait_ms", "mean wait", "Mean time from a request's place in a batch to its next token."),
    Field("longest_wait_ms", "longest wait", "Longest time from a request's place in a batch to its next token."),
    Field("step_tokens", "tokens of a step", "Tokens of a step of one replica.", "count"),
    Field("balancing_batch", "balancing batch", "Tokens at which computing takes as long as reading.", "count"),
    Field("output_over_input", "output over input", "Price of an output token over an input token.", "factor"),
    Field("bubble_share", "bubble", "Part of a step that stages wait for the slowest."),
    Field("one_domain_s", "EP in one domain", "Step with the experts in one domain; null: no domains are joined."),
    Field("two_domains_s", "EP over two", "Step with the experts over two domains; null: no domains are joined."),
    Field("drain_s", "drain time", "Time to read all of a memory: what is wanted sooner belongs there."),
    Field("tpot_s", "per token", "Time per output token."),
    Field("ttft_s", "first token", "Time to the first token without waiting: prefill, and transfer of the cache."),
    Field("prefill_s", "prefill", "Time of the prefill of one prompt."),
    Field("transfer_s", "transfer", "Time over the links alone; null where a rate is unknown."),
    Field("part", "part", "Part of a step, of a bill, or of a machine."),
    Field("use", "use", "What memory is used for."),
    Field("memory_share", "of the memory", "Part of the memory of a GPU."),
    Field("expert_bytes", "experts", "Weights of the experts on the fullest GPU."),
    Field("bytes", "bytes", "Bytes in all."),
    # money and power
    Field("usd_per_million_tokens", "USD/Mtok", "USD per million tokens, paying for all GPUs; null without a price."),
    Field("usd_per_hour", "USD/h", "USD per hour of all parts, or of one; null without a price."),
    Field("usd_per_year", "USD a year", "USD for 8,760 hours; null without a price."),
    Field("price_basis", "price basis", "Whose price of a GPU-hour."),
    Field("price_evidence", "price is", "The weakest kind of figure behind the price."),
    Field("power_w", "power", "Power of all parts, or of one; null without a figure."),
    Field("power_evidence", "power is", "The weakest kind of figure behind the power."),
    Field("power_scope", "power of", "all-in (with cooling and conversion), IT (the machines alone), or the chips."),
    Field("each_usd_per_hour", "USD/h each", "Price of one; null without a price."),
    Field("each_power_w", "power each", "Power of one; null without a figure."),
    Field("price_source", "source of the price", "Where the price was read.", long=True),
    Field("power_source", "source of the power", "Where the power was read.", long=True),
    Field("usd_per_hour_used", "USD/h in use", "USD per hour of the GPUs in use; null where none is idle."),
    Field("usd_per_million_tokens_used", "USD/Mtok in use", "USD per million tokens of the GPUs in use."),
    Field("power_w_used", "power in use", "Power of the GPUs in use; null where none is idle."),
    Field("tok_s_per_mw_used", "tok/s per MW in use", "Tokens per second per megawatt of the GPUs in use."),
    Field("tok_s_per_mw", "tok/s per MW", "Tokens per second per megawatt; null without a power."),
    Field("count", "count", "How many of it.", "count"),
    # accuracy and evidence
    Field("evidence", "evidence", "How a figure is known: measured, datasheet, derived, user, assumed or projected."),
    Field("source", "source", "Where a figure was read.", long=True),
    Field("figure", "figure", "Name of a figure."),
    Field("value", "value", "The figure in SI; null where it is not published.", "number"),
    Field("unit", "unit", "Unit of the value."),
    Field("shown", "as published", "The figure as its source prints it."),
    Field("chip", "coefficients of", "Chip whose measured runs the coefficients are fitted to."),
    Field("stand_in_for", "stands in for", "A chip that nobody measured and that uses them; empty otherwise."),
    Field("runs", "runs", "Measured runs.", "count"),
    Field("median_abs_error", "median error", "Median of |predicted - measured| / measured.", "share"),
    Field("mean_abs_error", "mean error", "Mean of |predicted - measured| / measured.", "share"),
    Field("bias", "bias", "Median of predicted / measured, less 1.", "change"),
    Field("within_20_percent", "within 20%", "Share of predictions that are off by at most 20%.", "share"),
    Field("left_out_median_abs_error", "chip left out",
          "Median error with the whole chip left out of the fit.", "share"),
    Field("left_out_within_20_percent", "of them within 20%", "Share within 20% with the chip left out.", "share"),
    Field("band", "80% within", "Factor within which 80% of predictions are of what was measured.", "factor"),
    Field("low_tok_s_per_gpu", "low", "Lower end of the band of tok/s/GPU."),
    Field("high_tok_s_per_gpu", "high", "Upper end of the band of tok/s/GPU."),
    Field("measured_factor", "by measured runs", "Factor by which measured runs nearby corrected a step.", "factor"),
    Field("measured_runs", "runs nearby", "Measured runs that it rests on.", "count"),
    # placement, moves and failures
    Field("placement", "placement", "Who or what placed the experts."),
    Field("balancedness", "balancedness", "Mean over max GPU load, mean over layers; null: no experts.", "balance"),
    Field("balancedness_mean", "balancedness", "The mean of it over what is lost.", "balance"),
    Field("balancedness_worst", "worst balancedness", "The least of it.", "balance"),
    Field("engine_balancedness", "as the engine splits",
          "Balancedness as the engine splits tokens; null: nothing says how.", "balance"),
    Field("status", "status", "OPTIMAL, FEASIBLE, INFEASIBLE or UNKNOWN."),
    Field("objective", "reached", "What a search reached.", "balance"),
    Field("bound", "lower bound", "What nothing can be better than.", "balance"),
    Field("gap", "proven gap", "Fraction between what was reached and the bound; null without experts.", "share"),
    Field("proven", "of", "What objective and bound are of."),
    Field("interrupted", "interrupted", "Whether Ctrl-C ended the search: the best so far.", "flag"),
    Field("search", "search", "How long was searched and why; empty: as asked.", long=True),
    Field("in_turn_s", "in cluster order", "Step with the domains in the order of the cluster; null: nothing fits."),
    Field("layer", "layer", "Id of a layer of the model; null: the mean of all.", "count"),
    Field("expert", "expert", "Number of an expert of a layer.", "count"),
    Field("experts", "experts", "How many experts.", "count"),
    Field("slots", "slots", "Places for experts of a layer.", "count"),
    Field("slots_per_gpu", "slots a GPU", "Places for experts of a layer on the fullest GPU.", "count"),
    Field("redundant", "redundant copies", "Copies of experts above one of each, of a layer.", "count"),
    Field("copies", "copies", "Copies of experts.", "count"),
    Field("mark", "mark", "What is special about a row; empty: nothing."),
    Field("scenario", "loads", "Name of loads."),
    Field("in_sample", "in sample", "Balancedness under loads that the plan was made for.", "balance"),
    Field("left_out", "left out", "Balancedness of a plan made on the other loads; null: not tried.", "balance"),
    Field("worst_layer", "worst layer", "The least balancedness of a layer.", "balance"),
    Field("failure", "lost", "What fails: a GPU, a node or a rack."),
    Field("lost", "lost", "Names of what is lost.", "list"),
    Field("lost_gpus", "GPUs lost", "GPUs that are lost.", "count"),
    Field("lost_copies", "copies lost", "Copies of experts that lay on lost GPUs.", "count"),
    Field("faulty_links", "faulty links", "Links that are broken or slow.", "count"),
    Field("moves", "moves", "Copies of experts that a GPU must fetch.", "count"),
    Field("moved", "of copies", "Moves relative to all copies.", "share"),
    Field("fresh_moves", "moves of a fresh plan", "Moves to a plan that is made afresh.", "count"),
    Field("needed_moves", "needed", "Moves that restore every expert.", "count"),
    Field("buffers", "buffered", "Moves that need a buffer of one expert on the way.", "count"),
    Field("busiest_link", "busiest link", "The link that takes longest; empty: none is used."),
    Field("balancedness_before", "balancedness before",
          "Balancedness of the plan before; null: an expert lacks a copy.", "balance"),
    Field("balancedness_restored", "balancedness restored", "Balancedness as lost experts are restored.", "balance"),
    Field("balancedness_fresh", "balancedness afresh", "Balancedness of a plan that is made afresh.", "balance"),
    Field("max_over_mean", "largest over mean", "Largest over mean GPU load.", "balance"),
    Field("meets_limit", "keeps the limit", "Whether it keeps the limit of the plan; null: there is none.", "flag"),
    Field("distance", "from", "How far away a copy is fetched."),
    Field("copies_left", "left over", "Copies of the first plan that are not needed any more.", "count"),
    Field("plan", "plan", "The plan that a row is of, by its name."),
    Field("same", "same", "Whether plans are the same in all that is compared.", "flag"),
    Field("setting", "input", "An input, by its name."),
    Field("before", "first plan", "What it is in the first plan; null: nothing."),
    Field("after", "here", "What it is here; null: nothing."),
    Field("first_step_s", "first plan", "Time of the part in the first plan."),
    Field("first_bytes", "first plan", "Bytes in the first plan."),
    Field("change_share", "change", "Relative to the first plan, less 1; null: it has none.", "change"),
    Field("finding", "only there", "What is so of this plan, and not of all."),
    Field("choices", "count", "How many of it there are.", "count"),
    Field("tried", "tried", "How many of them were tried, evenly spaced.", "count"),
    Field("tok_s_per_gpu_mean", "tok/s/GPU", "Tokens per second over all GPUs, failed ones too, mean."),
    Field("tok_s_per_gpu_worst", "worst tok/s/GPU", "Tokens per second over all GPUs, failed ones too, at worst."),
    Field("tokens_lost", "tokens lost", "Tokens whose expert has no copy left, of the replica.", "share"),
    Field("tokens_lost_mean", "tokens lost", "Tokens whose expert has no copy left, of the replica, mean.", "share"),
    Field("tokens_lost_most", "most tokens lost", "The most of them.", "share"),
    Field("experts_lost_most", "experts lost", "Experts without a copy in the worst case, of all layers.", "count"),
    Field("worst", "worst case", "What has the worst effect when lost."),
    Field("worst_experts", "experts lost", "Experts that are lost with it.", "count"),
    Field("worst_share", "tokens lost", "Tokens of the layer that are lost with it."),
    Field("share", "tokens", "Part of the tokens of a layer.", "share"),
    Field("share_at_risk", "their tokens", "Part of the tokens that goes to experts at risk.", "share"),
    Field("experts_at_risk", "experts at risk", "Experts with all copies in one place, of all layers.", "count"),
    Field("apart", "apart", "Experts with copies in several places; null: not asked for.", "count"),
    Field("together", "together", "Experts with several copies in one place; null: not asked for.", "count"),
    Field("single", "single", "Experts with one copy; null: not asked for.", "count"),
    Field("domain", "in", "The GPU, node, rack or domain where it is."),
    Field("routing", "routing", "As traced, or if tokens chose experts independently."),
    Field("tokens", "tokens", "Tokens that were traced; null in rows of layers.", "count"),
    Field("domains_per_token", "domains a token", "Scale-up domains that a token needs in a layer.", "number"),
    Field("nodes_per_token", "nodes a token", "Nodes that a token needs in a layer.", "number"),
    Field("gpus_per_token", "GPUs a token", "GPUs that a token needs in a layer.", "number"),
    Field("scale_up_bytes_per_step", "scale-up a step", "Bytes of a step inside domains; null in rows of layers."),
    Field("scale_out_bytes_per_step", "scale-out a step", "Bytes of a step between domains; null: there is one."),
    Field("lever", "lever", "What is changed."),
    Field("change", "change", "By how much it is changed."),
    Field("to", "to", "What it is changed to."),
    Field("gain", "gain", "More of the rate that counts, as a fraction.", "change"),
    # simulation and replay
    # links, clusters and traffic
    Field("pattern", "pattern", "Who sends to whom, or the file that says so."),
    Field("senders", "senders", "GPUs that send.", "count"),
    Field("completion_s", "completion", "When all has arrived: with links shared fairly, else the bound."),
    Field("completion", "completion is", "fair: links are shared fairly; bound: the time of the busiest link."),
    Field("bound_s", "bound", "Time of the busiest link with latency: the least for these routes."),
    Field("latency_s", "latency", "Latency of the slowest route."),
    Field("classes", "classes", "Distinct kinds of flows; null where fair sharing was not computed.", "count"),
    Field("bytes_per_s_per_gpu", "rate of a sender", "Bytes per second that a sender achieves, mean over senders."),
    Field("link", "link", "A directed link by its ends."),
    Field("fabric", "fabric", "Network that it goes over."),
    Field("links", "links", "How many links have this load.", "count"),
    Field("tier", "tier", "Tier of the network, or a memory."),
    Field("bytes_per_s", "rate", "Rate per direction."),
    Field("seconds", "time", "How long it takes; of a tier, its busiest link."),
    Field("completion_share", "of completion", "That time relative to the completion."),
    Field("scale_up_bytes_ratio", "scale-up : scale-out bytes",
          "Bytes inside domains over bytes between them; null: none leaves one.", "number"),
    Field("scale_up_rate_ratio", "scale-up : scale-out rate",
          "Rate of a GPU inside its domain over that outside; null: there is one domain.", "number"),
    Field("matrix", "matrix", "File with the times between GPUs; null: none was asked for."),
    Field("name", "name", "Its name."),
    Field("form", "form", "regular: domains and a fabric; raw: nodes and links."),
    Field("hosts", "hosts", "Hosts that were found.", "count"),
    Field("file_kind", "kind of file", "What a file was read as."),
    Field("assumption", "taken", "What was taken for what no input states."),
    Field("anomaly", "irregular", "What is odd."),
    # catalog
    # loads
    # validation
    # studies
    # engines and files
    Field("file", "file", "What was written; null: nothing."),
    Field("text", "text", "The file itself, where none was written."),
)  # fmt: skip
FIELDS: Mapping[str, Field] = {field.key: field for field in _DECLARED}
