"""Files written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from topology.errors import InputError


def write_whole(path: Path, data: bytes) -> None:
    """Write ``data`` to ``path`` by way of a file beside it: a reader sees all of it, or the old file.

    Raises
    ------
    InputError
        If the folder does not exist or cannot be written to.
    """
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise InputError(f"{path}: cannot write there ({error.strerror}); choose another `output`.") from None
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o666 & ~_umask())
        Path(name).replace(path)
    except OSError as error:
        Path(name).unlink(missing_ok=True)
        raise InputError(f"{path}: cannot write there ({error.strerror}); choose another `output`.") from None
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


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
