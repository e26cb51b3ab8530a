"""A file that was not there before, whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from topology.errors import InputError


def require_new(path: Path) -> None:
    """Refuse a path that is taken.

    Raises
    ------
    InputError
        If something is there, even a link that leads nowhere.
    """
    if os.path.lexists(path):
        raise InputError(f"-o {path}: it exists, and is not overwritten; choose another -o or remove it.")


def write_new(path: Path, data: bytes) -> None:
    """Write ``data`` to a new file: it appears with all of it, and never in place of another.

    Raises
    ------
    InputError
        If something is there, or the folder cannot be written to.
    """
    require_new(path)
    try:
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".rackplan-") as folder:
            aside = Path(folder) / "new"
            aside.write_bytes(data)  # not mkstemp: the file gets the rights that the umask leaves
            os.link(aside, path)
    except FileExistsError:
        require_new(path)
        raise
    except OSError as error:
        raise InputError(f"{path}: cannot write there ({error.strerror}); choose another -o.") from None
