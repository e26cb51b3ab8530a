"""What a throughput comes to: tokens and requests of the whole cluster, dollars and megawatts; of every command."""

from __future__ import annotations

from collections.abc import Callable

from cost.money import Bill, Totals
from rackplan.views.blocks import Block, Table, Text, labelled
from rackplan.views.words import sentence
from topology.figures import Figure


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


def totals_text(totals: Totals) -> Text:
    """Return the same as one paragraph."""
    said = (block.text for block in totals_blocks(totals) if isinstance(block, Text))
    return Text(" ".join(map(sentence, (text.removesuffix(".") for text in said))))


def money_tiles(totals: Totals) -> list[tuple[str, str]]:
    """Return dollars and tokens/s per megawatt as key figures of a page; nothing where there are none."""
    tiles = []
    if totals.usd_per_million is not None:
        what = f"USD per million {totals.tokens} tokens, basis {totals.bill.basis}"
        tiles.append((dollars(totals.usd_per_million), what))
    if totals.tok_s_per_mw is not None:
        tiles.append((rate_words(totals.tok_s_per_mw), f"{totals.tokens} tok/s per MW"))
    return tiles


def bill_table(bill: Bill) -> Table:
    """Return what is paid for: how many of each kind, the price and the power of one, and where these come from."""
    rows = []
    for part in (*bill.parts, *bill.network):
        for figure, shown in (
            (part.usd_per_h, lambda value: f"{value:g} USD/h"),
            (part.power_w, watts),
        ):
            if figure is not None:
                each = shown(figure.value)
                rows.append((part.name, f"{part.count:,.0f}", each, figure.kind.label, figure.source))
    return Table(
        ("paid for", "count", "each", "kind", "source"),
        rows,
        f"What it costs (basis {bill.basis})",
        words=(0, 3, 4),
        ruled=True,
    )


def cost_words(totals: Totals) -> str:
    """Return dollars per million tokens and an hour, with the basis of the prices; or why there are none."""
    bill = totals.bill
    if bill.usd_per_h is None:
        return f"unknown at the {bill.basis} basis: no price of {_without(bill, 'usd_per_h')}"
    each = totals.usd_per_million
    alone = f" ({totals.alone} alone)" * bool(totals.alone)
    head = "" if each is None else f"{dollars(each)} USD per million {totals.tokens} tokens{alone}; "
    idle = f", {totals.gpus_idle:,} idle ones too" * (totals.gpus_idle > 0)
    what = _parts(bill, "usd_per_h", lambda figure: f"{figure.value:g} USD/h")
    return f"{head}{dollars(bill.usd_per_h)} USD/h for {bill.gpus:,} GPUs{idle} (basis {bill.basis}; {what})"


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
    """Return a number per second: three digits of millions, whole above 100, below that to three digits."""
    if value >= 1e6:
        return f"{value / 1e6:,.3g} M" if value < 1e9 else f"{value / 1e6:,.0f} M"
    return f"{value:,.0f}" if value >= 100 else f"{value:,.3g}"


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
