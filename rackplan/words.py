"""Paragraphs and tables of plain text, at most 100 columns wide."""

from __future__ import annotations

from collections.abc import Sequence

from rackplan.output import WIDTH

LABEL = 14


def table(rows: Sequence[Sequence[str]], indent: int = 2) -> list[str]:
    """Align columns: the first to the left, the others to the right, the header first."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            row[0].ljust(widths[0]),
            *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)),
        ]
        lines.append(" " * indent + "  ".join(cells).rstrip())
    return lines


def narrow_table(rows: Sequence[Sequence[str]], width: int = WIDTH) -> list[str]:
    """Align columns like :func:`table`; where they are wider than ``width``, the last ones are left out."""
    lines = table(rows)
    while max(map(len, lines)) > width and len(rows[0]) > 1:
        rows = [row[:-1] for row in rows]
        lines = table(rows)
    return lines


def wrapped(label: str, text: str, width: int = WIDTH) -> list[str]:
    """One labelled paragraph, its lines aligned after the label."""
    import textwrap

    head = f"{label:<{LABEL - 1}} "
    body = textwrap.wrap(text, width - len(head)) or [""]
    return [head + body[0], *(" " * LABEL + line for line in body[1:])]


def underlined(title: str, width: int = 100) -> list[str]:
    """The title of a summary with a rule below it."""
    import textwrap

    lines = textwrap.wrap(title, width)
    return [*lines, "=" * max(map(len, lines))]


def load_names(names: Sequence[str]) -> str:
    """Join the names of loads, those of one recording's windows (``NAME#WINDOW``) counted."""
    windows: dict[str, list[str]] = {}
    for name in names:
        windows.setdefault(name.rpartition("#")[0] or name, []).append(name)
    return ", ".join(
        each[0] if len(each) == 1 else f"{recording} ({len(each)} scenarios)"
        for recording, each in windows.items()
    )


def baseline_name(key: str) -> str:
    """Return how a baseline of the plan file is called in tables."""
    return key.replace("eplb_", "EPLB ").replace("_", " ")
