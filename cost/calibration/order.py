"""Corrected steps in order: a chip at least as good in every figure, or fewer bytes, is never slower.

A step is priced on each measured chip of the family and with weights of 16, 8 and 4 bits, on the same links. Each
time is corrected, and the corrected times are moved to where they are in order, those with many runs least: an
isotonic regression (Barlow et al., Statistical Inference under Order Restrictions, 1972). That is a monotone map, and
corrected times rise with those by physics (:meth:`cost.calibration.correction.Correction.corrected`), so that more
requests, longer prompts and slower links are never faster either. A chip without runs has the factor of the one whose
coefficients it borrows, within what the others took.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from cost.calibration.correction import PHASES, Correction, Kind, features_of, kind_of
from cost.calibration.serving import calibrated, family_of
from cost.dtypes import dtype
from cost.inputs.machine import Efficiency, Machine, NearRuns, Price, Rates
from cost.inputs.workload import StepShape
from cost.model import Model
from cost.quantity import Quantity
from topology.base.errors import MissingFigureError
from topology.catalog import load_gpu
from topology.spec import GpuSpec

Array = NDArray[np.float64]
ROUNDS = 40
"""Of projections, at most."""
CLOSE = 1e-4
"""Logarithm by which neighbours may be out of order before what is left is taken away."""
UNMEASURED = 0.01
"""Runs that a chip without any counts as: it yields to those with runs."""
SEQUENCES = 2.0 ** np.arange(-2, 19)
"""Sequences of an attention group at which the correction is tabulated."""
_RUNS_OF = {"both": PHASES[0]}
_FIGURES = ("hbm_bytes", "hbm_bytes_per_s", "bf16_flop_per_s", "fp8_flop_per_s", "fp4_flop_per_s")
_BITS = (16, 8, 4)


@dataclass(frozen=True, eq=False)
class Bound:
    """The correction of decode steps of one model on one machine, at one day.

    Attributes
    ----------
    rivals:
        Kind, model and machine of each measured chip of the family and each width of weights.
    own:
        Which of them has the machine's coefficients.
    no_slower:
        Whether the second of two is to be no slower than the first, ``[rivals, rivals]``.
    above, below:
        Rivals that the machine itself is to be no faster and no slower than.
    """

    correction: Correction
    model: Model
    machine: Machine
    day: Quantity
    rivals: tuple[tuple[Kind, Model, Machine], ...]
    own: int
    no_slower: NDArray[np.bool_]
    above: list[int]
    below: list[int]
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
        phase, stored = _RUNS_OF.get(phase, phase), model.precision[part]
        phase = phase if phase in PHASES else PHASES[1]
        formats = _formats(stored, load_gpu(borrowed), correction.formats(model))
        rivals, of = [], []
        for chip in map(load_gpu, family_of(borrowed)):
            if chip.name != borrowed and chip.name not in correction.chips:
                continue
            for bits, name in formats.items():
                own_format = (
                    model if name == stored else replace(model, precision={**model.precision, part: name})
                )
                try:
                    on = machine.on_chip(_rates(machine.rates, chip, name), reach(chip, engine))
                except MissingFigureError:
                    continue
                rivals.append((kind_of(own_format, chip.name, engine, phase), own_format, on))
                of.append((chip, bits))
        pairs = [[_as_good(b, a) and few <= many for b, few in of] for a, many in of]
        bits = next(bits for bits, name in formats.items() if name == stored)
        mine = [i for i, (_, each) in enumerate(of) if each == bits]
        return cls(
            correction,
            model,
            replace(machine, correction=None),
            correction.day_of(engine),
            tuple(rivals),
            next(i for i in mine if of[i][0].name == borrowed),
            np.array(pairs),
            [i for i in mine if _as_good(of[i][0], gpu)],
            [i for i in mine if _as_good(gpu, of[i][0])],
        )

    @property
    def base(self) -> tuple[Kind, Model, Machine]:
        """The rival that has the machine's coefficients: the chip itself where it was measured."""
        return self.rivals[self.own]

    def features(self, shape: StepShape, price: Price) -> Array:
        """Return the features of each shape on the chip that has the runs, ``[shapes, features]``."""
        _, model, machine = self.base
        return features_of(shape, np.log(np.atleast_1d(price(model, shape, machine))), self.day)

    def logs(self, shape: StepShape, price: Price) -> tuple[Array, Array]:
        """Return the logarithm of the factor, and the features of each shape on the chip that has the runs."""
        times = [np.log(np.atleast_1d(price(model, shape, on))) for _, model, on in self.rivals]
        features = [features_of(shape, log_s, self.day) for log_s in times]
        corrected = self.correction.corrected([kind for kind, *_ in self.rivals], features)
        runs = [sum(each.count(kind) for each in self.correction.every(kind)) for kind, *_ in self.rivals]
        ordered = in_order(corrected, UNMEASURED + np.array(runs), self.no_slower)
        own_s = np.log(np.atleast_1d(price(self.model, shape, self.machine)))
        mine = own_s + ordered[self.own] - features[self.own][:, 0]
        mine = np.maximum(mine, ordered[self.above].max(axis=0, initial=-np.inf))
        mine = np.minimum(mine, ordered[self.below].min(axis=0, initial=np.inf))
        return mine - own_s, features[self.own]

    def applied(self, shape: StepShape, price: Price) -> StepShape:
        """Return the shape with the correction of its step, for decode."""
        if not shape.decodes:
            return shape
        single = not any(isinstance(value, np.ndarray) for value in vars(shape).values())
        factor = np.exp(self._read(shape, price))
        return replace(shape, measured=float(factor[0]) if single else factor)

    def near(self, shape: StepShape, price: Price) -> NearRuns:
        """Return what runs say of one step."""
        _, features = self.logs(shape, price)
        kind, *_ = self.base
        every = self.correction.every(kind)
        near = sum(int(runs.near(kind, features)[0]) for runs in every)
        factor = float(np.exp(self._read(shape, price))[0])
        return NearRuns(factor, near, float(every[0].variance(kind, features)[0]))

    def _read(self, shape: StepShape, price: Price) -> Array:
        """Logarithms of factors, ``[shapes]``: between those at :data:`SEQUENCES`."""
        keys = np.atleast_1d(shape.but_sequences)
        unique, first, which = np.unique(keys, return_index=True, return_inverse=True)
        missing = [at for at, key in enumerate(unique.tolist()) if key not in self._tables]
        if missing:
            rows = shape.rows(first[missing]).repeated(len(SEQUENCES))
            grid = np.tile(SEQUENCES, len(missing))
            logs, _ = self.logs(rows.at(grid / rows.tp), price)
            tables = logs.reshape(len(missing), len(SEQUENCES))
            self._tables.update(zip(unique[missing].tolist(), tables, strict=True))
        table = np.array([self._tables[key] for key in unique.tolist()])
        each = np.log2(np.maximum(np.asarray(shape.sequences * shape.tp, dtype=np.float64), SEQUENCES[0]))
        at = np.clip(np.atleast_1d(each) - np.log2(SEQUENCES[0]), 0, len(SEQUENCES) - 1.001)
        low, row = at.astype(np.int64), np.broadcast_to(which.reshape(-1), at.shape)
        found: Array = table[row, low] + (at - low) * (table[row, low + 1] - table[row, low])
        return found


def in_order(values: Array, weights: Array, no_slower: NDArray[np.bool_]) -> Array:
    """Return the nearest ``values``, by squares times ``weights``, that fall where they are to be no slower.

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
    Dykstra's alternating projections; what they leave is taken away by the mean of the least larger and the greatest
    smaller values that are in order.
    """
    found, size = values.copy(), len(values)
    if size > 1:
        strict = no_slower & ~np.eye(size, dtype=bool)
        covers = strict & ~((strict.astype(int) @ strict.astype(int)) > 0)
        moved = {pair: np.zeros((2, values.shape[1])) for pair in map(tuple, np.argwhere(covers).tolist())}
        for _ in range(ROUNDS):
            if not (found[:, None] < found[None] - CLOSE)[strict].any():
                break
            for pair, before in moved.items():
                both, share = found[list(pair)] + before, weights[list(pair)]
                mean = share @ both / share.sum()
                kept = np.where(both[1] > both[0], mean, both)
                moved[pair], found[list(pair)] = both - kept, kept
    upper = np.stack([found[no_slower[i]].max(axis=0) for i in range(size)])
    lower = np.stack([found[no_slower[:, i]].min(axis=0) for i in range(size)])
    between: Array = (upper + lower) / 2
    return between


def _as_good(gpu: GpuSpec, other: GpuSpec) -> bool:
    """Whether a chip is at least as good as another in every figure."""

    def figures(chip: GpuSpec) -> list[float]:
        units = {name: chip.figures[name].value for name in chip.figures}
        units.setdefault("fp8_flop_per_s", units.get("int8_flop_per_s", 0.0))
        return [units.get(name, 0.0) for name in _FIGURES]

    return all(mine >= theirs for mine, theirs in zip(figures(gpu), figures(other), strict=True))


def _formats(stored: str, chip: GpuSpec, ran: Collection[str]) -> dict[int, str]:
    """Formats of weights that are compared, by bits: those that ran; INT4 alone."""
    width = _bits(stored)
    if stored.startswith("int4"):  # kernels unpack it, which may take longer than the bytes save
        return {width: stored}
    usual = {16: "bf16", 8: "fp8", 4: "mxfp4" if chip.vendor == "AMD" else "nvfp4"}
    return {**{bits: usual[bits] for bits in map(_bits, ran)}, width: stored}


def _bits(stored: str) -> int:
    return min(_BITS, key=lambda bits: abs(dtype(stored).bits - bits))


def _rates(rates: Rates, chip: GpuSpec, stored: str) -> Rates:
    return rates.on_chip(chip, dict.fromkeys([*rates.flop_per_s, stored]))
