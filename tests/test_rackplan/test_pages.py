"""Pages of docs/ say what their commands print: those that need no file of the reader's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pages import LEFT_OUT, blocks, conversation, differs

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {
    path.name: path.read_text(encoding="utf-8")
    for path in sorted(DOCS.glob("*.md"))
    if blocks(path.read_text(encoding="utf-8"), "console")
}
FRESH = ("questions.md", "size.md")
"""Pages whose figures follow from their commands alone, beside the README; blocks that read a file of
the reader's are left out."""


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
