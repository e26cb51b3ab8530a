"""Pages of docs/ say what their commands print: those that need no file of the reader's, and the tutorial.

The tutorial is followed as a newcomer does: its commands and its Python in order.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pages import LEFT_OUT, blocks, conversation, differs, run_block

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {
    path.name: path.read_text(encoding="utf-8")
    for path in sorted(DOCS.glob("*.md"))
    if blocks(path.read_text(encoding="utf-8"), "console")
}
FRESH = ("questions.md", "size.md")
"""Pages whose figures follow from their commands alone, beside the README; blocks that read a file of
the reader's are left out."""
TUTORIAL = PAGES["tutorial.md"]
FILES = dict(re.findall(r'^```\w+ title="(\S+)"\n(.*?)^```$', TUTORIAL, re.DOTALL | re.MULTILINE))
SEARCHED = {"replan": 0.04, "what-if": 0.01}
"""How far figures of the tutorial may be off that follow from where a search left each copy."""


@pytest.mark.wide
@pytest.mark.parametrize("name", FRESH)
def test_a_page_says_what_commands_print(
    run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    compared = 0
    for block in blocks(PAGES[name], "console"):
        for words, shown in conversation(block):
            if words[0] != "rackplan" or not shown.strip():
                continue
            done = run(*words[1:])
            printed = done.out or done.err
            assert differs(f"{LEFT_OUT}\n{shown}\n{LEFT_OUT}", printed) == "", words
            compared += 1
    assert compared > 0


@pytest.mark.wide
def test_the_tutorial_says_what_happens(
    run: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for name, content in FILES.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    said = 0
    for block in re.findall(r"^```(?:console|python).*?^```$", TUTORIAL, re.DOTALL | re.MULTILINE):
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
