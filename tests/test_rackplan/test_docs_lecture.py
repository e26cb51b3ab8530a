"""The page of the lecture's identities: its names exist, its example gives the figures beside it."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "lecture.md").read_text(encoding="utf-8")
NAMES = sorted(set(re.findall(r"`(cost\.[a-z_.]+)`", PAGE)))


def test_names_are_found() -> None:
    assert len(NAMES) > 10


@pytest.mark.parametrize("name", NAMES)
def test_every_module_and_function_named_exists(name: str) -> None:
    try:
        import_module(name)
    except ModuleNotFoundError:
        module, _, attribute = name.rpartition(".")
        assert hasattr(import_module(module), attribute)


def test_the_example_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    [code] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(code, "docs/lecture.md", "exec"), {})  # noqa: S102 - our own page
    usd, per_mw = map(float, capsys.readouterr().out.split())
    assert usd == pytest.approx(0.106, abs=5e-4)
    assert per_mw == pytest.approx(2.757e6, rel=2e-4)
