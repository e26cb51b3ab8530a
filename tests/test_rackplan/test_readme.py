"""The README's examples: Python blocks run, commands of console blocks parse, files and targets exist."""

from __future__ import annotations

import doctest
import re
import shlex
from pathlib import Path

import pytest
import typer

import rackplan
from rackplan.cli import app

ROOT = Path(rackplan.__file__).parent.parent
README = ROOT / "README.md"


def blocks(text: str, language: str) -> list[str]:
    """The contents of the fenced blocks of one language."""
    return re.findall(rf"^```{language}[^\n]*\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def commands(block: str) -> list[list[str]]:
    """The words of each line after a prompt, continued lines joined, comments left out."""
    joined = re.sub(r"\\\n>?\s*", " ", block)
    lines = [line[2:] for line in joined.splitlines() if line.startswith("$ ")]
    return [words for words in (shlex.split(line, comments=True) for line in lines) if words]


def parse(words: list[str]) -> None:
    """Parse a command line of rackplan without running it; wrong usage raises."""
    group = typer.main.get_command(app)
    with group.make_context("rackplan", list(words)) as root:
        name, command, rest = group.resolve_command(root, [*root._protected_args, *root.args])
        with command.make_context(name, rest, parent=root):
            pass


def run_block(block: str) -> int:
    """Run a Python block, checking what stands after its prompts; return how many examples it has."""
    if ">>>" not in block:
        exec(compile(block, str(README), "exec"), {"__name__": "readme"})  # noqa: S102
        return 1
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    test = doctest.DocTestParser().get_doctest(block, {}, "README", str(README), 0)
    failed, tried = runner.run(test)
    assert failed == 0
    return tried


SAMPLE = """
```python
>>> 1 + 1
2
```

```console
$ rackplan plan --model deepseek-v3 \\
>     --cluster gb200-nvl72 -o out   # the main job
deepseek-v3 on gb200-nvl72
$ make plan
```
"""


def test_blocks_of_a_sample_are_found() -> None:
    assert blocks(SAMPLE, "python") == [">>> 1 + 1\n2\n"]
    (console,) = blocks(SAMPLE, "console")
    wanted = ["rackplan", "plan", "--model", "deepseek-v3", "--cluster", "gb200-nvl72", "-o", "out"]
    assert commands(console) == [wanted, ["make", "plan"]]
    parse(wanted[1:])
    assert run_block(blocks(SAMPLE, "python")[0]) == 1


@pytest.mark.parametrize(
    "words", [["plan", "--model", "x"], ["plane"], ["draw", "hgx-h100", "--colour", "red", "-o", "a.svg"]]
)
def test_a_wrong_command_would_be_seen(words: list[str]) -> None:
    usage_error = typer.BadParameter.__base__
    assert usage_error is not None
    with pytest.raises(usage_error):
        parse(words)


def test_a_wrong_answer_would_be_seen() -> None:
    with pytest.raises(AssertionError):
        run_block(">>> 1 + 1\n3\n")


def test_python_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for block in blocks(README.read_text(encoding="utf-8"), "python"):
        assert run_block(block) > 0


def test_commands_of_the_readme_parse() -> None:
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    for block in blocks(README.read_text(encoding="utf-8"), "console"):
        for words in commands(block):
            program = Path(words[0]).name
            if program == "rackplan":
                parse(words[1:])
            elif program == "make":
                assert set(words[1:]) <= targets, words
            elif program.startswith("python"):
                assert words[1] == "-m" or (ROOT / words[1]).is_file(), words


def test_links_of_the_readme_are_files_of_the_repository() -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", README.read_text(encoding="utf-8")):
        assert (ROOT / target).exists(), target
