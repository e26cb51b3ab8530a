"""Fits what kernels and engines reach (cost/calibration/serving.yaml) to measured serving.

``python benchmarks/calibration/fit_serving.py SILICON.csv [--folds N] [--write]``: the calibration part of the silicon
sample that aiconfigurator ships, and the published points in cost/measured/data. Without ``--write`` it only prints
how well it fits; with ``--folds`` also how well it predicts rows, chips and models that it did not see.

Residuals are logarithms of predicted over measured, under a soft L1 loss. Coefficients are shared by chip class
(fractions) and by chip class and engine (delays); each chip may deviate from its class at a price.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import yaml
from scipy.optimize import least_squares
from stack import Stack

from cost.calibration.serving import ANY_ENGINE
from cost.efficiency import COEFFICIENTS, Efficiency
from cost.measured.points_csv import read_points
from cost.measured.predict_serving import predict_serving, quantity_of
from cost.measured.serving_groups import group_points
from cost.measured.serving_times import group_times, machines, stepper, with_imbalance
from cost.measured.silicon import read_silicon
from cost.measured.predict import unpredictable
from topology.figures import Evidence, Figure
from topology.resolve import resolve_cluster

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from cost.measured.point import Point
    from cost.measured.serving_groups import Group
    from cost.shape import StepShape

ROOT = Path(__file__).parents[2]
OUT = ROOT / "cost" / "calibration" / "serving.yaml"
ENGINES = ("trtllm", "sglang", "vllm")
CLASSES = {
    "h100-sxm": "hopper",
    "h200-sxm": "hopper",
    "h800-sxm": "hopper",
    "h20-sxm": "hopper",
    "b200-sxm": "blackwell",
    "b300-sxm": "blackwell",
    "gb200": "blackwell",
    "ascend-910c": "hopper",
}
FRACTIONS = [name for name in COEFFICIENTS if name.startswith(("gemm.", "experts.", "attention.", "hbm."))]
START = {
    "gemm": 0.4,
    "experts": 0.3,
    "attention": 0.35,
    "hbm": 0.7,
    "prefill_share": 0.5,
    "delay.all_reduce": 6e-6,
    "delay.all_reduce_out": 20e-6,
    "delay.layer": 50e-6,
    "delay.latent_layer": 20e-6,
    "delay.moe_layer": 35e-6,
    "delay.sequence": 1e-5,
    "delay.step": 1e-3,
    "columns.gemm": 500.0,
    "columns.experts": 500.0,
}
OF_ENGINE = [name for name in COEFFICIENTS if name.startswith("delay.") or name == "prefill_share"]
SHARED = ["columns.gemm", "columns.experts"]
FIXED = {"overlap": 0.6, "links.all_reduce": 0.82, "links.hop": 0.82}
"""Not fitted. Overlap: both of SGLang's ablations. Links: 370 of 450 GB/s that NCCL reaches inside a node (jax-ml scaling
book)."""
BALANCE = 300.0
"""Flop per byte at which the columns are those shared: chips with fewer flop fill their multipliers more easily."""
SCALES = ("compute", "memory", "delay")
LARGEST = 0.95
FIRM = {"compute": 20.0, "memory": 20.0, "delay": 2.0, "shared": 0.3}
"""How firmly a chip is held to its class: one class has the same multipliers and memory controllers, and differences
that the rows seem to show between them come from the layouts that were run on each."""
OTHERS_FIRM = 0.5
"""How firmly chips are held that stand in a class of others: the H20 has a seventh of the flop, Ascend is no GPU."""
OTHERS = ("h20-sxm", "ascend-910c")
ROUNDS = 4
PUBLISHED_WEIGHT = 6.0
UNSURE_WEIGHT = 0.6


@dataclass
class Space:
    """Where each coefficient stands in the vector that is fitted; logarithms throughout."""

    names: list[tuple[str, ...]]

    @classmethod
    def make(cls, chips: Sequence[str]) -> Space:
        classes = sorted({CLASSES[chip] for chip in chips})
        names: list[tuple[str, ...]] = [("fraction", c, name) for c in classes for name in FRACTIONS]
        names += [("engine", c, engine, name) for c in classes for engine in ENGINES for name in OF_ENGINE]
        names += [("chip", chip, scale) for chip in chips for scale in SCALES]
        return cls(names + [("shared", name) for name in SHARED] + [("drafts",)])

    def start(self) -> NDArray[np.float64]:
        values = []
        for name in self.names:
            if name[0] == "chip":
                values.append(1.0)
            elif name[0] == "drafts":
                values.append(1.7)
            else:
                values.append(START.get(name[-1], START.get(name[-1].partition(".")[0], 1.0)))
        return np.log(values)

    def prior_weight(self) -> NDArray[np.float64]:
        """How firmly each is held to its start: chips to their class, coefficients loosely."""
        def firm(name: tuple[str, ...]) -> float:
            if name[0] == "chip" and name[1] in OTHERS:
                return OTHERS_FIRM
            return FIRM.get(name[-1], FIRM.get(name[0], 0.25))

        return np.array([firm(name) for name in self.names])

    def table(self, x: NDArray[np.float64], chip: str, engine: str) -> dict[str, float]:
        """Coefficients of a chip under an engine."""
        values = dict(zip(self.names, np.exp(x), strict=True))
        kind = CLASSES[chip]
        scale = {name: values["chip", chip, name] for name in SCALES}
        found = dict(FIXED)
        for name in FRACTIONS:
            by = "memory" if name.startswith(("hbm.", "links.")) else "compute"
            found[name] = min(LARGEST, values["fraction", kind, name] * scale[by])
        for name in OF_ENGINE:
            each = [values["engine", kind, one, name] for one in ([engine] if engine else ENGINES)]
            middle = float(np.exp(np.mean(np.log(each))))
            found[name] = min(1.0, middle) if name == "prefill_share" else middle * scale["delay"]
        flop_per_s, bytes_per_s = _peaks(chip)
        found |= {name: values["shared", name] * flop_per_s / bytes_per_s / BALANCE for name in SHARED}
        return found


def efficiency(space: Space, x: NDArray[np.float64], chip: str, engine: str) -> Efficiency:
    """The coefficients as the cost model takes them."""
    table = space.table(x, chip, engine)
    figures = {name: Figure(table[name], "1", Evidence.DERIVED, "fit") for name in COEFFICIENTS}
    return Efficiency(figures, chip, engine)


class _Recorder(stepper):
    """A stepper that keeps the shapes it was asked for."""

    def __call__(self, shape: StepShape) -> object:
        shapes = self.__dict__.setdefault("shapes", [])
        shapes.append(shape)
        return super().__call__(shape)


@dataclass
class Data:
    """Points and their groups, with what stays the same during a fit."""

    points: list[Point]
    groups: list[Group]
    weight: NDArray[np.float64]

    @classmethod
    def make(cls, points: Sequence[Point]) -> Data:
        kept = [p for p in points if not unpredictable(p) and _chip(p) in CLASSES]
        kept = [p for p, told in zip(kept, predict_serving(kept), strict=True) if told.value is not None]
        groups, _ = group_points(kept)
        weight = np.array([_weight(p) for p in kept])
        return cls(kept, groups, weight)

    @property
    def chips(self) -> list[str]:
        return sorted({group.gpu.name for group in self.groups})


@cache
def _chip_of(cluster: str) -> str:
    return resolve_cluster(cluster).spec.domains[0].gpu.name


def _chip(point: Point) -> str:
    return _chip_of(point.cluster)


def _weight(point: Point) -> float:
    """Published points count several times: they are few, and the only ones of wide expert parallelism."""
    if (
        not point.source.startswith(("source_file", "db-dump"))
        and point.engine_version == ""
        and point.pair + point.notes
    ):
        return PUBLISHED_WEIGHT
    return UNSURE_WEIGHT if "workers were not recorded" in point.notes or not point.drafts_recorded else 1.0


class Problem:
    """One linearisation: shapes of the steps held, coefficients free."""

    def __init__(self, data: Data, space: Space, x: NDArray[np.float64]) -> None:
        self.data, self.space = data, space
        size = len(data.points)
        self.alone, self.mixed = Stack(size), Stack(size)
        self.is_mixed, self.halves = np.zeros(size, bool), np.zeros(size, bool)
        self.factor, self.rest = np.zeros(size), np.zeros(size)
        self.inverse = np.zeros(size, bool)
        for group in data.groups:
            self._add(group, x)
        self.cells = sorted({(g.gpu.name, g.engine) for g in data.groups})
        self.cell_of = np.zeros(size, int)
        for group in data.groups:
            self.cell_of[group.index] = self.cells.index((group.gpu.name, group.engine))
        self.measured = np.array([p.measured for p in data.points])
        self.unrecorded = np.array([not p.drafts_recorded for p in data.points])

    def _add(self, group: Group, x: NDArray[np.float64]) -> None:
        """Evaluate a group once; its value is then taken as proportional to its decode (or only) step."""
        reach = efficiency(self.space, x, group.gpu.name, group.engine)
        on_decode, on_prefill = machines(group, reach)
        machine = on_prefill if group.phase == "prefill" else on_decode
        recorder = _Recorder(group, machine)
        times = group_times(group, reach, recorder)
        shapes = recorder.__dict__["shapes"]
        at = group.index
        first = shapes[0] if group.phase == "aggregated" else shapes[-1]
        if group.overlap:
            first = replace(first, sequences=first.sequences / 2, prompt_tokens=first.prompt_tokens / 2)
            self.halves[at] = True
        self.alone.add(group, first, machine)
        if group.phase == "aggregated":
            self.mixed.add(group, shapes[1], machine)
            self.is_mixed[at] = True
        step_s = np.broadcast_to(times.step_s, at.shape)
        for position, i in enumerate(at.tolist()):
            point = replace(self.data.points[i], drafts_recorded=True)
            known = replace(group, recorded=np.ones_like(group.recorded))
            value = quantity_of(point, known, times, position)
            self.inverse[i] = point.quantity == "tok_s_per_gpu"
            self.factor[i] = value * step_s[position] if self.inverse[i] else value / step_s[position]

    def values(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Predicted quantities, in their units."""
        tables = [self.space.table(x, chip, engine) for chip, engine in self.cells]
        table = {name: np.array([t[name] for t in tables])[self.cell_of] for name in tables[0]}
        computing, sending = self.alone.seconds(table)
        plain = computing + sending
        hidden = 2 * plain - table["overlap"] * 2 * np.minimum(computing, sending)
        seconds = np.where(self.halves, hidden, plain)
        if self.is_mixed.any():
            mixed = sum(self.mixed.seconds(table))
            seconds = np.where(self.is_mixed, plain + table["prefill_share"] * (mixed - plain), seconds)
        return np.where(self.inverse, self.factor / seconds, self.factor * seconds)

    def drafted(self, x: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Which of the rows that do not say most likely drafted tokens."""
        off = np.abs(np.log(values / self.measured))
        on = np.abs(np.log(values / np.exp(x[-1]) / self.measured))
        return self.unrecorded & (on < off)


def fit(data: Data, *, rounds: int = ROUNDS, verbose: bool = False) -> tuple[Space, NDArray[np.float64]]:
    """Return the coefficients that fit ``data`` best."""
    space = Space.make(data.chips)
    start, firm = space.start(), space.prior_weight()
    x = start.copy()
    high = np.full(len(x), np.inf)
    for i, name in enumerate(space.names):
        if name[0] == "fraction":
            high[i] = np.log(LARGEST)
    for step in range(rounds):
        problem = Problem(data, space, x)
        for _ in range(2):
            drafted = problem.drafted(x, problem.values(x))

            def residuals(
                y: NDArray[np.float64], drafted: NDArray[np.bool_] = drafted
            ) -> NDArray[np.float64]:
                values = problem.values(y)
                values = np.where(drafted, values / np.exp(y[-1]), values)
                return np.concatenate([data.weight * np.log(values / problem.measured), firm * (y - start)])

            x = least_squares(
                residuals,
                np.minimum(x, high - 1e-6),
                loss="soft_l1",
                f_scale=0.1,
                max_nfev=12,
                bounds=(-np.inf, high),
            ).x
        if verbose:
            values = problem.values(x)
            values = np.where(drafted, values / np.exp(x[-1]), values)
            error = np.abs(values / problem.measured - 1)
            print(
                f"round {step + 1}: median {np.median(error):.3f}, mean {error.mean():.3f}, drafts {np.exp(x[-1]):.2f}"
            )
    return space, x


def predicted(points: Sequence[Point], space: Space, x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Predictions of ``points``, which may be on chips that were not fitted: those of the nearest."""
    known = {name[1] for name in space.names if name[0] == "chip"}

    def reach(group: Group) -> Efficiency:
        chip = group.gpu.name
        if chip not in known:
            chip = min(known, key=lambda other: _distance(chip, other))
        return efficiency(space, x, chip, group.engine)

    return np.array([p.value if p.value is not None else np.nan for p in predict_serving(points, reach)])


@cache
def _peaks(chip: str) -> tuple[float, float]:
    for name in (
        "hgx-h100",
        "hgx-h200",
        "hgx-h800",
        "hgx-h20",
        "hgx-b200",
        "hgx-b300",
        "gb200-nvl72",
        "gb300-nvl72",
        "cm384",
    ):
        gpu = resolve_cluster(name).spec.domains[0].gpu
        if gpu.name == chip:
            return gpu.dense_flop_per_s("bf16"), gpu.hbm_bytes_per_s
    raise KeyError(chip)


def _distance(first: str, second: str) -> float:
    return float(np.hypot(*(np.log(a / b) for a, b in zip(_peaks(first), _peaks(second), strict=True))))


def report(label: str, points: Sequence[Point], values: NDArray[np.float64]) -> None:
    """Print median, mean and bias of the errors of ``points``."""
    measured = np.array([p.measured for p in points])
    error = np.abs(values / measured - 1)
    fine = np.isfinite(error)
    if not fine.any():
        return
    print(
        f"{label:44s} {fine.sum():5d} of {len(points):5d}  median {np.median(error[fine]):.3f}  mean {error[fine].mean():.3f}"
        f"  within 20 % {(error[fine] <= 0.2).mean():.2f}  bias {np.median(values[fine] / measured[fine]) - 1:+.3f}"
    )


def by(points: Sequence[Point], values: NDArray[np.float64], get: str) -> None:
    """Print errors by an attribute."""
    for name in sorted({str(getattr(p, get)) for p in points}):
        chosen = [i for i, p in enumerate(points) if str(getattr(p, get)) == name]
        report(f"  {get} {name}", [points[i] for i in chosen], values[chosen])


def write(space: Space, x: NDArray[np.float64], errors: Mapping[str, float], chips: Sequence[str]) -> None:
    """Write the calibration file."""

    def rounded(number: float) -> float:
        return float(f"{number:.3g}")

    def of_engine(chip: str, engine: str) -> dict[str, float]:
        table = space.table(x, chip, engine)
        return {name: rounded(table[name]) for name in OF_ENGINE}

    data = {
        "source": "fit of benchmarks/calibration/fit_serving.py to served requests (silicon sample of aiconfigurator 0.12.0, calibration part) and published throughput",
        "fit": {name: rounded(value) for name, value in errors.items()},
        "shared": FIXED,
        "chips": {
            chip: {
                "bf16_flop_per_s": _peaks(chip)[0],
                "hbm_bytes_per_s": _peaks(chip)[1],
                "fractions": {n: rounded(space.table(x, chip, "")[n]) for n in (*FRACTIONS, *SHARED)},
                "engines": {engine or ANY_ENGINE: of_engine(chip, engine) for engine in ("", *ENGINES)},
            }
            for chip in chips
        },
    }
    OUT.write_text(yaml.safe_dump(data, sort_keys=False), encoding="utf-8")


def main() -> None:
    """Fit, report, and write if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("silicon", type=Path)
    parser.add_argument("--folds", type=int, default=0)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    silicon = [p for p in read_silicon(options.silicon) if p.quantity == "tpot_ms"]
    published = [
        p for p in read_points(ROOT / "cost" / "measured" / "data" / "published.csv") if not unpredictable(p)
    ]
    data = Data.make([*silicon, *published])
    space, x = fit(data, verbose=True)
    for name, value in zip(space.names, np.exp(x), strict=True):
        print("   ", ".".join(name), f"{value:.3g}", end=";")
    print()
    values = predicted(silicon, space, x)
    report("silicon", silicon, values)
    for get in ("phase", "cluster", "model", "engine"):
        by(silicon, values, get)
    told = predicted(published, space, x)
    report("published", published, told)
    for point, value in zip(published, told, strict=True):
        print(
            f"    {point.id:36s} {point.quantity:14s} {point.measured:9.1f} {value:9.1f} {value / point.measured - 1:+.2f}"
        )
    if options.folds:
        held_out(silicon, published, options.folds)
    if options.write:
        error = np.abs(values / np.array([p.measured for p in silicon]) - 1)
        write(
            space,
            x,
            {
                "rows": len(data.points),
                "median_abs_error": float(np.nanmedian(error)),
                "mean_abs_error": float(np.nanmean(error)),
            },
            data.chips,
        )


def held_out(silicon: list[Point], published: list[Point], folds: int) -> None:
    """Print errors on rows, chips and models that a fit did not see."""
    runs: dict[str, int] = {}
    for p in silicon:  # rows of one configuration stay together, whatever their concurrency
        runs.setdefault(f"{p.model}{p.cluster}{p.engine}{p.weights}{p.pool}{p.isl}{p.osl}", len(runs))
    rng = np.random.default_rng(0)
    fold = rng.integers(folds, size=len(runs))
    of = np.array(
        [fold[runs[f"{p.model}{p.cluster}{p.engine}{p.weights}{p.pool}{p.isl}{p.osl}"]] for p in silicon]
    )
    values = np.full(len(silicon), np.nan)
    for k in range(folds):
        space, x = fit(Data.make([*(p for p, f in zip(silicon, of, strict=True) if f != k), *published]))
        chosen = np.flatnonzero(of == k)
        values[chosen] = predicted([silicon[i] for i in chosen], space, x)
    report(f"held-out configurations, {folds} folds", silicon, values)
    for get in ("cluster", "model"):
        for name in sorted({getattr(p, get) for p in silicon}):
            space, x = fit(Data.make([*(p for p in silicon if getattr(p, get) != name), *published]))
            chosen = [p for p in silicon if getattr(p, get) == name]
            report(f"without {name}", chosen, predicted(chosen, space, x))


if __name__ == "__main__":
    main()
