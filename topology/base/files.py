"""Atomic file writes: files are made in a temporary folder beside their place, then moved there.

What a killed run leaves under such a name is never moved, opened or followed.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path

from topology.base.errors import InputError, input_name

TEMPORARY = ".rackplan-"
"""How the names of temporary folders begin; the rest is random."""
_WRITTEN: ContextVar[list[Path] | None] = ContextVar("_WRITTEN", default=None)


@contextmanager
def recording_written() -> Iterator[list[Path]]:
    """Yield the folders and files that are written while the block runs."""
    written: list[Path] = []
    token = _WRITTEN.set(written)
    try:
        yield written
    finally:
        _WRITTEN.reset(token)


def write_whole(path: Path, data: bytes) -> None:
    """Write ``data`` to ``path``: a reader sees all of it, or the old file.

    Raises
    ------
    InputError
        As :func:`require_place`, or if the file cannot be written.
    """
    target = require_place(path)
    _write(path, target.parent, {target.name: data})


def write_new(files: Mapping[Path, bytes]) -> None:
    """Write files of one folder, none of which is there yet.

    Raises
    ------
    InputError
        As :func:`require_place`, or if one of them is there or cannot be written.
    """
    for path in files:
        require_new(path)
    targets = [require_place(path) for path in files]
    named = {path.name: data for path, data in zip(targets, files.values(), strict=True)}
    _write(next(iter(files)), targets[0].parent, named, new=True)


def write_folder(folder: Path, files: Mapping[str, bytes], *, gone: Iterable[str] = ()) -> None:
    """Write files into a folder by their names in it, and remove those that are ``gone``.

    All are made before the first is moved. A new folder appears with all of them; into one that is there they are
    moved one after another, in their order.

    Raises
    ------
    InputError
        As :func:`require_folder`, or if one of them cannot be written.
    """
    gone = tuple(gone)
    _write(folder, require_folder(folder, (*files, *gone)), files, gone=gone)


def _write(
    target: Path, folder: Path, files: Mapping[str, bytes], *, gone: Iterable[str] = (), new: bool = False
) -> None:
    base = _nearest(folder)
    inner = folder.relative_to(base)
    aside = base / f"{TEMPORARY}{secrets.token_hex(8)}"
    try:
        aside.mkdir()
    except OSError as error:
        raise unwritable(target, error) from None
    try:
        for name, data in files.items():
            _make(aside / inner / name, data, folder / name)
        if (written := _WRITTEN.get()) is not None:
            written.append(target)
        if inner.parts:
            (aside / inner.parts[0]).rename(base / inner.parts[0])
        else:
            for name in gone:
                _remove(folder, name)
            for name in files:
                if new:
                    require_new(folder / name)
                (folder / name).parent.mkdir(exist_ok=True)
                (aside / name).replace(folder / name)
    except OSError as error:
        raise unwritable(target, error) from None
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _make(path: Path, data: bytes, replaced: Path) -> None:
    """Write a new file out to the disk, with the permissions of the one that it replaces."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    with suppress(OSError):
        shutil.copymode(replaced, path)


def _remove(folder: Path, name: str) -> None:
    """Remove a file of a folder, and the folder in it that it leaves empty."""
    (folder / name).unlink(missing_ok=True)
    for above in Path(name).parents[:-1]:
        with suppress(OSError):
            (folder / above).rmdir()


def _nearest(path: Path) -> Path:
    """Return the nearest folder at or above a path."""
    return next(folder for folder in (path, *path.parents) if folder.is_dir())


def require_unlinked(path: Path, *names: str) -> Path:
    """Return where a path really is that will be written, or a folder with files of these ``names`` in it.

    Raises
    ------
    InputError
        If it is a link, or a folder of the working folder on the way to it or one of ``names`` is: what lies in a
        folder must not choose the file that is written. Links outside the working folder are followed.
    """
    try:
        cwd = Path.cwd()
        resolved, parts = (Path(path.anchor), path.parts[1:]) if path.is_absolute() else (cwd, path.parts)
        for number, part in enumerate(parts, 1):
            step = resolved / part
            if step.is_relative_to(cwd) or number == len(parts):
                _refuse_link(path, step)
            resolved = Path(os.path.realpath(step))
        for name in names:
            for inner in (*reversed(Path(name).parents[:-1]), Path(name)):
                _refuse_link(path / name, resolved / inner)
    except (OSError, ValueError) as error:
        raise unwritable(path, error) from None
    return resolved


def _refuse_link(path: Path, step: Path) -> None:
    if step.is_symlink():
        raise InputError(
            f"{path}: {step} is a symbolic link, which is not followed; remove it, or choose another "
            f"{input_name('path')}."
        )


def require_place(path: Path) -> Path:
    """Return where a file really goes, before what is to be written is computed.

    Raises
    ------
    InputError
        If there is a link (:func:`require_unlinked`), its folder does not exist or cannot be written to, or something
        other than a file that may be overwritten is there.
    """
    target = require_unlinked(path)
    _require_file(path, target)
    if not target.parent.is_dir():
        raise InputError(
            f"{path}: cannot write there ({target.parent} is not a folder); choose another {input_name('path')}."
        )
    _require_access(path, target.parent)
    return target


def require_folder(folder: Path, names: Iterable[str] = ()) -> Path:
    """Return where a folder really is, which files of these ``names`` can be written into; it need not exist.

    Raises
    ------
    InputError
        If there is a link (:func:`require_unlinked`), it is a file or cannot be written to, or something other than
        files that may be overwritten has these names.
    """
    names = tuple(names)
    target = require_unlinked(folder, *names)
    if target.exists() and not target.is_dir():
        raise InputError(f"{folder}: it is a file; {input_name('path')} must be a folder.")
    for name in names:
        _require_file(folder / name, target / name)
    _require_access(folder, _nearest(target))
    return target


def _require_file(path: Path, target: Path) -> None:
    """Reject a path that no file can be at, or one that is not to be overwritten."""
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise unwritable(path, error) from None
    if stat.S_ISDIR(mode):
        raise InputError(f"{path}: it is a folder; choose another {input_name('path')}.")
    if not stat.S_ISREG(mode):
        raise InputError(f"{path}: it is not a regular file; choose another {input_name('path')}.")
    if not mode & 0o222:
        raise InputError(
            f"{path}: it is read-only; choose another {input_name('path')}, or make it writable."
        )


def _require_access(path: Path, folder: Path) -> None:
    if not os.access(folder, os.W_OK | os.X_OK):
        raise unwritable(path, PermissionError(errno.EACCES, "no permission"))


def require_new(path: Path) -> None:
    """Reject an existing path.

    Raises
    ------
    InputError
        If something is there, even a link that leads nowhere.
    """
    if os.path.lexists(path):
        raise InputError(
            f"it exists and will not be overwritten; choose another {input_name('path')}, or remove it.",
            field="path",
            value=path,
        )


def unwritable(path: Path, error: Exception) -> InputError:
    """Return the user error for a failed write."""
    return InputError(
        f"{path}: cannot write there ({getattr(error, 'strerror', None) or error}); choose another "
        f"{input_name('path')}."
    )


@contextmanager
def scratch() -> Iterator[Path]:
    """Yield a folder for temporary files, which goes at the end of the block.

    Raises
    ------
    InputError
        If there is no place for temporary files.
    """
    try:
        folder = tempfile.TemporaryDirectory(prefix="rackplan-", ignore_cleanup_errors=True)
    except OSError as error:
        raise no_room(error) from None
    with folder as name:
        yield Path(name)


def no_room(error: OSError) -> InputError:
    """Return the user error for a failed write of a temporary file."""
    return InputError(
        f"cannot write temporary files ({error.strerror}); set TMPDIR to a folder with free space."
    )
