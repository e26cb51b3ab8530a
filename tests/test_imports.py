"""Imports run one way and in no circle; heavy packages stay where they belong: read from the sources."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import networkx as nx

ROOT = Path(__file__).parent.parent
ORDER = ("topology", "cost", "placement", "rackplan")
MODULES = sorted(path for package in ORDER for path in (ROOT / package).rglob("*.py"))


@cache
def statements(path: Path) -> tuple[tuple[ast.Import | ast.ImportFrom, bool], ...]:
    """Every import of a module, and whether it runs when the module is loaded."""
    found: list[tuple[ast.Import | ast.ImportFrom, bool]] = []

    def visit(node: ast.AST, *, top: bool) -> None:
        if isinstance(node, ast.Import | ast.ImportFrom):
            found.append((node, top))
        later = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or (
            isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        )
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
                visit(child, top=top and not later)

    visit(ast.parse(path.read_text(encoding="utf-8")), top=True)
    return tuple(found)


def imports(path: Path) -> list[tuple[str, bool]]:
    """The name of every imported module, and whether it is imported when the module is loaded."""
    found: list[tuple[str, bool]] = []
    for node, top in statements(path):
        if isinstance(node, ast.Import):
            found.extend((alias.name, top) for alias in node.names)
        else:
            assert node.level == 0, "imports are absolute"
            found.append((node.module or "", top))
    return found


def importers(package: str) -> set[str]:
    return {
        path.relative_to(ROOT).as_posix()
        for path in MODULES
        if any(name.split(".")[0] == package for name, _ in imports(path))
    }


def name_of(path: Path) -> str:
    """The dotted name of a module of ours; a package goes by its folder."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_no_module_imports_upward() -> None:
    """Nor does what every package reads with know anything above it."""
    assert len(MODULES) > 100
    for path in MODULES:
        package = path.relative_to(ROOT).parts[0]
        names = [name for name, _ in imports(path)]
        assert not set(ORDER[ORDER.index(package) + 1 :]) & {name.split(".")[0] for name in names}, path
        if name_of(path).startswith("topology.base"):
            ours = [name for name in names if name.split(".")[0] in ORDER]
            assert all(name.startswith("topology.base.") for name in ours), path


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Inside functions and for type checkers too; ``from package import module`` imports that module."""
    names = {name_of(path) for path in MODULES}
    graph: nx.DiGraph[str] = nx.DiGraph()
    for path in MODULES:
        for node, _ in statements(path):
            if isinstance(node, ast.Import):
                wanted = [alias.name for alias in node.names]
            else:
                inner = [f"{node.module}.{alias.name}" for alias in node.names]
                wanted = [name if name in names else node.module or "" for name in inner]
            graph.add_edges_from((name_of(path), name) for name in wanted if name in names)
    assert [sorted(part) for part in nx.strongly_connected_components(graph) if len(part) > 1] == []
    assert list(nx.selfloop_edges(graph)) == []


def test_ortools_is_imported_by_solver_modules_alone_and_pygraphviz_by_drawing() -> None:
    assert {name.rpartition("/")[0] for name in importers("pygraphviz")} == {"topology/draw"}
    assert importers("ortools") == {
        "placement/cp_solver.py",
        "placement/experts/columns.py",
        "placement/experts/exact.py",
        "placement/fleet/model.py",
        "placement/migrate/fewest.py",
        "placement/migrate/least.py",
        "placement/layouts/order_model.py",
        "placement/pairing.py",
    }
    makers = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "placement").rglob("*.py")
        if "CpSolver()" in path.read_text(encoding="utf-8")
    }
    assert makers == {"placement/cp_solver.py"}  # the deadline and Ctrl-C reach every model


def loaded(*modules: str) -> dict[str, set[str]]:
    """Every module of ours that is loaded with ``modules``, each with the names of those at its top."""
    seen: dict[str, set[str]] = {}
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        for part in (name, name.rpartition(".")[0]):  # a module loads its package first
            base = ROOT.joinpath(*part.split("."))
            path = base.with_suffix(".py") if base.with_suffix(".py").is_file() else base / "__init__.py"
            if part and part not in seen and path.is_file():
                seen[part] = {module for module, top in imports(path) if top}
                waiting += [module for module in seen[part] if module.split(".")[0] in ORDER]
    return seen


def outside(seen: dict[str, set[str]]) -> set[str]:
    return {module.split(".")[0] for modules in seen.values() for module in modules}


def test_the_command_line_needs_no_heavy_package_to_start() -> None:
    """``rackplan/cli.py`` and every module of ours that it loads at once."""
    commands = [f"rackplan.commands.{path.stem}" for path in (ROOT / "rackplan/commands").glob("*.py")]
    seen = loaded("rackplan.cli", *commands)
    assert not {"numpy", "scipy", "networkx", "ortools", "pygraphviz", "yaml", "rich"} & outside(seen)
    assert "rackplan.report.doc" not in seen
    assert "rackplan.commands.plan" in seen


def test_documents_load_only_what_they_are_made_of() -> None:
    """Faces load what draws and prints; the catalog needs no predictions."""
    reports = [f"rackplan.report.{name}" for name in ("sweep", "size", "compare", "validate", "simulate")]
    assert not {"networkx", "pandas", "plotly", "rich", "jinja2"} & outside(loaded(*reports))
    seen = loaded("rackplan.report.catalog", "rackplan.report.text", "rackplan.report.doc")
    assert [name for name in seen if name.startswith(("placement.", "cost.calibration."))] == []
