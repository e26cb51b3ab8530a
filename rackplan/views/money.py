"""What a throughput comes to: tokens and requests of the whole cluster, dollars and megawatts; of every command."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cost.money import Bill, BillPart
from rackplan.views.blocks import Block, figure_data, labelled
from topology.figures import Evidence, Figure


@dataclass(frozen=True)
class Totals:
    """What GPUs give at once, beside what they cost and draw, idle ones too.

    Attributes
    ----------
    tok_s:
        Tokens/s of all GPUs of ``bill`` together; 0 where nothing runs.
    tokens:
        Which tokens: ``output`` or ``input``.
    requests_per_s:
        Requests served in a second; None where the length of an answer is not known.
    """

    bill: Bill
    tok_s: float
    tokens: str = "output"
    requests_per_s: float | None = None

    @property
    def tok_s_per_gpu(self) -> float:
        """Tokens/s of each GPU that is paid for."""
        return self.tok_s / self.bill.gpus

    @property
    def usd_per_million(self) -> float | None:
        """USD for a million of these tokens; None without a price, or without a token."""
        return self.bill.usd_per_million(self.tok_s) if self.tok_s > 0 else None

    @property
    def tok_s_per_mw(self) -> float | None:
        """Tokens/s per megawatt; None without a power, or without a token."""
        return self.bill.tok_s_per_mw(self.tok_s) if self.tok_s > 0 else None

    @property
    def data(self) -> dict[str, Any]:
        """The keys that every command has, in ``--json`` and in files; null is what has no figure (``missing``)."""
        return {
            "gpus": self.bill.gpus,
            "tokens": self.tokens,
            "tok_s_per_gpu": self.tok_s_per_gpu,
            "tok_s": self.tok_s,
            "requests_per_s": self.requests_per_s,
            "usd_per_million_tokens": self.usd_per_million,
            "tok_s_per_mw": self.tok_s_per_mw,
            **bill_data(self.bill),
        }


def bill_data(bill: Bill) -> dict[str, Any]:
    """Return a bill as data: what it comes to, of which parts, and what is ``missing``."""

    def part(one: BillPart) -> dict[str, Any]:
        usd, power = one.usd_per_h, one.power_w
        return {
            "name": one.name,
            "count": one.count,
            "usd_per_hour": None if usd is None else figure_data(usd),
            "power_w": None if power is None else figure_data(power),
        }

    return {
        "usd_per_hour": bill.usd_per_h,
        "usd_per_year": bill.usd_per_year,
        "price_basis": bill.basis,
        "price_kind": _label(bill.usd_kind),
        "power_w": bill.power_w,
        "power_kind": _label(bill.power_kind),
        "parts": [part(one) for one in (*bill.parts, *bill.network)],
        "missing": list(bill.left_out),
    }


def totals_blocks(totals: Totals) -> list[Block]:
    """Return the lines on tokens, dollars and megawatts of a cluster; what has no figure says so."""
    bill, tokens = totals.bill, totals.tokens
    whole = f"{totals.tok_s:,.0f} {tokens} tok/s of the {bill.gpus:,} GPUs together"
    if totals.requests_per_s is not None:
        whole += f"; {rate_words(totals.requests_per_s)} requests/s"
    return [
        *labelled("Total", whole),
        *labelled("Cost", cost_words(totals)),
        *labelled("Power", power_words(totals)),
        *labelled("Left out", *bill.left_out),
    ]


def cost_words(totals: Totals) -> str:
    """Return dollars per million tokens and an hour, with the basis of the prices; or why there are none."""
    bill = totals.bill
    if bill.usd_per_h is None:
        return f"unknown at the {bill.basis} basis: no price of {_without(bill, 'usd_per_h')}"
    each = totals.usd_per_million
    head = "" if each is None else f"{dollars(each)} USD per million {totals.tokens} tokens; "
    what = _parts(bill, "usd_per_h", lambda figure: f"{figure.value:g} USD/h")
    return f"{head}{dollars(bill.usd_per_h)} USD/h for {bill.gpus:,} GPUs, idle ones too (basis {bill.basis}; {what})"


def power_words(totals: Totals) -> str:
    """Return tokens/s per megawatt and watts; or why there are none."""
    bill = totals.bill
    if bill.power_w is None:
        return f"unknown: no all-in power of {_without(bill, 'power_w')}"
    each = totals.tok_s_per_mw
    head = "" if each is None else f"{rate_words(each)} {totals.tokens} tok/s per MW; "
    what = _parts(bill, "power_w", lambda figure: watts(figure.value))
    return f"{head}{watts(bill.power_w)} all-in ({what})"


def dollars(value: float) -> str:
    """Return dollars as people write them: whole above 1,000, to the cent above 10, below that to three digits."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:,.2f}" if value >= 10 else f"{value:,.3g}"


def watts(value: float) -> str:
    """Return watts to three digits, with the prefix that makes them short."""
    for factor, unit in ((1e6, "MW"), (1e3, "kW")):
        if value >= factor:
            return f"{value / factor:,.3g} {unit}" if value < 1e9 else f"{value / factor:,.0f} {unit}"
    return f"{value:,.3g} W"


def rate_words(value: float) -> str:
    """Return a number per second: whole above 100, with thousands marked, below that to three digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:,.3g}"


def _label(kind: Evidence | None) -> str | None:
    return None if kind is None else kind.label


def _without(bill: Bill, name: str) -> str:
    """Return the parts that lack a figure."""
    return ", ".join(part.name for part in bill.parts if getattr(part, name) is None)


def _parts(bill: Bill, name: str, shown: Callable[[Figure], str]) -> str:
    """Return the figure of each part with how it is known."""
    found = []
    for part in (*bill.parts, *bill.network):
        figure = getattr(part, name)
        if figure is not None:
            found.append(f"{part.name} {shown(figure)}, {figure.kind.label}")
    return "; ".join(found)
