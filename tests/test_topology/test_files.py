"""Files appear whole or not at all, through no link, and nothing is left of what failed."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from helpers import killed
from topology.base.errors import InputError
from topology.base.files import write_folder, write_new, write_whole

WRITE = """
from topology.base.files import write_folder
write_folder(Path(sys.argv[1]), {"report.html": b"new", "plan.json": b"new"})
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder, with somebody's file and folder beside it."""
    for name in ("work", "mine"):
        (tmp_path / name).mkdir()
    (tmp_path / "mine/letter").write_text("dear")
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


def tree(folder: Path) -> dict[str, str]:
    """Return the files below a folder with their text, links as where they lead."""
    return {
        str(path.relative_to(folder)): f"-> {path.readlink()}" if path.is_symlink() else path.read_text()
        for path in sorted(folder.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


def test_a_new_file_never_takes_the_place_of_another(here: Path) -> None:
    write_new({here / "plan.json": b"first"})
    with pytest.raises(InputError, match="it exists and will not be overwritten"):
        write_new({here / "more.json": b"second", here / "plan.json": b"second"})
    assert tree(here) == {"plan.json": "first"}


def test_what_is_no_file_or_read_only_stays(here: Path) -> None:
    (here / "folder").mkdir()
    os.mkfifo(here / "pipe")
    (here / "protected").write_text("old")
    (here / "protected").chmod(0o444)
    refused = {"folder": "it is a folder", "pipe": "not a regular file", "protected": "it is read-only"}
    for name, words in refused.items():
        with pytest.raises(InputError, match=words):
            write_whole(Path(name), b"new")
        with pytest.raises(InputError, match=words):
            write_folder(here, {"a": b"new", name: b"new"})
    assert {path.name for path in here.iterdir()} == set(refused)


@pytest.mark.parametrize(
    ("link", "to", "target"),
    [
        ("a.json", "../mine/letter", "a.json"),
        ("link", "../mine", "{here}/link/letter"),
        ("inner/link", "../../mine", "inner/../inner/link/deep/letter"),
        ("../out.json", "mine/letter", "../out.json"),
    ],
)
def test_links_are_refused(here: Path, link: str, to: str, target: str) -> None:
    (here / link).parent.mkdir(exist_ok=True)
    (here / link).symlink_to(to)
    path, before = Path(target.format(here=here)), tree(here.parent)
    with pytest.raises(InputError, match=r"is a symbolic link, which is not followed; remove it"):
        write_whole(path, b"new")
    for folder in (path, path.parent):
        with pytest.raises(InputError, match="is a symbolic link"):
            write_folder(folder, {path.name: b"new"})
        with pytest.raises(InputError, match="is a symbolic link"):
            write_folder(folder, {"a": b"new"}, gone=[path.name])
    assert tree(here.parent) == before


def test_links_above_the_working_folder_are_followed(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "alias").symlink_to("work")
    write_whole(tmp_path / "alias/a", b"a")
    monkeypatch.chdir(tmp_path / "alias")
    write_folder(tmp_path / "alias/out", {"b": b"b"})
    write_folder(Path("missing/../other"), {"c": b"c"})
    assert tree(here) == {"a": "a", "out/b": "b", "other/c": "c"}


def test_sets_replace_what_is_there_and_keep_what_is_not_theirs(here: Path) -> None:
    write_folder(Path("a/b"), {"x": b"1", "plan-0/y": b"1", "plan-1/y": b"1"})
    (here / "a/b/notes").write_text("mine")
    write_folder(Path("a/b"), {"x": b"2", "plan-0/y": b"2"}, gone=["plan-1/y", "absent"])
    assert tree(here) == {"a/b/notes": "mine", "a/b/plan-0/y": "2", "a/b/x": "2"}
    assert not (here / "a/b/plan-1").exists()


def test_permissions_follow_the_umask_or_the_file_replaced(here: Path) -> None:
    before = os.umask(0o027)
    try:
        write_whole(here / "a", b"")
        write_folder(here / "out", {"b": b""})
        (here / "c").touch(mode=0o600)
        write_whole(here / "c", b"new")
    finally:
        os.umask(before)
    modes = {name: stat.S_IMODE((here / name).stat().st_mode) for name in ("a", "out", "out/b", "c")}
    assert modes == {"a": 0o640, "out": 0o750, "out/b": 0o640, "c": 0o600}


def test_nothing_changes_and_nothing_is_left_where_one_fails(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "b").write_text("old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    for target in (here, here / "new/deep"):
        with pytest.raises(InputError, match="No space left on device"):
            write_folder(target, {"a": b"new", "b": b"new"})
    assert tree(here) == {"b": "old"}
    assert [path.name for path in here.iterdir()] == ["b"]


def test_a_kill_leaves_the_old_file_and_nobody_looks_at_the_rest(here: Path) -> None:
    for name in ("report.html", "plan.json"):
        (here / name).write_text("old")
    left = killed(WRITE, here, here)
    assert [(here / name).read_text() for name in ("report.html", "plan.json")] == ["new", "old"]
    write_folder(here, {"report.html": b"newer", "plan.json": b"newer"})
    assert tree(here) == {f"{left.name}/plan.json": "new", "report.html": "newer", "plan.json": "newer"}
