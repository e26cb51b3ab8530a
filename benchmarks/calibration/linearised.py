"""Measured points with what stays the same during a fit, linearised so that one evaluation prices all of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from coefficients import NVIDIA, efficiency
from stack import Stack

from cost.inputs.machine import on_prompts
from cost.step.step import busiest
from cost.validation.predict import (
    BENCHMARK_ROUNDS,
    group_points,
    group_times,
    machines,
    predict_serving,
    quantity_of,
    stepper,
    unpredictable,
)
from topology.files.resolve import resolve_cluster

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coefficients import Family, Space
    from numpy.typing import NDArray

    from cost.inputs.workload import StepShape
    from cost.quantity import Quantity
    from cost.validation.predict import Group
    from cost.validation.read import Point

__all__ = ["Data", "Problem"]

PUBLISHED_WEIGHT = 8.0
"""Published points count several times: they are few, and the only ones of wide expert parallelism."""
NOT_FITTED = ("ds-online-prefill", "ds-online-prefill-nohit", "trtllm-b200-1k2k")
"""Published points that validate predicts and no fit takes: averages of production over traffic that nobody states,
and a highest throughput at requests that nobody states."""
UNSURE_WEIGHT = 0.6
"""Rows that do not say how many workers there were, or whether they drafted."""


@dataclass
class Data:
    """Points and their groups, with what stays the same during a fit."""

    points: list[Point]
    groups: list[Group]
    weight: NDArray[np.float64]
    family: Family

    @classmethod
    def make(cls, silicon: Sequence[Point], published: Sequence[Point] = (), family: Family = NVIDIA) -> Data:
        """Return the data of the points that can be predicted, on chips of the family."""
        rows = [(p, _sureness(p)) for p in silicon] + [
            (p, PUBLISHED_WEIGHT) for p in published if p.id not in NOT_FITTED
        ]
        rows = [row for row in rows if not unpredictable(row[0]) and _chip(row[0]) in family.chips]
        told = predict_serving([point for point, _ in rows])
        rows = [row for row, found in zip(rows, told, strict=True) if found.value is not None]
        points = [point for point, _ in rows]
        groups, _ = group_points(points)
        return cls(points, groups, np.array([weight for _, weight in rows]), family)

    @property
    def chips(self) -> list[str]:
        """Names of the chips, sorted."""
        return sorted({group.gpu.name for group in self.groups})


def _chip(point: Point) -> str:
    return resolve_cluster(point.cluster).spec.domains[0].gpu.name


def _sureness(point: Point) -> float:
    unsure = "workers were not recorded" in point.notes or not point.drafts_recorded
    return UNSURE_WEIGHT if unsure else 1.0


class _Recorder:
    """Gives the seconds of another stepper and keeps the shapes that it was asked for."""

    def __init__(self, step: stepper) -> None:
        self.step = step
        self.shapes: list[StepShape] = []

    def __call__(self, shape: StepShape) -> Quantity:
        self.shapes.append(shape)
        return self.step(shape)


class Problem:
    """One linearisation: shapes of the steps held, coefficients free."""

    def __init__(self, data: Data, space: Space, x: NDArray[np.float64]) -> None:
        self.data, self.space = data, space
        size = len(data.points)
        self.alone, self.mixed = Stack(size), Stack(size)
        self.is_mixed, self.halves = np.zeros(size, bool), np.zeros(size, bool)
        self.factor, self.rest = np.zeros(size), np.zeros(size)
        self.inverse = np.zeros(size, bool)
        self.prompts = np.zeros(size, bool)
        self.share, self.others, self.busiest = np.ones(size), np.zeros(size), np.ones(size)
        self.accept = np.zeros(size, int)
        for group in data.groups:
            self._add(group, x)
        self.cells = sorted({(g.gpu.name, g.engine) for g in data.groups})
        self.coefficients = space.linear(self.cells)
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
        recorder = _Recorder(stepper(group, machine))
        times = group_times(group, reach, recorder)
        shapes = recorder.shapes
        at = group.index
        first = replace(shapes[0], prompt_tokens=0.0) if group.phase == "aggregated" else shapes[-1]
        if group.overlap:
            first = replace(first, sequences=first.sequences / 2, prompt_tokens=first.prompt_tokens / 2)
            self.halves[at] = True
        padded = machine.pads and group.model.moe is not None and first.decodes
        self.prompts[at] = group.phase == "prefill"
        self.alone.add(group, first.padded if padded else first, machine)
        if group.phase == "aggregated":
            shape = shapes[0].padded if padded else shapes[0]
            self.mixed.add(group, shape, machine)
            self.is_mixed[at] = True
            self.share[at], self.others[at] = shape.prompt_share, shape.others
            self.busiest[at] = busiest(shape.prompt_share, shape.attention_dp)
        step_s = np.broadcast_to(times.step_s, at.shape)
        for position, i in enumerate(at.tolist()):
            point = replace(self.data.points[i], drafts_recorded=True)
            value = quantity_of(point, group, times, position)
            self.inverse[i] = point.quantity == "tok_s_per_gpu"
            self.factor[i] = value * step_s[position] if self.inverse[i] else value / step_s[position]
            if point.accept_length == 0:  # as calibrated: fitted with the rest
                k = min(point.draft_tokens, 3)
                self.accept[i] = k
                self.factor[i] *= reach[f"accept.{k}"]

    def values(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Predicted quantities, in their units."""
        names, slopes, at_zero = self.coefficients
        return self._values(dict(zip(names, np.exp(slopes @ x + at_zero)[self.cell_of].T, strict=True)))

    def _values(self, table: Mapping[str, NDArray[np.float64]]) -> NDArray[np.float64]:
        """Predicted quantities; ``table`` has each coefficient of each point."""
        on = {name: on_prompts(name, value, table.__getitem__) for name, value in table.items()}
        alone = {
            name: on_prompts(name, value, table.__getitem__, mixed=False) for name, value in table.items()
        }
        parts = zip(self.alone.seconds(table), self.alone.seconds(alone), strict=True)
        computing, sending, _ = (np.where(self.prompts, on_p, off_p) for off_p, on_p in parts)
        plain = computing + sending
        hidden = 2 * plain - table["overlap"] * 2 * np.minimum(computing, sending)
        seconds = np.where(self.halves, hidden, plain)
        if self.is_mixed.any():
            base, full = self.alone.seconds(on), self.mixed.seconds(on)
            experts = full[2] - base[2]
            most = 1 + table["prompts.uneven"] * (self.busiest - 1)
            more = experts + most * (sum(full[:2]) - sum(base[:2]) - experts)
            first = table["prompts.first"] + 0.5 / BENCHMARK_ROUNDS
            share = self.share * self.others * (1 - first)
            seconds = np.where(self.is_mixed, plain + share * more, seconds)
        for k in (1, 2, 3):
            seconds = np.where(self.accept == k, seconds / table[f"accept.{k}"], seconds)
        return np.where(self.inverse, self.factor / seconds, self.factor * seconds)

    def slopes(self, x: NDArray[np.float64], drafted: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Derivatives of :meth:`residuals` by the parameters, ``[points, parameters]``: by each coefficient first."""
        names, slopes, at_zero = self.coefficients
        table = dict(zip(names, np.exp(slopes @ x + at_zero)[self.cell_of].T, strict=True))
        at, step = np.log(self._values(table)), 1e-4
        by = np.stack(
            [
                (np.log(self._values({**table, name: table[name] * np.exp(step)})) - at) / step
                for name in names
            ],
            axis=1,
        )
        by[drafted, names.index("accept.unrecorded")] = -1.0
        found = np.empty((len(at), len(x)))
        for cell in range(len(self.cells)):
            rows = self.cell_of == cell
            found[rows] = by[rows] @ slopes[cell]
        return self.data.weight[:, None] * found

    def gain(self, x: NDArray[np.float64]) -> float:
        """Tokens a step of rows that drafted and do not say so."""
        return self.space.tables(x).shared["accept.unrecorded"]

    def drafted(self, x: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Which of the rows that do not say most likely drafted tokens."""
        off = np.abs(np.log(values / self.measured))
        on = np.abs(np.log(values / self.gain(x) / self.measured))
        return self.unrecorded & (on < off)

    def residuals(self, x: NDArray[np.float64], drafted: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Weighted logarithms of predicted over measured; ``drafted`` rows yield several tokens a step."""
        values = self.values(x)
        values = np.where(drafted, values / self.gain(x), values)
        return self.data.weight * np.log(values / self.measured)
