"""``rackplan draw``: a file of each kind, a plan's colours, refusals that leave nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Run = Callable[..., Any]


@pytest.mark.parametrize(
    ("name", "start"),
    [("t.svg", b"<?xml"), ("t.png", b"\x89PNG"), ("t.pdf", b"%PDF"), ("t.dot", b"")],
)
def test_each_format_is_written_and_named(run: Run, name: str, start: bytes, tmp_path: Path) -> None:
    result = run("draw", "hgx-h100", "-o", name, "--json")
    assert (result.code, result.err) == (0, "")
    assert result.data == {"cluster": "hgx-h100", "gpus": 8, "file": name}
    content = (tmp_path / name).read_bytes()
    assert len(content) > 500
    assert content.startswith(start)


def test_without_json_it_says_what_it_drew(run: Run) -> None:
    result = run("draw", "hgx-h100@16", "-o", "t.svg")
    assert (result.code, result.err) == (0, "")
    assert result.out == "t.svg: hgx-h100@16, 16 GPUs\n"


def test_a_plan_colours_the_gpus(run: Run, tmp_path: Path) -> None:
    plan = ("plan", "--model", "mixtral-8x7b", "--cluster", "hgx-h100", "--time-limit", "0", "-o", "plan")
    assert run(*plan).code == 0
    assert run("draw", "hgx-h100", "-o", "plain.svg").code == 0
    assert run("draw", "hgx-h100", "--plan", "plan/plan.json", "-o", "loaded.svg").code == 0
    loaded = (tmp_path / "loaded.svg").read_text()
    assert "expert load" in loaded
    assert "expert load" not in (tmp_path / "plain.svg").read_text()
    other = run("draw", "hgx-h100@16", "--plan", "plan/plan.json", "-o", "other.svg")
    assert other.code == 2
    assert "whose GPUs differ from hgx-h100@16" in other.error_line
    assert not (tmp_path / "other.svg").exists()


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("hgx-h101", "-o", "t.svg"), "hgx-h100"),
        (("hgx-h100", "-o", "t.gif"), "t.gif"),
        (("hgx-h100", "-o", "absent/t.svg"), "absent/t.svg"),
        (("hgx-h100", "-o", "t.svg", "--level", "atom"), "atom"),
        (("hgx-h100", "-o", "t.svg", "--plan", "absent.json"), "absent.json"),
    ],
)
def test_bad_input_leaves_nothing(run: Run, args: tuple[str, ...], words: str, tmp_path: Path) -> None:
    result = run("draw", *args, "--json")
    assert result.code == 2
    assert words in result.error_line
    assert list(tmp_path.iterdir()) == []
