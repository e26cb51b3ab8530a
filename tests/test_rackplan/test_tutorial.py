"""The tutorial, followed as a newcomer does: its commands and its Python in order, and what they print."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pages import blocks, conversation, differs, run_block

TEXT = (Path(__file__).parents[2] / "docs" / "tutorial.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r'^```\w+ title="(\S+)"\n(.*?)^```$', TEXT, re.DOTALL | re.MULTILINE))
SEARCHED = {"replan": 0.04, "what-if": 0.01}
"""How far figures may be off that follow from where a search left each copy."""


@pytest.mark.wide
def test_the_tutorial_says_what_happens(
    run: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for name, content in FILES.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    said = 0
    for block in re.findall(r"^```(?:console|python).*?^```$", TEXT, re.DOTALL | re.MULTILINE):
        for python in blocks(block, "python"):
            assert run_block(python, "tutorial") > 0
        for console in blocks(block, "console"):
            for words, shown in conversation(console):
                if words[0] == "rackplan":
                    done = run(*words[1:])
                    close = SEARCHED.get(words[1], 0.005)
                    assert differs(shown, done.out or done.err, close) == "", words
                    said += 1
    assert said >= 10
