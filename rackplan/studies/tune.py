"""A tuner over point options: Optuna proposes points, workers price them, and every trial is a row of the study.

Trials come in generations of a fixed size, whatever the number of workers, each proposed by a sampler with a seed of
its own from what was found before: the same trials on one core and on a hundred, interrupted or not. Optuna keeps its
trials in a journal in the study's folder; a generation that a kill left half proposed is closed and proposed again.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rackplan.studies.columns import OK, Row
from rackplan.studies.options import Value
from rackplan.studies.ranges import Range
from rackplan.studies.spec import Files, Point, Search, Study
from topology.base.errors import InputError
from topology.base.files import require_unlinked, unwritable, write_whole

if TYPE_CHECKING:
    import optuna

JOURNAL = "optuna.journal"
GENERATION = 8
"""Trials proposed per generation."""


def require_search(study: Study) -> None:
    """Reject a study that cannot be searched.

    Raises
    ------
    InputError
        If it has no ``optimize``, or a grid or sample too, or Optuna is not installed.
    """
    if study.search is None:
        raise InputError("--optimize: the study has no `optimize` section with ranges to search.")
    if study.grid or study.sample:
        raise InputError(
            "--optimize: `grid` and `sample` cannot be combined with `optimize`; use `optimize: curve`."
        )
    try:
        import optuna  # noqa: F401
    except ImportError:
        raise InputError('--optimize needs Optuna: pip install "rackplan[tune]".') from None


def tune(
    study: Study,
    folder: Path,
    files: Files,
    price: Callable[[Sequence[Point]], None],
    rows: Mapping[str, Row],
) -> None:
    """Search the ranges of a study for the best goal value, at each point of its curve if it has one.

    The search at each value of the curve begins at the best of the value before: otherwise the curve shows which of
    the searches had more luck.

    Parameters
    ----------
    price:
        Makes the rows of points.
    rows:
        All rows of the study by digest.
    """
    search = study.search
    if search is None:
        return
    journal = folder / JOURNAL
    start: Mapping[str, Any] | None = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Optuna's, of what is experimental
        try:
            storage = _storage(journal)
            for place, options in enumerate(study.curve):
                start = _Tuner(study, search, place, options, storage, files).run(price, rows, start)
        except OSError as error:
            raise unwritable(journal, error) from None


class _Tuner:
    """The search at one value of the curve."""

    def __init__(
        self,
        study: Study,
        search: Search,
        place: int,
        options: Mapping[str, Value],
        storage: Any,
        files: Files,
    ) -> None:
        import optuna

        self._study, self._search, self._files = study, search, files
        self._options, self._first = options, place * search.trials
        self._name = ",".join(f"{name}={value}" for name, value in options.items()) or "study"
        self._optuna = optuna.create_study(
            storage=storage,
            study_name=self._name,
            direction="minimize" if search.least else "maximize",
            load_if_exists=True,
        )

    def run(
        self,
        price: Callable[[Sequence[Point]], None],
        rows: Mapping[str, Row],
        start: Mapping[str, Any] | None,
    ) -> Mapping[str, Any] | None:
        """Propose and price missing trials; return the best values, or ``start`` if no trial has a result."""
        from optuna.trial import TrialState

        while (done := len(self._trials(TrialState.COMPLETE, TrialState.PRUNED))) < self._search.trials:
            trials = self._open(done, start)
            points = [self._point(self._first + done + i, trial.params) for i, trial in enumerate(trials)]
            price(points)
            for trial, point in zip(trials, points, strict=True):
                row = rows[point.digest]
                goal = row.get(self._search.goal) if row["status"] == OK else None
                state = TrialState.PRUNED if goal is None else TrialState.COMPLETE
                self._optuna.tell(trial.number, goal, state=state)
        complete = self._trials(TrialState.COMPLETE)
        sign = 1 if self._search.least else -1
        best = min(complete, key=lambda one: (sign * (one.value or 0.0), one.number), default=None)
        return start if best is None else best.params

    def _trials(self, *states: Any) -> list[optuna.trial.FrozenTrial]:
        return self._optuna.get_trials(deepcopy=False, states=states)

    def _open(self, done: int, start: Mapping[str, Any] | None) -> list[optuna.trial.FrozenTrial]:
        """Return the open trials of the generation with trial ``done``, proposing them if necessary."""
        from optuna.trial import TrialState

        generation = done // GENERATION
        wanted = min((generation + 1) * GENERATION, self._search.trials) - done
        found = self._trials(TrialState.RUNNING)
        if len(found) != wanted or any(len(one.params) < len(self._search.ranges) for one in found):
            for one in found:
                self._optuna.tell(one.number, state=TrialState.FAIL)
            self._propose(generation, wanted, start)
        return self._trials(TrialState.RUNNING)

    def _propose(self, generation: int, many: int, start: Mapping[str, Any] | None) -> None:
        import optuna

        mark = hashlib.sha256(f"{self._search.seed}|{self._name}|{generation}".encode()).digest()
        self._optuna.sampler = optuna.samplers.TPESampler(
            seed=int.from_bytes(mark[:4], "big"),
            n_startup_trials=2 * GENERATION,
            multivariate=True,
            constant_liar=True,
        )
        if not generation and start is not None and not self._trials(optuna.trial.TrialState.WAITING):
            self._optuna.enqueue_trial(dict(start))
        for _ in range(many):
            trial = self._optuna.ask()
            for name, one in self._search.ranges.items():
                _suggest(trial, name, one)

    def _point(self, number: int, params: Mapping[str, Any]) -> Point:
        options = {**self._study.fixed, **self._options}
        more = 0.0
        for name, one in self._search.ranges.items():
            options[name] = one.choices[params[name]] if one.choices else one.value(params[name])
            if name in self._search.worth:
                more += self._search.worth[name] * (float(str(options[name]).rstrip(" xX")) - 1.0)
        if self._search.worth:
            options["price_more"] = float(f"{more:.6g}")
        return self._study.point(number, options, self._files)


def _suggest(trial: optuna.trial.Trial, name: str, one: Range) -> None:
    if one.choices:
        trial.suggest_categorical(name, list(range(len(one.choices))))
    elif one.whole:
        trial.suggest_int(name, int(one.low), int(one.high), log=one.log)
    else:
        trial.suggest_float(name, one.low, one.high, log=one.log)


def _storage(journal: Path) -> Any:
    """Return Optuna's file storage, cleaned of partial lines and locks left by a kill."""
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    require_unlinked(journal)
    if journal.exists():
        data = journal.read_bytes()
        write_whole(journal, data[: data.rfind(b"\n") + 1])
    Path(f"{journal}.lock").unlink(missing_ok=True)
    return JournalStorage(JournalFileBackend(str(journal)))
