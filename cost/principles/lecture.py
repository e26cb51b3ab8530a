"""What the lecture says, beside which our figures stand."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import yaml
from pydantic.dataclasses import dataclass

from topology.base.schema import validated


@dataclass(frozen=True)
class Said:
    """A figure of the lecture, and why another is found: empty where it should be the same."""

    value: float | None
    why: str


@cache
def lecture() -> Mapping[str, Said]:
    """Return what the lecture says, by the key of a figure."""
    path = Path(__file__).with_name("lecture.yaml")
    return validated(dict[str, Said], yaml.safe_load(path.read_text(encoding="utf-8")), path.name)
