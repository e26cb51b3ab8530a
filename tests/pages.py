"""Blocks of pages: found, parsed, run, compared with what commands print: ``from pages import blocks, differs``."""

from __future__ import annotations

import doctest
import re
import shlex

from rackplan.cli import make_app

LEFT_OUT = "..."
CLOSE = 0.005
"""How far a number of a page may be from the one printed: the last digit of a search, not another result."""
_GROUP = make_app()
_NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?")


def blocks(text: str, language: str) -> list[str]:
    """The contents of the fenced blocks of one language."""
    return re.findall(rf"^```{language}[^\n]*\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def commands(block: str) -> list[list[str]]:
    """The words of each line after a prompt, continued lines joined, comments left out."""
    return [words for words, _ in conversation(block)]


def conversation(block: str) -> list[tuple[list[str], str]]:
    """Each command of a console block, and what stands below it."""
    found: list[tuple[list[str], list[str]]] = []
    for line in re.sub(r"\\\n>\s*", " ", block).splitlines():
        if line.startswith("$ "):
            found.append((shlex.split(line[2:], comments=True), []))
        elif found:
            found[-1][1].append(line)
    return [(words, "\n".join(said)) for words, said in found if words]


def parse(words: list[str]) -> None:
    """Parse a command line of rackplan without running it; wrong usage raises."""
    with _GROUP.make_context("rackplan", list(words)) as root:
        name, command, rest = _GROUP.resolve_command(root, [*root._protected_args, *root.args])
        with command.make_context(name, rest, parent=root):
            pass


def run_block(block: str, page: str = "README") -> int:
    """Run a Python block, checking what stands after its prompts; return how many examples it has."""
    if ">>>" not in block:
        exec(compile(block, page, "exec"), {"__name__": "readme"})  # noqa: S102
        return 1
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    test = doctest.DocTestParser().get_doctest(block, {}, page, page, 0)
    failed, tried = runner.run(test)
    assert failed == 0
    return tried


def differs(shown: str, printed: str, close: float = CLOSE) -> str:
    """What of a page was not printed, in order; empty where all was. Lines of ``...`` stand for anything.

    Words count, wherever lines break, and numbers may be off by the fraction ``close``.
    """
    parts = [part.split() for part in re.split(rf"^{re.escape(LEFT_OUT)}$", shown, flags=re.MULTILINE)]
    words, at = printed.split(), 0
    for number, part in enumerate(parts):
        if not part:
            continue
        starts = range(at, len(words) - len(part) + 1) if number else range(1)
        if number and number == len(parts) - 1:
            starts = range(max(at, len(words) - len(part)), len(words) - len(part) + 1)
        found = next((i for i in starts if _alike(part, words[i : i + len(part)], close)), None)
        if found is None:
            return " ".join(part)
        at = found + len(part)
    return "" if at == len(words) or not parts[-1] else " ".join(words[at:])


def _alike(these: list[str], those: list[str], close: float) -> bool:
    return len(these) == len(those) and all(
        one == other or _close(one, other, close) for one, other in zip(these, those, strict=True)
    )


def _close(one: str, other: str, close: float) -> bool:
    if _NUMBER.sub("#", one) != _NUMBER.sub("#", other):
        return False
    pairs = zip(_NUMBER.findall(one), _NUMBER.findall(other), strict=True)
    return all(
        abs(float(a.replace(",", "")) - float(b.replace(",", ""))) <= close * abs(float(b.replace(",", "")))
        for a, b in pairs
    )
