"""Where replicas must be packed, and manifests that say so held against the fields of the published schemas."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from placement.engines.manifests.kubernetes import KUBERNETES
from placement.engines.manifests.packing import DOMAIN
from placement.engines.manifests.write import ExportRequest, deploy
from placement.engines.registry import ENGINES
from placement.plan import Plan
from rackplan import plan

SCHEMAS = yaml.safe_load((Path(__file__).parent / "crds.yaml").read_text())
TYPES = {"string": str, "integer": int, "boolean": bool, "map": dict}
SAYS = {
    "lws": ("podAffinity:", "subGroupSize: 18"),
    "llm-d": ("matchLabelKeys:", "leaderworkerset.sigs.k8s.io/subgroup-key"),
    "rbg": ("podAffinity:", "topologyKey: fabric.topograph.run/tier-1"),
    "grove": ("topologyName: rackplan", "preferred: block"),
    "dynamo": ("clusterTopologyName: rackplan", "nodeCount: 36"),
    "kueue": ("kueue.x-k8s.io/podset-", "kueue.x-k8s.io/podset-slice-size: '18'"),
    "kai": ("kai.scheduler/topology-", "kai.scheduler/segment-topology-required-placement: accelerator."),
}
"""Of each kind: what a packed replica says, and what one of two domains of 18 hosts says."""


@pytest.fixture(scope="module")
def plans() -> dict[str, Plan]:
    wanted = {"host": ("hgx-h100@16", 8, 0), "leaf": ("hgx-h100@16", 16, 8), "domain": ("gb200-nvl72", 8, 0)}
    wanted["block"] = ("gb200-nvl72@144", 144, 136)
    same = {"model": "mixtral-8x7b", "stages": 1, "batch": 1, "phase": "decode", "time_limit_s": 0.0}
    return {
        name: plan(cluster=cluster, ep=ep, redundant=redundant, **same)
        for name, (cluster, ep, redundant) in wanted.items()
    }


def problems(value: Any, shape: Any, where: str) -> list[str]:
    """What is wrong with a value of a manifest: fields that are unknown or absent, types, enums, patterns."""
    if isinstance(shape, dict):
        known = {key.rstrip("!"): inner for key, inner in shape.items()}
        if not isinstance(value, dict):
            return [f"{where}: no object"]
        found = [f"{where}: {key} is unknown" for key in value if key not in known]
        found += [f"{where}: {key} missing" for key in shape if key.endswith("!") and key[:-1] not in value]
        return found + [
            one for key in value if key in known for one in problems(value[key], known[key], f"{where}.{key}")
        ]
    if isinstance(shape, list):
        return [one for i, inner in enumerate(value) for one in problems(inner, shape[0], f"{where}[{i}]")]
    if shape in TYPES:
        good = type(value) is TYPES[shape]
    else:
        good = bool(re.fullmatch(shape[1:-1], value)) if shape[0] == "/" else value in shape.split("|")
    return [] if good else [f"{where}: {value!r} is no {shape}"]


@pytest.mark.parametrize("kind", KUBERNETES)
@pytest.mark.parametrize("name", ["host", "leaf", "domain", "block"])
def test_manifests_have_the_fields_of_the_schemas(plans: dict[str, Plan], kind: str, name: str) -> None:
    deployed = deploy(ExportRequest(ENGINES["sglang"], Path("x.json"), kind), plans[name])
    kinds = set()
    for one in yaml.safe_load_all(deployed.manifest.text):
        if one["apiVersion"] != "v1":
            known = f"{one['apiVersion']} {one['kind']}"
            kinds.add(one["kind"])
            assert problems(one["spec"], SCHEMAS[known], known) == []
    packed, halves = SAYS[kind]
    assert (packed in deployed.manifest.text) == (name != "host")
    assert (halves in deployed.manifest.text) == (name == "block")
    named = bool({"Topology", "ClusterTopologyBinding"} & kinds)
    assert named == (name != "host" and kind in ("kueue", "kai", "grove"))


@pytest.fixture(scope="module")
def paired() -> Plan:
    """Two racks, in which each cache can stay in its domain."""
    return plan("deepseek-v3", "gb200-nvl72@144", time_limit_s=0.0)


@pytest.mark.parametrize("kind", KUBERNETES)
def test_what_prefills_is_kept_beside_what_decodes(paired: Plan, kind: str) -> None:
    deployed = deploy(ExportRequest(ENGINES["sglang"], Path("x.json"), kind), paired)
    near = []
    for one in yaml.safe_load_all(deployed.manifest.text):
        if one["apiVersion"] != "v1":
            known = f"{one['apiVersion']} {one['kind']}"
            assert problems(one["spec"], SCHEMAS[known], known) == []
        if one["kind"] == "LeaderWorkerSet":
            spec = one["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]
            wanted = spec.get("affinity", {}).get("podAffinity", {})
            for term in wanted.get("preferredDuringSchedulingIgnoredDuringExecution", ()):
                labels = term["podAffinityTerm"]["labelSelector"].get("matchLabels", {})
                near += [(one["metadata"]["name"], term["podAffinityTerm"]["topologyKey"], *labels.values())]
    expected = [("deepseek-v3-prefill", DOMAIN.label, "deepseek-v3-decode")]
    assert near == (expected if kind in ("lws", "llm-d", "kueue", "kai") else [])
    assert any("should share a domain with deepseek-v3-decode" in note for note in deployed.manifest.notes)
