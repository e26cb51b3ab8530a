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


def count(value: float) -> str:
    """Return a count: whole where it is, or above 1,000."""
    return f"{value:,.0f}" if value == round(value) or value > 1000 else f"{value:,.4g}"


def quantity(value: float, unit: str, digits: int = 4) -> str:
    """Return a quantity in SI with a prefix that fits."""
    if not value:
        return f"0 {unit.replace('byte', 'B')}"
    return format_quantity(value, unit, digits)


FORMS: Mapping[str, tuple[str, Callable[[Any, str], str]]] = {
    "text": ("string", lambda value, _: str(value)),
    "flag": ("boolean", lambda value, _: "yes" if value else "no"),
    "list": ("array", lambda value, _: ", ".join(map(str, value))),
    "count": ("number", lambda value, _: count(value)),
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
    ("tok_s_per_usd_h", "token/s per USD/h", "tok/s per USD/h", "number"),
    ("requests_per_s_per_gpu", "request/s per GPU", "requests/s per GPU", "number"),
    ("requests_per_s_per_mw", "request/s per MW", "requests/s per MW", "number"),
    ("requests_per_s_per_usd_h", "request/s per USD/h", "requests/s per USD/h", "number"),
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


_TIMES = (
    ("ttft", "first token", "from sending a request to its first token"),
    ("tpot", "per token", "per output token after the first"),
    ("e2e", "whole request", "from sending a request to its last token"),
)
"""Times of simulated requests."""
TERMS = (
    "attention dense head experts dispatch combine all_reduce pipeline_hops pipeline_bubble overhead "
    "sparse_attention engine rank_imbalance"
)
"""Names of :data:`cost.terms.registry.TERMS`, which loads numpy: the command line starts without."""
_DECLARED = (
    # what was asked
    Field("cluster", "cluster", "Name of the cluster."),
    Field("model", "model", "Name of the model."),
    Field("phase", "phase", "decode, prefill, or both: whole requests."),
    Field("serving", "serving", "one pool for both phases of a request, two pools, or the one phase alone."),
    Field("isl", "prompt, tokens", "Mean tokens of a prompt.", "count"),
    Field("osl", "answer, tokens", "Mean tokens of an answer.", "count"),
    Field("context", "context, tokens", "Tokens of a sequence that are cached, or of a prompt in prefill.", "count"),
    Field("currency", "given in", "What was given: req_s, tok_s or users; a budget: gpus, mw or usd_h."),
    Field("amount", "given", "How much of it was given.", "number"),
    Field("think_s", "thinking", "Time that a user thinks between an answer and the next request."),
    Field("usd_per_million_tokens_limit", "dearest", "The most that a million tokens may cost; null: any price."),
    Field("asked_tok_s", "asked tok/s", "Output tokens per second on average: asked for, or what a budget yields."),
    Field("asked_requests_per_s", "asked requests/s", "Requests per second on average; null for decode alone."),
    Field("asked_users", "asked users", "Concurrent users on average.", "count"),
    Field("peak_tok_s", "peak tok/s", "Output tokens per second at the peak."),
    Field("request_share", "of requests", "Part of the requests."),
    Field("tpot_limit_s", "limit per token", "The longest time per output token that is allowed; null: any."),
    Field("ttft_limit_s", "limit to first token", "The longest time to the first token that is allowed; null: any."),
    Field("ttft_p99_limit_s", "p99 limit to first token", "The most for 99 of 100 requests; null: no wait counts."),
    Field("default_limits", "default limits", "Limits that are defaults, since none were given.", "list"),
    Field("ttft_p99_limit_ms", "p99 limit to first token", "The most for 99 of 100 requests; null: any."),
    Field("tpot_p99_limit_ms", "p99 limit per token", "The most for 99 of 100 requests; null: any."),
    Field("target_tok_s_per_user", "at tok/s/user", "The speed per user that was asked for."),
    Field("prefix_hit", "prefix hit", "Part of prompt tokens that a cache holds.", "share"),
    Field("cached_tokens", "cached, tokens", "Tokens of a prompt that a cache holds.", "count"),
    Field("recipe", "recipe", "Formats and drafts in use, and whose they are; empty: the checkpoint's.", long=True),
    Field("other_recipe", "instead", "usual: the recipe of published runs; checkpoint: the checkpoint's formats."),
    Field("other_ratio", "times", "Throughput per GPU with the other recipe over that of the answer.", "factor"),
    Field("utilization", "mean over peak", "Mean demand over what must be served at peak.", "share"),
    Field("spares", "spares", "Scale-up domains that are kept for failures.", "count"),
    # layouts and pools
    Field("layout", "layout", "Workers and their widths: replicas, EP, TP, PP."),
    Field("role", "role", "What a pool of GPUs does: prefill, decode, or both."),
    Field("attention_dp", "attention groups", "Attention groups of a pipeline stage.", "count"),
    Field("ep", "EP", "Places that the experts of a layer are spread over; 1 without experts.", "count"),
    Field("moe_tp", "expert TP", "Parts that each expert is cut into.", "count"),
    Field("stages", "stages", "Pipeline stages.", "count"),
    Field("plan_layout", "planned layout", "The best layout at this speed that a plan can have; null: none."),
    Field("plan_batch", "planned batch", "Its concurrent sequences per GPU in use.", "count"),
    Field("plan_tok_s_per_gpu", "planned tok/s/GPU", "Its tokens per second over all GPUs."),
    Field("at", "at", "Where on the frontier, as a speed per user in words."),
    Field("layouts", "layouts", "Different layouts that were priced.", "count"),
    Field("configurations", "configurations", "Layouts at batches that were priced.", "count"),
    Field("prefill_gpus", "prefill GPUs", "GPUs that prefill alone; 0: one pool.", "count"),
    Field("decode_gpus", "decode GPUs", "GPUs that decode, of one pool those of both phases.", "count"),
    Field("in_flight", "in flight", "Mean requests in the GPUs that decode: their rate times their time.", "count"),
    Field("imbalance", "expert imbalance", "Load of the busiest GPU over the mean that was counted.", "factor"),
    Field("imbalance_from_gpus", "from EP", "GPUs that share experts from which that is counted.", "count"),
    Field("imbalance_evidence", "imbalance is", "How the imbalance is known: user or assumed."),
    Field("from_tok_s_per_user", "from tok/s/user", "The slowest speed at which it is ahead."),
    Field("to_tok_s_per_user", "to tok/s/user", "The fastest speed at which it is ahead."),
    Field("fabric", "fabric", "Links that caches move over."),
    Field("bytes_per_prompt", "cache of a prompt", "Bytes of cache that move for a prompt."),
    Field("gpus", "GPUs", "GPUs that are paid for, idle ones and spares included.", "count"),
    Field("gpus_used", "GPUs in use", "GPUs that work.", "count"),
    Field("gpus_idle", "idle GPUs", "GPUs that are paid for and have no work; null where nobody looked.", "count"),
    Field("serving_gpus", "GPUs that serve", "GPUs of the domains that serve, without those of spares.", "count"),
    Field("units", "units", "Copies of the named cluster that serve, or that share a replica.", "count"),
    Field("level", "fleet", "this: the answer; smaller or larger: a unit less or more, or a tenth less."),
    Field("serving_domains", "domains that serve", "Scale-up domains without spares.", "count"),
    Field("domains", "domains", "Scale-up domains.", "count"),
    Field("racks", "racks", "Racks.", "count"),
    Field("workers", "workers", "Copies of the model in a pool.", "count"),
    Field("gpus_per_worker", "GPUs a worker", "GPUs of one copy of the model.", "count"),
    Field("replicas", "replicas", "Copies of the model.", "count"),
    Field("batch", "batch", "Concurrent sequences per GPU in use.", "count"),
    Field("max_batch", "largest batch", "Sequences per GPU in use that fit.", "count"),
    Field("kv_tokens", "KV cache, tokens", "Tokens of KV cache that fit beside the weights, of all GPUs.", "count"),
    Field("bound_by", "bound by", "The resource that the largest part of a step waits for."),
    Field("pool", "pool", "Name of a pool of GPUs; of a fleet P0, P1 and so on, as on the drawing."),
    Field("replica", "replica", "Number of a copy of the model in its pool, from 0.", "count"),
    Field("stage_gpus", "GPUs by stage", "GPUs of each pipeline stage, in the order of the ids.", "list", long=True),
    Field("gpu_ids", "GPUs by id", "Ids of the GPUs.", "list", long=True),
    Field("gpu_type", "GPU", "Name of the GPU; several where they differ."),
    Field("gpus_working", "working GPUs", "GPUs of the cluster that work, paid for or not.", "count"),
    Field("gpus_broken", "broken GPUs", "GPUs that are out of service.", "count"),
    Field("broken", "broken", "Ids of the GPUs that are out of service.", "list", long=True),
    Field("requests_share", "of requests", "Part of the requests; of a pool in each phase that it serves."),
    Field("tok_s_per_replica", "tok/s each", "Tokens per second of one replica at most."),
    Field("over_limit", "over limit", "Part by which a step is over its limit; null: it is not.", "share"),
    Field("plan", "plan", "File of a plan, beside the result; null: none was written."),
    Field("no_plan", "no plan since", "Why there is no plan; null: there is, or none was asked for.", long=True),
    Field("reason", "reason", "Why it is so."),
    Field("resource", "resource", "What a step waits for: compute, HBM bandwidth, a fabric, overhead, or stages."),
    Field("origin", "origin", "Whether it was planned, replanned or imported."),
    Field("stage", "stage", "Number of a pipeline stage, from 0.", "count"),
    Field("to_stage", "hands on to", "Stage that takes what this one hands on; the last hands tokens back.", "count"),
    Field("first_layer", "first layer", "The first layer of a stage.", "count"),
    Field("last_layer", "last layer", "The last layer of a stage.", "count"),
    Field("tp", "TP", "Tensor-parallel width of attention.", "count"),
    Field("limit_s", "limit", "Longest time per output token (prefill: of a step) that is allowed; null: any."),
    Field("goal", "goal", "What the layout was chosen for, and the speed that it keeps."),
    Field("passed_over", "passed over", "A faster layout, less simple, that was not taken.", long=True),
    Field("total_params", "parameters", "Parameters of the model.", "number"),
    Field("active_params", "active", "Parameters that a token uses, output head included.", "number"),
    Field("precision", "formats", "Format of the weights by part, and who says so."),
    Field("kv_dtype", "format of the cache", "Format of the KV cache."),
    Field("serving_options", "serving options", "Drafts, overlap and engine; empty: none."),
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
    Field("tok_s_per_rack", "tok/s per rack", "Tokens per second of a rack that serves."),
    Field("reached_tok_s_per_user", "reached tok/s/user", "Tokens per second of one sequence that are reached."),
    Field("peak_share", "of the peak", "Throughput over the peak that is asked for."),
    Field("missed_tok_s", "missed tok/s", "Tokens per second that are missing at the peak."),
    Field("enough_at_tpot_s", "enough down to", "Shortest time per token at which it is enough; null: at none."),
    Field("loaded_requests_per_s", "requests/s at p99", "The most at which 99 of 100 keep the limits; null: none."),
    Field("instead_tok_s_per_gpu", "tok/s/GPU instead", "The other way of serving; null: it keeps no limits."),
    Field("tok_s_per_gpu_ratio", "vs first", "Throughput per GPU over that of the first cluster.", "factor"),
    Field("tok_s_per_mw_ratio", "vs first, per MW", "Throughput per MW over that of the first cluster.", "factor"),
    Field("tok_s_per_usd_h", "tok/s per USD/h", "Tokens per second per dollar-hour; null without a price."),
    Field("tok_s_per_usd_h_ratio", "vs first, per USD/h", "Throughput per USD/h over that of the first.", "factor"),
    Field("requests_per_s_per_gpu", "requests/s per GPU", "Requests per second per GPU that is paid for."),
    Field("requests_per_s_per_mw", "requests/s per MW", "Requests per second per megawatt."),
    Field("requests_per_s_per_usd_h", "requests/s per USD/h", "Requests per second per dollar-hour."),
    Field("before_cluster", "over", "The cluster before it, which a gain is over."),
    Field("gain_factor", "gain", "Throughput per GPU over that of the cluster before; null: out of reach.", "factor"),
    Field("cause", "by", "What changes from one machine to the next."),
    Field("factor", "factor", "What one change brings; null: it is in the next one.", "factor"),
    Field("from_tok_s_per_gpu", "before it", "Tokens per second per GPU before a change."),
    Field("to_tok_s_per_gpu", "tok/s/GPU", "Tokens per second per GPU after a change."),
    Field("direction", "is", "faster, slower, or the cluster itself."),
    Field("run", "run", "A published run: model, GPUs, lengths, formats."),
    Field("measured_tok_s_per_gpu", "measured tok/s/GPU", "Tokens per second per GPU as published."),
    Field("predicted_tok_s_per_gpu", "predicted tok/s/GPU", "Prediction for the same conditions."),
    Field("measured_ratio", "measured over predicted", "Measured over predicted.", "factor"),
    Field("total_tok_s_per_gpu", "in + out tok/s/GPU", "Input and output tokens per second over all GPUs."),
    Field("requests_per_s", "requests/s", "Whole requests per second; null where one phase alone is priced."),
    Field("users", "users", "Sequences at a time.", "count"),
    Field("input_tok_s", "input tok/s", "Tokens of prompts per second; null where decode alone is priced."),
    Field("step_s", "step", "Expected time of a step."),
    Field("lower_step_s", "lower bound", "Time of a step by pure roofline, everything at its peak."),
    Field("tokens_per_step", "tokens a step", "Tokens that a sequence yields in a step.", "factor"),
    Field("step_share", "of the step", "That time relative to the step."),
    Field("compute_s", "compute", "Time that is bound by computing."),
    Field("hbm_s", "HBM", "Time that is bound by HBM bandwidth."),
    Field("scale_up_s", "scale-up", "Time that is bound by links inside domains."),
    Field("scale_out_s", "scale-out", "Time that is bound by links between domains."),
    Field("fixed_s", "fixed", "Time that no resource of a chip bounds: delays."),
    Field("stage_wait_s", "waiting", "Time that pipeline stages wait for the slowest."),
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
    Field("fastest_ttft_s", "fastest first token", "The shortest time to a first token, limits or not."),
    Field("transfer_s", "transfer", "Time over the links alone; null where a rate is unknown."),
    Field("part", "part", "Part of a step, of a bill, or of a machine."),
    *(Field(f"{name}_s", name.replace("_", " "), f"Time of a part of a step: {name.replace('_', ' ')}.")
      for name in TERMS.split()),
    Field("use", "use", "What memory is used for."),
    Field("memory_share", "of the memory", "Part of the memory of a GPU."),
    Field("expert_bytes", "experts", "Weights of the experts on the fullest GPU."),
    Field("bytes", "bytes", "Bytes in all."),
    # money and power
    Field("usd_per_million_tokens", "USD/Mtok", "USD per million tokens, paying for all GPUs; null without a price."),
    Field("usd_per_hour", "USD/h", "USD per hour of all parts, or of one; null without a price."),
    Field("usd_per_year", "USD a year", "USD for 8,760 hours; null without a price."),
    Field("usd_per_million_tokens_full", "USD/Mtok at full load", "USD per million tokens if all were used."),
    Field("tok_s_per_mw_full", "tok/s per MW, full", "Tokens per second per megawatt if all were used."),
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
    Field("machine_status", "machine is", "Whether a machine is sold: shipping, announced, hypothetical."),
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
    Field("left_out_median_abs_error", "chip left out", "Median error with the chip left out of the fit.", "share"),
    Field("left_out_within_20_percent", "of them within 20%", "Share within 20% with the chip left out.", "share"),
    Field("band", "80% within", "Factor within which 80% of predictions are of what was measured.", "factor"),
    Field("low_tok_s_per_gpu", "low", "Lower end of the band of tok/s/GPU."),
    Field("high_tok_s_per_gpu", "high", "Upper end of the band of tok/s/GPU."),
    Field("measured_factor", "by measured runs", "Factor by which measured runs nearby corrected a step.", "factor"),
    Field("measured_runs", "runs nearby", "Measured runs that it rests on.", "count"),
    Field("measured_chip", "chip", "Chip of a measured run."),
    Field("least_tok_s_per_gpu", "band", "Lower edge of the band around the prediction."),
    # placement, moves and failures
    Field("status", "status", "How it ended: a proof OPTIMAL or FEASIBLE; a point ok, infeasible, failed, timeout."),
    Field("objective", "objective", "What the goal comes to, in its own unit.", "number"),
    Field("bound", "bound", "What nothing can beat, in the unit of the objective.", "number"),
    Field("gap", "gap", "Part by which the objective may be away from the best.", "share"),
    Field("objective_of", "of", "What objective and bound are of, with the unit."),
    Field("search", "search", "What searched, and through how much."),
    Field("interrupted", "interrupted", "Whether Ctrl-C ended it, so that this is the best so far.", "flag"),
    Field("gain", "gain", "Change relative to what it is compared with.", "change"),
    Field("lever", "lever", "Figure or choice that is changed; null: none."),
    Field("lever_kind", "kind of lever", "hardware, precision, workload or layout."),
    Field("change", "change", "By how much it is changed."),
    Field("to", "to", "What it is after the change."),
    Field("way", "with", "What stays as in the plan: same batch (and layout), same layout, or any layout."),
    Field("batch_kept", "same batch", "Gain with layout and batch as in the plan; null: not possible.", "change"),
    Field("layout_kept", "same layout", "Gain with the layout as in the plan; null: not possible.", "change"),
    Field("layout_free", "any layout", "Gain with the best layout; null: not possible, or nobody looked.", "change"),
    Field("layout_kept_batch", "at batch", "Sequences per GPU in use of the gain at the same layout.", "count"),
    Field("gain_of", "gains of", "The rate that gains are of."),
    Field("limit_asked", "limit asked for", "Whether the limit was asked for; else it is the plan's time.", "flag"),
    Field("remark", "remark", "What is odd about it."),
    Field("placement", "placement", "Who or what placed the experts."),
    Field("balancedness", "balancedness", "Mean over max GPU load, mean over layers; null: no experts.", "balance"),
    Field("balancedness_mean", "balancedness", "The mean of it over what is lost.", "balance"),
    Field("balancedness_worst", "worst balancedness", "The least of it.", "balance"),
    Field("engine_balancedness", "as the engine splits", "Balancedness with its split; null: unknown.", "balance"),
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
    Field("buffers", "moves through a buffer", "Moves that need a buffer of one expert on the way.", "count"),
    Field("busiest_link", "busiest link", "The link that takes longest; empty: none is used."),
    Field("balancedness_before", "balancedness before", "Of the plan before; null: an expert is lost.", "balance"),
    Field("balancedness_restored", "balancedness, experts restored", "Balancedness once restored.", "balance"),
    Field("balancedness_fresh", "balancedness of a fresh plan", "Balancedness of a plan made afresh.", "balance"),
    Field("max_over_mean", "largest over mean", "Largest over mean GPU load.", "balance"),
    Field("meets_limit", "keeps the limit", "Whether it keeps the limit of the plan; null: there is none.", "flag"),
    Field("distance", "from", "How far away a copy is fetched."),
    Field("copies_left", "left over", "Copies of the first plan that are not needed any more.", "count"),
    Field("same", "same", "Whether plans are the same in all that is compared.", "flag"),
    Field("input", "input", "An input, by its name."),
    Field("before", "first plan", "What it is in the first plan; null: nothing."),
    Field("after", "here", "What it is here; null: nothing."),
    Field("first_step_s", "first plan", "Time of the part in the first plan."),
    Field("first_bytes", "first plan", "Bytes in the first plan."),
    Field("change_share", "change", "Relative to the first plan, less 1; null: it has none.", "change"),
    Field("finding", "only there", "What is so of this plan, and not of all."),
    Field("tried", "tried", "How many of them were tried, evenly spaced.", "count"),
    Field("tok_s_per_gpu_mean", "tok/s/GPU", "Tokens per second over all GPUs, failed ones too, mean."),
    Field("tok_s_per_gpu_worst", "worst tok/s/GPU", "Tokens per second over all GPUs, failed ones too, at worst."),
    Field("tokens_lost", "tokens lost", "Tokens whose expert has no copy left, of the replica.", "share"),
    Field("tokens_lost_mean", "tokens lost", "Tokens whose expert has no copy left, of the replica, mean.", "share"),
    Field("tokens_lost_most", "most tokens lost", "The most of them.", "share"),
    Field("experts_lost_most", "experts lost", "Experts without a copy in the worst case, of all layers.", "count"),
    Field("worst_case", "worst case", "What has the worst effect when lost."),
    Field("worst_experts", "experts lost", "Experts that are lost with it.", "count"),
    Field("worst_share", "tokens lost", "Tokens of the layer that are lost with it."),
    Field("share", "tokens", "Part of the tokens of a layer.", "share"),
    Field("share_at_risk", "their tokens", "Part of the tokens that goes to experts at risk.", "share"),
    Field("experts_at_risk", "experts at risk", "Experts with all copies in one place, of all layers.", "count"),
    Field("apart", "apart", "Experts with copies in several places; null: not asked for.", "count"),
    Field("together", "together", "Experts with several copies in one place; null: not asked for.", "count"),
    Field("single", "single", "Experts with one copy; null: not asked for.", "count"),
    Field("within", "in", "The GPU, node, rack or domain where it is."),
    Field("routing", "routing", "As traced, or if tokens chose experts independently."),
    Field("tokens", "tokens", "Tokens that were traced; null in rows of layers.", "count"),
    Field("domains_per_token", "domains a token", "Scale-up domains that a token needs in a layer.", "number"),
    Field("nodes_per_token", "nodes a token", "Nodes that a token needs in a layer.", "number"),
    Field("gpus_per_token", "GPUs a token", "GPUs that a token needs in a layer.", "number"),
    Field("scale_up_bytes_per_step", "scale-up a step", "Bytes of a step inside domains; null in rows of layers."),
    Field("scale_out_bytes_per_step", "scale-out a step", "Bytes of a step between domains; null: there is one."),
    # simulation and replay
    Field("windows", "windows", "Windows of recorded loads.", "count"),
    Field("scored", "scored windows", "Windows that are scored: all but the first.", "count"),
    Field("window", "window", "Number of a window, from 1.", "count"),
    Field("window_names", "names of windows", "What the windows are called.", "list", long=True),
    Field("steps_per_window", "steps a window", "Steps that a window stands for.", "count"),
    Field("balanced_step_s", "balanced step", "Time of a step with experts perfectly balanced."),
    Field("baseline", "baseline", "Policy that tokens gained are counted against."),
    Field("static", "static plan", "What the plan that runs first was made for."),
    Field("policy", "policy", "Name of a policy, with its interval where it takes part several times."),
    Field("interval", "every", "Windows from one re-plan to the next; 0 or null: never.", "count"),
    Field("interval_steps", "every, steps", "Steps from one re-plan to the next; null: never.", "count"),
    Field("budget", "budget", "Largest part of the copies that a re-plan moves; null: any.", "share"),
    Field("start", "begins with", "The placement that a policy begins with."),
    Field("worst", "worst", "Balancedness of the worst window, mean over layers.", "balance"),
    Field("copies_moved", "moved", "Part of all expert copies that a re-plan moves, mean over re-plans.", "share"),
    Field("bytes_moved", "bytes moved", "Bytes of all expert copies that move."),
    Field("imbalance_s", "imbalance", "Time of serving that uneven loads cost."),
    Field("moves_s", "moves", "Time of serving that moves cost; of links without a rate nothing is counted."),
    Field("tokens_gained", "tokens gained", "Tokens more than the baseline in the time of the baseline.", "number"),
    Field("planning_cpu_s", "planning CPU", "Processor time of planning on this machine; it varies from run to run."),
    Field("load", "load", "What arrives, in words."),
    Field("router", "router", "Which engine a request goes to."),
    Field("seed", "seed", "Seed of what is random.", "count"),
    Field("requests", "requests", "Requests that were simulated, or there at a time.", "count"),
    Field("requests_counted", "requests counted", "Those that percentiles are taken over.", "count"),
    *(Field(f"{key}_p{percent}_ms", f"{label} p{percent}", f"Time {what}: {percent} of 100 requests take no longer.")
      for key, label, what in _TIMES for percent in (50, 90, 99)),
    *(Field(f"{key}_ms", label, f"Time {what}, waiting included.") for key, label, what in _TIMES),
    Field("percentile", "percentile", "p99: 99 of 100 requests do not take longer."),
    Field("served_requests_per_s", "served requests/s", "Whole requests that end per second."),
    Field("goodput_requests_per_s", "goodput requests/s", "Whole requests per second that keep the limits."),
    Field("max_requests_per_s", "most requests/s", "The most at which 99 of 100 keep the limits; null: none."),
    Field("low_max_requests_per_s", "low", "The same of the random stream that needs the lowest rate."),
    Field("high_max_requests_per_s", "high", "The same of the random stream that takes the highest rate."),
    Field("overloaded", "overloaded", "Whether requests arrive faster than they are served.", "flag"),
    Field("wait_prefill_ms", "wait for prefill", "Mean time that a request waits for its prefill to start."),
    Field("wait_transfer_ms", "wait for links", "Mean time that a request waits for links that others use."),
    Field("wait_decode_ms", "wait for decode", "Mean time that a request waits to join the pool that decodes."),
    Field("wait_cache_room_ms", "of it for cache room", "Part of these waits in which a KV cache had no room."),
    Field("queue", "waits most for", "What a request waits for most; empty: it hardly waits."),
    Field("preempted", "preempted", "Times that a request was computed again for lack of cache room.", "count"),
    Field("busy_share", "busy", "Part of the time that engines are in a step."),
    Field("cache_tokens", "cache, tokens", "Tokens that the KV cache of a worker holds; null: it prefills.", "count"),
    Field("time_s", "time", "Time since the first request was sent."),
    Field("state", "state", "Whether requests wait or run."),
    Field("first_token_share", "requests", "Part of the requests that have their first token by then."),
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
    Field("links", "links", "How many links have this load.", "count"),
    Field("tier", "tier", "Tier of the network, or a memory."),
    Field("bytes_per_s", "rate", "Rate per direction."),
    Field("seconds", "time", "How long it takes; of a tier, its busiest link."),
    Field("completion_share", "of completion", "That time relative to the completion."),
    Field("scale_up_bytes_ratio", "scale-up : scale-out bytes", "Bytes within domains over those between.", "number"),
    Field("scale_up_rate_ratio", "scale-up : scale-out rate", "A GPU's rate in its domain over outside.", "number"),
    Field("matrix", "matrix", "File with the times between GPUs; null: none was asked for."),
    Field("name", "name", "Its name."),
    Field("form", "form", "regular: domains and a fabric; raw: nodes and links."),
    Field("domain", "domain", "Name of a scale-up domain."),
    Field("node", "host", "Name of a host."),
    Field("rack", "rack", "Name of a rack."),
    Field("rail", "rail", "Number of the rail of a GPU; null: it has none.", "count"),
    Field("hosts", "hosts", "Hosts.", "count"),
    Field("file_kind", "kind of file", "What a file was read as."),
    Field("assumption", "taken", "What was taken for what no input states."),
    Field("anomaly", "irregular", "What is odd."),
    # catalog
    Field("title", "written out", "Its name written out."),
    Field("vendor", "vendor", "Who makes it."),
    Field("dies", "dies", "Dies of a package.", "count"),
    Field("gpu", "GPU", "Name of the kind of GPU."),
    Field("hbm_bytes", "HBM", "Memory of a GPU, as the driver reports it where known."),
    Field("hbm_bytes_per_s", "HBM rate", "Rate of that memory."),
    Field("bf16_flop_per_s", "bf16", "Dense peak in BF16."),
    Field("fp8_flop_per_s", "fp8", "Dense peak in FP8; null: it has none, or none is published."),
    Field("fp4_flop_per_s", "fp4", "Dense peak in FP4; null: it has none, or none is published."),
    Field("bf16_flop_per_byte", "flop/B", "Peak in BF16 over the rate of memory.", "number"),
    Field("gpus_per_domain", "GPUs a domain", "GPUs of a scale-up domain.", "count"),
    Field("gpus_per_node", "GPUs a node", "GPUs of a host.", "count"),
    Field("scale_up_bytes_per_s", "scale-up/GPU", "Rate of a GPU per direction inside its domain."),
    Field("scale_out_bytes_per_s", "scale-out/GPU", "Rate of a GPU per direction between domains."),
    Field("structure", "structure", "How a domain is built: switch, two-tier, mesh, torus or raw."),
    Field("joined", "joined by", "What joins the GPUs of a domain."),
    Field("links_per_gpu", "links a GPU", "Scale-up links of a GPU.", "count"),
    Field("shape", "shape", "Sides of a torus; empty: it is none.", "list"),
    Field("switches_per_domain", "switches a domain", "Switch chips of a domain.", "count"),
    Field("links_per_switch", "links a switch", "Links of a GPU to each switch chip of a domain.", "list", long=True),
    Field("switch_racks", "racks of switches", "Racks that hold switches of domains alone.", "count"),
    Field("racks_basis", "racks by", "What the number of racks rests on, or why it is not known."),
    Field("power_basis", "power by", "What the power is of, or why it is not known."),
    Field("rack_power_w", "power a rack", "Power of a rack."),
    Field("mass_kg", "weight", "Weight of all parts."),
    Field("mass_evidence", "weight is", "The weakest kind of figure behind the weight."),
    Field("mass_basis", "weight by", "What the weight is of, or why it is not known."),
    Field("rack_mass_kg", "weight a rack", "Weight of a rack."),
    Field("scale_up", "in domains", "Whether a fabric is that of domains.", "flag"),
    Field("counted", "counted", "Whether the number of links is published; else one stands for all.", "flag"),
    Field("board_links", "on boards", "Links on boards.", "count"),
    Field("copper_links", "copper", "Links in copper.", "count"),
    Field("copper_cables", "copper cables", "Cables of those links; null: not known.", "count"),
    Field("optical_links", "optical", "Optical links.", "count"),
    Field("links_per_transceiver", "links a transceiver", "Optical links that a transceiver carries.", "count"),
    Field("transceivers", "transceivers", "Optical modules, those of both ends.", "count"),
    Field("active_params_with_embedding", "with embedding", "The same with the input embedding.", "number"),
    Field("published_total", "published", "Parameters as its authors print them."),
    Field("published_active", "published active", "Active parameters as its authors print them; empty: none."),
    Field("layers", "layers", "Layers; of recordings: those with tokens.", "count"),
    Field("moe_layers", "MoE layers", "Layers with routed experts.", "count"),
    Field("experts_per_token", "per token", "Experts that a token uses in a layer.", "count"),
    Field("attention", "attention", "Kinds of attention.", "list"),
    Field("kv_cache_4096_bytes", "KV cache of 4,096", "KV cache of a sequence of 4,096 tokens in BF16."),
    Field("precision_source", "formats by", "Who says the formats of weights."),
    Field("dtype", "format", "Number format."),
    Field("omitted", "not modelled", "Parts that are left out.", "list"),
    Field("most_context", "longest, tokens", "Tokens of the longest sequence published; null: not known.", "count"),
    Field("most_context_source", "longest by", "Where that was read."),
    Field("sources", "sources", "Where its authors print them.", "list"),
    Field("checkpoint", "checkpoint", "What an engine loads: an id of Hugging Face, or a path."),
    Field("quantization", "quantization", "Its quantization_config, where it is not the entry's.", long=True),
    # loads
    Field("layers_without_tokens", "without tokens", "Layers without a token, like dense ones.", "list"),
    Field("ids", "ids", "Whether layers have ids as recorded, or are rows from 0."),
    Field("windows_empty", "empty", "Windows without a token.", "count"),
    Field("windows_kept", "kept", "Windows with tokens.", "count"),
    Field("scenarios", "scenarios", "Loads that windows were merged into.", "count"),
    Field("tokens_kept", "tokens kept", "Tokens that were kept.", "count"),
    Field("tokens_counted", "tokens counted", "Tokens whose choices were counted in pairs.", "count"),
    Field("choices", "choices", "Experts that a token chooses in a layer.", "count"),
    Field("one_layer_for_all", "one layer for all", "Whether one layer stands for all.", "flag"),
    Field("expert_max_over_mean", "max / mean", "Tokens of the busiest expert over the mean.", "balance"),
    Field("coefficient_of_variation", "variation", "Standard deviation over mean, of tokens per expert.", "balance"),
    Field("series", "series", "Which of several lines."),
    Field("over_mean", "tokens over the mean", "Tokens of an expert over the mean of its layer.", "balance"),
    Field("measure", "measure", "What was measured."),
    Field("skew_mean", "mean", "Mean over layers.", "balance"),
    Field("skew_median", "median", "Median over layers.", "balance"),
    Field("skew_worst", "worst", "The largest of a layer.", "balance"),
    Field("at_layer", "in layer", "The layer that has it.", "count"),
    Field("between", "between", "Which windows are compared."),
    Field("moved_share", "tokens moved", "Tokens that went elsewhere, mean over layers."),
    Field("by_chance_share", "by chance", "What chance alone would give."),
    Field("beyond_chance_share", "beyond chance", "What chance does not explain."),
    Field("correlation", "correlation", "Correlation of the loads; null: they are all equal.", "balance"),
    Field("dependent_share", "not independent", "Pairs that independent choices would not give; null: no pairs."),
    Field("worst_dependent_share", "worst", "The largest share of a layer."),
    Field("independent_domains_per_token", "if independent", "What independent choices would need.", "balance"),
    Field("rank", "rank", "Rank, from 0; of experts by load, from 1.", "count"),
    # validation
    Field("id", "row", "Name of a measured row."),
    Field("quantity", "quantity", "What was measured, with its unit."),
    Field("rows", "rows", "Measured rows, or points of a study on disk.", "count"),
    Field("rows_predicted", "predicted", "Rows with a prediction.", "count"),
    Field("coverage", "coverage", "Share of the rows with a prediction.", "share"),
    Field("measured", "measured", "The measured figure, in the unit of its quantity.", "number"),
    Field("predicted", "predicted", "The prediction, in the unit of its quantity.", "number"),
    Field("error", "error", "Predicted over measured, less 1.", "change"),
    Field("low", "low", "Lower end of the band that a plan prints for the same question.", "number"),
    Field("high", "high", "Upper end of that band.", "number"),
    Field("inside", "inside", "Whether the band holds the measured figure.", "flag"),
    Field("intervals", "with a band", "Rows with a band.", "count"),
    Field("inside_interval", "in band", "Share of those rows whose measured figure the band holds.", "share"),
    Field("chosen", "chosen", "What was chosen where the row does not say it.", long=True),
    Field("corrected", "corrected", "Whether measured runs corrected the predictions.", "flag"),
    Field("frontiers", "frontiers", "Measured frontiers.", "count"),
    Field("frontier", "frontier", "Model, format, cluster, lengths and phase of measured runs."),
    Field("runs_left_out", "left out", "Runs without speed or throughput.", "count"),
    Field("most_gpus", "most GPUs", "The most GPUs of a run.", "count"),
    Field("most_requests", "most requests", "The most requests of a run.", "count"),
    Field("requests_per_gpu", "requests/GPU", "Requests in the system over GPUs.", "number"),
    Field("measured_layout", "measured layout", "Pools and requests of a run."),
    Field("chosen_layout", "chosen layout", "Layout that is predicted best at this speed; empty: none reaches it."),
    Field("at_load_tok_s_per_gpu", "same requests", "The most predicted at as many requests per GPU."),
    Field("at_speed_tok_s_per_gpu", "same speed", "The most predicted at this speed; 0: nothing is as fast."),
    Field("of_run_tok_s_per_gpu", "of what ran", "The same among the layouts that ran."),
    # studies
    Field("study_kind", "kind", "What a point is: score, sweep, plan or fleet."),
    Field("points", "points", "Points of a study, or how many of them.", "count"),
    Field("priced", "priced now", "Points that this run priced; null: it only read.", "count"),
    Field("replaced_workers", "restarted", "Workers that died and were replaced; null: it only read.", "count"),
    Field("varied", "varied", "Options that differ between points.", "list"),
    Field("fixed", "fixed", "Options of all points.", "list"),
    Field("results", "rows in", "Folder of the Parquet dataset with all rows."),
    Field("rows_sha256", "SHA-256", "SHA-256 of the rows without times and hosts: the same on every machine."),
    Field("point", "point", "Number of a point, its row in the dataset.", "count"),
    Field("options", "options", "Options in which points differ, each as name and value.", "list"),
    Field("option", "option", "Option that is varied."),
    Field("setting", "setting", "Value of an option.", "number"),
    # engines and files
    Field("command", "command", "The command line."),
    Field("sha256", "SHA-256", "SHA-256 of a file."),
    Field("engine", "engine", "Serving engine."),
    Field("version", "checked with", "Version of the engine that the format was checked with."),
    Field("released", "released", "Whether a release of the engine loads this format.", "flag"),
    Field("engine_splits", "engine splits", "How the engine can split tokens of an expert over its copies.", "list"),
    Field("engine_split", "engine's split", "The same in words.", long=True),
    Field("split", "planned split", "How the plan expects tokens of an expert to be split over its copies."),
    Field("tp_source", "TP by", "Who says that width."),
    Field("flags", "flags", "What the engine is started with.", "list", long=True),
    Field("launch", "launch", "What the launch file is for; shell: there is none."),
    Field("launch_file", "launch file", "That file; null: the flags alone start the engine."),
    Field("start_command", "start", "What is typed before its name to start it."),
    Field("first_rank", "first rank", "The first rank, from 0 in a replica.", "count"),
    Field("last_rank", "last rank", "The last rank, included.", "count"),
    Field("hostlist", "hosts", "Hosts as Slurm writes them."),
    Field("host", "host", "Name of a host."),
    Field("gpu_id", "GPU", "Id of a GPU."),
    Field("device", "device", "Number of a GPU on its host.", "count"),
    Field("nics", "NICs", "Ids of the NICs nearest to it.", "list"),
    Field("can_load", "loads", "Whether the engine starts with the file.", "flag"),
    Field("is_right", "right", "Whether it then places experts as the file says, each at least once.", "flag"),
    Field("where", "where", "The place in a file."),
    Field("effect", "effect", "refused: the engine does not start; wrong: it does something else; note: fine."),
    Field("schema_kind", "kind", "command, request or file."),
    Field("meaning", "of", "What it is of, in a sentence."),
    Field("file", "file", "What was read or written; null: nothing."),
    Field("text", "text", "The file itself, where none was written."),
)  # fmt: skip
FIELDS: Mapping[str, Field] = {field.key: field for field in _DECLARED}
