"""Files that are written with a ``plan.json``: each has its digest, and one that has another is of another plan."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from topology.base.errors import InputError
from topology.base.files import TEMPORARY
from topology.base.reading import read_bytes

_NAMES = ("moves.json", "report.html", "topology.svg")
DIGESTED = "plan.json beside it"
_DIGEST = re.compile(rb'(?:SHA-256 of plan\.json beside it: |"plan_sha256": ")([0-9a-f]{64})')


def plan_digest(plan: bytes) -> str:
    """Return the digest of a plan file, SHA-256 in hexadecimal, as the files that are written with it have it."""
    return hashlib.sha256(plan).hexdigest()


def wrong_beside(folder: Path, plan: bytes) -> Iterator[str]:
    """Yield in words which files in the folder of a ``plan.json`` are of another plan, and what a killed run left.

    Nothing is said of files without a digest: an older version or somebody else wrote them.
    """
    digest, foreign = plan_digest(plan).encode(), []
    for name in _NAMES:
        with suppress(OSError, InputError):
            digests = _DIGEST.findall(read_bytes(folder / name, name)) if (folder / name).is_file() else []
            foreign += [name] if digests and digest not in digests else []
    if foreign:
        yield (
            f"{folder}: {', '.join(foreign)}: not of this plan.json (a run was killed while it wrote, files were "
            "mixed, or the plan was edited); write them again by the command that made the plan, or remove them"
        )
    if parts := sorted(path.name for path in folder.glob(f"{TEMPORARY}*")):
        yield f"{folder}: {', '.join(parts)}: of a run that was killed while it wrote; remove it if none writes now"
