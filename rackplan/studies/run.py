"""Run a study: price all points without a row in its folder, even if workers die."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rackplan.commands.output import default_output
from rackplan.studies.columns import FAILED, TIMEOUT, Row, complete
from rackplan.studies.engines import Engine, open_engine, require_engine
from rackplan.studies.result import Progress, StudyResult
from rackplan.studies.spec import Files, Point, Study, read_study
from rackplan.studies.store import RECORD, Store, opened, read_rows, recorded, version
from rackplan.studies.work import Job, late
from topology.base.errors import InputError

SAY_S = 0.25
"""Seconds between progress reports."""
ALONE = 2
"""Attempts to price a point in isolation after its worker died twice."""
DEADLY = "its worker died on every attempt, twice in isolation: killed, or out of memory."


def open_study(path: Path, folder: Path | None) -> tuple[Study, Path]:
    """Return the study of a ``STUDY.yaml`` or of a results folder, and its results folder.

    Raises
    ------
    InputError
        If there is none, or the default folder for the results of a file is there and holds no study.
    """
    if path.is_dir():
        if folder is not None and os.path.realpath(folder) != os.path.realpath(path):
            raise InputError(f"-o {folder}: {path} is already a results folder; leave out -o to resume it.")
        return recorded(path)[0], path
    if folder is None:
        folder = default_output(path.stem)
        if folder.exists() and not (folder / RECORD).is_file():
            raise InputError(f"-o is needed: {folder} exists but contains no study.")
    if ".." in folder.parts:  # what is before it need not be there
        folder = Path(os.path.realpath(folder))
    return read_study(path), folder


def run_study(
    study: Study,
    folder: Path,
    *,
    optimize: bool = False,
    engine: str = "local",
    address: str | None = None,
    workers: int | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> StudyResult:
    """Price the points of a study that are not in its folder yet, or those proposed by its search.

    Parameters
    ----------
    optimize:
        Search the ranges under ``optimize`` (:mod:`rackplan.studies.tune`).
    engine, address, workers:
        ``local`` or ``ray``, the address of a Ray cluster, and points priced at once (None: all cores).
    say:
        Receives how far it is, now and then.

    Raises
    ------
    InputError
        If the folder holds another study, the engine cannot run, or nothing can be written.
    """
    from rackplan.studies.tune import require_search, tune

    if optimize:
        require_search(study)
    elif study.search is not None:
        raise InputError("the study has `optimize`; run it with --optimize.")
    require_engine(engine, address)
    interrupted, numbers = False, None
    with opened(study, folder) as store:
        files = Files(study.base)
        points = [] if optimize else list(study.points(files))
        progress = Progress(study.trials if optimize else len(points), len(store.rows))
        if not optimize:
            numbers = {point.digest: point.number for point in points}
            if strange := len(store.rows.keys() - numbers):
                raise InputError(
                    f"-o {folder}: {strange:,} rows match no point of this study, so the study or one of "
                    "its files has changed. Choose another -o."
                )
        try:
            if optimize or len(store.rows) < len(points):
                with open_engine(engine, address, workers) as pool, _terminable():
                    pricer = Pricer(pool, store, study, files, progress, say)
                    if optimize:
                        tune(study, folder, files, pricer.price, store.rows)
                    else:
                        pricer.price(points)
        except KeyboardInterrupt:
            interrupted = True
        if not interrupted:
            store.compact(numbers)
        return StudyResult(study, folder, read_rows(folder, store.columns), progress, interrupted)


class Pricer:
    """Prices points on an engine into a store.

    A worker that dies takes the points that are with it, and on one machine those with its siblings. They are priced
    again, each a task of its own, and those without a row after that one by one with nothing beside them: a point
    whose worker dies there too is to blame, and gets a row with the reason.
    """

    def __init__(
        self,
        engine: Engine,
        store: Store,
        study: Study,
        files: Files,
        progress: Progress,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._engine, self._store, self._study, self._files = engine, store, study, files
        self._progress, self._say = progress, say
        self._reported = 0.0

    def price(self, points: Sequence[Point]) -> None:
        """Price the given points that have no row yet."""
        try:
            lost = self._rest(self._rest(points), singly=True)
            for point in lost:
                self._alone(point)
        finally:
            self._store.flush()

    def _rest(self, points: Sequence[Point], *, singly: bool = False) -> list[Point]:
        """Price points; return those whose workers died."""
        missing = {point.digest: point for point in points if point.digest not in self._store.rows}
        job = Job(self._study.kind, self._study.limit_s, self._files.paths, version())
        if not missing:
            return []
        self._report()
        for row in self._engine.price(job, list(missing.values()), singly=singly):
            if row is None:
                self._progress.replaced += 1
            else:
                self._keep(row, missing.pop(row["digest"]))
            self._report()
        return list(missing.values())

    def _alone(self, point: Point) -> None:
        limit_s = self._study.limit_s
        for _ in range(ALONE):
            begun = time.monotonic()
            if not self._rest([point], singly=True):
                return
            if (seconds := time.monotonic() - begun) >= limit_s:
                self._keep({"status": TIMEOUT, "reason": late(limit_s), "seconds": seconds}, point)
                return
        self._keep({"status": FAILED, "reason": DEADLY, "seconds": seconds}, point)

    def _keep(self, row: Row, point: Point) -> None:
        whole = complete(row, point, self._study.kind, self._store.columns, version())
        self._store.add(whole)
        self._progress.count(whole)

    def _report(self) -> None:
        if time.monotonic() - self._reported >= SAY_S:
            self._reported = time.monotonic()
            self._say(self._progress.words())


@contextmanager
def _terminable() -> Iterator[None]:
    """Treat SIGTERM, sent by schedulers, like Ctrl-C."""

    def end(*_: object) -> None:
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, end)
    except ValueError:  # not the main thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
