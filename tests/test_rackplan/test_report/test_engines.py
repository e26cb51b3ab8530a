"""Documents of plans for engines, and ``import-plan --check``: exit code 2 for what does not load, or does wrong."""

from __future__ import annotations

import json
from pathlib import Path

import rackplan
from goldens import require_doc, require_golden
from helpers import Run
from placement.engines.manifests.write import ExportRequest, deploy
from placement.engines.registry import ENGINES
from rackplan.report.engines import exported_doc

ASK = ("--check", "--from", "sglang", "--model", "mixtral-8x7b")
ROWS = [[slot % 8 for slot in range(16)] for _ in range(32)]


def write(tmp_path: Path, data: object) -> str:
    (tmp_path / "x.json").write_text(json.dumps({"physical_to_logical_map": data}))
    return "x.json"


def test_exported_plans_read_as_they_did() -> None:
    plan = rackplan.plan(
        "mixtral-8x7b", "hgx-h100@16", phase="decode", ep=8, redundant=8, batch=4, time_limit_s=0
    )
    require_golden("export", exported_doc(deploy(ExportRequest(ENGINES["sglang"], Path("x.json")), plan)))
    lws = ExportRequest(ENGINES["vllm"], Path("x.jsonl"), "lws")
    doc = exported_doc(deploy(lws, plan), "text")
    require_doc(doc)
    assert doc.data["text"] == "text"
    first = doc.data["notes"][0]
    assert (first["kind"], first["text"].split()[:3]) == ("warning", ["No", "release", "of"])


def test_a_good_file(run: Run, tmp_path: Path) -> None:
    file = write(tmp_path, ROWS)
    result = run("import-plan", file, *ASK, "--ep", 8)
    assert (result.code, result.err) == (0, "")
    assert "x.json loads in SGLang and is valid." in result.out
    data = run("import-plan", file, *ASK, "--cluster", "hgx-h100", "--loads", "uniform", "--json").data
    assert (data["engine"], data["can_load"], data["is_right"]) == ("sglang", True, True)
    assert data["engine_balancedness"] == 1
    assert {finding["effect"] for finding in data["findings"]} == {"note"}
    assert [path.name for path in tmp_path.iterdir()] == [file]


def test_a_wrong_file(run: Run, tmp_path: Path) -> None:
    rows = [list(row) for row in ROWS]
    rows[7] = [slot % 7 for slot in range(16)]
    result = run("import-plan", write(tmp_path, rows), *ASK, "--ep", 8, "--json")
    assert result.code == 2
    assert (result.data["can_load"], result.data["is_right"]) == (True, False)
    assert {"where": "layer 7", "effect": "wrong"}.items() <= result.data["findings"][0].items()
    assert "loads but is incorrect in SGLang: layer 7: expert 7 has no copy" in result.err
    assert len(result.err.splitlines()) == 1


def test_the_old_name_of_a_check_says_the_new_one(run: Run, tmp_path: Path) -> None:
    file = write(tmp_path, ROWS)
    old = run("check", file, "--for", "sglang", "--model", "mixtral-8x7b", "--gpus", 8)
    assert old.code == 2
    typed = old.error_line.partition("type: rackplan ")[2]
    assert typed == "import-plan --check x.json --for sglang --model mixtral-8x7b --gpus 8"
    assert run(*typed.split()).code == 0
