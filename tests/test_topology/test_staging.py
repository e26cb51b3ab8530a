"""What killed runs left goes or is finished at the next start; what another process is at work on stays."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from topology.errors import InputError
from topology.files import write_all
from topology.staging import BusyError, _work, scratch, settle, staging

ROOT = Path(__file__).parents[2]
KILLED = """
import os, signal, sys
from pathlib import Path
from topology import staging
with staging.staging(Path(sys.argv[1])) as made:
    (made.folder / "a.json").write_text("new")
    if sys.argv[2] == "ready":
        staging._place = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
        made.commit()
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "tmp").mkdir()
    (tmp_path / "work").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


def killed(target: Path, when: str) -> None:
    ended = subprocess.run([sys.executable, "-c", KILLED, target, when], cwd=ROOT, check=False)
    assert ended.returncode == -9


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_the_next_start_removes_what_is_half_and_finishes_what_is_whole(here: Path) -> None:
    old, new = here / "old", here / "new"
    old.mkdir()
    (old / "a.json").write_text("old")
    killed(old, "half")
    killed(new, "half")
    assert any(name.endswith("a.json") for name in names(here) if ".rackplan" in name)
    (old / _work(old, "b.csv").name).mkdir()  # of a file that was to go there
    settle(["elsewhere"])
    assert names(here) == ["old", "old/a.json"]
    killed(old, "ready")
    killed(new / "deep", "ready")
    assert (old / "a.json").read_text() == "old"
    settle([])
    assert names(here) == ["new", "new/deep", "new/deep/a.json", "old", "old/a.json"]
    assert (old / "a.json").read_text() == "new"


def test_names_that_no_file_can_have_hold_up_no_set(here: Path) -> None:
    (here / "old").mkdir()
    killed(here / "old", "ready")
    (ready,) = (path.parent for path in here.rglob("a.json"))
    (here / "loop").symlink_to("loop")
    bad = [
        "\ud800",
        "\ud800/b",
        "a\0",
        "x" * 300,
        "y/" * 3000 + "z",
        "/a",
        "../a",
        "",
        ".",
        "../../loop/b",
        "loop/b",
    ]
    (ready / ".rackplan-gone").write_text(json.dumps(bad))
    settle([])
    assert (here / "old/a.json").read_text() == "new"
    assert names(here) == ["loop", "old", "old/a.json"]


def open_files() -> int:
    """Return how many files this process has open; 0 where a system does not say."""
    there = Path("/proc/self/fd")
    return len([*there.iterdir()]) if there.is_dir() else 0


def test_what_is_being_written_stays_and_nobody_else_writes_it(here: Path) -> None:
    with staging(here / "out") as made, scratch() as folder:
        (made.folder / "a").write_text("half")
        (folder / "b").write_text("half")
        settle([here / "out"])
        assert (made.folder / "a").exists()
        assert (folder / "b").exists()
        handles = open_files()
        with pytest.raises(BusyError, match="another rackplan is writing there"), staging(here / "out"):
            pass
        assert open_files() == handles
    assert (names(here), names(here.parent / "tmp")) == ([], [])


def test_what_is_not_ours_is_left_alone(here: Path) -> None:
    (here / ".rackplan-notes").mkdir()
    (here / ".rackplan-0123456789ab").write_text("a file")
    (here / ".rackplan-0123456789ac").symlink_to(here.parent / "tmp")
    (here.parent / "tmp/mine").write_text("mine")
    before = names(here)
    settle([here])
    assert names(here) == before
    assert names(here.parent / "tmp") == ["mine"]


def test_a_reader_refuses_results_that_it_cannot_finish(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed(here, "ready")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("topology.staging._place", refuse)
    with pytest.raises(InputError, match="killed left results half-way there"):
        settle([here / "a.json"])
    settle([])  # what nobody asked for stops nobody


def test_names_that_lead_out_of_the_folder_are_not_removed(here: Path) -> None:
    outside = here.parent / "outside"
    outside.write_text("mine")
    with staging(here) as made:
        (made.folder / "a").write_text("new")
        made.commit(gone=["../outside", str(outside), "absent"])
    assert outside.read_text() == "mine"
    assert names(here) == ["a"]


def test_a_folder_made_meanwhile_is_joined(here: Path) -> None:
    with staging(here / "out") as made:
        (made.folder / "a").write_text("new")
        (here / "out").mkdir()
        (here / "out/mine").write_text("mine")
        made.commit()
    assert names(here) == ["out", "out/a", "out/mine"]


def test_no_place_for_temporary_files(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(here / "missing"))
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(InputError, match="no folder for temporary files; set TMPDIR"), scratch():
        pass


def test_nothing_has_its_name_before_it_is_on_the_disk(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files, what they lie in, the name that counts, their places, the folder; then the work folder may go."""
    done: list[str] = []
    sync, rename, replace, unlink = os.fsync, Path.rename, Path.replace, Path.unlink

    def name(path: Path) -> str:
        return "its folder" if path.name.startswith(".rackplan-") else path.name

    def synced(handle: int) -> None:
        done.append(f"sync {name(Path(f'/proc/self/fd/{handle}').readlink())}")
        sync(handle)

    def moved(path: Path, target: Path) -> Path:
        done.append(f"{name(path)} to {name(target)}")
        return (replace if path.is_file() else rename)(path, target)

    def removed(path: Path, *args: bool) -> None:
        done.append(f"remove {path.name}")
        unlink(path, *args)

    monkeypatch.setattr(os, "fsync", synced)
    for method in ("rename", "replace"):
        monkeypatch.setattr(Path, method, moved)
    monkeypatch.setattr(Path, "unlink", removed)
    write_all({here / "a.csv": b"a", here / "b.json": b"b"})
    assert done == [
        *("sync a.csv", "sync b.json", "sync new", "new to ready", "sync its folder"),
        *("a.csv to a.csv", "b.json to b.json", "sync work", "remove lock"),
    ]


def test_times_are_measured_by_a_clock_that_does_not_jump() -> None:
    """The wall clock is read for one thing alone: when the row of a study was finished."""
    asked = re.compile(r"time\.time\(|datetime\.(now|today)|utcnow|date\.today|st_mtime|getmtime")
    files = [
        path
        for package in ("topology", "cost", "placement", "rackplan")
        for path in (ROOT / package).rglob("*.py")
    ]
    found = [path.name for path in files if asked.search(path.read_text(encoding="utf-8"))]
    assert found == ["work.py"]
