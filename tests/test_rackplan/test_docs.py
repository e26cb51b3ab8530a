"""README, pages of docs/, examples and the tour: they parse, run, and print what they say."""

from __future__ import annotations

import ast
import json
import re
import runpy
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rackplan
from helpers import Result
from pages import LEFT_OUT, blocks, commands, conversation, differs, parse, run_block
from topology.base.shown import Shown

ROOT = Path(rackplan.__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PYTHON_PAGES = ("README.md", "docs/python.md", "docs/own.md")
EXAMPLES = ROOT / "examples"
SEARCHED = {"replan": 0.04, "what-if": 0.01}
"""How far a figure may be off that follows from where a search of a second left each copy."""
CLOSE = 0.02
"""How far a figure of an example may be: what an engineer would do is the same."""

SLOW = {"replan", "simulate", "size"}
"""Commands that take more than three seconds here; smaller ones are tried on their own."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_of_a_page_parse(page: Path) -> None:
    for block in blocks(page.read_text(encoding="utf-8"), "console"):
        for words in commands(block):
            if words[0] == "rackplan":
                parse(words[1:])
            elif words[0].startswith("python"):
                assert words[1] == "-m" or (ROOT / words[1]).exists(), words


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
    monkeypatch.setenv("COLUMNS", "80")
    if make_plan()[-1] in words:
        prepared(*make_plan())
    done = run(*words)
    assert shown == "" or differs(shown, done.out + done.err, SEARCHED.get(words[0], 0.005)) == ""
    assert done.code == (3 if shown.startswith("rackplan: HBM") else 0)


@pytest.mark.parametrize("page", PYTHON_PAGES)
def test_python_of_the_pages_runs(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, short: None
) -> None:
    monkeypatch.chdir(tmp_path)
    for block in blocks((ROOT / page).read_text(encoding="utf-8"), "python"):
        assert run_block(block, page) > 0


FRESH = ("questions.md", "size.md")
"""Pages whose figures follow from their commands alone, beside the README; blocks that read a file of
the reader's are left out."""
TUTORIAL = (ROOT / "docs/tutorial.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r'^```\w+ title="(\S+)"\n(.*?)^```$', TUTORIAL, re.DOTALL | re.MULTILINE))


@pytest.mark.wide
@pytest.mark.parametrize("name", FRESH)
def test_a_page_says_what_commands_print(
    run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    compared = 0
    for block in blocks((ROOT / "docs" / name).read_text(encoding="utf-8"), "console"):
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
    compared = 0
    for block in re.findall(r"^```(?:console|python).*?^```$", TUTORIAL, re.DOTALL | re.MULTILINE):
        for python in blocks(block, "python"):
            assert run_block(python, "tutorial") > 0
        for console in blocks(block, "console"):
            for words, shown in conversation(console):
                if words[0] == "rackplan":
                    done = run(*words[1:])
                    close = SEARCHED.get(words[1], 0.005)
                    assert differs(shown, done.out or done.err, close) == "", words
                    compared += 1
    assert compared >= 10


QUICK = "09_validate_your_runs"
RUN = [
    pytest.param(path, marks=[] if path.stem == QUICK else pytest.mark.wide) for path in EXAMPLES.glob("*.py")
]
TOUR = json.loads((EXAMPLES / "tour.ipynb").read_text(encoding="utf-8"))
SHOWN = """
<Cluster gb200-nvl72@16: 16 GPUs in 1 domain>
<Plan qwen3-30b-a3b on gb200-nvl72@16, decode: EP16 TP1 PP1 x1, 8,786 output tok/s/GPU, step 39.95 ms, experts
...
8,786 tok/s/GPU, 80 % of measured runs are between 5,937 and 13,004
0.104 USD per million output tokens, 34 kW
...
for day balancedness by day 0.999, by night 0.685
for both balancedness by day 0.992, by night 0.992
<Replanned 1,382 of 6,144 copies move, balancedness 0.9511:
...
HBM bandwidth x2 +51.4%
...
HBM twice as fast: 1.51 times the throughput
<Comparison of qwen3-30b-a3b: hgx-h100@72 866 output tok/s/GPU, hgx-h200@72 1,160 output tok/s/GPU, gb200-nvl72
...
<Size qwen3-30b-a3b on hgx-h200, requests of 8,192 + 1,024 tokens: 1,000,000 output tok/s by 1,136
GPUs in 142 domains>
1,965 kW, 1,818 USD an hour
...
HBM capacity binds: deepseek-v3 on hgx-h100 needs 85.4 GB per GPU, 72.2 GB are
...
<Exported of qwen3-30b-a3b for SGLang: tour-sglang.json, balancedness 0.9987>
...
"""
CODE = [cell for cell in TOUR["cells"] if cell["cell_type"] == "code"]


@pytest.mark.parametrize("path", RUN, ids=lambda path: path.stem)
def test_an_example_runs(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(path), run_name="__main__")
    assert re.search(r"\d", capsys.readouterr().out)


def run_cell(source: str, names: dict[str, Any]) -> None:
    """Run a cell as a notebook does: what stands at its end is shown, in a line and as a page."""
    tree = ast.parse(source)
    end = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "tour", "exec"), names)  # noqa: S102 - our own notebook
    value = eval(compile(ast.Expression(end.value), "tour", "eval"), names) if end is not None else None  # noqa: S307
    if isinstance(value, Shown):
        print(repr(value))
        assert "<script" not in (value._repr_html_() or "")


@pytest.mark.wide
def test_the_tour_shows_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for cell in CODE:
        run_cell("".join(cell["source"]), names)
    assert differs(SHOWN.lstrip("\n"), capsys.readouterr().out, CLOSE) == ""


def test_the_tour_has_its_outputs() -> None:
    """Executed with ``PLOTLY_RENDERER=png``: pictures that every viewer shows, and no script."""
    kinds = {kind for cell in CODE for output in cell["outputs"] for kind in output.get("data", ())}
    assert kinds == {"text/plain", "text/html", "image/svg+xml", "image/png"}
    text = json.dumps(TOUR)
    assert len(text) < 600_000
    assert re.findall(r"/(?:home|root|tmp|work)/", text) == []
