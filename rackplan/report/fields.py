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
    "count": ("number", lambda value, _: f"{value:,.4g}" if value % 1 and value < 1000 else f"{value:,.0f}"),
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
    Field("utilization", "mean over peak", "Mean demand over that at the peak.", "share"),
    Field("think_s", "thinking", "Time that a user thinks between an answer and the next request."),
    Field("spares", "spare domains", "Domains kept for failures.", "count"),
    Field("usd_per_million_tokens_limit", "dearest", "The most that a million tokens may cost; null: any price."),
    Field("asked_tok_s", "asked tok/s", "Output tokens per second on average: asked for, or what a budget yields."),
    Field("asked_requests_per_s", "asked requests/s", "Requests per second on average; null for decode alone."),
    Field("asked_users", "asked users", "Concurrent users on average.", "count"),
    Field("peak_tok_s", "peak tok/s", "Output tokens per second at the peak."),
    Field("request_share", "of requests", "Part of the requests."),
    Field("prefix_hit_share", "prefix hit", "Part of a prompt that a cache holds already."),
    Field("tpot_limit_s", "limit per token", "The longest time per output token that is allowed; null: any."),
    Field("ttft_limit_s", "limit to first token", "The longest time to the first token that is allowed; null: any."),
    Field("ttft_p99_limit_s", "limit to first token, p99",
          "The longest time to the first token that 99 of 100 requests may see; null: waiting is left out."),
    Field("default_limits", "default limits", "Limits that are defaults, since none were given.", "list"),
    Field("recipe", "recipe", "Formats and drafts in use, and whose they are; empty: the checkpoint's.", long=True),
    Field("other_recipe", "instead", "usual: as published runs serve it; checkpoint: in the checkpoint's formats."),
    Field("other_ratio", "times", "Throughput per GPU with the other recipe over that of the answer.", "factor"),
    # layouts and pools
    Field("layout", "layout", "Workers and their widths: replicas, EP, TP, PP."),
    Field("role", "pool", "What a pool of GPUs does: prefill, decode, or both."),
    Field("gpus", "GPUs", "GPUs that are paid for, idle ones and spares included.", "count"),
    Field("gpus_used", "GPUs in use", "GPUs that work.", "count"),
    Field("gpus_idle", "idle GPUs", "GPUs that are paid for and have no work; null where nobody looked.", "count"),
    Field("serving_gpus", "GPUs that serve", "GPUs of the domains that serve, without those of spares.", "count"),
    Field("units", "units", "Copies of the named cluster that serve, or that share a replica.", "count"),
    Field("level", "fleet", "this: the answer; smaller or larger: a unit less or more, or a tenth less."),
    Field("serving_domains", "domains that serve", "Scale-up domains without spares.", "count"),
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
    Field("enough_at_tpot_s", "enough at", "Shortest time per token at which it is enough; null: at none."),
    Field("loaded_requests_per_s", "requests/s at p99",
          "The most requests per second at which 99 of 100 keep the limits; null: nobody asked, or none."),
    Field("instead_tok_s_per_gpu", "tok/s/GPU instead",
          "Tokens per second per GPU of the other way of serving; null: it keeps the limits nowhere."),
    Field("tok_s_per_gpu_ratio", "of first", "Throughput per GPU over that of the first cluster.", "factor"),
    Field("tok_s_per_mw_ratio", "of first, per MW", "Throughput per MW over that of the first cluster.", "factor"),
    Field("tok_s_per_usd_h", "tok/s per USD/h", "Tokens per second per dollar-hour; null without a price."),
    Field("tok_s_per_usd_h_ratio", "of first, per USD/h",
          "Throughput per dollar-hour over that of the first cluster.", "factor"),
    Field("requests_per_s_per_gpu", "requests/s per GPU", "Requests per second per GPU that is paid for."),
    Field("requests_per_s_per_mw", "requests/s per MW", "Requests per second per megawatt."),
    Field("requests_per_s_per_usd_h", "requests/s per USD/h", "Requests per second per dollar-hour."),
    Field("before", "over", "The cluster before it, which a gain is over."),
    Field("gain", "gain", "Throughput per GPU over that of the cluster before; null: out of reach.", "factor"),
    Field("cause", "by", "What changes from one machine to the next."),
    Field("factor", "factor", "What one change brings; null: it is in the next one.", "factor"),
    Field("from_tok_s_per_gpu", "before it", "Tokens per second per GPU before a change."),
    Field("to_tok_s_per_gpu", "tok/s/GPU", "Tokens per second per GPU after a change."),
    Field("direction", "is", "faster, slower, or the cluster itself."),
    Field("run", "run", "A published run: model, GPUs, lengths, formats."),
    Field("measured_tok_s_per_gpu", "measured tok/s/GPU", "Tokens per second per GPU as published."),
    Field("predicted_tok_s_per_gpu", "predicted tok/s/GPU", "Prediction for the same conditions."),
    Field("measured_ratio", "measured over predicted", "Measured over predicted.", "factor"),
    Field("requests_per_s", "requests/s", "Whole requests per second; null where one phase alone is priced."),
    Field("users", "users", "Sequences at a time.", "count"),
    Field("step_s", "step", "Expected time of a step."),
    Field("lower_step_s", "lower bound", "Time of a step by pure roofline, everything at its peak."),
    Field("tpot_s", "per token", "Time per output token."),
    Field("ttft_s", "first token", "Time to the first token without waiting: prefill, and transfer of the cache."),
    Field("prefill_s", "prefill", "Time of the prefill of one prompt."),
    Field("transfer_s", "transfer", "Time over the links alone; null where a rate is unknown."),
    Field("part", "part", "Part of a step, of a bill, or of a machine."),
    Field("use", "use", "What memory is used for."),
    Field("bytes", "bytes", "Bytes in all."),
    # money and power
    Field("usd_per_million_tokens", "USD/Mtok", "USD per million tokens, paying for all GPUs; null without a price."),
    Field("usd_per_hour", "USD/h", "USD per hour of all parts, or of one; null without a price."),
    Field("usd_per_year", "USD a year", "USD for 8,760 hours; null without a price."),
    Field("usd_per_million_tokens_full", "USD/Mtok, full",
          "USD per million tokens if all that the fleet can give were used."),
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
    Field("proven", "proof", "What the search proves: OPTIMAL, FEASIBLE, INFEASIBLE or UNKNOWN."),
    Field("objective", "reached", "What the search reached.", "number"),
    Field("bound", "upper bound", "What nothing can exceed.", "number"),
    Field("gap", "gap", "Part by which the bound exceeds what is reached.", "share"),
    Field("status", "status", "Whether a machine is sold: shipping, announced, hypothetical."),
    Field("reason", "reason", "Why there is no answer; empty: there is one.", long=True),
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
    Field("links", "links", "How many links have this load.", "count"),
    Field("tier", "tier", "Tier of the network."),
    Field("bytes_per_s", "rate", "Rate per direction."),
    Field("seconds", "time", "How long what it carries takes; of a tier, the busiest link."),
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
    Field("assumption", "taken", "What no file states, and what was taken for it."),
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
