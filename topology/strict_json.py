"""JSON of somebody else's: no key twice in one object."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def unique_keys(error: Callable[[str], Exception]) -> Callable[[list[tuple[str, Any]]], dict[str, Any]]:
    """Return an ``object_pairs_hook`` that raises ``error`` of a key that stands twice; linear in the pairs."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in pairs:
            if key in found:
                raise error(key)
            found[key] = value
        return found

    return unique
