"""The parts of the face: public names, output folders, digests, tables, progress."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import pytest

from cost.resolve import resolve_model
from placement.progress import Progress
from rackplan.digests import digests
from rackplan.inputs import loads_of
from rackplan.progress import progress
from rackplan.requests import DEFAULT_LOADS


def test_digests_are_of_files_alone(tmp_path: Path) -> None:
    path = tmp_path / "loads.npy"
    path.write_bytes(b"abc")
    assert digests(["uniform", str(path), str(tmp_path)]) == {str(path): hashlib.sha256(b"abc").hexdigest()}


def test_default_loads_are_synthetic_and_seeded() -> None:
    model = resolve_model("mixtral-8x7b")
    first, again, other = (loads_of(model, seed=seed) for seed in (0, 0, 1))
    assert first is not None
    assert again is not None
    assert other is not None
    assert first.synthetic
    assert first.names[0].startswith(DEFAULT_LOADS)
    assert (first.tokens == again.tokens).all()
    assert (first.tokens != other.tokens).any()


@pytest.mark.parametrize("terminal", [False, True])
def test_progress_is_said_on_a_terminal_alone_and_never_on_standard_output(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)
    with progress() as reporter:
        reporter.stage("working")
        reporter.hear(Progress("placing experts", 1, 2, 1.5, 1.2, 3.0))
    out, err = capsys.readouterr()
    assert out == ""
    assert terminal or err == ""
