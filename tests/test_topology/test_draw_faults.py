"""What is broken stands out: red with a word, never one of many alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from topology import resolve_cluster
from topology.draw import dot_source
from topology.draw.palette import FAULT, SLOW_FILL

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


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ({"gpu": "d5.n3.g1"}, ["x 14 alike", "d5: 71 GPUs", ">out<", "Out of service: d5.n3.g1"]),
        ({"link": ["d5.n3.g1", "d5.s7"], "factor": 0.25}, ["x 14 alike", "d5.n3.g1: d5.s7", "at x 0.25"]),
        (
            {"link": ["f.p5.l2", "f.s3"]},
            ["x 14 alike", "f.p5.l2: f.s3", "f.s3: f.p5.l2 broken", "70 x 50 GB/s"],
        ),
    ],
)
def test_one_fault_opens_its_pod(fault: dict[str, Any], words: list[str], tmp_path: Path) -> None:
    text = source(tmp_path, PODS, [fault])
    for word in words:
        assert word in text
    assert FAULT in text


@pytest.mark.parametrize("part", ["gb200-nvl72", "mi300x", "tpu-v5p", "cm384"])
@pytest.mark.parametrize("level", ["domain", "gpu"])
def test_throttled_gpus_are_drawn_named_and_counted(part: str, level: str, tmp_path: Path) -> None:
    faults = [{"gpu": "d0.n0.g1", "factor": 0.7}, {"gpu": "d0.n0.g2", "factor": 0.5}]
    text = source(tmp_path, {"domains": [{"part": part}]}, faults, level)
    assert ", 2 throttled" in text
    assert "Throttled: d0.n0.g1 at x 0.7, d0.n0.g2 at x 0.5" in text
    assert "throttled, works at a part of its rates: 2 " in text
    assert text.count(f'bgcolor="{SLOW_FILL}"') == 2 + 1  # and the legend


def test_faults_beyond_what_fits_are_counted(tmp_path: Path) -> None:
    broken = [{"gpu": f"d{4 * i}.n0.g0"} for i in range(12)]
    text = source(tmp_path, LEAVES, broken)
    assert "x 3 alike" in text  # 16 leaves, 12 of them with a broken GPU, one of the others open
    assert "5 more, not all alike" in text
    assert "and 8 more GPUs" in text
    assert text.count(">out<") == 7 + 1  # and the legend
