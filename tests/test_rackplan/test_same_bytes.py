"""Hash seed, locale and folder change no byte of what commands write and print (``benchmarks/same_bytes.py``)."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks/same_bytes.py"


@pytest.fixture(scope="module")
def script() -> Any:
    spec = importlib.util.spec_from_file_location("same_bytes", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["same_bytes"] = module
    spec.loader.exec_module(module)
    return module


def test_what_differs_is_named(script: Any) -> None:
    assert script.differing({"a": "1", "b": "2"}, {"a": "1", "b": "3", "c": "4"}) == ["b", "c"]
    assert script.lacking(script.Circumstance("other", {"LC_ALL": "xx_YY.UTF-8"})) == "no locale xx_YY.UTF-8"


@pytest.mark.parametrize(
    "names", [("plan again",), pytest.param(("plan", "score", "export", "draw"), marks=pytest.mark.wide)]
)
def test_the_same_bytes(script: Any, tmp_path: Path, names: tuple[str, ...]) -> None:
    other = script.Circumstance("other", {"PYTHONHASHSEED": "7", "LC_ALL": "C"}, folder="mit Räumen")
    first = script.digests(script.FIRST, tmp_path, names)
    assert len(first) >= 4
    assert not any("ended with" in name for name in first)
    assert script.differing(first, script.digests(other, tmp_path, names)) == []
