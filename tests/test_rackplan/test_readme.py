"""The README: short and narrow, its commands parse, its blocks run and print what it says, its picture is current."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

import rackplan
from helpers import Result
from pages import blocks, commands, conversation, differs, parse, run_block

ROOT = Path(rackplan.__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PYTHON_PAGES = ("README.md", "docs/python.md", "docs/own.md")
SEARCHED = {"replan": 0.04}
"""How far a figure may be off that follows from where a search of a second left each copy."""

SLOW = {"replan", "simulate", "size"}
"""Commands that take more than three seconds here; smaller ones are tried on their own."""


PRINTED = "Size   37,440 GPUs\n\n  a    1.00x\nNote   one\n       two\n"


@pytest.mark.parametrize(
    "shown", ["Size 37,440", "...\na 1.02x\n...", "...\nNote\n...\na\n...", "37,440\n..."]
)
def test_what_was_not_printed_is_seen(shown: str) -> None:
    assert differs(shown, PRINTED) != ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_of_a_page_parse(page: Path) -> None:
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    for block in blocks(page.read_text(encoding="utf-8"), "console"):
        for words in commands(block):
            program = Path(words[0]).name
            if program == "rackplan":
                parse(words[1:])
            elif program == "make":
                assert set(words[1:]) <= targets, words
            elif program.startswith("python"):
                assert words[1] == "-m" or (ROOT / words[1]).exists(), words
            elif words[:2] == ["pip", "install"] and "/" in words[-1]:
                assert (ROOT / words[-1]).exists(), words


def make_plan() -> list[str]:
    """The arguments of rackplan in ``make plan``, with the folder that it writes."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ")
    out = re.search(r"^OUT \?= (.*)$", text, re.MULTILINE)
    line = re.search(r"-m rackplan (plan .*)$", text, re.MULTILINE)
    assert out is not None
    assert line is not None
    return shlex.split(line[1].replace("$(OUT)", out[1]))


def test_it_says_what_make_plan_prints(
    prepared: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    (verdict,) = blocks(README, "text")
    assert len(verdict.splitlines()) <= 19
    assert f"`{' '.join(make_plan()[:-2])}`" in " ".join(README.split())
    assert differs(verdict, prepared(*make_plan()).out) == ""


ASKED = [
    (words[1:], shown)
    for block in blocks(README, "console")
    for words, shown in conversation(block)
    if words[0] == "rackplan"
]


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        pytest.param(words, shown, id=words[0], marks=[pytest.mark.wide] if words[0] in SLOW else [])
        for words, shown in ASKED
    ],
)
def test_it_says_what_a_command_prints(
    words: list[str],
    shown: str,
    run: Callable[..., Result],
    prepared: Callable[..., Result],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each command is a test of its own: all of them in one took minutes on a busy machine."""
    monkeypatch.setenv("COLUMNS", "80")
    if make_plan()[-1] in words:
        prepared(*make_plan())
    found = run(*words)
    assert shown == "" or differs(shown, found.out + found.err, SEARCHED.get(words[0], 0.005)) == ""
    assert found.code == (3 if shown.startswith("rackplan: HBM") else 0)


@pytest.mark.parametrize("page", PYTHON_PAGES)
def test_python_of_the_pages_runs(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, short: None
) -> None:
    monkeypatch.chdir(tmp_path)
    found = blocks((ROOT / page).read_text(encoding="utf-8"), "python")
    assert found
    for block in found:
        assert run_block(block, page) > 0
