"""From what a user typed to what the planner takes, with digests of the files that were read."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from cost.loads import ExpertLoads
from cost.model import Model

_LONG_BYTES = 2**24

DEFAULT_LOADS = "lognormal:0.63"
"""The spread of eight real DeepSeek-V3 workloads."""


def accepted_tokens(drafts: int, accept_length: float | None) -> float:
    """Return the tokens a step yields: as given, else as measured for so many drafts.

    Raises
    ------
    MissingFigureError
        If nobody measured so many drafts.
    """
    from cost.calibration.serving import accept_length as measured

    return measured(drafts) if accept_length is None else accept_length


def model_loads(
    model: Model, texts: Sequence[str], seed: int, windows: int | None = None
) -> ExpertLoads | None:
    """Return the loads for ``model``: the user's, or the default synthetic ones; None without experts.

    ``windows`` is the largest number of scenarios that one recording becomes, None for the usual one.

    Raises
    ------
    InputError
        If a file cannot be used, or loads are given for a model without experts.
    """
    from cost.loads import read_loads
    from cost.traces.windows import MOST_WINDOWS
    from topology.errors import InputError

    moe = model.moe
    if moe is None:
        if texts:
            raise InputError(f"--loads {texts[0]}: {model.name} has no routed experts; leave --loads out.")
        return None
    with reading_progress(texts) as on_progress:
        return read_loads(
            list(texts) or [DEFAULT_LOADS],
            moe_layers=model.moe_layers,
            layers=len(model.layers),
            experts=moe.experts,
            seed=seed,
            windows=MOST_WINDOWS if windows is None else windows,
            on_progress=on_progress,
        )


@contextmanager
def reading_progress(texts: Iterable[str]) -> Iterator[Callable[[str, float], None] | None]:
    """Yield what draws how much of a file was read, on a terminal; None where all of ``texts`` are short."""
    from rackplan.progress import progress

    if not any(_bytes_below(Path(text)) > _LONG_BYTES for text in texts):
        yield None
        return
    with progress() as reporter:
        reporter.stage("opening recordings")
        yield lambda path, fraction: reporter.stage(f"reading {Path(path).name}, {fraction:.0%}")


def _bytes_below(path: Path) -> int:
    """Return the size of a file, or of the files in a folder; 0 where there is none."""
    try:
        files = list(path.iterdir()) if path.is_dir() else [path]
        return sum(file.stat().st_size for file in files if file.is_file())
    except (OSError, ValueError):
        return 0


def speeds(text: str) -> list[float]:
    """Parse ``25,50,100``: speeds per user to compare at.

    Raises
    ------
    InputError
        If it is not numbers above 0 with commas between them.
    """
    import math

    from topology.errors import InputError

    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        values = []
    if not values or any(not math.isfinite(value) or value <= 0 for value in values):
        raise InputError(f"--tok-s-user {text}: expected numbers above 0 with commas, like 25,50,100.")
    return values


def digests(texts: Iterable[str]) -> dict[str, str]:
    """Return the SHA-256 of those of ``texts`` that are files, and of files in folders, by the name typed."""
    found = {}
    for text in texts:
        path = Path(text)
        inner = sorted(path.iterdir()) if path.is_dir() else []
        for name, one in ((text, path), *((f"{text}/{file.name}", file) for file in inner)):
            if one.is_file():
                with one.open("rb") as file:
                    found[name] = hashlib.file_digest(file, "sha256").hexdigest()
    return found
