"""``rackplan export --launch``: Kubernetes manifests that parse, Slurm scripts that a shell reads, ranks in order."""

from __future__ import annotations

import csv
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from goldens import require_text
from helpers import PLAN, Run, plan_of

BASE = (*PLAN[:-2], "--batch", "2", "--redundant", "8")
TWO_HOSTS = (*BASE, "--cluster", "hgx-h100@16", "--ep", "16", "--stages", "1", "-o", "plan")
TWO_REPLICAS = (*BASE, "--cluster", "hgx-h100@16", "--ep", "4", "--stages", "2", "-o", "plan")
POOLS = plan_of("deepseek-v3", "hgx-h200@32", phase=None)


def plain(text: str, folder: Path) -> str:
    """A manifest without the placements, which are those of the files beside it."""
    found: list[dict[str, Any]] = list(yaml.safe_load_all(text))
    for one in found:
        if one["kind"] == "ConfigMap":
            for name, content in one["data"].items():
                if (folder / name).exists():
                    assert content == (folder / name).read_text()
                    one["data"][name] = "as the file"
    return yaml.safe_dump_all(found, width=100)


@pytest.mark.parametrize(
    ("kind", "engine", "file", "more"),
    [
        ("lws", "sglang", "x.json", ("--image", "mine:1", "--hosts", "n[08-09]")),
        pytest.param("dynamo", "trtllm", "x.yaml", (), marks=pytest.mark.wide),
        ("llm-d", "vllm", "x.jsonl", ()),
    ],
)
def test_manifests_read_as_they_did(
    run: Run, prepared: Run, tmp_path: Path, kind: str, engine: str, file: str, more: tuple[str, ...]
) -> None:
    """Images, GPUs, addresses of leaders, files where engines look for them, hosts by name, roles of pools."""
    prepared(*(TWO_HOSTS if more else POOLS))
    result = run("export", "plan", "--to", engine, "-o", file, "--launch", kind, *more, "--json")
    assert (result.code, result.err) == (0, "")
    assert (result.data["launch_file"], result.data["start_command"]) == (
        f"x.{kind}.yaml",
        "kubectl apply -f",
    )
    require_text(f"launch-{kind}", plain((tmp_path / f"x.{kind}.yaml").read_text(), tmp_path))


@pytest.mark.wide
def test_slurm_lists_hosts_of_each_stage_and_expert_group(run: Run, prepared: Run, tmp_path: Path) -> None:
    prepared(*TWO_REPLICAS)
    asked = (
        "export",
        "plan",
        "--to",
        "sglang",
        "-o",
        "x.json",
        "--launch",
        "slurm",
        "--hosts",
        "node[001-002]",
    )
    data = run(*asked, "--json").data
    keys = ("replica", "stage", "first_rank", "last_rank", "hostlist")
    assert [tuple(group[key] for key in keys) for group in data["expert_groups"]] == [
        (0, 0, 0, 3, "node001"),
        (0, 1, 4, 7, "node001"),
        (1, 0, 0, 3, "node002"),
        (1, 1, 4, 7, "node002"),
    ]
    path = tmp_path / "x.slurm.sh"
    assert subprocess.run(["bash", "-n", str(path)], check=False).returncode == 0  # noqa: S607
    require_text("launch-slurm", path.read_text())


def test_a_table_of_ranks(run: Run, prepared: Run, tmp_path: Path) -> None:
    prepared(*TWO_HOSTS)
    asked = ("export", "plan", "--to", "vllm", "-o", "x.jsonl", "--ranks", "--hosts", "n[08-09]", "--json")
    ranks = run(*asked).data["ranks"]
    rows = list(csv.DictReader((tmp_path / "x.ranks.csv").read_text().splitlines()))
    assert [tuple(row[key] for key in ("rank", "host", "gpu", "nics")) for row in rows[7:9]] == [
        ("7", "n08", "7", "d0.n0.g7.nic"),
        ("8", "n09", "0", "d1.n0.g0.nic"),
    ]
    assert [(rank["gpu_id"], rank["host"]) for rank in ranks] == [(row["id"], row["host"]) for row in rows]
