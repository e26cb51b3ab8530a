"""Results that appear whole: made in a work folder beside, put in place together; what a kill left is dealt with.

A set of files is made below ``new`` in a work folder, written out to the disk, and ``new`` is renamed ``ready``: from
then on the set counts. Its files are moved into place, and the work folder goes. What a process was killed over is
found by its lock, which ended with it: whoever comes next moves what is ready and removes the rest
(docs/decisions/0055).
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from pathlib import Path, PurePath

from topology.errors import InputError
from topology.interrupts import steady
from topology.reading import read_bytes
from topology.shared_memory import remove_noted

_PREFIX = ".rackplan-"
_IS_WORK = re.compile(r"\.rackplan-[0-9a-f]{12}")
_NEW, _READY, _READY_ONCE, _LOCK = "new", "ready", "ready-once", "lock"
_GONE = ".rackplan-gone"
"""File beside those that are ready: names of files that the set had before and has no more."""
_SHORT_S, _LONG_S, _TURN_S = 0.3, 10.0, 0.01
_MOST_NEAR = 256
"""Folders of one folder that are looked into for what a killed run left."""
_MOST_BELOW = 1_000
"""Names that are looked at in each of them."""
_BUSY = (errno.EAGAIN, errno.EACCES)
_NO_SYNC = (errno.EINVAL, errno.EBADF, errno.ENOTSUP, errno.EACCES, errno.EPERM, errno.ENOSYS, errno.EISDIR)
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.ENOSYS, errno.EXDEV)

PLACED: list[Path] = []
"""Folders and files that this process put in place: what an interruption found written."""


class BusyError(InputError):
    """Another process writes what is asked for."""


@dataclass(frozen=True)
class Staging:
    """Files on their way to a folder.

    Attributes
    ----------
    target:
        The folder, as it was named.
    base, inner:
        The existing folder above it or the folder itself, and the path from there to it.
    work:
        The work folder, in ``base``.
    """

    target: Path
    base: Path
    inner: PurePath
    work: Path

    @property
    def folder(self) -> Path:
        """Where files of the set are made."""
        return self.work / _NEW / self.inner

    def commit(self, *, once: bool = False, gone: Sequence[str] = ()) -> None:
        """Put what was made in place, and remove the files ``gone`` of the folder; ``once``: never over a file.

        Raises
        ------
        InputError
            If it cannot be done; where some of it was, the next start does the rest.
        """
        there = self.base / self.inner
        counts = False
        try:
            for path, _, _ in os.walk(self.work / _NEW):
                _sync(Path(path))
            with ExitStack() as stack:
                stack.enter_context(steady())
                if there != self.base and there.is_dir():  # made by somebody since
                    stack.enter_context(_held(_work(there, "."), _LONG_S, self.target))
                if gone:
                    names = [(self.inner / name).as_posix() for name in gone]
                    write_out(self.work / _NEW / _GONE, json.dumps(names).encode())
                (self.work / _NEW).rename(self.work / (_READY_ONCE if once else _READY))
                counts = True
                _sync(self.work)
                _finish(self.work)
                PLACED.append(self.target)
        except OSError as error:
            if counts:
                raise InputError(
                    f"{self.target}: cannot write there ({error.strerror}); the results are whole in {self.work}, "
                    "and the next rackplan command there puts them in place."
                ) from None
            raise unwritable(self.target, error) from None


@contextmanager
def staging(
    folder: Path, *, name: str = "", wait_s: float = _SHORT_S, called: Path | None = None
) -> Iterator[Staging]:
    """Yield where files for ``folder`` are made, which nobody else has meanwhile; it need not exist.

    ``name`` is that of the one file, or of the first one, that goes there; empty: the folder is the result, which
    messages call as it is ``called``.

    Raises
    ------
    InputError
        If the folder is a file, nothing can be written there, or another process writes the same.
    """
    target = called or folder
    with ExitStack() as stack:
        try:
            base, inner = _split(folder)
            if not base.is_dir():
                raise InputError(f"{target}: it is a file; `output` wants a folder.")
            work = stack.enter_context(_held(_work(base, str(inner / name)), wait_s, target))
            found = Staging(target, base, inner, work)
            found.folder.mkdir(parents=True)
        except OSError as error:
            raise unwritable(target, error) from None
        yield found


@contextmanager
def scratch() -> Iterator[Path]:
    """Yield a folder for temporary files, which goes at the end of the block, or after a kill at the next start.

    Raises
    ------
    InputError
        If there is no place for temporary files.
    """
    base = temporary_folder()
    with ExitStack() as stack:
        try:
            name = f"scratch {os.getpid()} {os.urandom(8).hex()}"
            work = stack.enter_context(_held(_work(base, name), _SHORT_S, base))
            (work / _NEW).mkdir()
        except OSError as error:
            raise no_room(error) from None
        yield work / _NEW


def no_room(error: OSError) -> InputError:
    """Return what a person reads where a temporary file could not be written."""
    return InputError(
        f"{temporary_folder()}: no temporary file can be written there ({error.strerror}); set TMPDIR to a folder "
        "with room."
    )


def temporary_folder() -> Path:
    """Return the folder for temporary files: that of ``TMPDIR``, ``TEMP`` or ``TMP``, else the system's.

    Raises
    ------
    InputError
        If none of them is a folder that can be written to.
    """
    import tempfile

    asked = [os.environ[name] for name in ("TMPDIR", "TEMP", "TMP") if os.environ.get(name)]
    usual = ("/tmp", "/var/tmp")  # noqa: S108 - each work folder there is this user's own
    for one in (tempfile.tempdir, *asked, *usual):
        if one and os.access(one, os.W_OK | os.X_OK) and Path(one).is_dir():
            return Path(one).absolute()
    raise InputError(f"{asked[0] if asked else usual[0]}: no folder for temporary files; set TMPDIR to one.")


def name_temporary_folder() -> None:
    """Tell other libraries where temporary files go: they would look with a file, which a kill leaves there."""
    import tempfile

    with suppress(InputError):
        tempfile.tempdir = str(temporary_folder())


def write_out(path: Path, data: bytes) -> None:
    """Write a file and have the system write it out to the disk."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def is_staged(path: Path) -> bool:
    """Whether a path lies in a work folder: its files need no other one."""
    return any(_IS_WORK.fullmatch(part) for part in path.parts)


def settle(paths: Iterable[Path | str]) -> None:
    """Deal with what killed runs left in or near folders and files, before they are read or written.

    Looked at are the folder that a path is or lies in, the one above, the working folder, and folders of these.

    Raises
    ------
    InputError
        If files are ready there that this process cannot put in place: what lies there is of two sets.
    """
    folders: dict[Path, bool] = {}
    for path in (*paths, "."):
        with suppress(OSError, ValueError):
            base, _ = _split(Path(path))
            base = base if base.is_dir() else base.parent
            for folder in (base, base.parent):
                folders.setdefault(folder, path != ".")
    for folder, needed in folders.items():
        for work in _works(folder):
            _settle(work, needed=needed and work.parent == folder)
    with suppress(InputError):
        for work in _works(temporary_folder(), near=False):
            _settle(work, needed=False)


def _works(folder: Path, *, near: bool = True) -> list[Path]:
    """Return the work folders of a folder and, ``near``, of the folders in it."""
    found: list[Path] = []
    with suppress(OSError), os.scandir(folder) as entries:
        device = folder.stat().st_dev
        inside: list[os.DirEntry[str]] = []
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                continue
            if _IS_WORK.fullmatch(entry.name):
                found.append(folder / entry.name)
            elif near and len(inside) < _MOST_NEAR:
                inside.append(entry)
        for entry in inside:
            with suppress(OSError):  # never into another file system: looking there may mount it
                if entry.stat(follow_symlinks=False).st_dev == device:
                    with os.scandir(entry) as below:
                        names = [
                            one.name for one in islice(below, _MOST_BELOW) if _IS_WORK.fullmatch(one.name)
                        ]
                    found += [folder / entry.name / name for name in names]
    return found


def _settle(work: Path, *, needed: bool) -> None:
    """Finish or remove what lies in a work folder, unless a process is at work there.

    Where what it belongs to is ``needed``, a process that puts its files in place is waited for.
    """
    deadline = time.monotonic() + _LONG_S
    while True:
        ready = _ready(work) if needed else None
        try:
            with _held(work, 0.0, work.parent, make=False):
                return
        except BusyError:
            if ready is None or time.monotonic() > deadline:
                return
            time.sleep(
                _TURN_S
            )  # a process puts its files in place: what lies there is of two sets until then
        except (OSError, InputError) as error:
            if ready is None:
                return
            why = error.strerror if isinstance(error, OSError) else "it is another user's"
            raise InputError(
                f"{work.parent}: a rackplan that was killed left results half-way there, and they cannot be put in "
                f"place ({why}); whoever may write there runs any rackplan command on that folder."
            ) from None


def _split(path: Path) -> tuple[Path, PurePath]:
    """Return the nearest folder or file at or above a path, and the way from there."""
    base = Path(os.path.realpath(path))
    names: list[str] = []
    while not os.path.exists(base) and base != base.parent:  # noqa: PTH110 - no error over a long name
        names.append(base.name)
        base = base.parent
    return base, PurePath(*reversed(names))


def _work(base: Path, name: str) -> Path:
    """Return the work folder for what is called ``name`` in ``base``."""
    return base / f"{_PREFIX}{sha256(os.fsencode(name)).hexdigest()[:12]}"


@contextmanager
def _held(work: Path, wait_s: float, target: Path, *, make: bool = True) -> Iterator[Path]:
    """Yield a work folder with nothing but its lock, which this process holds; it goes at the end of the block.

    Without ``make`` one that is gone is no error.
    """
    handle = None
    try:
        with steady():
            handle = _locked(work, wait_s, target, make=make)
            if handle is not None:
                _finish(work)
        yield work
    finally:
        if handle is not None:
            with steady():
                _leave(work, handle)


def _locked(work: Path, wait_s: float, target: Path, *, make: bool) -> int | None:
    """Return the handle of the lock of a work folder, made if need be; None where it is gone and not to be made."""
    deadline = time.monotonic() + wait_s
    while True:
        try:
            if make:
                work.mkdir()
        except FileExistsError:
            pass  # of a run that was killed, or that is there
        if not _own(work):
            raise InputError(
                f"{target}: {work} is in the way, and not ours; remove it, or choose another `output`."
            )
        try:
            handle = os.open(work / _LOCK, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
        except FileNotFoundError:  # whoever cleans removed the folder
            if not make:
                return None
            continue
        try:
            _lock(handle)
            if _same(handle, work / _LOCK):
                return handle
        except OSError as error:
            if error.errno not in _BUSY:  # a file system that knows no locks
                return handle
            if time.monotonic() > deadline:
                os.close(handle)
                raise BusyError(
                    f"{target}: another rackplan is writing there; wait for it, or choose another `output`."
                ) from None
            time.sleep(_TURN_S)
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _own(work: Path) -> bool:
    """Whether a work folder is a folder and this user's, or not there."""
    try:
        found = work.lstat()
    except FileNotFoundError:
        return True
    return stat.S_ISDIR(found.st_mode) and (not hasattr(os, "geteuid") or found.st_uid == os.geteuid())


def _is_folder(path: Path) -> bool:
    """Whether a folder is there, and no link to one."""
    return path.is_dir() and not path.is_symlink()


def _lock(handle: int) -> None:
    """Hold a file until it is closed; OSError where another process holds it."""
    with suppress(ImportError):  # a system without such locks
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _same(handle: int, path: Path) -> bool:
    """Whether an open file still has its name."""
    try:
        return os.path.samestat(os.fstat(handle), path.lstat())
    except FileNotFoundError:
        return False


def _leave(work: Path, handle: int) -> None:
    """Remove a work folder, unless files are ready in it that could not be put in place, and give its lock back."""
    try:
        if _ready(work) is None:
            _empty(work)
            (work / _LOCK).unlink()
            work.rmdir()
    except OSError:
        pass  # the next start removes it
    finally:
        os.close(handle)


def _ready(work: Path) -> Path | None:
    """Return the folder of files that are whole and only have to be moved; None where there is none."""
    return next((work / name for name in (_READY, _READY_ONCE) if _is_folder(work / name)), None)


def _finish(work: Path) -> None:
    """Put in place what is ready, and remove everything but the lock."""
    ready = _ready(work)
    if ready is not None:
        for name in _gone(ready / _GONE):  # first: nobody finds rows of a study in two files
            _remove(work.parent, PurePath(name))
        _place(ready, work.parent, once=ready.name == _READY_ONCE)
        _sync(work.parent)
    _empty(work)


def _gone(path: Path) -> list[str]:
    """Return the names of the files that a set has no more; none of a list that is not ours."""
    try:
        found = json.loads(read_bytes(path, str(path)))
    except (OSError, ValueError, RecursionError, InputError):
        return []
    return [name for name in found if isinstance(name, str)] if isinstance(found, list) else []


def _place(source: Path, target: Path, *, once: bool) -> None:
    """Move what lies in a folder into another one; as often as it is begun, until nothing is left."""
    for entry in sorted(source.iterdir(), key=lambda path: (path.suffix == ".json", path.name)):
        there = target / entry.name
        if entry.name == _GONE:
            continue
        if entry.is_dir() and not entry.is_symlink():  # what a link leads to is not ours to move
            try:
                entry.rename(there)  # all of it at once where nothing is there, or an empty folder
            except OSError:
                if not there.is_dir():
                    raise
                _place(entry, there, once=once)
                _sync(there)
        elif once:
            _link(entry, there)
        else:
            entry.replace(there)


def _link(source: Path, target: Path) -> None:
    """Move a file where none is; one that is there stays."""
    try:
        os.link(source, target)
    except FileExistsError:
        pass  # itself, before a kill; or another one, made since
    except OSError as error:
        if error.errno not in _NO_LINKS or os.path.lexists(target):
            raise
        source.rename(target)


def _remove(base: Path, name: PurePath) -> None:
    """Remove a file that a set has no more, and its folder where that is empty then."""
    if name.is_absolute() or ".." in name.parts:
        return
    try:
        if not Path(os.path.realpath((base / name).parent)).is_relative_to(os.path.realpath(base)):
            return  # by a link that leads out
        (base / name).unlink()
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        pass
    except ValueError:
        return  # a name that no file can have
    except OSError as error:
        if error.errno not in (errno.ENAMETOOLONG, errno.ELOOP):
            raise
        return
    if len(name.parts) > 1:
        with suppress(OSError):
            (base / name).parent.rmdir()


def _empty(work: Path) -> None:
    remove_noted(work / _NEW)
    for entry in work.iterdir():
        if entry.name != _LOCK:
            shutil.rmtree(entry)


def _sync(folder: Path) -> None:
    """Have the system write out a folder: what is renamed in it is then on the disk; not every one can."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise
        return
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise
    finally:
        os.close(handle)


def unwritable(path: Path, error: OSError) -> InputError:
    """Return what a person reads where something could not be written."""
    return InputError(f"{path}: cannot write there ({error.strerror}); choose another `output`.")
