"""The tuner: its trials are rows, the same whether it was stopped or not, and it finds what a grid finds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from helpers import Result
from rackplan.requests import StudyRequest, make

pytest.importorskip("pyarrow", reason="studies write Parquet")
pytest.importorskip("joblib", reason="studies run on joblib")
pytest.importorskip("optuna", reason="it proposes the trials")
CONTENT: dict[str, Any] = {
    "kind": "score",
    "limit_s": 60,
    "fixed": {"model": "qwen3-235b-a22b", "cluster": "hgx-h200@16", "batch": 16},
    "optimize": {
        "goal": "usd_per_million_tokens",
        "trials": 12,
        "search": {
            "set.gpu.hbm_bytes_per_s": {"low": "0.5x", "high": "8x", "scale": "log"},
            "set.gpu.flop_per_s": ["0.9x", "1.1x"],
        },
        "usd_per_h": {"set.gpu.hbm_bytes_per_s": 0.4},
        "curve": {"ep": [8, 16]},
    },
}
TIMES = ("seconds", "cpu_s", "host", "finished")


def asked(folder: Path, workers: int | None = None) -> StudyRequest:
    return make(StudyRequest, CONTENT, folder, optimize=True, workers=workers)


def plain(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key not in TIMES} for row in rows]


@pytest.mark.wide
def test_trials_are_the_same_stopped_or_not(tmp_path: Path) -> None:
    from rackplan.studies.run import run_study
    from rackplan.studies.tune import JOURNAL

    whole = run_study(asked(tmp_path / "whole", 1))
    assert len(whole.rows) == 24
    calls = 0

    def stop(_: str) -> None:
        nonlocal calls
        calls += 1
        if calls == 12:
            raise KeyboardInterrupt

    first = run_study(asked(tmp_path / "stopped", 1), say=stop)
    assert first.interrupted
    journal = tmp_path / "stopped" / JOURNAL
    journal.write_bytes(journal.read_bytes()[:-7])  # as a kill leaves it
    (tmp_path / "stopped" / f"{JOURNAL}.lock").touch()
    second = run_study(asked(tmp_path / "stopped", 2))
    assert plain(second.rows) == plain(whole.rows)
    assert run_study(asked(tmp_path / "stopped")).priced == 0


def test_a_full_disk_is_said_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Callable[..., Result]
) -> None:
    import json

    from optuna.storages.journal import JournalFileBackend

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    (tmp_path / "tune.yaml").write_text(json.dumps(CONTENT), encoding="utf-8")
    monkeypatch.setattr(JournalFileBackend, "append_logs", full)
    said = run("study", "tune.yaml", "--optimize", "-o", "out", "--workers", 1)
    assert said.code == 2
    assert "optuna.journal: cannot write there (No space left on device)" in said.error_line
