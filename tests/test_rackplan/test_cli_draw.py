"""``rackplan draw``: a file of each kind, a plan's colours, refusals that leave nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Run = Callable[..., Any]


@pytest.mark.parametrize(("name", "start"), [("t.svg", b"<?xml"), ("t.png", b"\x89PNG"), ("t.pdf", b"%PDF")])
def test_each_format_is_written_and_named(run: Run, name: str, start: bytes, tmp_path: Path) -> None:
    result = run("draw", "hgx-h100", "-o", name, "--json")
    assert (result.code, result.err) == (0, "")
    assert {key: result.data[key] for key in ("cluster", "gpus", "file")} == {
        "cluster": "hgx-h100",
        "gpus": 8,
        "file": name,
    }
    content = (tmp_path / name).read_bytes()
    assert len(content) > 500
    assert content.startswith(start)


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
    assert "which has other GPUs than hgx-h100@16" in other.error_line
    assert not (tmp_path / "other.svg").exists()


def test_traffic_colours_the_links(run: Run, tmp_path: Path) -> None:
    result = run("draw", "hgx-h100@16", "--traffic", "all-to-all", "-o", "t.svg")
    assert (result.code, result.err) == (0, "")
    text = (tmp_path / "t.svg").read_text().replace("\u00a0", " ").replace("&#160;", " ")
    assert "Traffic: all&#45;to&#45;all, 1 GB from each GPU" in text
    np.save(tmp_path / "m.npy", np.ones((16, 16)))
    assert run("draw", "hgx-h100@16", "--traffic", "m.npy", "-o", "m.svg").code == 0
    assert "Bottleneck (red): " in (tmp_path / "m.svg").read_text().replace("\u00a0", " ").replace(
        "&#160;", " "
    )


def test_without_an_output_it_is_printed_and_nothing_is_written(run: Run, tmp_path: Path) -> None:
    for more, begin in (((), "<?xml"), (("--format", "slurm"), "- topology:")):
        printed = run("draw", "hgx-h100@16", *more)
        assert (printed.code, printed.out[: len(begin)]) == (0, begin)
        assert run("draw", "hgx-h100@16", *more, "--json").data["text"] == printed.out
    assert list(tmp_path.iterdir()) == []
