"""Run a study: price all points without a row in its folder, even if workers die."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from rackplan.commands.output import default_output
from rackplan.requests import StudyRequest
from rackplan.studies.engines import Engine, open_engine, require_engine
from rackplan.studies.result import Progress, StudyResult
from rackplan.studies.rows import FAILED, TIMEOUT, Row, Store, complete, opened, read_rows, recorded, version
from rackplan.studies.spec import Point, Study, read_study, study_of
from rackplan.studies.tune import generations
from rackplan.studies.work import Job, late, longest_s
from topology.base.errors import InputError
from topology.base.interrupts import EndedError
from topology.base.values import plain

DEADLY = "its worker died on every attempt, the last one in isolation: killed, or out of memory."


def run_study(request: StudyRequest, say: Callable[[str], None] = lambda _: None) -> StudyResult:
    """Price the points of a study that are not in its folder yet, and return all points.

    ``say`` receives how far it is, now and then.

    Raises
    ------
    InputError
        If the study says what cannot be, its folder holds another one, the engine cannot run, or nothing can be
        written.
    """
    study, folder = _asked(request)
    if request.optimize and not study.goal:
        raise InputError("--optimize: the study has no `optimize` section with ranges to search.")
    if study.goal and not request.optimize:
        raise InputError("the study has `optimize`; run it with --optimize.")
    if study.goal and find_spec("optuna") is None:
        raise InputError('--optimize needs Optuna: pip install "rackplan[tune]".')
    require_engine(request.engine, request.address)
    points = [] if study.goal else list(study.points())
    numbers = None if study.goal else {point.digest: point.number for point in points}
    interrupted = False
    with opened(study, folder, numbers) as store:
        progress = Progress(study.most if study.goal else len(points), len(store.rows))
        try:
            if progress.done < progress.total or study.goal:
                say("starting workers")
                with open_engine(request.engine, request.address, request.workers) as engine:
                    pricer = Pricer(engine, store, study, progress, say)
                    for some in generations(study, folder, store.rows) if study.goal else [points]:
                        pricer.price(some)
        except (KeyboardInterrupt, EndedError):
            interrupted = True
        else:
            store.compact()
        return StudyResult(study, folder, read_rows(folder, store.columns), progress, interrupted)


def _asked(request: StudyRequest) -> tuple[Study, Path]:
    """Return the requested study, and the folder of its results."""
    given, folder = request.study, request.folder
    if isinstance(given, Mapping):
        if folder is None:
            raise InputError("a study given as a mapping needs a folder for its results.", field="folder")
        return study_of(plain(dict(given)), "study", Path.cwd()), folder
    path = Path(given)
    if path.is_dir():
        if folder is not None and os.path.realpath(folder) != os.path.realpath(path):
            raise InputError(f"-o {folder}: {path} is already a results folder; leave out -o to resume it.")
        return recorded(path)[0], path
    folder = default_output(path.stem) if folder is None else folder
    if ".." in folder.parts:  # what is before it need not be there
        folder = Path(os.path.realpath(folder))
    return read_study(path), folder


@dataclass
class Pricer:
    """Prices points on an engine into a store.

    A worker that dies takes the points that are with it, and on one machine those with its siblings. They are priced
    again, and those without a row after that one by one with nothing beside them: a point whose worker dies there too
    is to blame, and gets a row with the reason.
    """

    engine: Engine
    store: Store
    study: Study
    progress: Progress
    say: Callable[[str], None] = lambda _: None

    def price(self, points: Sequence[Point]) -> None:
        """Price the given points that have no row yet."""
        limit_s = self.study.limit_s
        try:
            for point in self._rest(self._rest(points)):
                begun = time.monotonic()
                if self._rest([point]):
                    seconds = time.monotonic() - begun
                    status, reason = FAILED, DEADLY
                    if seconds >= longest_s(limit_s):
                        status, reason = TIMEOUT, late(limit_s)
                    self._keep({"status": status, "reason": reason, "seconds": seconds}, point)
        finally:
            self.store.flush()

    def _rest(self, points: Sequence[Point]) -> list[Point]:
        """Price points; return those whose workers died."""
        missing = {point.digest: point for point in points if point.digest not in self.store.rows}
        if missing:
            job = Job(self.study.kind, self.study.limit_s, self.study.paths, version())
            for row in self.engine(job, list(missing.values())):
                if row is None:
                    self.progress.replaced += 1
                else:
                    self._keep(row, missing.pop(row["digest"]))
        return list(missing.values())

    def _keep(self, row: Row, point: Point) -> None:
        whole = complete(row, point, self.study.kind, self.store.columns)
        self.store.add(whole)
        self.progress.count(whole)
        self.say(self.progress.words())
