"""``rackplan catalog``: every list and entry, as tables and as data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from cost.resolve import model_names
from topology import cluster_names, gpu_names

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Run = Callable[..., Any]

NAMES = {"gpus": gpu_names(), "clusters": cluster_names(), "models": model_names()}


@pytest.mark.parametrize("what", sorted(NAMES))
def test_lists(run: Run, what: str) -> None:
    result = run("catalog", what, "--json")
    assert (result.code, result.err) == (0, "")
    assert set(result.data) == {what}
    assert [row["name"] for row in result.data[what]] == list(NAMES[what])
    text = run("catalog", what).out
    assert max(len(line) for line in text.splitlines()) <= 100
    assert all(name in text for name in NAMES[what])


def test_everything(run: Run) -> None:
    assert set(run("catalog", "--json").data) == set(NAMES)
    assert run("catalog").code == 0


@pytest.mark.parametrize("name", [*cluster_names(), *gpu_names(), *model_names()])
def test_every_entry(run: Run, name: str) -> None:
    result = run("catalog", name, "--json")
    assert (result.code, result.err) == (0, "")
    assert result.data["name"] == name
    for figure in result.data.get("figures", {}).values():
        assert figure["unit"]
        assert figure["kind"]
        assert figure["source"]
    text = run("catalog", name)
    assert text.code == 0
    assert name in text.out
    assert max(len(line) for line in text.out.splitlines()) <= 100


def test_unknown_entries_offer_the_nearest(run: Run) -> None:
    result = run("catalog", "gb200-nvl27", "--json")
    assert result.code == 2
    assert "gb200-nvl72" in result.error_line


def test_physical_limits_of_a_cluster(run: Run, tmp_path: Path) -> None:
    data = run("catalog", "gb200-nvl72@144", "--json").data
    assert (data["gpus"], data["racks"], data["power_w"]) == (144, 2, 264000)
    assert (data["copper_links"], data["optical_links"]) == (2592, 288)
    assert (data["mass_kg"], data["rack_mass_kg"], data["mass_kind"]) == (2720, 1360, "assumed")
    assert data["links"][0]["copper_cables"] == 2 * 5184
    assert [row["gpus"] for row in data["growth"]] == [72, 144, 288, 576, 1152]
    path = tmp_path / "mine.yaml"
    path.write_text(
        "domains: [{part: mi300x, count: 2}, {part: tpu-v5p}]\nfabric: {kind: leaf-spine, nic: 400 Gb/s}"
    )
    text = run("catalog", str(path))
    assert text.code == 0
    assert "no power of tpu-v5p" in " ".join(text.out.split())
    assert "weight not published (mi300x: no weight of its racks" in " ".join(text.out.split())
    one = " ".join(run("catalog", "gb200-nvl72").out.split())
    assert "weight 1,360 kg in all, 1,360 kg a rack" in one
    assert "rack_copper_cable_m 3,200 m assumed" in one
    assert max(len(line) for line in text.out.splitlines()) <= 100
    assert run("catalog", "tpu-v5p@7", "--json").code == 2


@pytest.mark.parametrize(
    ("typed", "name"), [("NVIDIA GB200", "gb200"), ("amd/mi300x", "mi300x"), ("aws_trn2", "trn2-ultra")]
)
def test_a_maker_may_stand_before_a_name(run: Run, typed: str, name: str) -> None:
    assert run("catalog", typed).out.startswith(f"{name}: ")
