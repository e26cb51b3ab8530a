"""What the tests hold: random mutants of the four packages, each against the tests that run its line.

Where every test says which lines it ran (coverage by context)::

    pip install pytest-cov
    pytest -m "not wide and not browser and not ray" --cov --cov-context=test --cov-report=
    python benchmarks/mutants.py --coverage .coverage --count 200 --seed 1

A mutant changes one place of the source: a comparison, an operator, a number, a condition, a call of min or max. Of
the tests that run its line those that run fewest lines come first, and the first failure ends. ``--alone`` also asks
whether any test of another file kills it.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("topology", "cost", "placement", "rackplan")
SWAPS: dict[type[ast.AST], type[Any]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Div,
    ast.Mod: ast.Mult, ast.Pow: ast.Mult,
}  # fmt: skip
TESTS_AT_ONCE = 120
"""Tests of one call of pytest; a mutant that survives the first such call meets the rest in a second."""
LIMIT_S = 420.0
"""Of both calls together: a mutant that makes tests run for longer counts as killed."""


@dataclass
class Mutant:
    """One changed place, the file of tests that killed it, and whether only that one does."""

    path: str
    line: int
    what: str
    tests: int = 0
    killed_by: str = ""
    alone: bool | None = None


class _Change(ast.NodeTransformer):
    """Count the places that can be changed, and change the one numbered ``at``."""

    def __init__(self, at: int = -1) -> None:
        self.at, self.count, self.line, self.what = at, 0, 0, ""

    def _chosen(self, node: ast.AST, what: str) -> bool:
        self.count += 1
        if self.count - 1 != self.at:
            return False
        self.line, self.what = getattr(node, "lineno", 0), what
        return True

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.AnnAssign):  # annotations are not run
            node.value = self.visit(node.value) if node.value else None  # type: ignore[assignment]
            return node
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            node.body = [self.visit(child) for child in node.body]  # type: ignore[misc]
            return node
        if isinstance(node, ast.Constant):
            return self._number(node)
        self._operator(node)
        return self.generic_visit(node)

    def _number(self, node: ast.Constant) -> ast.Constant:
        if not isinstance(node.value, (int, float)):
            return node
        changed = not node.value if isinstance(node.value, bool) else node.value + 1
        chosen = self._chosen(node, f"{node.value!r} -> {changed!r}")
        return ast.copy_location(ast.Constant(changed), node) if chosen else node

    def _operator(self, node: ast.AST) -> None:
        if isinstance(node, (ast.Compare, ast.BinOp, ast.BoolOp, ast.AugAssign)):
            old = node.ops[0] if isinstance(node, ast.Compare) else node.op
            new = SWAPS.get(type(old))
            if new is None or not self._chosen(node, f"{type(old).__name__} -> {new.__name__}"):
                return
            if isinstance(node, ast.Compare):
                node.ops[0] = new()
            else:
                node.op = new()
        elif isinstance(node, (ast.If, ast.IfExp, ast.While)):
            if self._chosen(node.test, "condition -> not"):
                node.test = ast.UnaryOp(ast.Not(), node.test)
        elif (
            isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in {"min", "max"}
        ):
            other = "max" if node.func.id == "min" else "min"
            if self._chosen(node, f"{node.func.id} -> {other}"):
                node.func.id = other


def mutant_source(source: str, at: int) -> tuple[str, int, str]:
    """Return the source with place ``at`` changed, the line of it, and what was changed."""
    change = _Change(at)
    tree = ast.fix_missing_locations(change.visit(ast.parse(source)))
    return ast.unparse(tree), change.line, change.what


def places(paths: list[Path]) -> list[tuple[Path, int]]:
    """Return every place of every file that can be changed."""
    sites = []
    for path in paths:
        change = _Change()
        change.visit(ast.parse(path.read_text()))
        sites += [(path, at) for at in range(change.count)]
    return sites


class Contexts:
    """Which tests run a line, from a database of coverage by context."""

    def __init__(self, database: Path) -> None:
        import coverage

        self.data = coverage.CoverageData(str(database))
        self.data.read()
        self.lines: Counter[str] = Counter()
        self.by_path: dict[str, dict[int, set[str]]] = {}
        for name in self.data.measured_files():
            rows: dict[int, set[str]] = {}
            for line, contexts in self.data.contexts_by_lineno(name).items():
                rows[line] = {context.split("|")[0] for context in contexts if context}
                self.lines.update(rows[line])
            parts = Path(name).parts
            start = next(i for i, part in enumerate(parts) if part in PACKAGES)
            self.by_path["/".join(parts[start:])] = rows

    def tests(self, path: str, line: int) -> list[str]:
        """Return the tests that run a line, those that run fewest lines first; of one read at import, its file's."""
        rows = self.by_path.get(path, {})
        tests = rows.get(line, set())
        if line in rows and not tests:
            tests = set().union(*rows.values())
        return sorted(tests, key=lambda test: (self.lines[test], test))


def run(copy: Path, tests: list[str], limit_s: float) -> str:
    """Return the file of the first test that fails, '' if none does."""
    call = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "--no-header",
        "--tb=no",
        "-p",
        "no:cacheprovider",
        *tests,
    ]
    env = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        ran = subprocess.run(  # noqa: S603 - pytest, on tests of this repository
            call, cwd=copy, env=env, capture_output=True, text=True, timeout=limit_s, check=False
        )
    except subprocess.TimeoutExpired:
        return "time"
    if ran.returncode == 0:
        return ""
    for line in ran.stdout.splitlines():
        if line.startswith(("FAILED ", "ERROR ")):
            return line.split()[1].split("::")[0]
    return "import"


def judge(mutant: Mutant, at: int, copy: Path, contexts: Contexts, *, alone: bool) -> Mutant:
    """Run the tests of a mutant in a copy of the repository, and put the file back."""
    path = copy / mutant.path
    source = path.read_text()
    changed, mutant.line, mutant.what = mutant_source(source, at)
    tests = contexts.tests(mutant.path, mutant.line)
    mutant.tests = len(tests)
    path.write_text(changed)
    try:
        mutant.killed_by = _first(copy, tests)
        if alone and mutant.killed_by.startswith("tests/"):
            others = [test for test in tests if not test.startswith(mutant.killed_by)]
            mutant.alone = not _first(copy, others)
    finally:
        path.write_text(source)
    return mutant


def _first(copy: Path, tests: list[str]) -> str:
    for start, end in ((0, TESTS_AT_ONCE), (TESTS_AT_ONCE, len(tests))):
        if tests[start:end] and (file := run(copy, tests[start:end], LIMIT_S / 2)):
            return file
    return ""


def main() -> None:
    """Judge mutants, one line of JSON each, and print how many died."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--coverage", type=Path, required=True)
    parser.add_argument("--under", nargs="*", default=PACKAGES, help="folders whose files are changed")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("mutants.jsonl"))
    options = parser.parse_args()
    contexts = Contexts(options.coverage)
    paths = sorted(path for folder in options.under for path in (ROOT / folder).rglob("*.py"))
    chosen = random.Random(options.seed).sample(places(paths), options.count)
    copies: SimpleQueue[Path] = SimpleQueue()
    with tempfile.TemporaryDirectory() as folder, options.out.open("w") as out:
        for number in range(options.jobs):
            copy = Path(folder) / str(number) / "rackplan"
            shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".git", ".venv", "out", "site"))
            copies.put(copy)

        def judged_in_a_copy(place: tuple[Path, int]) -> Mutant:
            copy = copies.get()
            try:
                mutant = Mutant(str(place[0].relative_to(ROOT)), 0, "")
                return judge(mutant, place[1], copy, contexts, alone=options.alone)
            finally:
                copies.put(copy)

        judged = []
        with ThreadPoolExecutor(options.jobs) as pool:
            for mutant in pool.map(judged_in_a_copy, chosen):
                judged.append(mutant)
                out.write(json.dumps(asdict(mutant)) + "\n")
                out.flush()
    for package in PACKAGES:
        own = [mutant for mutant in judged if mutant.path.startswith(package + "/")]
        died = sum(bool(mutant.killed_by) for mutant in own)
        print(f"| {package} | {len(own)} | {died} | {died / max(1, len(own)):.0%} |")
    print(f"{sum(bool(mutant.killed_by) for mutant in judged)} of {len(judged)} died")


if __name__ == "__main__":
    main()
