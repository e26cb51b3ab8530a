"""Words of summaries."""

from __future__ import annotations

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
