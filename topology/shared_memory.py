"""Semaphores that have names in shared memory: those of a process that was killed stay there until somebody looks.

Whoever makes them notes their names in a folder of :func:`topology.staging.scratch`; who removes that folder, at the
end or at the next start, removes them. A name has random letters: it is never another process's.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from topology.errors import InputError
from topology.reading import read_bytes

_SHARED = Path("/dev/shm")  # noqa: S108 - looked into, never written
_NAMES = "semaphores"
_OF_LOKY = re.compile(r"sem\.loky-(\d+)-\w{1,40}", re.ASCII)
_MOST_BYTES = 1_000_000


def note_semaphores(folder: Path) -> None:
    """Note the names of this process's semaphores in a folder, in place of those noted before."""
    with suppress(OSError):
        found = [_OF_LOKY.fullmatch(path.name) for path in _SHARED.iterdir()]
        names = sorted(one[0] for one in found if one and int(one[1]) == os.getpid())
        (folder / _NAMES).write_text("\n".join(names), encoding="ascii")


def remove_noted(folder: Path) -> None:
    """Remove semaphores whose names are noted in a folder, if there are any: the process that made them is gone."""
    try:
        names = (
            read_bytes(folder / _NAMES, str(folder / _NAMES), most_bytes=_MOST_BYTES)
            .decode("ascii")
            .split("\n")
        )
    except (OSError, InputError, ValueError):
        return
    for name in names:
        path = _SHARED / name
        with suppress(OSError):
            if _OF_LOKY.fullmatch(name) and path.lstat().st_uid == os.geteuid():
                path.unlink()
