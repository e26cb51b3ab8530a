"""Words of summaries."""

from __future__ import annotations

from rackplan.words import load_names, narrow_table, table


def test_windows_of_one_recording_are_counted() -> None:
    assert load_names(["a.pt#0", "a.pt#1", "b.npy", "a.pt#7"]) == "a.pt (3 scenarios), b.npy"
    assert load_names(["lognormal:0.63 (synthetic, seed 0)"]) == "lognormal:0.63 (synthetic, seed 0)"
    assert load_names(["run#3.npy"]) == "run#3.npy"


def test_wide_tables_lose_their_last_columns() -> None:
    rows = [["a", "bb", "ccc"], ["1", "2", "3"]]
    assert narrow_table(rows, width=12) == table(rows) == ["  a  bb  ccc", "  1   2    3"]
    assert narrow_table(rows, width=11) == ["  a  bb", "  1   2"]
    assert narrow_table([["a long name"]], width=5) == ["  a long name"]
