"""From what a user typed to what the planner takes, with digests of the files that were read."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cost.loads import ExpertLoads
    from cost.model import Model

__all__ = ["DEFAULT_LOADS", "digests", "model_loads", "speeds"]

DEFAULT_LOADS = "lognormal:0.63"
"""The spread of eight real DeepSeek-V3 workloads."""


def model_loads(model: Model, texts: Sequence[str], seed: int) -> ExpertLoads | None:
    """Return the loads for ``model``: the user's, or the default synthetic ones; None without experts.

    Raises
    ------
    InputError
        If a file cannot be used, or loads are given for a model without experts.
    """
    from cost.load_files import read_loads
    from topology.errors import InputError

    moe = model.moe
    if moe is None:
        if texts:
            raise InputError(f"--loads {texts[0]}: {model.name} has no routed experts; leave --loads out.")
        return None
    return read_loads(
        list(texts) or [DEFAULT_LOADS],
        moe_layers=model.moe_layers,
        layers=len(model.layers),
        experts=moe.experts,
        seed=seed,
    )


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
    """Return the SHA-256 of those of ``texts`` that are files, by the name that was typed."""
    found = {}
    for text in texts:
        path = Path(text)
        if path.is_file():
            with path.open("rb") as file:
                found[text] = hashlib.file_digest(file, "sha256").hexdigest()
    return found
