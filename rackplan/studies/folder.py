"""The folder of a study: what was asked for and its dataset; a run begins there or goes on."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from rackplan.output import default_output
from rackplan.studies.columns import columns_of
from rackplan.studies.engines import make_engine, require_engine
from rackplan.studies.progress import Progress
from rackplan.studies.result import StudyResult
from rackplan.studies.run import Runner
from rackplan.studies.spec import Files, Point, Study, read_content, study_of
from rackplan.studies.store import Store, read_rows, require_pyarrow, version
from topology.base.errors import InputError
from topology.base.files import TEMPORARY, require_unlinked, write_folder
from topology.base.reading import parse_json, read_text, require_version

RECORD = "study.json"
SCHEMA_VERSION = 1


def open_study(path: Path, folder: Path | None) -> tuple[Study, Path]:
    """Return the study of a ``STUDY.yaml`` or of a folder of results, and the folder that its results are in.

    Raises
    ------
    InputError
        If there is none, or the usual folder for the results of a file is there and holds no study.
    """
    if path.is_dir():
        if folder is not None and os.path.realpath(folder) != os.path.realpath(path):
            raise InputError(
                f"-o {folder}: {path} is a folder of results already; leave -o out to go on with it."
            )
        return _recorded(path)[0], path
    if folder is None:
        folder = default_output(path.stem)
        if folder.exists() and not (folder / RECORD).is_file():
            raise InputError(f"-o is needed: {folder} is there and holds no study.")
    if ".." in folder.parts:  # what is before it need not be there
        folder = Path(os.path.realpath(folder))
    content = read_content(path)
    return study_of(content, str(path), path.parent.resolve()), folder


def _recorded(folder: Path) -> tuple[Study, dict[str, Any]]:
    where = folder / RECORD
    if not where.is_file():
        raise InputError(f"{folder}: it holds no {RECORD}, so no study was begun there; give a STUDY.yaml.")
    record = parse_json(read_text(where, str(where)), str(where))
    version = record.get("schema_version") if isinstance(record, dict) else None
    require_version(version, str(where), SCHEMA_VERSION)
    if not isinstance(record, dict) or version != SCHEMA_VERSION:
        raise InputError(
            f"{where}: schema {str(version)[:20]} is not {SCHEMA_VERSION}, which this rackplan reads and writes."
        )
    return study_of(record.get("study"), str(where), Path(str(record.get("base", ".")))), record


def run_study(
    study: Study,
    folder: Path,
    *,
    engine: str = "local",
    address: str | None = None,
    workers: int | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> StudyResult:
    """Price the points of a study that are not in its folder yet.

    Raises
    ------
    InputError
        If the folder holds another study, the engine cannot run, or nothing can be written.
    """
    if study.search is not None:
        raise InputError("the study has `optimize`: run it with --optimize.")
    require_engine(engine, address)
    interrupted = False
    with opened(study, folder) as ours:
        store = ours.store
        files = Files(study.base)
        points = list(study.points(files))
        _require_ours(store, points, folder)
        progress = Progress(len(points), len(store.digests))
        missing = [point for point in points if point.digest not in store.digests]
        try:
            if missing:
                with ours.at_work(
                    progress, files, engine=engine, address=address, workers=workers, say=say
                ) as runner:
                    runner.run(iter(missing))
        except KeyboardInterrupt:
            interrupted = True
        if not interrupted:
            store.order({point.digest: point.number for point in points})
    return StudyResult(study, folder, read_rows(folder), progress, interrupted)


@dataclass(frozen=True, eq=False)
class Opened:
    """A study whose folder is ours: the store in it, and the columns of its rows."""

    study: Study
    store: Store
    columns: Mapping[str, str]

    @contextmanager
    def at_work(
        self,
        progress: Progress,
        files: Files,
        *,
        engine: str,
        address: str | None,
        workers: int | None,
        say: Callable[[str], None],
    ) -> Iterator[Runner]:
        """Yield what prices points into the store; its workers end with it."""
        kind, limit_s = self.study.kind, self.study.limit_s
        made = make_engine(engine, kind, limit_s, files.paths, workers=workers, address=address)
        try:
            yield Runner(
                made,
                self.store,
                kind=kind,
                columns=self.columns,
                limit_s=limit_s,
                progress=progress,
                say=say,
            )
        finally:
            made.close()


@contextmanager
def opened(study: Study, folder: Path, *, keep: bool = False) -> Iterator[Opened]:
    """Yield a study in its folder, which nobody else has meanwhile.

    Raises
    ------
    InputError
        If pyarrow is missing, another run is at work there, or the folder holds something else.
    """
    require_pyarrow()
    columns = _begun(study, folder)
    with _alone(folder):
        store = Store(folder, columns, keep=keep)
        try:
            with _terminable():
                yield Opened(study, store, columns)
        finally:
            store.close()


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep a second run out while the block runs."""
    try:
        import fcntl
    except ImportError:  # a system without such locks
        yield
        return
    handle = os.open(require_unlinked(folder), os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise InputError(
            f"{folder}: another rackplan is writing there; wait for it, or choose another -o."
        ) from None
    finally:
        os.close(handle)


@contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM, with which schedulers end what they run, be as Ctrl-C."""

    def end(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _begun(study: Study, folder: Path) -> dict[str, str]:
    """Write what the study is; return the columns of its rows.

    Raises
    ------
    InputError
        If the folder holds a study of another kind or other columns, or of another version of rackplan.
    """
    columns = columns_of(study)
    if (folder / RECORD).is_file():
        before, record = _recorded(folder)
        if record.get("rackplan") != version():
            raise InputError(
                f"{folder}: its rows are of rackplan {str(record.get('rackplan'))[:40]}, and this is {version()}: "
                "code or catalog differ, and one study cannot mix them. Run its STUDY.yaml with a new folder, -o DIR."
            )
        if before.kind != study.kind or columns_of(before) != columns or before.search != study.search:
            raise InputError(f"-o {folder}: it holds another study; choose another -o.")
    elif folder.is_dir() and not all(path.name.startswith(TEMPORARY) for path in folder.iterdir()):
        raise InputError(f"-o {folder}: it holds files and no study; choose a new or an empty folder.")
    record = {
        "schema_version": SCHEMA_VERSION,
        "rackplan": version(),
        "base": str(study.base),
        "study": study.content,
    }
    write_folder(folder, {RECORD: (json.dumps(record, indent=2) + "\n").encode()})
    return columns


def _require_ours(store: Store, points: list[Point], folder: Path) -> None:
    """Refuse rows of points that the study does not have."""
    strange = len(store.digests - {point.digest for point in points})
    if strange:
        raise InputError(
            f"-o {folder}: {strange:,} of its rows are of no point of this study: it, or a file that it names, is "
            "not what it was. Choose another -o."
        )
