"""Parts of the steps of many groups of points, laid side by side: one evaluation prices all points at once."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from cost.step.step import even_parts
from cost.terms.registry import TERMS
from cost.terms.work import smooth_max

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from cost.inputs.machine import Machine
    from cost.inputs.workload import StepShape
    from cost.validation.predict import Group

__all__ = ["Stack"]

Table = "Mapping[str, NDArray[np.float64]]"


@dataclass
class _Slot:
    compute: NDArray[np.float64]
    memory: NDArray[np.float64]
    inverse_columns: NDArray[np.float64]
    uneven: NDArray[np.float64]
    int4: NDArray[np.float64]
    """1 where weights are INT4 that kernels unpack, else 0."""
    wider: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    """Peaks of wider units over that of the unit, by the fraction reached of each; 0 where there is none."""


@dataclass
class Stack:
    """Work of ``size`` points by (fraction, HBM fraction, place in the step), seconds at peak of all layers."""

    size: int
    slots: dict[tuple[str, str, int], _Slot] = field(default_factory=dict)
    sums: dict[str, NDArray[np.float64]] = field(default_factory=dict)

    def _sum(self, name: str) -> NDArray[np.float64]:
        return self.sums.setdefault(name, np.zeros(self.size))

    def add(self, group: Group, shape: StepShape, machine: Machine) -> None:
        """Take in a group's step; arrays of ``shape`` have one entry a point of the group."""
        parts, at = even_parts(group.model, shape, machine), group.index
        seen: dict[tuple[str, str], int] = defaultdict(int)
        for work in parts.works:
            (unit,) = work.units  # runs store a class of weights in one format
            key = (unit.fraction, work.hbm)
            slot = self.slots.setdefault((*key, seen[key]), _Slot(*(np.zeros(self.size) for _ in range(5))))
            seen[key] += 1
            slot.compute[at] = work.layers * work.compute_s
            slot.memory[at] = work.layers * work.memory_s
            slot.inverse_columns[at] = 1 / np.asarray(work.columns)
            slot.uneven[at] = work.uneven
            slot.int4[at] = bool(unit.unpacking)
            for name, ratio in unit.wider:
                slot.wider.setdefault(name, np.zeros(self.size))[at] = ratio
        for link in parts.links:
            self._sum("links")[at] += link.layers * link.expected_s
        for reduce in parts.reduces:
            self._sum("reduce")[at] += reduce.layers * (reduce.up_s + reduce.out_s)
            self._sum("calls")[at] += reduce.layers * reduce.calls
            self._sum("crossing")[at] += reduce.layers * reduce.crossing
            self._sum("latency")[at] += reduce.layers * reduce.calls * reduce.latency_s
        for delay, times in parts.counts.items():
            self._sum(delay)[at] += times

    def seconds(
        self, table: Mapping[str, NDArray[np.float64]]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Seconds of computing, of sending, and of computing those of experts; ``table`` has each coefficient."""
        experts = np.zeros(self.size)
        computing, sums = np.zeros(self.size), defaultdict(lambda: np.zeros(self.size), self.sums)
        for (fraction, hbm, _), slot in self.slots.items():
            kind = fraction.partition(".")[0]
            half = 0.0 if kind == "attention" else table[f"columns.{kind}"]
            reached = table[fraction]
            for name, ratio in slot.wider.items():
                reached = np.maximum(reached, ratio * table[name])
            part = table["experts.int4"] ** slot.int4
            compute = slot.compute * (1 / (part * reached) + half * slot.inverse_columns)
            seconds = smooth_max(compute, slot.memory / (part * table[hbm]))
            computing += seconds * (1 + table["ranks.uneven"] * slot.uneven)
            experts += seconds * (kind == "experts")
        computing *= 1 + table["engine.share"]
        for term in TERMS.values():
            for delay in term.delays:
                computing += sums[delay] * table[delay]
            for delay, known in term.known_delays.items():
                computing += sums[delay] * known.value
        sending = sums["links"] + sums["reduce"] / table["links.all_reduce"]
        sending = sending + sums["calls"] * table["delay.all_reduce"] + sums["latency"]
        return computing, sending + sums["crossing"] * table["delay.all_reduce_out"], experts
