"""Draw the picture of the README in light and dark: ``python benchmarks/readme_picture.py`` writes both files.

Left: loads drift. Thirty windows, each a blend of eight published workloads of DeepSeek-V3 (``../shared``), replayed
through vLLM's default balancer and rackplan's, which knows five of the eight beforehand. Right: the README's plan
loses a node: balance against the copies that move. Both on a rack of 72 GPUs; all of it is computed here.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

import numpy as np
from scipy.optimize import linear_sum_assignment

import rackplan
from placement.experts.baselines import eplb_global
from placement.experts.problem import make_problem, spread_slots
from placement.migrate.start import kept_copies
from placement.migrate.task import MigrationTask

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from placement.migrate.replan import Replanned
    from placement.plan import Plan

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
WORKLOADS = ROOT.parent / "shared" / "data" / "expert_loads"
MODEL, RACK, LOST = "deepseek-v3", "gb200-nvl72", "d0.n3"
WINDOWS, TOKENS = 30, 2e6
KNOWN = [0, 2, 3, 5, 7]
"""Places of the workloads that the plan was made for."""
POLICIES = {"vllm": "vLLM's EPLB", "static": "rackplan, planned once", "rackplan": "rackplan, online"}
WIDTH, HEIGHT, TOP, BOTTOM = 880, 362, 66, 300
LEFT, RIGHT = (40, 420), (496, 852)
LEAST = 0.45
"""Start of both scales of balancedness, below what is drawn: there the legends are."""


@dataclass(frozen=True)
class Colours:
    """The colours of one scheme."""

    text: str
    quiet: str
    grid: str
    series: tuple[str, str, str]


SCHEMES = {
    "light": Colours("#1f2328", "#59636e", "#d1d9e0", ("#9a6700", "#8250df", "#0969da")),
    "dark": Colours("#f0f6fc", "#9198a1", "#3d444d", ("#e3b341", "#c297ff", "#58a6ff")),
}


@dataclass(frozen=True)
class Drawn:
    """What is drawn.

    Attributes
    ----------
    windows:
        By policy: balancedness on each next window, and the share of the copies that a re-plan moves.
    front:
        Share of the copies that move after a loss, and the balancedness then: fewest moves first.
    eplb:
        Of EPLB's placement made afresh: the share that moves as it numbers GPUs, and relabelled to move least;
        balancedness.
    """

    windows: dict[str, tuple[NDArray[np.float64], float]]
    front: list[tuple[float, float]]
    eplb: tuple[float, float, float]


def computed() -> Drawn:
    """Return what is drawn."""
    files = sorted(WORKLOADS.glob("*.npy"))
    if not files:
        sys.exit("benchmarks/readme_picture.py: the published workloads are absent; nothing was drawn")
    rng = np.random.default_rng(0)
    each = np.stack([np.load(path).astype(float) for path in files])
    blends = rng.dirichlet(np.full(len(each), 0.3), size=WINDOWS)
    shares = each / each.sum(axis=2, keepdims=True)
    windows = rng.poisson(TOKENS * np.einsum("ws,sle->wle", blends, shares)).astype(float)
    known = rackplan.plan(MODEL, RACK, phase="decode", loads=each[KNOWN], ep=72, redundant=32, time_limit_s=0)
    runs = rackplan.replay(known, loads=windows, policies=list(POLICIES)).result.runs
    each_window = [run for run in runs if run.entry.interval < 2]
    plan = rackplan.plan(MODEL, RACK, context=4096, ep=72, redundant=32)
    after = rackplan.replan(plan, lost=LOST)
    return Drawn(
        {
            name: (run.by_window, run.copies_moved)
            for name, run in zip(POLICIES.values(), each_window, strict=True)
        },
        [(point.moves / after.copies, point.balancedness) for point in after.front],
        eplb_afresh(plan, after),
    )


def eplb_afresh(plan: Plan, after: Replanned) -> tuple[float, float, float]:
    """Return what EPLB's global policy moves on the GPUs left, as it numbers them and relabelled; balancedness."""
    old = plan.experts[0]
    if plan.loads is None or old is None:
        raise ValueError("the model has experts")
    loads = np.asarray(plan.loads.tokens[0], float)
    lost = [i for i, gpu in enumerate(plan.deployment.cluster.gpus) if gpu.id.startswith(f"{LOST}.")]
    slots = spread_slots(old.experts, old.gpus - len(lost), after.copies // len(loads) - old.experts)
    problem = make_problem(loads[None], slots)
    task = MigrationTask(problem, old.slot_expert[:, ~np.isin(old.slot_gpu, lost)])
    fresh = eplb_global(problem).assignment.slot_expert
    balance, wanted = float(task.judged(fresh)[1].mean()), int(problem.on_gpus(fresh).sum())
    kept = kept_copies(task, fresh)
    relabelled = sum(int(table[linear_sum_assignment(table, maximize=True)].sum()) for table in kept)
    as_numbered = int(np.trace(kept, axis1=1, axis2=2).sum())
    return (wanted - as_numbered) / after.copies, (wanted - relabelled) / after.copies, balance


def words(
    x: float, y: float, said: str, fill: str, *, size: int = 14, anchor: str = "start", weight: int = 400
) -> str:
    """Return a line of text."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" font-weight="{weight}" text-anchor="{anchor}" '
        f'fill="{fill}">{escape(said)}</text>'
    )


def line(points: list[tuple[float, float]], colour: str, width: float) -> str:
    """Return a line through points."""
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}" stroke-linejoin="round"/>'


def dot(x: float, y: float, colour: str) -> str:
    """Return a mark of a placement."""
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{colour}"/>'


def up(balance: float) -> float:
    """Return the height of a balancedness."""
    return BOTTOM - (balance - LEAST) / (1 - LEAST) * (BOTTOM - TOP)


def panel(span: tuple[int, int], title: str, what: str, below: str, colours: Colours) -> Iterator[str]:
    """Yield the title, the scale of balancedness and what the other axis is."""
    x0, x1 = span
    yield words(x0 - 34, 22, title, colours.text, size=16, weight=600)
    yield words(x0 - 34, 43, what, colours.quiet)
    for level in (0.6, 0.7, 0.8, 0.9, 1.0):
        yield line([(x0, up(level)), (x1, up(level))], colours.grid, 1)
        yield words(x0 - 8, up(level) + 5, f"{level:.1f}", colours.quiet, size=13, anchor="end")
    yield line([(x0, BOTTOM), (x1, BOTTOM)], colours.grid, 1)
    yield words((x0 + x1) / 2, BOTTOM + 44, below, colours.quiet, size=13, anchor="middle")


def drift(drawn: Drawn, colours: Colours) -> Iterator[str]:
    """Yield the left panel: a line of balancedness by window for each policy."""
    x0, x1 = LEFT
    yield from panel(
        LEFT,
        "When loads drift",
        "balance of 72 GPUs on requests yet to come",
        "window of requests",
        colours,
    )
    for (balance, _), colour in zip(drawn.windows.values(), colours.series, strict=True):
        wide = (x1 - x0) / (len(balance) - 1)
        yield line([(x0 + i * wide, up(value)) for i, value in enumerate(balance)], colour, 2.5)
    said = [
        f"{name}: {balance.mean():.3f}, {f'moves {moved:.0%} of the copies' if moved else 'moves none'}"
        for name, (balance, moved) in drawn.windows.items()
    ]
    yield from legend(x0, said, colours.series, colours)


def legend(x: float, said: list[str], series: tuple[str, ...], colours: Colours) -> Iterator[str]:
    """Yield a line of text for each colour, at the foot of a panel."""
    for i, (text, colour) in enumerate(zip(said, series, strict=True)):
        y = BOTTOM - 44 + 18 * i
        yield line([(x + 8, y - 5), (x + 28, y - 5)], colour, 2.5)
        yield words(x + 36, y, text, colours.text, size=13)


def failure(drawn: Drawn, colours: Colours) -> Iterator[str]:
    """Yield the right panel: balance against copies moved, after a node is lost."""
    x0, x1 = RIGHT
    yield from panel(
        RIGHT,
        "When a node fails",
        "balance of the 68 GPUs left, by what is moved",
        "copies of experts that move",
        colours,
    )
    eplb, _, ours = colours.series

    def at(moved: float, balance: float) -> tuple[float, float]:
        return x0 + moved * (x1 - x0), up(balance)

    for share in (0, 0.25, 0.5, 0.75, 1):
        yield words(at(share, 0)[0], BOTTOM + 24, f"{share:.0%}", colours.quiet, size=13, anchor="middle")
    yield line([at(*point) for point in drawn.front], ours, 2.5)
    least, near = drawn.front[0], min(drawn.front, key=lambda point: abs(point[1] - 0.99))
    yield from (dot(*at(*point), ours) for point in (least, near))
    afresh, relabelled, balance = drawn.eplb
    yield from (dot(*at(moved, balance), eplb) for moved in (relabelled, afresh))
    said = [
        f"EPLB afresh: {balance:.3f}, moves {afresh:.0%}; {relabelled:.0%} if relabelled",
        f"rackplan: {near[1]:.3f}, moves {near[0]:.0%};",
        f"all experts restored by {least[0]:.1%}",
    ]
    yield from legend(x0, said, (eplb, ours, ours), colours)


def svg(drawn: Drawn, colours: Colours) -> str:
    """Return the picture in one scheme of colours."""
    parts = "\n".join([*drift(drawn, colours), *failure(drawn, colours)])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'font-family="-apple-system, Segoe UI, Helvetica, Arial, sans-serif">\n{parts}\n</svg>\n'
    )


if __name__ == "__main__":
    found = computed()
    for name, colours in SCHEMES.items():
        (IMAGES / f"readme-{name}.svg").write_text(svg(found, colours), encoding="utf-8")
