"""``rackplan export --launch``: Kubernetes manifests that parse, Slurm scripts that a shell reads, ranks in order."""

from __future__ import annotations

import csv
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

Run = Callable[..., Any]

PLAN = ("plan", "--model", "mixtral-8x7b", "--time-limit", "0", "--batch", "2", "--redundant", "8")
TWO_HOSTS = (*PLAN, "--cluster", "hgx-h100@16", "--ep", "16", "--stages", "1", "-o", "plan")
TWO_REPLICAS = (*PLAN, "--cluster", "hgx-h100@16", "--ep", "4", "--stages", "2", "-o", "pairs")
PREFILL = (*PLAN, "--cluster", "hgx-h100", "--phase", "prefill", "--ep", "8", "--stages", "1", "-o", "first")
FILES = {"sglang": "x.json", "trtllm": "x.yaml", "vllm": "x.jsonl", "vllm-ascend": "x.json"}


def exported(run: Run, plan: str, engine: str, kind: str, *more: object) -> Any:
    """Export ``plan`` and return the result, which succeeded."""
    asked = ("export", plan, "--to", engine, "-o", FILES[engine], "--launch", kind, *more)
    result = run(*asked, "--json")
    assert (result.code, result.err) == (0, "")
    return result.data


def documents(path: Path) -> dict[str, list[dict[str, Any]]]:
    """The documents of a manifest by kind."""
    found: dict[str, list[dict[str, Any]]] = {}
    for one in yaml.safe_load_all(path.read_text()):
        found.setdefault(one["kind"], []).append(one)
    return found


def container(pod: dict[str, Any]) -> dict[str, Any]:
    """The one container of a pod."""
    (found,) = pod["containers"]
    return dict(found)


def test_leader_worker_set(run: Run, prepared: Run, tmp_path: Path) -> None:
    prepared(*TWO_HOSTS)
    data = exported(run, "plan/plan.json", "sglang", "lws", "--image", "mine:1", "--hosts", "n[08-09]")
    assert (data["launch_file"], data["start_command"]) == ("x.lws.yaml", "kubectl apply -f")
    group = {"pool": "mixtral-8x7b-v0-1", "role": "both", "replica": 0, "stage": 0}
    group |= {"first_layer": 0, "last_layer": 31, "first_rank": 0, "last_rank": 15}
    assert data["expert_groups"] == [{**group, "hostlist": "n[08-09]"}]
    found = documents(tmp_path / "x.lws.yaml")
    (config,) = found["ConfigMap"]
    assert config["data"] == {"x.json": (tmp_path / "x.json").read_text()}
    (lws,) = found["LeaderWorkerSet"]
    assert lws["apiVersion"] == "leaderworkerset.x-k8s.io/v1"
    assert lws["spec"]["replicas"] == 1
    assert lws["spec"]["leaderWorkerTemplate"]["size"] == 2
    pod = lws["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]
    one = container(pod)
    assert one["image"] == "mine:1"
    assert one["resources"] == {"limits": {"nvidia.com/gpu": "8"}}
    assert one["command"] == ["/bin/bash", "-c"]
    for words in (
        "--model-path mistralai/Mixtral-8x7B-v0.1",
        "--nnodes 2 --node-rank $LWS_WORKER_INDEX --dist-init-addr $LWS_LEADER_ADDRESS:20000",
        "--init-expert-location /etc/rackplan/x.json",
        "--host 0.0.0.0 --port 30000",
    ):
        assert words in one["args"][0]
    mounts = {mount["name"]: mount["mountPath"] for mount in one["volumeMounts"]}
    assert mounts["experts"] == "/etc/rackplan"
    names = {volume["name"]: volume for volume in pod["volumes"]}
    assert names["experts"]["configMap"]["name"] == config["metadata"]["name"]
    (term,) = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    assert term["matchExpressions"][0]["values"] == ["n08", "n09"]
    (service,) = found["Service"]
    assert service["spec"]["selector"]["leaderworkerset.sigs.k8s.io/worker-index"] == "0"


@pytest.mark.wide
def test_dynamo_has_a_component_for_each_pool(run: Run, prepared: Run, tmp_path: Path) -> None:
    prepared(*TWO_HOSTS)
    prepared(*PREFILL)
    exported(run, "plan/plan.json", "trtllm", "dynamo", "--prefill", "first/plan.json")
    found = documents(tmp_path / "x.dynamo.yaml")
    (graph,) = found["DynamoGraphDeployment"]
    assert graph["apiVersion"] == "nvidia.com/v1beta1"
    assert graph["spec"]["backendFramework"] == "trtllm"
    parts = {part["name"]: part for part in graph["spec"]["components"]}
    assert {name: part["type"] for name, part in parts.items()} == {
        "Frontend": "frontend",
        "DecodeWorker": "decode",
        "PrefillWorker": "prefill",
    }
    assert parts["DecodeWorker"]["multinode"] == {"nodeCount": 2}
    assert "multinode" not in parts["PrefillWorker"]
    held = {config["metadata"]["name"]: config["data"] for config in found["ConfigMap"]}
    for role, ranks in (("decode", 16), ("prefill", 8)):
        pod = parts[f"{role.capitalize()}Worker"]["podTemplate"]["spec"]
        one = container(pod)
        assert (one["name"], one["image"]) == ("main", "<IMAGE>")
        files = held[pod["volumes"][0]["configMap"]["name"]]
        options = yaml.safe_load(files[f"{role}-options.yaml"])
        assert options["moe_expert_parallel_size"] == ranks
        name = options["moe_config"]["load_balancer"].removeprefix("/etc/rackplan/")
        assert files[name] == (tmp_path / name).read_text()
        assert f"--extra-engine-args /etc/rackplan/{role}-options.yaml" in one["args"][0]
        assert f"--disaggregation-mode {role}" in one["args"][0]


def test_llm_d_labels_roles_and_puts_its_sidecar_before_decode(
    run: Run, prepared: Run, tmp_path: Path
) -> None:
    prepared(*TWO_HOSTS)
    prepared(*PREFILL)
    data = exported(run, "plan/plan.json", "vllm", "llm-d", "--prefill", "first/plan.json")
    assert any("<ROUTING-SIDECAR-IMAGE>" in note["text"] for note in data["notes"])
    sets = documents(tmp_path / "x.llm-d.yaml")["LeaderWorkerSet"]
    roles = {}
    for one in sets:
        template = one["spec"]["leaderWorkerTemplate"]["workerTemplate"]
        labels = template["metadata"]["labels"]
        assert labels["llm-d.ai/inference-serving"] == "true"
        roles[labels["llm-d.ai/role"]] = template["spec"]
    assert [part["name"] for part in roles["decode"]["initContainers"]] == ["routing-proxy"]
    assert "initContainers" not in roles["prefill"]
    assert container(roles["decode"])["ports"][0]["containerPort"] == 8001
    assert container(roles["prefill"])["ports"][0]["containerPort"] == 8000
    assert "NixlConnector" in container(roles["prefill"])["args"][0]


@pytest.mark.wide
def test_slurm_lists_hosts_of_each_stage_and_expert_group(run: Run, prepared: Run, tmp_path: Path) -> None:
    prepared(*TWO_REPLICAS)
    data = exported(run, "pairs/plan.json", "sglang", "slurm", "--hosts", "node[001-002]")
    keys = ("replica", "stage", "first_rank", "last_rank", "hostlist")
    assert [tuple(group[key] for key in keys) for group in data["expert_groups"]] == [
        (0, 0, 0, 3, "node001"),
        (0, 1, 4, 7, "node001"),
        (1, 0, 0, 3, "node002"),
        (1, 1, 4, 7, "node002"),
    ]
    path = tmp_path / "x.slurm.sh"
    text = path.read_text()
    assert subprocess.run(["bash", "-n", str(path)], check=False).returncode == 0  # noqa: S607
    assert "#SBATCH --nodelist=node[001-002]" in text
    groups = data["expert_groups"][:2]
    cut = ",".join(str(group["last_layer"] - group["first_layer"] + 1) for group in groups)
    assert text.count(f"SGLANG_PP_LAYER_PARTITION={cut} python3") == 2
    assert text.count("srun --distribution=arbitrary --ntasks=1 ") == 2
    assert re.findall(r"<<'HOSTS'\n(.*)\nHOSTS", text) == ["node001", "node002"]


def test_a_table_of_ranks(run: Run, prepared: Run, tmp_path: Path) -> None:
    prepared(*TWO_HOSTS)
    result = run(
        "export", "plan", "--to", "vllm", "-o", "x.jsonl", "--ranks", "--hosts", "n[08-09]", "--json"
    )
    rows = list(csv.DictReader((tmp_path / "x.ranks.csv").read_text().splitlines()))
    assert [(row["rank"], row["host"], row["gpu"]) for row in rows[7:9]] == [
        ("7", "n08", "7"),
        ("8", "n09", "0"),
    ]
    assert rows[8]["nics"] == "d1.n0.g0.nic"
    assert [rank["gpu_id"] for rank in result.data["ranks"]] == [row["id"] for row in rows]
    assert result.data["ranks"][8]["host"] == "n09"
