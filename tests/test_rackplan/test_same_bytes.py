"""Hash seed, locale, folder and processor change no byte of what commands write (``benchmarks/same_bytes.py``)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from helpers import script


@pytest.fixture(scope="module")
def same_bytes() -> Any:
    return script("benchmarks/same_bytes.py")


def test_what_differs_is_named(same_bytes: Any) -> None:
    assert same_bytes.differing({"a": "1", "b": "2"}, {"a": "1", "b": "3", "c": "4"}) == ["b", "c"]
    assert (
        same_bytes.lacking(same_bytes.Circumstance("other", {"LC_ALL": "xx_YY.UTF-8"}))
        == "no locale xx_YY.UTF-8"
    )


@pytest.mark.parametrize(
    "names",
    [
        ("plan again",),
        pytest.param(("plan", "score", "export", "draw", "study"), marks=pytest.mark.wide),
    ],
)
def test_the_same_bytes(same_bytes: Any, tmp_path: Path, names: tuple[str, ...]) -> None:
    processor = same_bytes.PROCESSORS["no AVX, AVX2, AVX-512 nor FMA"]
    other = same_bytes.Circumstance(
        "other", {"PYTHONHASHSEED": "7", "LC_ALL": "C", **processor}, folder="mit Räumen"
    )
    first = same_bytes.digests(same_bytes.FIRST, tmp_path, names)
    assert len(first) >= 4
    assert not any("ended with" in name for name in first)
    assert same_bytes.differing(first, same_bytes.digests(other, tmp_path, names)) == []
