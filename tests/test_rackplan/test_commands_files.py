"""``draw``, ``import``, ``export`` and its launch files: each format, flags that follow the split, ranks in order."""

from __future__ import annotations

import csv
import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from goldens import require_text
from helpers import PLAN, Run, plan_of


def flat(path: Path) -> str:
    """The text of a drawing with spaces that may break."""
    return path.read_text().replace("\u00a0", " ").replace("&#160;", " ")


@pytest.mark.parametrize(("name", "start"), [("t.svg", b"<?xml"), ("t.png", b"\x89PNG"), ("t.pdf", b"%PDF")])
def test_each_format_is_written_and_named(run: Run, name: str, start: bytes, tmp_path: Path) -> None:
    result = run("draw", "hgx-h100", "-o", name, "--json")
    assert (result.code, result.err, result.data["file"]) == (0, "", name)
    assert (tmp_path / name).read_bytes().startswith(start)


def test_a_plan_colours_the_gpus_and_traffic_the_links(run: Run, prepared: Run, tmp_path: Path) -> None:
    prepared(*PLAN)
    assert run("draw", "hgx-h100", "--plan", "plan/plan.json", "-o", "loaded.svg").code == 0
    assert "expert load" in flat(tmp_path / "loaded.svg")
    assert run("draw", "hgx-h100@16").out.startswith("<?xml")
    result = run("draw", "hgx-h100@16", "--traffic", "all-to-all", "-o", "t.svg")
    assert (result.code, result.err) == (0, "")
    assert "expert load" not in flat(tmp_path / "t.svg")
    np.save(tmp_path / "m.npy", np.ones((16, 16)))
    assert run("draw", "hgx-h100@16", "--traffic", "m.npy", "-o", "m.svg").code == 0
    assert "Bottleneck (red): " in flat(tmp_path / "m.svg")


def test_an_imported_cluster_is_read_by_other_commands(run: Run, tmp_path: Path) -> None:
    tree = (
        "SwitchName=core Switches=leaf[1-2]\nSwitchName=leaf1 Nodes=n[1-2]\nSwitchName=leaf2 Nodes=n[3-4]\n"
    )
    (tmp_path / "topology.conf").write_text(tree)
    done = run("import", "topology.conf", "--gpu", "hgx-h100", "-o", "c.yaml")
    assert done.code == 0
    assert "32 GPUs (h100-sxm) in 4 hosts" in done.out
    assert "Hosts in order (d0.n0, d0.n1, ...): n[1-4]" in (tmp_path / "c.yaml").read_text()
    assert run("draw", "c.yaml", "-o", "c.svg").code == 0
    assert run("traffic", "c.yaml").code == 0


def test_an_import_says_what_was_read_given_assumed_and_not_used(run: Run, tmp_path: Path) -> None:
    matrix = "\tGPU0\tGPU1\tNIC0\nGPU0\t X \tNV18\tPIX\nGPU1\tNV18\t X \tNODE\nNIC0\tPIX\tNODE\t X \n"
    (tmp_path / "topo.txt").write_text(matrix)
    done = run("import", "topo.txt", "--gpu", "h100-sxm", "--pcie", "64 GB/s", "-o", "c.yaml", "--json")
    (read,) = done.data["read"]
    assert (read["name"], read["file_kind"]) == ("topo.txt", "topo-m")
    assert read["file_content"] == "2 GPUs, 36 scale-up links, 1 NIC port"
    rows = [(row["remark_kind"], row["assumption"]) for row in done.data["taken"]]
    rows += [(row["remark_kind"], row["anomaly"]) for row in done.data["anomalies"]]
    assert [kind for kind, _ in rows] == ["read", "option", "assumed", "assumed", "not used", "not used"]
    lines = (tmp_path / "c.yaml").read_text().splitlines()
    comments = " ".join(" ".join(line[1:] for line in lines if line.startswith("#")).split())
    assert "File topo.txt (topo-m): 2 GPUs, 36 scale-up links" in comments
    for kind, text in rows:
        assert f"{kind.capitalize()}: {text}" in comments


def test_several_clusters_are_drawn_to_one_scale(run: Run, tmp_path: Path) -> None:
    names = ("hgx-h100", "gb200-nvl72@144", "rubin-576")
    done = run("draw", *names, "-o", "g.svg", "--json")
    assert (done.code, done.data["cluster"], done.data["gpus"]) == (0, ", ".join(names), 8 + 144 + 576)
    text = flat(tmp_path / "g.svg").replace("&#45;", "-")
    assert "hypothetical" in text
    for more in (("--level", "gpu"), ("--traffic", "ring"), ("-o", "g.csv"), ("--format", "slurm")):
        refused = run("draw", *names, *more)
        assert refused.code == 2
        assert "one domain of each" in refused.err


FEW = (*PLAN, "--batch", "4", "--redundant", 8)
FILES = {"sglang": "x.json", "trtllm": "x.yaml", "vllm-ascend": "x.json", "vllm": "x.jsonl"}


@pytest.mark.parametrize("engine", FILES)
def test_writes_a_file_that_checks_and_comes_back(
    run: Run, prepared: Run, tmp_path: Path, engine: str
) -> None:
    prepared(*FEW)
    file = FILES[engine]
    result = run("export", "plan/plan.json", "--to", engine, "-o", file)
    assert (result.code, result.err) == (0, "")
    assert ("No release of" in result.out) == (engine == "vllm")
    back = ("import-plan", file, "--from", engine, "--model", "mixtral-8x7b")
    checked = run(*back, "--check", "--ep", 8, "--json").data
    assert (checked["can_load"], checked["is_right"]) == (True, True)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["plan", file])
    if engine in ("sglang", "vllm"):
        ours = json.loads((tmp_path / "plan/plan.json").read_text())
        cluster = ("--cluster", "hgx-h100", "--batch", 4, "--tp", ours["layout"]["tp"])
        assert run(*back, *cluster, "-o", "back").code == 0
        again = json.loads((tmp_path / "back/plan.json").read_text())
        assert again["experts"] == ours["experts"]
        assert again["score"]["step_s"] == pytest.approx(ours["score"]["step_s"])


def test_balancedness_is_that_of_the_engines_own_split(run: Run, prepared: Run, tmp_path: Path) -> None:
    prepared(*FEW)
    plan = json.loads((tmp_path / "plan/plan.json").read_text())
    planned = pytest.approx(plan["score"]["balancedness_mean"])
    even = run("export", "plan", "--to", "trtllm", "--json").data
    assert even["engine_balancedness"] == even["balancedness"] == planned
    tokens = np.array(plan["inputs"]["loads"]["tokens"][0])
    ratios = []
    for load, row in zip(tokens, plan["experts"]["layers"].values(), strict=True):
        busy = [0.0] * 8
        for expert, tokens_of in enumerate(load):
            holders = [gpu for gpu, held in enumerate(row) if expert in held]
            for rank in range(8):  # sends an eighth of an expert's tokens to the copy that its number says
                tp = plan["layout"]["tp"]
                copy = rank if tp == 1 else rank % tp + rank // tp + expert
                busy[holders[copy % len(holders)]] += tokens_of / 8
        ratios.append(sum(busy) / 8 / max(busy))
    to = ("--to", "vllm-ascend")
    ascend = run("export", "plan", *to, "-o", "x.json", "--json").data
    assert ascend["engine_balancedness"] == pytest.approx(np.mean(ratios))
    assert ascend["balancedness"] == planned
    back = ("--model", "mixtral-8x7b", "--cluster", "hgx-h100", "--batch", 4, "-o", "back", "--json")
    imported = run("import-plan", "x.json", "--from", "vllm-ascend", *back).data
    again = run("export", "back", *to, "--json").data
    assert imported["engine_balancedness"] == again["engine_balancedness"] < imported["balancedness"]


def warnings(data: dict[str, Any]) -> str:
    return "\n".join(note["text"] for note in data["notes"] if note["kind"] == "warning")


def test_the_flag_follows_the_split(run: Run, prepared: Run) -> None:
    prepared(*FEW)
    data = run("export", "plan", "--to", "sglang", "--json").data
    assert "--ep-dispatch-algorithm dynamic" in data["flags"]
    assert "plan --split rank" in warnings(run("export", "plan", "--to", "vllm-ascend", "--json").data)
    prepared(*FEW, "--split", "source")
    for engine, fitting in (("vllm-ascend", "rank"), ("vllm", "even"), ("trtllm", "even")):
        data = run("export", "plan", "--to", engine, "--json").data
        assert f"plan --split {fitting}" in warnings(data), engine


def test_stages_and_replicas(run: Run) -> None:
    cluster = ("--cluster", "hgx-h100@16", "--ep", "4", "--stages", "2", "--batch", 2)
    assert run(*PLAN, *cluster).code == 0
    data = run("export", "plan", "--to", "trtllm", "-o", "x.yaml", "--json").data
    assert "pipeline_parallel_size: 2" in data["flags"]
    line = run("export", "plan", "--to", "vllm-ascend", "-o", "x.json").error_line
    assert "counts MoE layers from 0 in each process" in line
    assert "rackplan plan --stages 1" in line
    ranks = [(row["replica"], row["stage"], row["rank"]) for row in data["ranks"]]
    assert ranks == [(replica, rank // 4, rank) for replica in range(2) for rank in range(8)]
    assert len({row["gpu_id"] for row in data["ranks"]}) == 16
    assert "2 replicas" in warnings(data)


BASE = (*PLAN[:-2], "--batch", "2", "--redundant", "8")
TWO_HOSTS = (*BASE, "--cluster", "hgx-h100@16", "--ep", "16", "--stages", "1", "-o", "plan")
TWO_REPLICAS = (*BASE, "--cluster", "hgx-h100@16", "--ep", "4", "--stages", "2", "-o", "plan")
POOLS = plan_of("deepseek-v3", "hgx-h200@32", phase=None)


def plain(text: str, folder: Path) -> str:
    """A manifest without the placements, which are those of the files beside it."""
    assert text.endswith("\n")
    manifests: list[dict[str, Any]] = list(yaml.safe_load_all(text))
    for manifest in manifests:
        if manifest["kind"] == "ConfigMap":
            for name, content in manifest["data"].items():
                if (folder / name).exists():
                    assert content == (folder / name).read_text()
                    manifest["data"][name] = "as the file"
    return yaml.safe_dump_all(manifests, width=100)


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


def test_slurm_lists_hosts_of_each_stage_and_expert_group(run: Run, prepared: Run, tmp_path: Path) -> None:
    prepared(*TWO_REPLICAS)
    asked = "export plan --to sglang -o x.json --launch slurm --hosts node[001-002] --ranks --json"
    data = run(*asked.split()).data
    keys = ("replica", "stage", "first_rank", "last_rank", "hostlist")
    assert [tuple(group[key] for key in keys) for group in data["expert_groups"]] == [
        (0, 0, 0, 3, "node001"),
        (0, 1, 4, 7, "node001"),
        (1, 0, 0, 3, "node002"),
        (1, 1, 4, 7, "node002"),
    ]
    ranks = list(csv.DictReader((tmp_path / "x.ranks.csv").read_text().splitlines()))
    assert [tuple(row[key] for key in ("rank", "host", "gpu", "nics")) for row in ranks[7:9]] == [
        ("7", "node001", "7", "d0.n0.g7.nic"),
        ("0", "node002", "0", "d1.n0.g0.nic"),
    ]
    assert [(rank["gpu_id"], rank["host"]) for rank in data["ranks"]] == [
        (row["id"], row["host"]) for row in ranks
    ]
    path = tmp_path / "x.slurm.sh"
    assert subprocess.run(["bash", "-n", str(path)], check=False).returncode == 0  # noqa: S607
    require_text("launch-slurm", path.read_text())
