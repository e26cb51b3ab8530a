"""CSV that spreadsheets may open."""

import csv
import io

import pytest

from rackplan.views.table_csv import csv_text


@pytest.mark.parametrize("name", ["=1+1", "+1", "-x", "@SUM(A1)", "\t=1", "\r=1"])
def test_text_of_others_is_no_formula(name: str) -> None:
    rows = list(csv.reader(io.StringIO(csv_text([name, "gpus"], [[name, -1.5]]), newline="")))
    said = "'" + name.replace("\r", " ")
    assert rows == [[said, "gpus"], [said, "-1.5"]]


def test_other_text_and_numbers_stay() -> None:
    assert csv_text(["cluster", "step_s"], [["gb200-nvl72@72", 1e-3], ["", None]]) == (
        "cluster,step_s\ngb200-nvl72@72,0.001\n,\n"
    )
