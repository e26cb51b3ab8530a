"""The document of a study as it reads."""

from __future__ import annotations

from pathlib import Path

import pytest

import rackplan
from goldens import require_doc, require_golden
from rackplan.report.page import page
from rackplan.report.study import study_doc

pytest.importorskip("pyarrow", reason="studies write Parquet")
pytest.importorskip("joblib", reason="studies run on joblib")
CONTENT = {
    "kind": "score",
    "fixed": {"model": "mixtral-8x7b", "cluster": "hgx-h100"},
    "grid": {"context": [1024, 4096, 16384], "batch": [1, 8, 100000], "ep": [4, 8, 17]},
}


def test_points_of_a_grid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = rackplan.study(CONTENT, Path("out"), workers=1)
    doc = study_doc(result)
    require_doc(doc)
    assert len(doc.rows) == 27
    assert "Speed against throughput" in page(doc)
    monkeypatch.setattr("rackplan.report.study.rows_digest", lambda _: "0" * 64)  # of code and catalog
    require_golden("study", study_doc(result))
