"""What is broken stands out: red with a word, never one of many alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml

from topology import resolve_cluster
from topology.draw import dot_source
from topology.draw.canvas import FAULT, SLOW_FILL

if TYPE_CHECKING:
    from pathlib import Path

PODS: dict[str, Any] = {"domains": [{"part": "gb200-nvl72", "count": 16}]}
LEAVES: dict[str, Any] = {
    "domains": [{"part": "hgx-h100", "count": 64}],
    "fabric": {"kind": "leaf-spine", "nic": "400 Gb/s", "nodes_per_leaf": 4, "spines": 4},
}


def source(folder: Path, content: dict[str, Any], broken: list[dict[str, Any]], level: str = "auto") -> str:
    path = folder / "c.yaml"
    path.write_text(
        yaml.safe_dump({"name": "c", **content, **({"broken": broken} if broken else {})}), encoding="utf-8"
    )
    return dot_source(resolve_cluster(str(path)), level=level)


def test_identical_parts_without_faults(tmp_path: Path) -> None:
    text = source(tmp_path, PODS, [])
    assert "x 15 alike" in text
    assert FAULT not in text


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ({"gpu": "d5.n3.g1"}, ["x 14 alike", "d5: 71 GPUs", ">out<", "Out of service: d5.n3.g1"]),
        ({"link": ["d5.n3.g1", "d5.s7"]}, ["x 14 alike", "d5: 72 GPUs", "d5.n3.g1: d5.s7", "Broken links:"]),
        ({"link": ["d5.n3.g1", "d5.s7"], "factor": 0.25}, ["x 14 alike", "d5.n3.g1: d5.s7", "at x 0.25"]),
        (
            {"link": ["f.p5.l2", "f.s3"]},
            ["x 14 alike", "f.p5.l2: f.s3", "f.s3: f.p5.l2 broken", "70 x 50 GB/s"],
        ),
        ({"link": ["d5.n3.g1", "f.p5.l1"]}, ["x 14 alike", "d5.n3.g1: f.p5.l1", "f.p5.l1: d5.n3.g1"]),
    ],
)
def test_one_fault_opens_its_pod(fault: dict[str, Any], words: list[str], tmp_path: Path) -> None:
    text = source(tmp_path, PODS, [fault])
    for word in words:
        assert word in text
    assert FAULT in text


def test_a_switch_out_of_service_stays_where_it_is_cabled(tmp_path: Path) -> None:
    content = {"domains": [{"part": "gb200-nvl72", "count": 4}]}
    text = source(tmp_path, content, [{"switch": "f.p1.l2"}, {"switch": "f.s0"}, {"switch": "d2.s5"}])
    for name in ("f.p1.l2", "f.s0", "d2.s5"):
        assert f"{name}: out of service" in text
    assert "Switches out of service: d2.s5, f.p1.l2, f.s0" in text
    assert not [word for word in ("no spine", "no GPUs below", "broken<") if word in text]


@pytest.mark.parametrize(
    ("part", "chips"),
    [("gb200-nvl72", "each of 17 switch chips"), ("rubin-576", "36 switch planes, 20,160 links")],
)
def test_a_dead_switch_chip_makes_no_second_tier(part: str, chips: str, tmp_path: Path) -> None:
    text = source(tmp_path, {"domains": [{"part": part}]}, [{"switch": "d0.s3"}])
    assert "second tier" not in text
    assert "d0.s3: out of service" in text
    assert chips in text


def test_dead_chips_stay_in_the_tier_that_they_were_built_in(tmp_path: Path) -> None:
    faults = [{"switch": "d0.n3.s2"}, {"switch": "d0.s1.u4"}, {"node": "d0.n7"}]
    text = source(tmp_path, {"domains": [{"part": "cm384"}]}, faults)
    assert "112 switch chips in 7 planes" in text
    assert "84 chips, d0.n0.s0 to d0.n11.s6" in text


@pytest.mark.parametrize(
    "part", ["gb200-nvl72", "rubin-576", "hgx-h100", "mi300x", "tpu-v5p", "cm384", "trn2-ultra"]
)
@pytest.mark.parametrize("level", ["domain", "gpu"])
def test_throttled_gpus_are_drawn_named_and_counted(part: str, level: str, tmp_path: Path) -> None:
    faults = [{"gpu": "d0.n0.g1", "factor": 0.7}, {"gpu": "d0.n0.g2", "factor": 0.5}]
    text = source(tmp_path, {"domains": [{"part": part}]}, faults, level)
    assert ", 2 throttled" in text
    assert "Throttled: d0.n0.g1 at x 0.7, d0.n0.g2 at x 0.5" in text
    assert "throttled, works at a part of its rates: 2 " in text
    assert text.count(f'bgcolor="{SLOW_FILL}"') == 2 + 1  # and the legend


def test_a_throttled_gpu_is_not_one_of_many_alike(tmp_path: Path) -> None:
    text = source(tmp_path, PODS, [{"gpu": "d5.n3.g1", "factor": 0.7}])
    assert "x 14 alike" in text
    assert "d5.n3.g1: throttled x 0.7" in text
    rows = source(
        tmp_path,
        {**LEAVES, "fabric": {"kind": "rail", "nic": "400 Gb/s"}},
        [{"gpu": f"d40.n0.g{g}", "factor": 0.9} for g in range(8)],
    )
    assert rows.count(f'bgcolor="{SLOW_FILL}"') == 8 + 1


def test_rates_in_a_domain_are_those_that_are_left(tmp_path: Path) -> None:
    text = source(tmp_path, PODS, [{"switch": "d2.s4"}, {"link": ["d3.n2.g1", "d3.s0"]}])
    assert "850 GB/s each way per GPU" in text
    assert "850 GB/s to 900 GB/s each way per GPU" in text


def test_a_dead_host_stays_under_its_leaf(tmp_path: Path) -> None:
    text = source(tmp_path, LEAVES, [{"node": "d20.n0"}])
    assert "x 14 alike" in text
    assert text.count(">out<") == 8 + 1
    assert "no link to the fabric" not in text
    assert "4 switch chips, 144 links" in text
    assert ", 0 links" not in text


def test_one_host_link_by_link_is_one_with_a_fault(tmp_path: Path) -> None:
    text = source(
        tmp_path, {"domains": [{"part": "gb200-nvl72"}]}, [{"gpu": "d0.n5.g2", "factor": 0.5}], "gpu"
    )
    assert "d0.n5.g2" in text
    assert "linked alike" not in text


@pytest.mark.parametrize(
    ("part", "noun"),
    [
        ("tpu-v5p", "64 TPUs"),
        ("trn2-ultra", "64 Trainium chips"),
        ("cm384", "768 NPU dies"),
        ("mi300x", "8 GPUs"),
    ],
)
def test_accelerators_have_the_name_of_their_vendor(part: str, noun: str, tmp_path: Path) -> None:
    text = source(tmp_path, {"domains": [{"part": part}]}, [])
    assert noun in text
    assert ("GPU" in text) == noun.endswith("GPUs")
    several = [{"part": part, "count": 2}, {"part": "hgx-h100"}]
    mixed = source(tmp_path, {"domains": several, "fabric": {"kind": "leaf-spine", "nic": "400 Gb/s"}}, [])
    assert (" accelerators" in mixed) != noun.endswith("GPUs")


def test_equal_faults_are_not_collapsed(tmp_path: Path) -> None:
    text = source(tmp_path, PODS, [{"gpu": "d5.n3.g1"}, {"gpu": "d9.n3.g1"}])
    assert "x 13 alike" in text
    assert {"d5: 71 GPUs", "d9: 71 GPUs"} <= {word for word in ("d5: 71 GPUs", "d9: 71 GPUs") if word in text}


def test_faults_beyond_what_fits_are_counted(tmp_path: Path) -> None:
    broken = [{"gpu": f"d{4 * i}.n0.g0"} for i in range(12)]
    text = source(tmp_path, LEAVES, broken)
    assert "x 3 alike" in text  # 16 leaves, 12 of them with a broken GPU, one of the others open
    assert "5 more, not all alike" in text
    assert "and 8 more GPUs" in text
    assert text.count(">out<") == 7 + 1  # and the legend


def test_a_degraded_uplink_is_dashed_with_its_factor(tmp_path: Path) -> None:
    text = source(tmp_path, LEAVES, [{"link": ["f.l5", "f.s1"], "factor": 0.5}])
    assert "x 14 alike" in text
    assert "+ 8 x 50 GB/s x 0.5" in text
    line = next(line for line in text.splitlines() if '-- "pod5" ' in line)
    assert "dashed" in line


def test_links_of_one_host_one_by_one(tmp_path: Path) -> None:
    faults = [
        {"gpu": "d0.n0.g6"},
        {"link": ["d0.n0.g2", "d0.s1"], "factor": 0.5},
        {"link": ["d0.n0.g4", "d0.s3"]},
    ]
    text = source(tmp_path, {"domains": [{"part": "hgx-h100"}]}, faults)
    assert text.count(" -- ") == 7 * 4
    assert text.count(f'color="{FAULT}", penwidth') == 1
    assert ">d0.s3 broken<" in text
    assert ">d0.s1 x 0.5<" in text
    assert "out of service" in text
    assert text.count("dashed") == 2


def test_a_mesh_link(tmp_path: Path) -> None:
    faults = [{"link": ["d0.n0.g1", "d0.n0.g5"]}, {"link": ["d0.n0.g2", "d0.n0.g3"], "factor": 0.5}]
    text = source(tmp_path, {"domains": [{"part": "mi300x"}]}, faults)
    assert text.count(" -- ") == 28
    assert text.count("dashed") == 2
    assert ">6 links<" in text


def test_a_torus_link(tmp_path: Path) -> None:
    text = source(tmp_path, {"domains": [{"part": "tpu-v5p"}]}, [{"link": ["d0.n0.g0", "d0.n0.g1"]}])
    assert "d0.n0.g0: d0.n0.g1" in text
    assert f'bgcolor="{FAULT}"' in text


def test_a_host_without_a_working_gpu_stays(tmp_path: Path) -> None:
    faults = [{"gpu": f"d0.n3.g{g}"} for g in range(4)]
    text = source(tmp_path, PODS, faults, level="d0")
    assert text.count(">out<") == 4 + 1
    assert "node 3" in text
    assert text.count(" -- ") == 17 + 9  # node trays and switch trays
    assert "d0: 68 GPUs" in source(tmp_path, PODS, faults)


def test_a_two_tier_domain(tmp_path: Path) -> None:
    faults = [{"link": ["d0.n3.s2", "d0.s2.u5"]}, {"gpu": "d0.n7.g0"}]
    text = source(tmp_path, {"domains": [{"part": "cm384"}]}, faults)
    assert "s2.u5 broken" in text
    assert text.count(">out<") == 1 + 1
