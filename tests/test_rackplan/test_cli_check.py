"""``rackplan check``: exit code 0 for a file that loads and is right, 2 otherwise, with every finding."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

Run = Callable[..., Any]

ASK = ("--for", "sglang", "--model", "mixtral-8x7b", "--gpus")
ROWS = [[slot % 8 for slot in range(16)] for _ in range(32)]


def write(tmp_path: Path, data: object) -> str:
    (tmp_path / "x.json").write_text(json.dumps(data))
    return "x.json"


def test_a_good_file(run: Run, tmp_path: Path) -> None:
    file = write(tmp_path, {"physical_to_logical_map": ROWS})
    result = run("check", file, *ASK, 8)
    assert (result.code, result.err) == (0, "")
    assert "Loads         yes" in result.out
    data = run("check", file, *ASK, 8, "--json").data
    assert (data["engine"], data["loads"], data["right"]) == ("sglang", True, True)
    assert {finding["kind"] for finding in data["findings"]} == {"note"}


def test_a_wrong_file(run: Run, tmp_path: Path) -> None:
    rows = [list(row) for row in ROWS]
    rows[7] = [slot % 7 for slot in range(16)]
    result = run("check", write(tmp_path, {"physical_to_logical_map": rows}), *ASK, 8, "--json")
    assert result.code == 2
    assert (result.data["loads"], result.data["right"]) == (True, False)
    assert {"where": "layer 7", "kind": "wrong"}.items() <= result.data["findings"][0].items()
    assert "loads but is incorrect in SGLang: layer 7: expert 7 has no copy" in result.err
    assert len(result.err.splitlines()) == 1
