"""A cluster too large for a graph of its links: its kinds of domain, each with a count."""

from __future__ import annotations

from collections import Counter

from topology.cluster import Cluster
from topology.draw.canvas import Canvas, cell
from topology.draw.metrics import text_width
from topology.draw.sheet import Sheet
from topology.draw.style import NVLINK, own_links
from topology.draw.words import plural

LARGEST_DRAWN = 131_072
"""GPUs above which no graph is built for a picture: it would take gigabytes."""
_MOST_KINDS = 12


def draw_kinds_view(canvas: Canvas, cluster: Cluster) -> None:
    """Draw one box for each kind of domain, with how many there are."""
    kinds: Counter[tuple[str, int]] = Counter((domain.title, domain.gpus) for domain in cluster.spec.domains)
    specs = {(domain.title, domain.gpus): domain for domain in cluster.spec.domains}
    y = 0.0
    for i, (kind, count) in enumerate(list(kinds.items())[:_MOST_KINDS]):
        domain = specs[kind]
        lines = [f"{count:,} x {domain.title}", f"{plural(domain.gpus, 'GPU')} each; {own_links(domain)}"]
        width = max(text_width(line, 9, bold=True) for line in lines) + 16
        sheet = Sheet(width)
        for row, line in enumerate(lines):
            sheet.add([cell(line, bold=row == 0, width=width - 8, height=16)], 16)
        canvas.box(f"kind{i}", (0.0, y), (width, sheet.height), sheet.html(color=NVLINK))
        y += sheet.height + 14
    left = len(kinds) - min(len(kinds), _MOST_KINDS)
    notes = [f"and {left} more kinds"] if left else []
    canvas.note(
        "limit",
        (0.0, y),
        [*notes, f"Links are drawn up to {LARGEST_DRAWN:,} GPUs; this shows the kinds of domain."],
    )
