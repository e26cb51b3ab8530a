"""The shipped times of sparse attention's kernels: complete, and what they say of an index."""

import csv
import io
from pathlib import Path

import pytest

import cost.validation
from topology import gpu_names

FILE = Path(cost.validation.__file__).parent / "data" / "sparse_kernels.csv"
ROWS = list(csv.DictReader(io.StringIO(FILE.read_text(encoding="utf-8"))))
RATES = ("microseconds", "tflop_s", "gb_s")
SHAPE = ("batch", "context", "queries", "heads", "top_k")


def test_rows_name_their_source_chip_and_one_positive_figure() -> None:
    for row in ROWS:
        assert all(row[name] for name in ("source", "kernel", "kind"))
        assert row["chip"] in gpu_names()
        assert row["phase"] in ("decode", "prefill")
        assert [float(row[name]) > 0 for name in RATES if row[name]] == [True], row
        assert all(int(row[name]) > 0 for name in SHAPE if row[name]), row


def test_no_row_stands_twice() -> None:
    keys = [tuple(value for name, value in row.items() if name not in RATES) for row in ROWS]
    assert len(set(keys)) == len(keys)


def layer_us(wanted: dict[str, str]) -> float:
    """Time of one attention layer in one row."""
    wanted = {"kernel": "attention of a layer", **wanted}
    (found,) = (row for row in ROWS if wanted.items() <= row.items())
    return float(found["microseconds"])


@pytest.mark.parametrize("chip", ["h200-sxm", "b200-sxm", "gb300"])
def test_layer_with_an_index_costs_some_ten_microseconds_more_than_one_without(chip: str) -> None:
    """Where nothing but the index differs: CSA's layers beside HCA's, in vLLM, one sequence of 4,096."""
    same = {
        "chip": chip,
        "source": "aiconfigurator-core 0.12.0: vLLM 0.24.0",
        "model": "deepseek-v4-flash",
        "phase": "decode",
        "batch": "1",
        "context": "4096",
        "cache": "fp8",
    }
    more = layer_us({"kind": "csa", **same}) - layer_us({"kind": "hca", **same})
    assert 10 < more < 60
