"""Words of summaries."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import typer.main

import rackplan
from rackplan.cli import app
from rackplan.render.text import _FLAGS, with_flags
from rackplan.views.blocks import Table
from rackplan.views.words import load_names


def test_windows_of_one_recording_are_counted() -> None:
    assert load_names(["a.pt#0", "a.pt#1", "b.npy", "a.pt#7"]) == "a.pt (3 scenarios), b.npy"
    assert load_names(["lognormal:0.63 (synthetic, seed 0)"]) == "lognormal:0.63 (synthetic, seed 0)"
    assert load_names(["run#3.npy"]) == "run#3.npy"


def test_wide_tables_lose_their_last_columns() -> None:
    table = Table(("a", "bb", "ccc"), [("1", "2", "3")])
    assert table.narrowed(12).lines == table.lines == ["  a  bb  ccc", "  1   2    3"]
    assert table.narrowed(11).lines == ["  a  bb", "  1   2"]
    assert Table(["a long name"], []).narrowed(5).lines == ["  a long name"]


def test_parameters_are_flags_on_the_command_line() -> None:
    assert with_flags("`draft_tokens` 9: give `loads`.") == "--draft-tokens 9: give --loads."
    assert with_flags("give option `gpus_per_node` N") == "give --gpus-per-node N"
    assert with_flags("needs the key `gpus`, not `shape`") == "needs the key `gpus`, not `shape`"
    commands = typer.main.get_command(app).commands.values()
    flags = {flag for command in commands for one in command.params for flag in one.opts}
    assert set(_FLAGS.values()) <= flags


@pytest.mark.wide
def test_layers_below_name_no_flag() -> None:
    """Flags of engines and of scripts are theirs, and so are the colours of a page around a drawing."""
    found = []
    root = Path(rackplan.__file__).parent.parent
    for package in ("topology", "cost", "placement"):
        for path in (root / package).rglob("*.py"):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
            found += [
                f"{path}: {node.value}"
                for node in ast.walk(tree)
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose
                if re.search(r"(^|[ (])(--(?!paper|ink|soft)[a-z]|-o )", node.value)
                and not {"engines", "traces"} & set(path.relative_to(root).parts)
            ]
    assert [line for line in found if "--write" not in line] == []
