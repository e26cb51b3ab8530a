"""Imports run one way, and heavy packages stay where they belong: read from the sources, not from a run."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ORDER = ("topology", "cost", "placement", "rackplan")
MODULES = sorted(path for package in ORDER for path in (ROOT / package).rglob("*.py"))


def imports(source: str) -> list[tuple[str, bool]]:
    """Every module imported anywhere in ``source``, and whether that is at the top (run when it is loaded)."""
    found: list[tuple[str, bool]] = []

    def visit(node: ast.AST, *, top: bool) -> None:
        if isinstance(node, ast.Import):
            found.extend((alias.name, top) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            found.append((node.module or "", top))
        later = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) or (
            isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        )
        for child in ast.iter_child_nodes(node):
            visit(child, top=top and not later)

    visit(ast.parse(source), top=True)
    return found


def upward(package: str, source: str) -> list[str]:
    above = set(ORDER[ORDER.index(package) + 1 :])
    return [name for name, _ in imports(source) if name.split(".")[0] in above]


def importers(package: str) -> set[str]:
    return {
        path.relative_to(ROOT).as_posix()
        for path in MODULES
        if any(name.split(".")[0] == package for name, _ in imports(path.read_text(encoding="utf-8")))
    }


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_module_imports_upward(path: Path) -> None:
    package = path.relative_to(ROOT).parts[0]
    assert upward(package, path.read_text(encoding="utf-8")) == []


def test_an_upward_import_would_be_seen() -> None:
    hidden = "def f():\n    from placement.plan import Plan\n"
    assert upward("cost", hidden) == ["placement.plan"]
    assert upward("topology", "import cost") == ["cost"]
    assert upward("rackplan", hidden) == []
    typed = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import numpy\n"
    assert imports(typed)[1:] == [("numpy", False)]


def test_ortools_is_imported_by_the_solver_modules_alone() -> None:
    found = importers("ortools")
    assert found
    for name in found:
        folder, _, module = name.partition("/")
        assert folder == "placement"
        assert module == "stages.py" or module.startswith("sub")


def test_pygraphviz_is_imported_by_drawing_alone() -> None:
    found = importers("pygraphviz")
    assert found
    assert all(name.startswith("topology/draw/") for name in found)


def test_the_command_line_needs_no_heavy_package_to_start() -> None:
    """``rackplan/cli.py`` and every module of ours that it loads at once."""
    heavy = {"numpy", "scipy", "networkx", "ortools", "pydantic", "pygraphviz", "yaml", "rich"}
    seen: set[str] = set()
    waiting = ["rackplan.cli"]
    while waiting:
        name = waiting.pop()
        for part in (name, name.rpartition(".")[0]):  # a module loads its package first
            base = ROOT.joinpath(*part.split("."))
            path = base.with_suffix(".py") if base.with_suffix(".py").is_file() else base / "__init__.py"
            if not part or part in seen or not path.is_file():
                continue
            seen.add(part)
            source = path.read_text(encoding="utf-8")
            tops = [module for module, top in imports(source) if top]
            assert not heavy & {module.split(".")[0] for module in tops}, part
            waiting += [module for module in tops if module.split(".")[0] in ORDER]
            if part == "rackplan.cli":
                waiting += [
                    f"rackplan.commands.{path.stem}" for path in (ROOT / "rackplan/commands").glob("*.py")
                ]
    assert {"rackplan.cli", "rackplan", "topology.errors", "rackplan.commands.plan"} <= seen
