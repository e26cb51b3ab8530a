"""Files written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import IO

from topology.errors import InputError

_WRITING = ".rackplan-writing-"


def write_whole(path: Path, data: bytes, *, new: bool = False) -> None:
    """Write ``data`` to ``path`` by way of a file beside it: a reader sees all of it, or the old file.

    What killed runs left in the folder is removed first.

    Raises
    ------
    InputError
        If the folder does not exist or cannot be written to, or with ``new`` something is at ``path``.
    """
    if new:
        require_new(path)
    _remove_leftovers(path.parent)
    aside = None
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=_WRITING)
        aside = Path(name)
        with os.fdopen(handle, "wb") as file:
            with suppress(OSError):  # a file system that knows no locks
                _lock(file)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            aside.chmod(0o666 & ~_umask())
            if new:
                os.link(aside, path)
            else:
                aside.replace(path)
    except FileExistsError:
        require_new(path)
        raise
    except OSError as error:
        raise InputError(f"{path}: cannot write there ({error.strerror}); choose another `output`.") from None
    finally:
        if aside is not None:
            aside.unlink(missing_ok=True)


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


def _remove_leftovers(folder: Path) -> None:
    """Remove the files that killed runs left: those that nobody writes; an empty one may be about to be."""
    for left in folder.glob(f"{_WRITING}*"):
        with suppress(OSError), left.open("rb") as file:
            _lock(file)
            if left.stat().st_size:
                left.unlink()


def _lock(file: IO[bytes]) -> None:
    """Hold a file until it is closed; OSError where another process holds it."""
    with suppress(ImportError):  # a system without such locks
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def ensure_folder(path: Path) -> None:
    """Create the folder ``path`` if needed, and check that files can be written in it.

    Raises
    ------
    InputError
        If it is a file, or cannot be created or written to.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except FileExistsError:
        raise InputError(f"{path}: it is a file; `output` wants a folder.") from None
    except OSError as error:
        raise InputError(
            f"{path}: cannot write in that folder ({error.strerror}); choose another `output`."
        ) from None


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
