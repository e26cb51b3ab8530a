"""What a worker does: price points one after the other, each within its limit, whatever goes wrong in it."""

from __future__ import annotations

import faulthandler
import hashlib
import math
import os
import platform
import shutil
import signal
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

from rackplan.digests import read_in
from rackplan.studies.options import Kind, Value
from rackplan.studies.price import price
from rackplan.studies.statuses import FAILED, INFEASIBLE, OK, TIMEOUT
from topology.base.errors import InfeasibleError, NoAnswerError, RackplanError, one_line

DIGITS = 12
"""Significant digits of the figures of a row: the last ones of a double depend on the processor."""
CHUNK_S = 0.25
"""Seconds after which a worker hands over what it has: what a kill may lose beside the point that it is at."""
_CUSHION_S, _CUSHION = 2.0, 0.1
"""What a point that does not react has beyond its limit, in seconds and as a part of it, before its worker ends."""
_AGAIN_S = 0.1
"""Seconds between the exceptions that such a point gets."""

_NEEDED: Mapping[Kind, Sequence[str]] = {
    "score": ("rackplan.library", "placement.layouts.fitting"),
    "sweep": ("rackplan.library", "rackplan.work", "cost.layouts"),
    "plan": ("rackplan.library", "placement.planner", "ortools.sat.python.cp_model"),
    "fleet": ("rackplan.library", "placement.fleet.fleet", "ortools.sat.python.cp_model"),
}
_T = TypeVar("_T")
Task = tuple[int, str, dict[str, Value]]
"""Number, digest and options of a point."""
Shipped = Mapping[str, Mapping[str, bytes]]
"""Content of files by the text that names them: of a folder by the names in it, of a file under an empty name."""


class _TimeLimit(BaseException):
    """A point took longer than it may; not an ``Exception``, so that nobody handles it on the way."""


def load(kind: Kind) -> None:
    """Import what points of a kind need: what a process reads once is of no point."""
    for name in _NEEDED[kind]:
        import_module(name)


def run_points(
    kind: Kind, tasks: Sequence[Task], limit_s: float, files: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Return the rows of the first of some points, in their order: at least one, more as :data:`CHUNK_S` allows.

    ``files`` has the path of each text of an option that is the name of a file.
    """
    load(kind)
    parent, begun = os.getppid(), time.monotonic()
    rows: list[dict[str, Any]] = []
    for number, digest, options in tasks:
        row = run_point(kind, options, limit_s, lambda text: files.get(text, text))
        rows.append({**_as_typed(row, files), "point": number, "digest": digest})
        if os.getppid() != parent:  # nobody will take the rows
            os._exit(0)
        if time.monotonic() - begun >= CHUNK_S:
            break
    return rows


def _as_typed(row: dict[str, Any], files: Mapping[str, str]) -> dict[str, Any]:
    """Return a row that names files as the study does: where they lie is another place on every machine."""
    if not files:
        return row
    longest = sorted(files.items(), key=lambda one: -len(one[1]))

    def typed(text: str) -> str:
        for name, path in longest:
            text = text.replace(path, name)
        return text

    return {name: typed(value) if isinstance(value, str) else value for name, value in row.items()}


def run_point(
    kind: Kind, options: Mapping[str, Value], limit_s: float, path_of: Callable[[str], str]
) -> dict[str, Any]:
    """Return the row of one point: its figures, or why there are none."""
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
    except (Exception, SystemExit) as error:  # noqa: BLE001 - one point that meets a defect must not end the others
        status, reason = FAILED, f"a defect: {type(error).__name__}: {one_line(error)}"
    return {
        **{name: rounded(value) for name, value in figures.items()},
        "status": status,
        "reason": reason,
        "seconds": round(time.perf_counter() - begun, 6),
        "cpu_s": round(time.process_time() - cpu, 6),
        "host": platform.node(),
        "finished": datetime.now(UTC).isoformat(timespec="milliseconds"),
    }


def late(limit_s: float) -> str:
    """Say that a point took longer than it may."""
    return f"took longer than its limit of {limit_s:g} s (`limit_s` of the study)."


def rounded(value: object) -> object:
    """Return a figure to :data:`DIGITS` digits; None for what is no number."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    return value


def _in_time(limit_s: float, work: Callable[[], _T]) -> _T:
    """Return what ``work`` does, which may take at most so long.

    Python code gets an exception at the limit, and again while it goes on: one that meets a finalizer or a callback
    of the garbage collector is lost there. Code that holds the interpreter gets none: a little later a thread of
    C ends the process, and the study finds its worker dead.
    """
    able = threading.current_thread() is threading.main_thread() and hasattr(signal, "setitimer")
    over = rung = False

    def ring(_number: int, _frame: FrameType | None) -> None:
        nonlocal rung
        rung = True
        if not over:
            raise _TimeLimit

    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        before = signal.signal(signal.SIGALRM, ring) if able else None
        faulthandler.dump_traceback_later(hard_limit_s(limit_s), exit=True, file=nowhere)
        try:
            try:
                if able:
                    signal.setitimer(signal.ITIMER_REAL, limit_s, _AGAIN_S)
                done = work()
            except Exception:
                if rung:  # what an exception in a callback of C code left behind
                    raise _TimeLimit from None
                raise
            finally:
                over = True
        finally:
            over = True  # said twice: a ring may come between the end of the work and the first
            if able:
                signal.setitimer(signal.ITIMER_REAL, 0)
                signal.signal(signal.SIGALRM, before)
            faulthandler.cancel_dump_traceback_later()
    if rung:
        raise _TimeLimit
    return done


def hard_limit_s(limit_s: float) -> float:
    """Return after how many seconds the worker of a point that does not react ends."""
    return limit_s + max(_CUSHION_S, _CUSHION * limit_s)


def pack(texts: Mapping[str, str]) -> dict[str, dict[str, bytes]]:
    """Return the content of files, for a worker that may not have them; ``texts`` has the path of each."""
    found: dict[str, dict[str, bytes]] = {}
    for text, name in texts.items():
        path = Path(name)
        inner = read_in(path) if path.is_dir() else []
        found[text] = {one.name: one.read_bytes() for one in inner} or {"": path.read_bytes()}
    return found


_UNPACKED: dict[str, str] = {}
"""Where this process has put files that came with points, by name and content."""


def unpack(shipped: Shipped, paths: Mapping[str, str]) -> dict[str, str]:
    """Return where files lie that came with points, once for each content; names end as ``paths`` do."""
    found = {}
    for text, content in shipped.items():
        marks = hashlib.sha256(f"{text}\0{Path(paths[text]).parts[-2:]}".encode())
        for name, data in sorted(content.items()):
            marks.update(name.encode() + b"\0" + hashlib.sha256(data).digest())
        key = marks.hexdigest()
        if key not in _UNPACKED:
            _UNPACKED[key] = _put(key, Path(paths[text]), content)
        found[text] = _UNPACKED[key]
    return found


def _put(key: str, like: Path, content: Mapping[str, bytes]) -> str:
    """Write files into a folder named by their content, called as they were where they came from.

    Workers of one user share it, and the next run finds it: workers are killed more often than they end.
    """
    above = _ours() / key
    name = Path(like.parent.name or "files") / like.name
    if not _whole(above / name, content):
        aside = Path(tempfile.mkdtemp(dir=above.parent))
        for inner, data in content.items():
            there = aside / name / inner if inner else aside / name
            there.parent.mkdir(parents=True, exist_ok=True)
            there.write_bytes(data)
        try:
            aside.rename(above)
        except OSError:
            if not _whole(above / name, content):  # who cleans temporary folders took some of its files
                return str(aside / name)
            shutil.rmtree(aside, ignore_errors=True)  # another worker was faster
    return str(above / name)


def _whole(there: Path, content: Mapping[str, bytes]) -> bool:
    """Whether all files are there, as long as they were."""
    try:
        return all((there / inner).stat().st_size == len(data) for inner, data in content.items())
    except OSError:
        return False


def _ours() -> Path:
    """Return a folder for files that nobody else may write in."""
    user = os.getuid() if hasattr(os, "getuid") else 0
    found = Path(tempfile.gettempdir()) / f"rackplan-study-{user}"
    with suppress(FileExistsError):
        found.mkdir(mode=0o700)
    state = found.lstat()
    if stat.S_ISDIR(state.st_mode) and state.st_uid == user and not state.st_mode & 0o077:
        return found
    return Path(tempfile.mkdtemp(prefix="rackplan-study-"))


def ignore_interrupts() -> None:
    """Leave Ctrl-C to the process that began the study: it reaches workers of the same terminal too."""
    with suppress(ValueError):  # not the main thread
        signal.signal(signal.SIGINT, signal.SIG_IGN)
