"""Files written whole or not at all."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from topology.errors import InputError
from topology.staging import is_staged, staging, unwritable, write_out

_WAIT_S = 10.0
"""Seconds to wait for another process that writes the same file: it takes milliseconds."""


def write_whole(path: Path, data: bytes, *, new: bool = False) -> None:
    """Write ``data`` to ``path``: a reader sees all of it, or the old file. A link is followed to its file.

    Raises
    ------
    InputError
        If the folder does not exist or cannot be written to, something other than a file that may be overwritten is
        there, or with ``new`` anything is.
    """
    try:
        if is_staged(path):
            write_out(path, data)
            return
        whole = path if new else Path(os.path.realpath(path))
    except OSError as error:
        raise unwritable(path, error) from None
    if not new:
        require_file(path)
    write_all({whole: data}, new=new, called=path)


def write_all(files: Mapping[Path, bytes], *, new: bool = False, called: Path | None = None) -> None:
    """Write several files of one folder, all of them or none; ``called``: what messages call the one that it is.

    Raises
    ------
    InputError
        As :func:`write_whole`.
    """
    if new:
        for path in files:
            require_new(path)
    first = next(iter(files))
    folder = first.parent
    if not folder.is_dir():
        raise InputError(
            f"{called or first}: cannot write there ({folder} is no folder); choose another `output`."
        )
    with staging(folder, name=first.name, wait_s=_WAIT_S, called=called or first) as made:
        for path, data in files.items():
            try:
                write_out(made.folder / path.name, data)
            except OSError as error:
                raise unwritable(called or path, error) from None
        if new:
            for path in files:
                require_new(path)
        made.commit(once=new)


def require_file(path: Path) -> None:
    """Refuse a path for a file that no file can be at, or one that is not to be overwritten.

    Raises
    ------
    InputError
        If a folder, a pipe or a device is there, or a file that nobody may write.
    """
    try:
        mode = path.stat().st_mode
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise unwritable(path, error) from None
        return  # nothing there, or said where it is written
    if stat.S_ISDIR(mode):
        raise InputError(f"{path}: it is a folder; choose another `output`.")
    if not stat.S_ISREG(mode):
        raise InputError(f"{path}: it is no file that can be replaced; choose another `output`.")
    if not mode & 0o222:
        raise InputError(f"{path}: it is read-only; choose another `output`, or let it be written.")


def require_place(path: Path) -> None:
    """Refuse a path for a file that cannot be written, before what is to be written is computed.

    Raises
    ------
    InputError
        As :func:`write_whole`.
    """
    require_file(path)
    folder = Path(os.path.realpath(path)).parent
    if not folder.is_dir():
        raise InputError(f"{path}: cannot write there ({folder} is no folder); choose another `output`.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"{path}: cannot write there (no permission); choose another `output`.")


def require_new(path: Path) -> None:
    """Refuse a path that is taken.

    Raises
    ------
    InputError
        If something is there, even a link that leads nowhere.
    """
    if os.path.lexists(path):
        raise InputError(
            f"`output` {path}: it exists, and is not overwritten; choose another `output` or remove it."
        )
