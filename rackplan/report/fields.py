"""Every figure that results show, declared once in ``fields.csv``: key, label, meaning, form.

Headings, hints, axes, number formats, JSON Schema, types of Parquet columns and the reference page derive from here.
A figure is two lines: its row there, and its place in a document. A key ends in its unit (counts, shares and factors
have none) and means the same in every result.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from typing import Any

from topology.base.units import format_quantity


def number(value: float) -> str:
    """Return a number: three significant digits, but whole from 100 to a million."""
    if not math.isfinite(value):
        return "-"
    size = abs(value)
    if size >= 999_500:
        power, letter = next(scale for scale in ((1e12, "T"), (1e9, "B"), (999_500, "M")) if size >= scale[0])
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
    ("flop_per_token", "flop", "", "quantity"),
    ("_flop", "flop", "", "quantity"),
    ("bytes_per_prompt", "byte", "", "quantity"),
    ("bytes_per_token", "byte", "", "quantity"),
    ("gpu_s_per_million_tokens", "GPU s per million tokens", "GPU s per million tokens", "number"),
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
    fitting = (forms for end, *forms in UNITS if bare == end.strip("_") or bare.endswith(end))
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

    def phrase(self, value: Any, of: str = "") -> str:
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


def phrase(row: Mapping[str, Any], key: str, of: str = "") -> str:
    """Return a figure of a row with its unit, for sentences (:meth:`Field.phrase`)."""
    return FIELDS[key].phrase(row[key], of)


def _declared() -> dict[str, Field]:
    lines = files("rackplan.report").joinpath("fields.csv").read_text(encoding="utf-8").splitlines()
    rows = [row | {"long": row["long"] == "yes"} for row in csv.DictReader(lines, strict=True)]
    return {row["key"]: Field(**row) for row in rows}


FIELDS: Mapping[str, Field] = _declared()
"""All figures by key, as ``fields.csv`` declares them."""
