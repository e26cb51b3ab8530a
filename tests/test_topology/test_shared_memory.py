"""Semaphores of a process that was killed go at the next start, and no others."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from topology.shared_memory import note_semaphores
from topology.staging import scratch, settle


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a process is killed")
def test_semaphores_of_a_killed_process_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared, temporary = tmp_path / "shm", tmp_path / "tmp"
    for folder in (shared, temporary):
        folder.mkdir()
    monkeypatch.setattr("topology.shared_memory._SHARED", shared)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    (shared / "sem.loky-1-other").touch()
    child = os.fork()
    if not child:
        with scratch() as held:
            (shared / f"sem.loky-{os.getpid()}-mine").touch()
            note_semaphores(held)
            with (held / "semaphores").open("a", encoding="ascii") as note:
                note.write("\n../tmp/keep\nsem.other-1-x")  # no names of ours
            os._exit(9)
    os.waitpid(child, 0)
    for name in (temporary / "keep", shared / "sem.other-1-x"):
        name.touch()
    assert (shared / f"sem.loky-{child}-mine").exists()
    settle([])
    assert sorted(path.name for path in shared.iterdir()) == ["sem.loky-1-other", "sem.other-1-x"]
    assert [path.name for path in temporary.iterdir()] == ["keep"]
