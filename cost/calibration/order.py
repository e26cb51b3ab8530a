"""Corrected steps in order: a chip at least as good in every figure, or fewer bytes, is never slower.

A step is priced on each measured chip of the family and with weights of 16, 8 and 4 bits, on the same links. Each
time is corrected, and the corrected times are moved to where they are in order, those with many runs least: an
isotonic regression (Barlow et al., Statistical Inference under Order Restrictions, 1972). That is a monotone map, and
corrected times rise with those by physics (:meth:`cost.calibration.correction.Correction.corrected`), so that more
requests, longer prompts and slower links are never faster either. A chip without runs has the factor of the one whose
coefficients it borrows, within what the others took.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property

import numpy as np
from numpy.typing import NDArray

from cost.calibration.correction import (
    PHASES,
    Correction,
    Kind,
    features_of,
    kind_of,
    read_off,
)
from cost.calibration.kernels import architecture_of
from cost.calibration.serving import calibrated, family_of
from cost.calibration.spread import band_of
from cost.dtypes import dtype
from cost.inputs.machine import Efficiency, Machine, NearRuns, Price
from cost.inputs.workload import StepShape
from cost.model import Model
from cost.quantity import Quantity
from topology.base.errors import MissingFigureError
from topology.catalog import load_gpu
from topology.spec import GpuSpec

Array = NDArray[np.float64]
EQUAL_LOGS = 1e-9
POINTS_AT_ONCE = 2000
"""Points that are put in order at once."""
UNMEASURED_WEIGHT = 0.01
"""Runs that a chip without any counts as: it yields to those with runs."""
SEQUENCES = 2.0 ** np.arange(-2, 18.5, 0.5)
"""Sequences of an attention group at which the correction is tabulated."""
DIGITS = 9
"""Of logarithms in the table: they are the same whichever steps are priced together."""
_RUNS_OF = {"both": PHASES[0], **dict(zip(PHASES, PHASES, strict=True))}
"""Phase of runs that steps of a phase are as; a decode step alone is as that of a pool that decodes."""
_FIGURES = ("hbm_bytes", "hbm_bytes_per_s", "bf16_flop_per_s", "fp8_flop_per_s", "fp4_flop_per_s")
_BITS = (16, 8, 4)


@dataclass(frozen=True, eq=False)
class Step:
    """A step of a model on a chip, with weights of so many ``bits``."""

    kind: Kind
    model: Model
    machine: Machine
    chip: GpuSpec
    bits: int

    def log_s(self, shape: StepShape, price: Price) -> Array:
        """Return the logarithm of its seconds by physics, ``[shapes]``."""
        seconds: Array = np.log(np.atleast_1d(price(self.model, shape, self.machine)))
        return seconds

    def no_slower(self, rival: Step) -> bool:
        """Whether the chip is as good in every figure and the weights have no more bits."""
        return self.bits <= rival.bits and as_good(self.chip, rival.chip)


@dataclass(frozen=True, eq=False)
class Bound:
    """The correction of decode steps of one model on one machine, at one day.

    Attributes
    ----------
    own:
        The steps; where the chip was not measured with weights of each format that is compared, their own first.
    rivals:
        Those on each measured chip of the family, with weights of each format.
    measured:
        Whether the machine is such a chip as it is in the catalog: it is in order with the others already.
    """

    correction: Correction
    own: tuple[Step, ...]
    rivals: tuple[Step, ...]
    day: Quantity
    measured: bool
    _tables: dict[float, Array] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls,
        correction: Correction,
        model: Model,
        machine: Machine,
        gpu: GpuSpec,
        engine: str,
        phase: str,
        reach: Callable[[GpuSpec, str], Efficiency] = calibrated,
    ) -> Bound:
        """Return it for steps on ``gpu`` that decode, alone or in one pool for ``both`` phases.

        ``reach``: what kernels reach on a chip under an engine.

        Raises
        ------
        InputError
            If no run was of the engine's version.
        """
        borrowed, part = calibrated(gpu).chip, model.main_weights
        stored, ran = model.precision[part], _RUNS_OF.get(phase, PHASES[1])
        formats = _formats(stored, load_gpu(borrowed).vendor, correction.formats(model))

        def step(chip: GpuSpec, bits: int, on: Machine) -> Step:
            stores = replace(model, precision={**model.precision, part: formats[bits]})
            return Step(
                kind_of(stores, chip.name, engine, ran), stores, replace(on, correction=None), chip, bits
            )

        rivals = []
        for chip in (load_gpu(name) for name in family_of(borrowed) if name in correction.chips):
            for bits, name in formats.items():
                try:
                    rates = machine.rates.on_chip(chip, dict.fromkeys([*machine.rates.flop_per_s, name]))
                except MissingFigureError:
                    continue
                on = replace(machine, rates=rates, efficiency=reach(chip, engine))
                rivals.append(step(chip, bits, on))
        same = any(
            rival.kind.chip == gpu.name and machine.rates.is_on_chip_of(rival.machine.rates)
            for rival in rivals
        )
        steps = []
        for bits, name in [(_bits(stored), stored)] if same else formats.items():
            dtypes = dict.fromkeys([*machine.rates.flop_per_s, name])
            on = machine if name == stored else replace(machine, rates=machine.rates.on_chip(gpu, dtypes))
            steps.append(step(gpu, bits, on))
        return cls(correction, tuple(steps), tuple(rivals), correction.day_of(engine), same)

    @cached_property
    def lenders(self) -> tuple[int | None, ...]:
        """For each of the chip's own steps the rival whose factor it has; None where no chip of the family ran."""
        return tuple(_lender(step, self.rivals) for step in self.own)

    @cached_property
    def _no_slower(self) -> NDArray[np.bool_]:
        return np.array([[rival.no_slower(step) for rival in self.rivals] for step in self.rivals])

    def logs(self, shape: StepShape, price: Price) -> Array:
        """Return the logarithm of the factor, ``[shapes]``."""
        features = [features_of(shape, step.log_s(shape, price), self.day) for step in self.rivals]
        kinds = [step.kind for step in self.rivals]
        corrected = self.correction.corrected(kinds, features) if kinds else np.zeros((0, 1))
        runs = [
            sum(runs_of_kind.count(kind) for runs_of_kind in self.correction.every(kind)) for kind in kinds
        ]
        lenders = [lender for lender in self.lenders if lender is not None]
        numbers = lenders if self.measured else list(range(len(kinds)))
        ordered = np.full(corrected.shape, np.nan)
        ordered[numbers] = in_order(corrected, UNMEASURED_WEIGHT + np.array(runs), self._no_slower, numbers)
        by_physics = [step.log_s(shape, price) for step in self.own]
        values = []
        for step, log_s, lender in zip(self.own, by_physics, self.lenders, strict=True):
            log = log_s if lender is None else log_s + ordered[lender] - features[lender][:, 0]
            alike = [(i, self.rivals[i]) for i in numbers if self.rivals[i].bits == step.bits]
            above = [i for i, rival in alike if rival.no_slower(step)]
            below = [i for i, rival in alike if step.no_slower(rival)]
            log = np.maximum(log, ordered[above].max(axis=0, initial=-np.inf))
            values.append(np.minimum(log, ordered[below].min(axis=0, initial=np.inf)))
        fewer = np.array([[right.bits <= left.bits for right in self.own] for left in self.own])
        logs: Array = in_order(np.stack(values), np.ones(len(values)), fewer, [0])[0] - by_physics[0]
        return logs

    def applied(self, shape: StepShape, price: Price) -> StepShape:
        """Return the shape with the correction of its step, for decode."""
        if not shape.decodes:
            return shape
        single = not any(isinstance(value, np.ndarray) for value in vars(shape).values())
        factor = np.exp(self._read(shape, price))
        return replace(shape, measured=float(factor[0]) if single else factor)

    def near(self, shape: StepShape, price: Price) -> NearRuns:
        """Return what runs say of one step."""
        kind, features = self.own[0].kind, self.features(shape, price)
        near = sum(int(runs.near(kind, features)[0]) for runs in self.correction.every(kind))
        factor = float(np.exp(self._read(shape, price))[0])
        lender = "" if self.lenders[0] is None else self.rivals[self.lenders[0]].chip.name
        return NearRuns(factor, near, self.bands(shape, price)[0], lender if lender != kind.chip else "")

    def bands(self, shape: StepShape, price: Price) -> list[float]:
        """Return for each shape the factor either way that holds four of five runs like it."""
        kind, model_seen = self.own[0].kind, self.correction.has_seen(self.own[0].model)
        runs = self.correction.every(kind)[0]
        variance = runs.variance(kind, self.features(shape, price))
        return [band_of(kind, value, model_seen=model_seen) for value in variance.tolist()]

    def features(self, shape: StepShape, price: Price) -> Array:
        """Return the features of each shape, ``[shapes, features]``."""
        return features_of(shape, self.own[0].log_s(shape, price), self.day)

    def _read(self, shape: StepShape, price: Price) -> Array:
        """Logarithms of factors, ``[shapes]``: between those at :data:`SEQUENCES`."""
        keys = np.atleast_1d(shape.but_sequences)
        unique, index, which = np.unique(keys, return_index=True, return_inverse=True)
        missing = [at for at, key in enumerate(unique.tolist()) if key not in self._tables]
        if missing:
            rows = shape.rows(index[missing]).repeated(len(SEQUENCES))
            grid = np.tile(SEQUENCES, len(missing))
            logs = np.round(self.logs(rows.at(grid / rows.tp), price), DIGITS)
            tables = logs.reshape(len(missing), len(SEQUENCES))
            self._tables.update(zip(unique[missing].tolist(), tables, strict=True))
        table = np.array([self._tables[key] for key in unique.tolist()])
        sequences = np.maximum(np.asarray(shape.sequences * shape.tp, dtype=np.float64), SEQUENCES[0])
        steps = 2 * np.log2(np.atleast_1d(sequences) / SEQUENCES[0])  # each is the square root of 2
        return read_off(table, np.broadcast_to(which.reshape(-1), steps.shape), steps)


def in_order(values: Array, weights: Array, no_slower: NDArray[np.bool_], elements: Sequence[int]) -> Array:
    """Return the ``elements`` of the nearest ``values``, by squares times ``weights``, that are in order.

    Parameters
    ----------
    values:
        ``[elements, points]``.
    weights:
        ``[elements]``.
    no_slower:
        Whether the second of two is to be no larger, ``[elements, elements]``.

    Notes
    -----
    Isotonic regression of a partial order: the largest over sets with all that is slower than their elements, of the
    least over sets with all that is faster, of the mean of what both have (Robertson, Wright and Dykstra, Order
    Restricted Statistical Inference, 1988, theorem 1.4.4).
    """
    ordered = values[list(elements)]
    apart = (values[:, None] < values[None] - EQUAL_LOGS) & no_slower[:, :, None]
    where = np.flatnonzero(apart.any(axis=(0, 1)))
    if len(where):
        slower, faster = (
            _closed(no_slower.T.tobytes(), len(values)),
            _closed(no_slower.tobytes(), len(values)),
        )
        for start in range(0, len(where), POINTS_AT_ONCE):
            columns = where[start : start + POINTS_AT_ONCE]
            for place, element in enumerate(elements):
                lower, upper = slower[slower[:, element]], faster[faster[:, element]]
                share = (lower[:, None] & upper) * weights
                means = share @ values[:, columns] / share.sum(axis=2)[:, :, None]
                ordered[place, columns] = means.min(axis=1).max(axis=0)
    return ordered


@cache
def _closed(relation: bytes, size: int) -> NDArray[np.bool_]:
    """Sets that have, with each element, all that ``relation`` says of it, ``[sets, elements]``."""
    rows = np.frombuffer(relation, dtype=np.bool_).reshape(size, size)
    sets = {np.zeros(size, dtype=np.bool_).tobytes()}
    for row in rows:  # unions of what single elements bring
        sets |= {(np.frombuffer(members, dtype=np.bool_) | row).tobytes() for members in sets}
    return np.array([np.frombuffer(members, dtype=np.bool_) for members in sorted(sets)])


def as_good(gpu: GpuSpec, rival: GpuSpec) -> bool:
    """Whether a chip is at least as good as another in every figure that steps depend on."""

    def figures(chip: GpuSpec) -> list[float]:
        units = {name: chip.figures[name].value for name in chip.figures}
        units.setdefault("fp8_flop_per_s", units.get("int8_flop_per_s", 0.0))
        return [units.get(name, 0.0) for name in _FIGURES]

    return all(
        figure >= rival_figure for figure, rival_figure in zip(figures(gpu), figures(rival), strict=True)
    )


def _lender(step: Step, rivals: Sequence[Step]) -> int | None:
    """The number of the rival whose factor a step has: on its own chip, or the one whose coefficients that borrows.

    A chip of another architecture than that has the factor of the best chip that it is as good as, or of the slowest
    one: such chips are then in order among themselves.
    """
    borrowed = calibrated(step.chip).chip
    alike = {i: rival.chip for i, rival in enumerate(rivals) if rival.bits == step.bits}
    if architecture_of(step.chip.name) in ("", architecture_of(borrowed)):
        for i, chip in alike.items():
            if chip.name == borrowed:
                return i
    beaten = {i: sum(as_good(chip, rival_chip) for rival_chip in alike.values()) for i, chip in alike.items()}
    below = [i for i, chip in alike.items() if as_good(step.chip, chip)]
    return max(below, key=beaten.__getitem__, default=min(beaten, key=beaten.__getitem__, default=None))


def _formats(stored: str, vendor: str, ran: Collection[str]) -> dict[int, str]:
    """Formats of weights that are compared, by bits, the stored one first: those that ran; INT4 alone."""
    width = _bits(stored)
    if stored.startswith("int4"):  # kernels unpack it, which may take longer than the bytes save
        return {width: stored}
    usual = {16: "bf16", 8: "fp8", 4: "mxfp4" if vendor == "AMD" else "nvfp4"}
    return {width: stored, **{bits: usual[bits] for bits in map(_bits, ran) if bits != width}}


def _bits(stored: str) -> int:
    return min(_BITS, key=lambda bits: abs(dtype(stored).bits - bits))
