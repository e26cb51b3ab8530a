"""One input under watch: what was raised, how long it took, what it grew to, and what it touched."""

from __future__ import annotations

import gc
import os
import resource
import shutil
import signal
import sys
import time
import traceback
import warnings
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from mutations_archives import unpack
from reader import Reader

CPU_S = 5.0
"""What a malformed input under a megabyte may take."""
STOP_S = 40.0
"""When one is stopped; what takes long and is right is counted apart."""
MEMORY = 500 * 2**20
_HERE = Path(__file__).resolve().parent
PACKAGES = ("topology", "cost", "placement", "rackplan")
_ASIDE = ("os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty", "subprocess.Popen", "socket.connect", "socket.bind", "pickle.find_class", "webbrowser.open")  # fmt: skip
"""What a reader never does."""


SCRATCH = "temporary"
"""Where commands make what is gone when they end, in the folder of inputs."""
_CANARY = b"somebody's file\n"


class TooLongError(BaseException):
    """The input is still being read."""


@dataclass(frozen=True)
class Finding:
    """What is wrong with how an input was read.

    Attributes
    ----------
    kind:
        traceback, slow, hang, memory, touched or message.
    where:
        The place in the packages where it was raised; with the kind, what makes two findings one.
    """

    kind: str
    where: str
    words: str


class Watch:
    """Reads inputs one after another in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.touched: list[str] = []
        self._scratch = os.path.realpath(folder / SCRATCH)
        self._watching = False
        self._writes = False
        self._canary = folder / "canary"  # what links in an input lead to: never a file of this machine
        sys.addaudithook(self._hear)
        warnings.simplefilter("error")
        signal.signal(signal.SIGPROF, self._ring)

    def _ring(self, _: int, frame: FrameType | None) -> None:
        raise TooLongError("".join(traceback.format_stack(frame)[-12:]))

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self._watching:
            return
        if event in _ASIDE and not (
            event == "subprocess.Popen" and arguments[0] == sys.executable
        ):  # the doctor's
            self.touched.append(f"{event} {str(arguments)[:100]}")
        elif event == "open":
            path, mode, flags = arguments
            if isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC):
                self._wrote("open", path, follow=not flags & getattr(os, "O_NOFOLLOW", 0))
            elif mode is not None and set(str(mode)) & set("wax+"):
                self._wrote("open", path)
        elif event in (
            "os.rename",
            "os.remove",
            "os.mkdir",
            "os.rmdir",
            "os.link",
            "os.symlink",
            "os.truncate",
            "os.chmod",
            "shutil.rmtree",
        ):
            self._wrote(event, arguments[event in ("os.rename", "os.link", "os.symlink")], follow=False)

    def _wrote(self, event: str, path: object, *, follow: bool = True) -> None:
        if isinstance(path, int) or "__pycache__" in str(path) or str(path) == os.devnull:
            return
        name = Path(os.fsdecode(path))  # type: ignore[arg-type]
        there = Path(os.path.realpath(name if follow else name.parent))
        if there.is_relative_to(self._scratch):  # a command's own work folder, gone when it ends
            return
        if not (self._writes and there.is_relative_to(os.path.realpath(self.folder))):
            self.touched.append(f"{event} {there}")

    def put(self, file: str, data: bytes) -> Path:
        """Write an input; one whose name has no ending is a folder."""
        path = self.folder / file
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        if "." not in file:
            path.mkdir()
            for name, content in unpack(data).items():
                self._put_inside(path, name, content)
        else:
            path.write_bytes(data)
        return path

    @staticmethod
    def _put_inside(path: Path, name: str, content: bytes) -> None:
        link = name.startswith("@")
        parts = [
            part[:100]
            for part in name.lstrip("@").replace("\0", "").split("/")
            if part not in ("", ".", "..")
        ]
        there = path.joinpath(*(parts or ["x"]))
        try:
            there.parent.mkdir(parents=True, exist_ok=True)
            if link:
                there.unlink(missing_ok=True)
                there.symlink_to(os.fsdecode(content))
            elif not there.is_dir() and not there.is_symlink():
                there.write_bytes(content)
        except (OSError, ValueError):
            return  # no such name on this file system

    def look(self, reader: Reader, path: Path) -> tuple[str, list[Finding]]:
        """Read one input; return what came of it (read, refused, defect) and what is wrong."""
        found: list[Finding] = []
        self.touched.clear()
        self._canary.write_bytes(_CANARY)
        self._writes = reader.writes
        before, start = _peak(), time.process_time()
        outcome = "read"
        signal.setitimer(signal.ITIMER_PROF, STOP_S)
        self._watching = True
        try:
            reader.read(path)
        except TooLongError as error:
            outcome, place = "defect", _place(error.__traceback__)
            found.append(Finding("hang", place, str(error)))
        except BaseException as error:  # noqa: BLE001 - that is what is looked for
            outcome, more = _judged(error)
            found += more
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            self._watching = False
        spent, grown = time.process_time() - start, _peak() - before
        if spent > CPU_S and not any(one.kind == "hang" for one in found):
            found.append(
                Finding(
                    "slow" if outcome == "refused" else "long",
                    reader.name,
                    f"{spent:.1f} s of CPU, {outcome}",
                )
            )
        if grown > MEMORY:
            found.append(
                Finding(
                    "memory" if outcome == "refused" else "large",
                    reader.name,
                    f"{grown / 2**20:,.0f} MB, {outcome}",
                )
            )
        found += [
            Finding("touched", f"{reader.name} {what.split(' ')[0]}", what) for what in self.touched[:3]
        ]
        if not self._canary.exists() or self._canary.read_bytes() != _CANARY:
            words = "a file outside of the input was changed"
            found.append(Finding("touched", f"{reader.name} canary", words))
        if grown > 50 * 2**20:
            gc.collect()
            _reset_peak()
        return outcome, found


def _judged(error: BaseException) -> tuple[str, list[Finding]]:
    from topology.errors import RackplanError

    if isinstance(error, RackplanError):
        return "refused", _said(str(error), error)
    if isinstance(error, SystemExit):
        return ("read" if error.code in (None, 0) else "refused"), []
    if isinstance(error, KeyboardInterrupt):
        raise error
    words = "".join(traceback.format_exception(error)[-6:])
    return "defect", [Finding("traceback", f"{type(error).__name__} {_place(error.__traceback__)}", words)]


def _said(text: str, error: BaseException) -> list[Finding]:
    """Judge a message: one line that can be printed."""
    wrong = [c for c in text if not c.isprintable() and c not in "\u00a0\u2007\u2009\u202f\u3000"]
    if wrong or len(text) > 2000 or not text.strip():
        what = f"{wrong[:3]!r}" if wrong else f"{len(text)} characters"
        return [Finding("message", _place(error.__traceback__), f"{what}: {text[:300]!r}")]
    return []


def _place(trace: Any) -> str:
    """Return file and function of the innermost frame in the packages."""
    place = "?"
    while trace is not None:
        code = trace.tb_frame.f_code
        parts = Path(code.co_filename).parts
        package = next((i for i, part in enumerate(parts) if part in PACKAGES), None)
        if (
            package is not None
            and "site-packages" not in parts
            and not code.co_filename.startswith(str(_HERE))
        ):
            place = f"{'/'.join(parts[package:])}:{code.co_name}"
        trace = trace.tb_next
    return place


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 if _LINUX is None else _high_water()


_LINUX = Path("/proc/self/clear_refs") if Path("/proc/self/clear_refs").exists() else None


def _high_water() -> int:
    with open("/proc/self/status", "rb") as file:  # noqa: PTH123 - thousands of times a second
        for line in file:
            if line.startswith(b"VmHWM"):
                return int(line.split()[1]) * 1024
    return 0


def _reset_peak() -> None:
    if _LINUX is not None:
        _LINUX.write_text("5", encoding="ascii")
