"""Worker: price points one by one within their time limits, recording failures."""

from __future__ import annotations

import faulthandler
import hashlib
import math
import os
import platform
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from rackplan.digests import read_in
from rackplan.studies.options import NAMED_FILES, Kind, Value
from rackplan.studies.price import price
from rackplan.studies.rows import FAILED, INFEASIBLE, OK, TIMEOUT, Row, version
from rackplan.studies.spec import Point
from topology.base.errors import InfeasibleError, InputError, NoAnswerError, RackplanError, one_line

DIGITS = 12
"""Significant digits of row figures; the last digits of a double depend on the processor."""
_AGAIN_S = 0.1
"""Seconds between time-limit exceptions; one raised in a finalizer or callback is lost."""
_HARD_S = 60.0
"""Seconds beyond twice the limit after which the process is ended, since C code may ignore signals."""
_NEEDED = ("placement.planner", "placement.joint", "ortools.sat.python.cp_model")
"""Imported before the first point, so that a time limit never interrupts an import."""
_T = TypeVar("_T")


class _TimeLimit(BaseException):
    """A point exceeded its time limit; not an ``Exception``, so that no handler catches it."""


@dataclass(frozen=True)
class Job:
    """Data common to all points of a study.

    Attributes
    ----------
    files:
        The path of each text of an option that is the name of a file.
    version:
        Of the rackplan that every worker must have.
    """

    kind: Kind
    limit_s: float
    files: Mapping[str, str]
    version: str


def run_points(job: Job, points: Sequence[Point]) -> list[Row]:
    """Return the rows of some points.

    Raises
    ------
    InputError
        If this worker has other code than the study was begun with.
    """
    _prepare()
    if version() != job.version:
        raise InputError(
            f"{platform.node()} has rackplan {version()}, but the study runs {job.version}; code or catalog differ. "
            "All rows are kept; use the code of the study on every machine."
        )
    return [_with_typed_names(run_point(job, point), job.files) for point in points]


def _located(value: Value, files: Mapping[str, str]) -> Value:
    """Return an option with the paths of the files that it names."""
    match value:
        case str():
            return files.get(value, value)
        case list():
            return [files.get(name, name) for name in value]
        case dict():
            return {files.get(name, name): share for name, share in value.items()}
    return value


@cache
def _prepare() -> None:
    """Set up a worker process: it ignores Ctrl-C and ends with the main process."""
    parent = os.getppid()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()
    for name in _NEEDED:
        import_module(name)


def _with_typed_names(row: Row, files: Mapping[str, str]) -> Row:
    """Return a row with file names as in the study, since paths differ between machines."""
    for name, path in sorted(files.items(), key=lambda one: -len(one[1])):
        row = {key: cell.replace(path, name) if isinstance(cell, str) else cell for key, cell in row.items()}
    return row


def run_point(job: Job, point: Point) -> Row:
    """Return the row of one point: its figures, or the reason for their absence."""
    begun, cpu = time.perf_counter(), time.process_time()
    options = dict(point.options)
    options |= {name: _located(options[name], job.files) for name in NAMED_FILES if name in options}
    figures: dict[str, Any] = {}
    status, reason = OK, None
    try:
        figures = _in_time(job.limit_s, lambda: price(job.kind, options))
    except _TimeLimit:
        status, reason = TIMEOUT, late(job.limit_s)
    except InfeasibleError as error:
        status, reason = INFEASIBLE, str(error)
    except NoAnswerError as error:
        status, reason = TIMEOUT, str(error)
    except (RackplanError, OSError, MemoryError) as error:
        status, reason = FAILED, str(error) or type(error).__name__
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a defect that one point meets must not end the others
        status, reason = FAILED, f"a defect: {type(error).__name__}: {one_line(error)}"
    return {
        **{name: rounded(value) for name, value in figures.items()},
        "digest": point.digest,
        "status": status,
        "reason": reason,
        "seconds": round(time.perf_counter() - begun, 6),
        "cpu_s": round(time.process_time() - cpu, 6),
        "host": platform.node(),
        "finished": datetime.now(UTC),
    }


def longest_s(limit_s: float) -> float:
    """Return the seconds after which the process of a point is ended."""
    return 2 * limit_s + _HARD_S


def late(limit_s: float) -> str:
    """Return the reason for a point that exceeded its time limit."""
    return f"exceeded its time limit of {limit_s:g} s (`limit_s` of the study)."


def rounded(value: object) -> object:
    """Return a figure to :data:`DIGITS` digits; None for NaN and infinity."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    return value


def _in_time(limit_s: float, work: Callable[[], _T]) -> _T:
    """Return the result of ``work``; raise :class:`_TimeLimit` after ``limit_s`` seconds."""
    over = rung = False

    def ring(*_: object) -> None:
        nonlocal rung
        rung = True
        if not over:
            raise _TimeLimit

    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        before = signal.signal(signal.SIGALRM, ring)
        faulthandler.dump_traceback_later(longest_s(limit_s), exit=True, file=nowhere)
        try:
            try:
                signal.setitimer(signal.ITIMER_REAL, limit_s, _AGAIN_S)
                done = work()
            except Exception:
                if not rung:  # otherwise it is what an exception in a callback of C code left behind
                    raise
            finally:
                over = True
        finally:
            over = True  # again: a ring may come between the end of the work and the first
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
            faulthandler.cancel_dump_traceback_later()
    if rung:
        raise _TimeLimit
    return done


Shipped = Mapping[str, tuple[Path, Mapping[Path, bytes]]]
"""The last two parts of the path of each file or folder, by name, and the content of each file there."""


def pack(files: Mapping[str, str]) -> Shipped:
    """Return file contents for workers on other machines."""
    shipped = {}
    for text, path in ((text, Path(name)) for text, name in files.items()):
        above = path.parent.parent
        inner = read_in(path) if path.is_dir() else [path]
        content = {file.relative_to(above): file.read_bytes() for file in inner}
        shipped[text] = path.relative_to(above), content
    return shipped


def unpack(shipped: Shipped) -> dict[str, str]:
    """Return the local paths of shipped files, written once per content."""
    paths = {}
    for text, (path, content) in shipped.items():
        folder = _private_folder() / hashlib.sha256(repr(sorted(content.items())).encode()).hexdigest()
        for inner, data in content.items():
            there = folder / inner
            if not there.exists():
                there.parent.mkdir(parents=True, exist_ok=True)
                there.write_bytes(data)
        paths[text] = str(folder / path)
    return paths


@cache
def _private_folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="rackplan-study-"))
