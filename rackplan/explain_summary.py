"""What a person reads after ``rackplan explain``: tables with rules on a terminal, plain ones in a pipe."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cost.score import Score
from rackplan.evidence import UsedFigure
from rackplan.explain import Explanation, cache_note, parts_note, residual_words, wait_note
from rackplan.output import WIDTH
from rackplan.words import LABEL
from topology.errors import printable

if TYPE_CHECKING:
    from rich.console import Console


PARTS = {
    "weights": "weights",
    "kv_cache": "KV cache",
    "workspace": "workspace",
    "free": "free",
    "reserved": "reserved",
}
"""The uses of HBM as people say them."""

_INDENT = {"-": "  ", "[": "    "}
"""Of the lines that continue an item of a list, or a numbered source."""


@dataclass(frozen=True)
class Table:
    """A table: a title, the names of the columns, rows, and how many columns are text, from either end."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    text_left: int = 1
    text_right: int = 0


def explanation_blocks(found: Explanation) -> list[str | Table]:
    """Return paragraphs and tables in the order they are read: verdict, step, memory, figures, assumptions."""
    plan, score = found.plan, found.plan.score
    layout = plan.layout.describe(moe=plan.deployment.model.moe is not None)
    step = (
        f"Expected step {score.step_s * 1e3:,.2f} ms, lower bound {score.lower_step_s * 1e3:,.2f} ms (pure "
        f"roofline: no schedule of this layout is faster), ratio {found.step_over_lower:.2f}."
    )
    left = (
        f"Left on the fullest GPU: {found.left_bytes / 1e9:,.1f} GB. Batch {score.batch} sequences per GPU; the "
        f"largest that fits is {score.max_batch}. {cache_note(plan)}"
    )
    groups = ("kernels", "machine")
    sources = list(
        dict.fromkeys(u.figure.source for group in groups for u in found.figures if u.group == group)
    )
    blocks: list[str | Table] = [
        found.verdict,
        step,
        wait_note(plan),
        _terms(found),
        parts_note(found),
        _limits(found),
        *_residual(found),
        f"Layout: {layout}; {plan.layout.gpus_used} of {len(plan.deployment.cluster.gpus)} GPUs in use.",
        _memory(found),
        left,
        _figures("What kernels reach, as the expected step uses it", found.figures, "kernels", sources),
        _figures("The machine", found.figures, "machine", sources),
        "Sources:\n" + "\n".join(f"[{number}] {source}" for number, source in enumerate(sources, 1)),
        _weakest(found),
        "Assumptions:\n" + "\n".join(f"- {text}" for text in found.assumptions),
    ]
    return [block for block in blocks if block]


def _residual(found: Explanation) -> list[str]:
    if found.residual is None:
        return []
    return [f"{'Residual':<{LABEL}}{residual_words(found.residual)}"]


def _terms(found: Explanation) -> Table:
    rows = [
        (
            row.name.replace("_", " "),
            f"{row.seconds * 1e3:,.3f}",
            f"{row.share:.1%}",
            f"{row.peak_s * 1e3:,.3f}",
            ", ".join(row.bound_by) or "-",
            row.evidence.label if row.evidence is not None else "-",
        )
        for row in found.terms
    ]
    columns = ("part of the step", "ms", "share", "ms at peak", "bound by", "evidence")
    return Table("Parts of the step", columns, rows, text_right=2)


def _limits(found: Explanation) -> Table:
    score = found.plan.score
    rows = [
        (name, f"{seconds * 1e3:,.3f}", f"{seconds / score.step_s:.1%}", busy_text(score, name))
        for name, seconds in sorted(score.limits_s.items(), key=lambda item: -item[1])
        if seconds > 0
    ]
    columns = ("resource", "ms", "share", "ms busy at peak")
    return Table("What the step waits for", columns, rows)


def busy_text(score: Score, resource: str) -> str:
    """Return the milliseconds that a resource would be busy at its data-sheet peak."""
    seconds = score.floor_s.get(resource)
    return "-" if seconds is None else f"{seconds * 1e3:,.3f}"


def _memory(found: Explanation) -> Table:
    parts = found.plan.score.hbm_bytes
    total = sum(parts.values())
    rows = [
        (PARTS.get(name, name), f"{amount:,.0f}", f"{amount / 1e9:,.2f}", f"{amount / total:.1%}")
        for name, amount in parts.items()
    ]
    rows.append(("in all", f"{total:,.0f}", f"{total / 1e9:,.2f}", "100.0%"))
    return Table("HBM of the fullest GPU", ("use", "bytes", "GB", "share"), rows)


def _figures(title: str, figures: Sequence[UsedFigure], group: str, sources: Sequence[str]) -> Table:
    """Return figures of a group; a source is its number among ``sources``, since one stands behind many."""
    rows = [
        (
            used.title,
            used.figure.text or f"{used.figure.value:g} {used.figure.unit}",
            used.figure.kind.label,
            f"[{sources.index(used.figure.source) + 1}]",
        )
        for used in figures
        if used.group == group
    ]
    return Table(title, ("figure", "value", "kind", "source"), rows, text_right=2)


def _weakest(found: Explanation) -> str:
    named = [used.title for used in found.weakest]
    return f"Weakest evidence: {found.plan.score.evidence.label} ({', '.join(named)})."


def print_blocks(blocks: Sequence[str | Table]) -> None:
    """Print paragraphs and tables on standard output, at most :data:`rackplan.output.WIDTH` columns wide."""
    from rich.console import Console

    console = Console(file=sys.stdout, highlight=False, markup=False, emoji=False)
    console.width = min(WIDTH, console.width) if console.is_terminal else WIDTH
    for number, block in enumerate(blocks):
        lines = _table_lines(console, block) if isinstance(block, Table) else _wrapped(block, console.width)
        sys.stdout.write("\n" * bool(number) + "\n".join(lines) + "\n")


def _wrapped(text: str, width: int) -> list[str]:
    """Wrap each line of a paragraph; the continuation of a list's item is indented."""
    lines = []
    for line in text.split("\n"):
        lines += textwrap.wrap(printable(line), width, subsequent_indent=_INDENT.get(line[:1], "")) or [""]
    return lines


def _table_lines(console: Console, table: Table) -> list[str]:
    """Return the title and the table: ruled on a terminal, plain and indented elsewhere."""
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    ruled = console.is_terminal
    drawn = RichTable(
        box=box.SIMPLE_HEAD if ruled else None,
        padding=(0, 1) if ruled else (0, 2, 0, 0),
        show_edge=False,
        pad_edge=False,
    )
    last = len(table.columns) - table.text_right
    for place, name in enumerate(table.columns):
        words = place < table.text_left or place >= last
        drawn.add_column(Text(name), justify="left" if words else "right", overflow="fold")
    for row in table.rows:
        drawn.add_row(*(Text(printable(cell)) for cell in row))
    indent = "  "
    with console.capture() as caught:
        console.print(Text(table.title, style="bold"))
        console.print(drawn, width=console.width - len(indent))
    title, *lines = caught.get().rstrip("\n").split("\n")
    return [title, *((indent + line).rstrip() for line in lines)]
