"""A tuner over options of points: Optuna proposes, workers price, every trial is a row of the study.

Trials come in generations of a fixed size, whatever the number of workers, each proposed by a sampler with a seed of
its own from what was found before: the same trials on one core and on a hundred, stopped in between or not. What
Optuna knows is in a journal file; where a kill left trials open they are closed again and proposed anew, the same.
"""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rackplan.studies.columns import Row
from rackplan.studies.engines import require_engine
from rackplan.studies.folder import opened
from rackplan.studies.options import Value
from rackplan.studies.progress import Progress
from rackplan.studies.ranges import Range
from rackplan.studies.result import StudyResult
from rackplan.studies.run import Runner
from rackplan.studies.spec import Files, Point, Search, Study
from rackplan.studies.statuses import OK
from rackplan.studies.store import read_rows
from topology.base.errors import InputError
from topology.base.files import require_unlinked

if TYPE_CHECKING:
    import optuna

JOURNAL = "optuna.journal"
GENERATION = 8
"""Trials that are proposed before any of them is priced."""
_MARK = "generation"


def tune_study(
    study: Study,
    folder: Path,
    *,
    engine: str = "local",
    address: str | None = None,
    workers: int | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> StudyResult:
    """Search the ranges of a study for the best of its goal, along its curve if it has one.

    Raises
    ------
    InputError
        If the study says nothing of ``optimize`` or has a grid too, Optuna is missing, or nothing can be written.
    """
    search = study.search
    if search is None:
        raise InputError("--optimize: the study has no `optimize` with the ranges to search.")
    if study.grid or study.sample:
        raise InputError("--optimize: `grid` and `sample` are of studies without it; use `optimize: curve`.")
    require_engine(engine, address)
    _require_optuna()
    with opened(study, folder, keep=True) as ours:
        store = ours.store
        places = 1 if search.curve is None else len(search.curve[1])
        progress = Progress(places * search.trials, len(store.digests))
        files = Files(study.base)
        files.digests(study.fixed)
        interrupted = False
        best: Mapping[str, Any] | None = None
        try:
            with (
                ours.at_work(
                    progress, files, engine=engine, address=address, workers=workers, say=say
                ) as runner,
                _writing(folder / JOURNAL),
            ):
                for place in range(places):
                    best = _Tuner(study, search, place, folder, files, best).run(runner, store.kept)
        except KeyboardInterrupt:
            interrupted = True
        if not interrupted:
            store.order()
    return StudyResult(study, folder, read_rows(folder), progress, interrupted)


@contextmanager
def _writing(journal: Path) -> Iterator[None]:
    """Say in one line what Optuna cannot write; what we cannot says so itself."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"{journal}: cannot write there ({error.strerror or error}); every row before is kept, and the same "
            "command goes on from there."
        ) from None


@dataclass(frozen=True)
class _Trial:
    """A trial that is open: its number in Optuna's journal and what it proposes."""

    number: int
    params: Mapping[str, Any]


class _Tuner:
    """The search at one value of the curve, ``place`` among its values.

    It begins at ``first``, the best of the value before: what a curve says of two values is then not which of the two
    searches had more luck.
    """

    def __init__(
        self,
        study: Study,
        search: Search,
        place: int,
        folder: Path,
        files: Files,
        first: Mapping[str, Any] | None = None,
    ) -> None:
        self._start = first
        self._study, self._search, self._files = study, search, files
        self._value = None if search.curve is None else search.curve[1][place]
        self._first = place * search.trials
        self._name = "study" if search.curve is None else f"{search.curve[0]}={self._value}"
        self._optuna = _optuna_study(folder, self._name, least=search.least)

    def run(self, runner: Runner, rows: Mapping[str, Row]) -> Mapping[str, Any] | None:
        """Propose and price what is missing, and return the best; ``rows`` has every row of the study by digest."""
        from optuna.trial import TrialState

        for generation in range(-(-self._search.trials // GENERATION)):
            many = min(GENERATION, self._search.trials - generation * GENERATION)
            told, trials = self._of(generation, many)
            if told == many:
                continue
            trials = trials or self._proposed(generation, many)
            first = self._first + generation * GENERATION + told
            points = [self._point(first + place, trial) for place, trial in enumerate(trials)]
            runner.run(iter(points))
            for trial, point in zip(trials, points, strict=True):
                row = rows.get(point.digest, {})
                goal = row.get(self._search.goal) if row.get("status") == OK else None
                state = TrialState.PRUNED if goal is None else TrialState.COMPLETE
                self._optuna.tell(trial.number, goal, state=state)
        done = self._optuna.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        sign = 1 if self._search.least else -1
        best = min(done, key=lambda one: (sign * (one.value or 0.0), one.number), default=None)
        return self._start if best is None else best.params

    def _of(self, generation: int, many: int) -> tuple[int, list[_Trial]]:
        """Return how many trials of a generation are told, and those that are open, if all of it was proposed.

        What a kill left of one that was not proposed to its end is closed: it will be proposed again, the same.
        """
        from optuna.trial import TrialState

        none = (TrialState.FAIL, TrialState.WAITING)
        mine = [one for one in self._optuna.get_trials(deepcopy=False) if one.state not in none]
        mine = [one for one in mine if one.user_attrs.get(_MARK, generation) == generation]
        open_ = [one for one in mine if not one.state.is_finished()]
        told = sum(one.state.is_finished() and _MARK in one.user_attrs for one in mine)
        whole = [
            one for one in open_ if _MARK in one.user_attrs and len(one.params) == len(self._search.ranges)
        ]
        if told + len(whole) == many:
            return told, [_Trial(one.number, one.params) for one in whole]
        for one in open_:
            self._optuna.tell(one.number, state=TrialState.FAIL)
        return 0, []

    def _proposed(self, generation: int, many: int) -> list[_Trial]:
        import optuna

        mark = hashlib.sha256(f"{self._search.seed}|{self._name}|{generation}".encode()).digest()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that some of these are new
            self._optuna.sampler = optuna.samplers.TPESampler(
                seed=int.from_bytes(mark[:4], "big"),
                n_startup_trials=2 * GENERATION,
                multivariate=True,
                constant_liar=True,
            )
            waiting = self._optuna.get_trials(deepcopy=False, states=(optuna.trial.TrialState.WAITING,))
            if not generation and self._start is not None and not waiting:
                self._optuna.enqueue_trial(dict(self._start))
            trials = []
            for _ in range(many):
                trial = self._optuna.ask()
                for name, one in self._search.ranges.items():
                    _suggested(trial, name, one)
                trial.set_user_attr(_MARK, generation)
                trials.append(_Trial(trial.number, trial.params))
        return trials

    def _point(self, number: int, trial: _Trial) -> Point:
        options: dict[str, Value] = dict(self._study.fixed)
        if self._search.curve is not None:
            options[self._search.curve[0]] = self._value
        more = 0.0
        for name, one in self._search.ranges.items():
            chosen = trial.params[name]
            options[name] = one.choices[chosen] if one.choices else one.value(chosen)
            if name in self._search.worth:
                more += self._search.worth[name] * (float(str(options[name]).rstrip(" xX")) - 1.0)
        if self._search.worth:
            options["price_more"] = float(f"{more:.6g}")
        return self._study.point(number, options, self._files)


def _suggested(trial: optuna.trial.Trial, name: str, one: Range) -> None:
    if one.choices:
        trial.suggest_categorical(name, list(range(len(one.choices))))
    elif one.whole:
        trial.suggest_int(name, int(one.low), int(one.high), log=one.log)
    else:
        trial.suggest_float(name, one.low, one.high, log=one.log)


def _optuna_study(folder: Path, name: str, *, least: bool) -> optuna.study.Study:
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    path = folder / JOURNAL
    _whole_lines(path)
    no_lock: Any = _NoLock()  # Optuna's type is not public
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return optuna.create_study(
            storage=JournalStorage(JournalFileBackend(str(path), lock_obj=no_lock)),
            study_name=name,
            direction="minimize" if least else "maximize",
            load_if_exists=True,
        )


class _NoLock:
    """No lock of its own, which a kill would leave there: nobody else works in a folder that is ours."""

    def acquire(self) -> bool:
        """Nothing to wait for."""
        return True

    def release(self) -> None:
        """Nothing to give back."""


def _whole_lines(path: Path) -> None:
    """Cut off what a kill left of the last line."""
    require_unlinked(path)
    if path.exists():
        data = path.read_bytes()
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            os.truncate(path, whole)


def _require_optuna() -> None:
    try:
        import optuna  # noqa: F401
    except ImportError:
        raise InputError('--optimize needs Optuna: pip install "rackplan[tune]".') from None
