"""Run a study: price all points without a row in its folder, even if workers die."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rackplan.commands.output import default_output
from rackplan.requests import StudyRequest
from rackplan.studies.rows import STATUSES, Row, opened, recorded, version
from rackplan.studies.spec import Study, read_study, study_of
from rackplan.studies.tune import generations
from rackplan.studies.work import Job, connected, price_here, price_on_ray
from topology.base.errors import InputError
from topology.base.interrupts import EndedError
from topology.base.shown import Shown
from topology.base.values import plain


@dataclass(frozen=True, eq=False, repr=False)
class StudyResult(Shown):
    """The rows of a study.

    Attributes
    ----------
    rows:
        Those on disk, in the order of the points.
    total, priced:
        Points of the study, and those of them that this run priced.
    interrupted:
        Whether Ctrl-C ended it.
    """

    study: Study
    folder: Path
    rows: list[Row]
    total: int
    priced: int
    interrupted: bool = False

    def brief(self) -> str:
        """Return kind, status counts and folder of the points."""
        counts = Counter(row["status"] for row in self.rows)
        ended = ", ".join(f"{counts[status]:,} {status}" for status in STATUSES if counts[status])
        return f"{self.study.kind} study in {self.folder}: {ended or 'no points yet'}"


def run_study(request: StudyRequest, say: Callable[[str], None] = lambda _: None) -> StudyResult:
    """Price the points of a study that are not in its folder yet, and return all points.

    ``say`` receives how far it is, now and then.

    Raises
    ------
    InputError
        If the study says what cannot be, its folder holds another one, the engine cannot run, or nothing can be
        written.
    """
    study, folder = _study_and_folder(request)
    if request.optimize != bool(study.goal):
        raise InputError(
            "the study has `optimize`; run it with --optimize."
            if study.goal
            else "--optimize: the study has no `optimize` section with ranges to search."
        )
    points = [] if study.goal else list(study.points())
    numbers = None if study.goal else {point.digest: point.number for point in points}
    total, interrupted = study.size if study.goal else len(points), False
    with _engine(request, study) as engine, opened(study, folder, numbers) as store:
        job = Job(study.kind, study.limit_s, str(study.base), tuple(study.sha256.values()), version())
        before = len(store.rows)
        try:
            for batch in generations(study, folder, store.rows) if study.goal else [points]:
                missing = {point.digest: point for point in batch if point.digest not in store.rows}
                for row in engine(job, list(missing.values())):
                    store.add(study, missing[row["digest"]], row)
                    say(f"{len(store.rows):,} of {total:,} points (Ctrl-C keeps finished points)")
            store.finish()
        except (KeyboardInterrupt, EndedError):
            interrupted = True
        finally:
            store.flush()
        rows = sorted(store.rows.values(), key=lambda row: row["point"])
        return StudyResult(study, folder, rows, total, len(rows) - before, interrupted)


@contextmanager
def _engine(request: StudyRequest, study: Study) -> Iterator[Callable[..., Iterator[Row]]]:
    """Yield what prices points; what it started ends with the block."""
    if request.engine == "ray":
        contents = [
            (os.path.relpath(path, study.base), path.read_bytes())
            for text, paths in study.files.items()
            for path in paths
            if not Path(text).is_absolute()
        ]
        with connected(request.address, request.workers) as ray:
            yield partial(price_on_ray, ray, request.workers, tuple(contents))
        return
    safe = os.environ.get("PYTHONSAFEPATH")
    os.environ["PYTHONSAFEPATH"] = "1"  # workers import nothing from the folder that they start in
    try:
        yield partial(price_here, request.workers)
    finally:
        if safe is None:
            del os.environ["PYTHONSAFEPATH"]


def _study_and_folder(request: StudyRequest) -> tuple[Study, Path]:
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
        record = recorded(path)
        return study_of(record.study, str(path), Path(record.base)), path
    folder = default_output(path.stem) if folder is None else folder
    if ".." in folder.parts:  # what is before it need not be there
        folder = Path(os.path.realpath(folder))
    return read_study(path), folder
