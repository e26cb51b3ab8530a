"""Throughput, cost and power of a whole cluster, as shown by all commands."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from cost.money.bill import Bill, BillPart, Totals
from rackplan.views.blocks import Block, T, Table, Text, labelled
from topology.base.figures import WrittenFigure
from topology.base.units import plural

USD, MW = "$/Mtok", "tok/s/MW"
"""Columns of tables."""


def totals_blocks(totals: Totals) -> list[Block]:
    """Return throughput, cost and power of a cluster; missing figures are named."""
    whole = f"{totals.tok_s:,.0f} {totals.tokens} tok/s on {plural(totals.gpus, 'GPU')}"
    if totals.requests_per_s is not None:
        whole += f"; {rate_words(totals.requests_per_s)} requests/s"
    return [
        *labelled("Total", whole),
        *labelled("Cost", cost_words(totals), *_used_words(totals)),
        *labelled("Power", power_words(totals)),
        *labelled("Not included", *totals.missing),
    ]


def money_columns(
    totals: Callable[[T], Totals | None], bills: Iterable[Bill]
) -> list[tuple[str, Callable[[T], str]]]:
    """Return the money columns of a table (name and cell text) for which some of ``bills`` has figures."""

    def cell(shown: Callable[[Totals], str]) -> Callable[[T], str]:
        return lambda item: "-" if (found := totals(item)) is None else shown(found)

    some = list(bills)
    columns: list[tuple[str, Callable[[T], str]]] = []
    if any(bill.usd_per_hour is not None for bill in some):
        columns.append((USD, cell(lambda one: _or_dash(one.usd_per_million_tokens, dollars))))
    if any(bill.power_w is not None for bill in some):
        columns.append((MW, cell(lambda one: _or_dash(one.tok_s_per_mw, rate_words))))
    return columns


def money_legend(bills: Iterable[Bill]) -> list[Block]:
    """Return the legend of those columns; empty without any."""
    some = list(bills)
    said = [
        f"{USD}: USD per million of these tokens, paying for all GPUs"
        if any(one.usd_per_hour for one in some)
        else "",
        f"{MW}: tokens/s per megawatt" if any(one.power_w for one in some) else "",
    ]
    text = "; ".join(filter(None, said))
    return [Text(f"{text}.")] if text else []


def money_tiles(totals: Totals) -> list[tuple[str, str]]:
    """Return dollars and tokens/s per megawatt as key figures of a report; nothing if unknown."""
    tiles = []
    if totals.usd_per_million_tokens is not None:
        what = f"USD per million {totals.tokens} tokens, basis {totals.price_basis}"
        tiles.append((dollars(totals.usd_per_million_tokens), what))
    if totals.tok_s_per_mw is not None:
        tiles.append((rate_words(totals.tok_s_per_mw), f"{totals.tokens} tok/s per MW"))
    return tiles


def bill_table(bill: Bill) -> Table:
    """Return the bill: count, unit price, unit power and source of each kind of part."""
    rows = []
    for part in bill.parts:
        for figure, shown in (
            (part.usd_per_hour, lambda value: f"{value:g} USD/h"),
            (part.power_w, watts),
        ):
            if figure is not None:
                each = shown(figure.value)
                rows.append((part.name, f"{part.count:,.0f}", each, figure.kind, figure.source))
    return Table(
        ("part", "count", "each", "kind", "source"),
        rows,
        f"Cost and power (basis {bill.price_basis})",
        words=(0, 3, 4),
        ruled=True,
    )


def cost_words(totals: Totals) -> str:
    """Return dollars per million tokens and per hour, with the price basis; or why they are unknown."""
    if totals.usd_per_hour is None:
        lacking = _names(part for part in totals.gpu_parts if part.usd_per_hour is None)
        return f"unknown at the {totals.price_basis} basis: no price for {lacking} (set one with `prices`)"
    each = totals.usd_per_million_tokens
    alone = f" ({totals.phase} only)" * (totals.phase != "both")
    head = "" if each is None else f"{dollars(each)} USD per million {totals.tokens} tokens{alone}; "
    idle = f", including {totals.gpus_idle:,} idle" if totals.gpus_idle else ""
    what = _parts(totals, "usd_per_hour", lambda figure: f"{figure.value:g} USD/h")
    hourly = f"{dollars(totals.usd_per_hour)} USD/h for {plural(totals.gpus, 'GPU')}"
    return f"{head}{hourly}{idle} (basis {totals.price_basis}; {what})"


def power_words(totals: Totals) -> str:
    """Return tokens/s per megawatt and watts; or why they are unknown."""
    if totals.power_w is None:
        lacking = _names(part for part in totals.gpu_parts if part.power_w is None)
        return f"unknown: no all-in power for {lacking}"
    each = totals.tok_s_per_mw
    head = "" if each is None else f"{rate_words(each)} {totals.tokens} tok/s per MW; "
    what = _parts(totals, "power_w", lambda figure: watts(figure.value))
    return f"{head}{watts(totals.power_w)} {power_scope(totals)} ({what})"


def power_scope(bill: Bill) -> str:
    """Return what the power of a bill contains: ``all-in`` with cooling and conversion, ``IT`` machines alone."""
    scopes = {"all-in" if part.all_in else "IT" for part in bill.gpu_parts if part.power_w is not None}
    return " and ".join(sorted(scopes))


def short_cost(totals: Totals) -> str:
    """Return dollars per million tokens and per hour in one line; or why they are unknown."""
    each, hour = totals.usd_per_million_tokens, totals.usd_per_hour
    if each is None or hour is None:
        return cost_words(totals)
    alone = f" ({totals.phase} only)" * (totals.phase != "both")
    tokens = f"{dollars(each)} USD per million {totals.tokens} tokens{alone}"
    return f"{tokens}; {dollars(hour)} USD/h (basis {totals.price_basis})"


def short_power(totals: Totals) -> str:
    """Return tokens/s per megawatt and watts in one line; or why they are unknown."""
    each, power = totals.tok_s_per_mw, totals.power_w
    if each is None or power is None:
        return power_words(totals)
    return f"{rate_words(each)} {totals.tokens} tok/s per MW; {watts(power)} {power_scope(totals)}"


def dollars(value: float) -> str:
    """Return dollars: whole above 1,000, with cents above 10, else with three significant digits."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:,.2f}" if value >= 10 else f"{value:#.3g}"


def watts(value: float) -> str:
    """Return watts with three significant digits and a suitable prefix."""
    return _short(value, ((1e6, "MW"), (1e3, "kW"), (0.0, "W")))


def rate_words(value: float) -> str:
    """Return a rate per second: three significant digits, but whole numbers from 100 to a million."""
    return f"{value:,.0f}" if 100 <= value < 1e6 else _short(value, ((1e6, "M"), (0.0, "")))


def _short(value: float, units: Iterable[tuple[float, str]]) -> str:
    """Return a number with three significant digits in the largest fitting unit."""
    factor, unit = next((one for one in units if value >= one[0]), (0.0, ""))
    shown = value / (factor or 1.0)
    digits = f"{shown:,.0f}" if shown >= 100 else f"{shown:#.3g}".rstrip(".")
    return f"{digits} {unit}".rstrip()


def _or_dash(value: float | None, shown: Callable[[float], str]) -> str:
    return "-" if value is None else shown(value)


def _used_words(totals: Totals) -> list[str]:
    """Return cost and power counting only the GPUs in use; nothing if no GPU is idle."""
    used = totals.used
    if used is None:
        return []
    found = []
    if used.usd_per_million_tokens is not None and used.usd_per_hour is not None:
        found.append(
            f"{dollars(used.usd_per_million_tokens)} USD per million and {dollars(used.usd_per_hour)} USD/h"
        )
    if used.tok_s_per_mw is not None and used.power_w is not None:
        found.append(f"{rate_words(used.tok_s_per_mw)} tok/s per MW and {watts(used.power_w)}")
    return [f"for the {used.gpus:,} GPUs in use: {'; '.join(found)}"] if found else []


def _names(parts: Iterable[BillPart]) -> str:
    return ", ".join(part.name for part in parts)


def _parts(bill: Bill, name: str, shown: Callable[[WrittenFigure], str], *, counted: bool = True) -> str:
    """Return the figure of each part with how it is known; how many there are, where there are several kinds."""
    found = []
    for part in bill.parts:
        figure = getattr(part, name)
        if figure is not None:
            several = counted and len(bill.parts) > 1
            count = f"{part.count:,.0f} x " if several else ""
            found.append(f"{count}{part.name} {shown(figure)}, {figure.kind}")
    return "; ".join(found)
