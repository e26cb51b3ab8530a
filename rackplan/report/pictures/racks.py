"""Clusters to one scale: every GPU a square of one size, in its rack and domain, in the colour of its stage."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import NamedTuple, TypeVar

from cost.inputs.layout import Layout, StageSpec
from cost.terms.pipeline import BUBBLE
from placement.analysis.comparison import Placement
from rackplan.report.colours import NEUTRAL, series
from rackplan.report.doc import Picture
from rackplan.report.notes import layer_words, stage_lines
from rackplan.report.pictures.svg import LINE, Look, Svg
from topology.base.units import format_quantity, plural
from topology.cluster import Cluster

T = TypeVar("T")
WIDTH, PITCH, _SIDE, _GAP, _LETTER = 1180, 11, 9.5, 8, 7.4
"""Width of the picture, from GPU to GPU, the side of one, between boxes, and a letter, in pixels."""
MAX_SQUARES = 1_152
"""GPUs of a cluster, or of a domain, above which those that look alike are drawn once."""
MAX_STAGES = 8
"""Stages of a pool that have a line."""
_PALE = 0.4
"""Opacity of the GPUs of pools after the first, whose stages have the same colours."""


class Cell(NamedTuple):
    """What a GPU is for: its pool, replica and stage, as numbers."""

    pool: int
    replica: int
    stage: int


Rack = list[Cell | None]
"""What the GPUs of a rack, in order, are for; None: idle."""


class Folded(NamedTuple):
    """A domain that is drawn: its number, its racks with how many more are like each, and so of the domain."""

    number: int
    racks: list[tuple[Rack, int]]
    more: int


def racks_picture(placements: Sequence[Placement], title: str) -> Picture:
    """Return the domains of each cluster with its plan, at one scale, and the hops of its pipelines."""
    drawn, y, says = Svg(0, "racks"), 0.0, list[str]()
    for placement in placements:
        y, words = _cluster(drawn, placement, y + LINE)
        says.append(words)
    drawn.root.set("viewBox", f"0 0 {WIDTH} {y:g}")
    del drawn.root.attrib["height"]  # that of its width
    return Picture("racks", "; ".join(says), str(drawn), title=title)


def folded(placement: Placement) -> list[Folded]:
    """Return the domains that are drawn of a cluster: those that look alike are folded where GPUs are many."""
    domains = _fold(
        _cells(placement).items(),
        lambda domain: tuple(map(_look, domain[1])),
        len(_whole(placement).gpus),
    )
    return [
        Folded(number, _fold(racks, _look, sum(map(len, racks))), repeats)
        for (number, racks), repeats in domains
    ]


def _cells(placement: Placement) -> dict[int, list[Rack]]:
    """Return what each GPU is for, by domain, rack by rack."""
    cells: dict[str, Cell] = {}
    for pool, (deployment, layout) in enumerate(placement.pools):
        for replica in range(len(layout.replicas)):
            for number, stage in enumerate(_drawn_stages(layout, replica)):
                cells |= {deployment.cluster.gpus[gpu].id: Cell(pool, replica, number) for gpu in stage.gpus}
    racks: dict[int, dict[str, Rack]] = {}
    for gpu in _whole(placement).gpus:
        racks.setdefault(gpu.domain, {}).setdefault(gpu.rack, []).append(cells.get(gpu.id))
    return {domain: list(by_rack.values()) for domain, by_rack in racks.items()}


def _drawn_stages(layout: Layout, replica: int) -> Sequence[StageSpec]:
    """Return what has a colour of its own: stages, or attention and experts where they are apart."""
    return [stage for _, stage in layout.pools_of(replica)] or layout.replicas[replica]


def _line(layout: Layout, stage: int) -> str:
    """Return what GPUs of one colour hold."""
    names = [name for name, _ in layout.pools_of(0)] or [f"S{number}" for number in range(layout.stages)]
    return f"{names[stage]}: {layer_words(_drawn_stages(layout, 0)[stage])}"


def _whole(placement: Placement) -> Cluster:
    return placement.pools[0][0].cluster.whole


def _look(rack: Rack) -> Hashable:
    """Return what is seen of a rack: stages, and where a replica ends, not which one it is."""
    numbers: dict[object, int] = {}
    return tuple(
        cell and (cell.pool, cell.stage, numbers.setdefault((cell.pool, cell.replica), len(numbers)))
        for cell in rack
    )


def _fold(items: Iterable[T], look: Callable[[T], Hashable], gpus: int) -> list[tuple[T, int]]:
    """Return the first of items that look alike, with how many more there are; all of them where GPUs are few."""
    items = list(items)
    if gpus <= MAX_SQUARES:
        return [(item, 0) for item in items]
    kinds = {look(item): item for item in reversed(items)}
    count = Counter(map(look, items))
    return [(item, count[key] - 1) for key, item in reversed(kinds.items())]


def _cluster(drawn: Svg, placement: Placement, y: float) -> tuple[float, str]:
    """Draw a cluster from ``y`` on; return where it ends, and what it shows in words."""
    cluster = _whole(placement)
    drawn.text(drawn.root, cluster.name, y, {"font_size": 16, "font_weight": 600})
    y, words = y + LINE, _domain_words(cluster)
    drawn.text(drawn.root, words, y)
    x, y, high = 0.0, y + 8, 0.0
    for domain in folded(placement):
        label = f"d{domain.number}{f', {domain.more} more alike' * (domain.more > 0)}"
        boxes, wide, tall = _boxes(domain.racks)
        slot = max(wide, len(label) * _LETTER)
        if x and x + slot > WIDTH:
            x, y, high = 0.0, y + high, 0.0
        drawn.text(drawn.root, label, y + 14, {"x": x})
        outline: Look = {"fill": "none", "stroke": "currentColor", "stroke_width": 1, "rx": 3}
        drawn.add(
            drawn.root, "rect", {"x": x + 0.5, "y": y + 18, "width": wide - 1, "height": tall, **outline}
        )
        for rack, repeats, left, top in boxes:
            _rack(drawn, placement, rack, (x + left, y + 18 + top))
            if repeats:
                drawn.text(
                    drawn.root,
                    f"{repeats} more alike",
                    y + 18 + top + 13,
                    {"x": x + left + _grid(rack)[0] + 8},
                )
        x, high = x + slot + _GAP, max(high, tall + 30)
    y += high + 6
    for pool in range(len(placement.pools)):
        y = _legend(drawn, placement, pool, y)
    if any(cell is None for racks in _cells(placement).values() for rack in racks for cell in rack):
        y += LINE
        drawn.swatch(drawn.root, "idle", y, _look_of(None))
    return y + 14, f"{cluster.name}: {words}"


def _domain_words(cluster: Cluster) -> str:
    """Return the domains of a cluster with the rates inside them and between them."""
    kinds = Counter((spec.gpus, spec.fabric.name, spec.scale_up_bytes_per_s) for spec in cluster.spec.domains)
    words = [
        f"{plural(count, 'scale-up domain')} (outlined) of {plural(gpus, 'GPU')}, {fabric} at "
        f"{format_quantity(rate, 'byte/s', 3)} a GPU"
        for (gpus, fabric, rate), count in kinds.items()
    ]
    if (out := cluster.spec.scale_out) is not None and len(cluster.spec.domains) > 1:
        rate = format_quantity(out.scale_out_bytes_per_s, "byte/s", 3)
        words.append(f"between them {out.fabric.name} at {rate} a GPU")
    return "; ".join(words)


def _grid(rack: Rack) -> tuple[float, float, int]:
    """Return the width and height of a rack and its columns, about twice as many as rows."""
    least = math.ceil(math.sqrt(2 * len(rack)))
    even = (wide for wide in range(least, 2 * least) if len(rack) % wide == 0)
    columns = min(next(even, least), len(rack))
    return columns * PITCH, math.ceil(len(rack) / columns) * PITCH, columns


def _boxes(racks: Sequence[tuple[Rack, int]]) -> tuple[list[tuple[Rack, int, float, float]], float, float]:
    """Return each rack of a domain with its place from the domain's corner, and the domain's width and height."""
    placed, x, y, high, width = list[tuple[Rack, int, float, float]](), 4.0, 4.0, 0.0, 0.0
    for rack, repeats in racks:
        wide, tall, _ = _grid(rack)
        slot = wide + (len(f"{repeats} more alike") * _LETTER + 12) * (repeats > 0)
        if x > 4 and x + slot > WIDTH - 4:
            x, y, high = 4.0, y + high + _GAP, 0.0
        placed.append((rack, repeats, x, y))
        x, high, width = x + slot + _GAP, max(high, tall), max(width, x + slot)
    return placed, width + 4 - (PITCH - _SIDE), y + high + 4 - (PITCH - _SIDE)


def _look_of(cell: Cell | None) -> Look:
    """Return the colour of a GPU: of its stage, paler in the second pool; hollow where it is idle."""
    if cell is None:
        return {"fill": "none", "stroke": NEUTRAL}
    return {"fill": series(cell.stage + 1)[-1], "fill_opacity": _PALE if cell.pool else 1}


def _rack(drawn: Svg, placement: Placement, rack: Rack, corner: tuple[float, float]) -> None:
    """Draw the squares of a rack, those of a stage as one path, and lines between replicas."""
    columns, squares, borders = _grid(rack)[2], dict[Cell | None, str](), ""
    for at, cell in enumerate(rack):
        x, y = corner[0] + at % columns * PITCH, corner[1] + at // columns * PITCH
        kind = cell and cell._replace(replica=0)
        squares[kind] = squares.get(kind, "") + f"M{x:g} {y:g}h{_SIDE}v{_SIDE}h-{_SIDE}z"
        edge = (PITCH - _SIDE) / 2
        if at % columns and _parted(cell, rack[at - 1]):
            borders += f"M{x - edge:g} {y - edge:g}v{PITCH}"
        if at >= columns and _parted(cell, rack[at - columns]):
            borders += f"M{x - edge:g} {y - edge:g}h{PITCH}"
    for kind, path in squares.items():
        words = "idle"
        if kind is not None:
            deployment, layout = placement.pools[kind.pool]
            words = f"{deployment.workload.phase}, {_line(layout, kind.stage)}"
        drawn.add(drawn.group([words]), "path", {"d": path, "class": "gpus", **_look_of(kind)})
    if borders:
        drawn.add(drawn.root, "path", {"d": borders, "stroke": "currentColor", "stroke_width": 1.5})


def _parted(cell: Cell | None, neighbour: Cell | None) -> bool:
    """Whether two GPUs belong to different replicas."""
    return (cell and cell[:2]) != (neighbour and neighbour[:2])


def _legend(drawn: Svg, placement: Placement, pool: int, y: float) -> float:
    """Write what a pool is and the stages of a replica, with their hops; return where it ends."""
    deployment, layout = placement.pools[pool]
    batch = placement.batch(pool)
    phase, replicas = deployment.workload.phase, len(layout.replicas)
    title = f"{layout.short(moe=deployment.model.moe is not None)}: {plural(replicas, 'replica')}"
    title += ", divided by lines" * (replicas > 1)
    title += "; hops of a micro-batch, of the bytes of all GPUs" * (layout.stages > 1)
    phase = "prefill and decode" if phase == "both" else phase
    y += LINE
    drawn.text(drawn.root, f"{phase} {'(pale) ' * (pool > 0)}{title}", y, {"font_weight": 600})
    lines = [_line(layout, stage) for stage in range(len(_drawn_stages(layout, 0)))]
    if layout.stages > 1:
        lines = stage_lines(deployment, layout, batch)
    for stage, line in enumerate(lines):
        left_out = layout.stages - MAX_STAGES
        if left_out > 0 and MAX_STAGES // 2 <= stage < MAX_STAGES // 2 + left_out:
            if stage == MAX_STAGES // 2:
                y += LINE
                drawn.text(drawn.root, f"... {left_out} more stages", y, {"x": 20})
            continue
        y += LINE
        drawn.swatch(drawn.root, line, y, _look_of(Cell(pool, 0, stage)))
    seconds = placement.row.terms_s.get(BUBBLE.name, 0.0)
    if layout.stages > 1 and pool == 0 and seconds:
        y += LINE
        drawn.text(
            drawn.root,
            f"Pipeline bubble: {format_quantity(seconds, 's', 3)} a step: {BUBBLE.meaning}",
            y,
            {"x": 20},
        )
    return y + 4
