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
from rackplan.studies.columns import FAILED, INFEASIBLE, OK, TIMEOUT, Row
from rackplan.studies.options import Kind, Value
from rackplan.studies.price import price
from rackplan.studies.spec import Point
from rackplan.studies.store import version
from topology.base.errors import InfeasibleError, InputError, NoAnswerError, RackplanError, one_line

DIGITS = 12
"""Significant digits of row figures; the last digits of a double depend on the processor."""
_AGAIN_S = 0.1
"""Seconds between time-limit exceptions; one raised in a finalizer or callback is lost."""
_HARD_S = 60.0
"""Seconds beyond twice the limit after which the process is ended, since C code may ignore signals."""
_NEEDED = (
    "rackplan.answers",
    "cost.layouts",
    "placement.layouts.fitting",
    "placement.fleet.fleet",
    "placement.planner",
    "ortools.sat.python.cp_model",
)
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
    rows = []
    for point in points:
        row = run_point(job.kind, point.options, job.limit_s, lambda text: job.files.get(text, text))
        rows.append({**_with_typed_names(row, job.files), "digest": point.digest})
    return rows


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


def run_point(kind: Kind, options: Mapping[str, Value], limit_s: float, path_of: Callable[[str], str]) -> Row:
    """Return the row of one point: its figures, or the reason for their absence."""
    begun, cpu = time.perf_counter(), time.process_time()
    figures: dict[str, Any] = {}
    status, reason = OK, None
    try:
        figures = _in_time(limit_s, lambda: price(kind, options, path_of))
    except _TimeLimit:
        status, reason = TIMEOUT, late(limit_s)
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
        "status": status,
        "reason": reason,
        "seconds": round(time.perf_counter() - begun, 6),
        "cpu_s": round(time.process_time() - cpu, 6),
        "host": platform.node(),
        "finished": datetime.now(UTC),
    }


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
        faulthandler.dump_traceback_later(2 * limit_s + _HARD_S, exit=True, file=nowhere)
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


Shipped = Mapping[str, tuple[str, Mapping[str, bytes]]]
"""Content of each file or folder by name: for folders by name inside, for files under ``""``."""


def pack(files: Mapping[str, str]) -> Shipped:
    """Return file contents for workers on other machines."""
    found = {}
    for text, name in files.items():
        path = Path(name)
        inner = read_in(path) if path.is_dir() else []
        found[text] = name, {one.name: one.read_bytes() for one in inner} or {"": path.read_bytes()}
    return found


def unpack(shipped: Shipped) -> dict[str, str]:
    """Return the local paths of shipped files, written once per content; the last two path parts are kept."""
    found = {}
    for text, (name, content) in shipped.items():
        key = hashlib.sha256(repr((name, sorted(content.items()))).encode()).hexdigest()
        path = _private_folder() / key / Path(name).parent.name / Path(name).name
        for inner, data in content.items():
            there = path / inner
            if not there.exists():
                there.parent.mkdir(parents=True, exist_ok=True)
                there.write_bytes(data)
        found[text] = str(path)
    return found


@cache
def _private_folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="rackplan-study-"))
