"""Words of summaries."""

from __future__ import annotations

import typer.main

from rackplan.cli import app
from rackplan.render.text import _FLAGS, with_flags
from rackplan.views.blocks import Table


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
