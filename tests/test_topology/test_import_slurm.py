"""Slurm's topology files and hostlists, and topograph's models of the same trees."""

from __future__ import annotations

import json

import pytest
import yaml

from topology.base.errors import InputError
from topology.importers.found import FabricFound
from topology.importers.hostlist import compress_hosts, expand_hosts
from topology.importers.importer import kind_of, parse
from topology.importers.source import Source

TREE = """# leaf = rack
SwitchName=core Switches=spine[1-2]
switchname=spine1 switches=leaf[1-2]   # keys in any case
SwitchName=spine2 \\
  Switches=leaf[3-4] LinkSpeed=400
SwitchName=leaf1 Nodes=n[001-004]
SwitchName=leaf2 Nodes=n[005-008]
SwitchName=leaf3 Nodes=n[009-010],m[1-2]
SwitchName=leaf4 Nodes=n[013-016]
"""
BLOCK = "BlockName=b1 Nodes=n[01-04]\nBlockName=b2 Nodes=n[05-08]\nBlockName=b3\nBlockSizes=4,8\n"


def read(text: str, name: str = "topology.conf") -> FabricFound:
    found = parse(Source(name, text), None)
    assert isinstance(found, FabricFound)
    return found


def test_a_tree_in_lines_of_any_case() -> None:
    found = read(TREE)
    assert list(found.hosts) == expand_hosts("n[001-010],m[1-2],n[013-016]", "here")
    assert found.hosts["n009"] == "topology.conf: line 8"
    assert found.switches == {"core": 3, "spine1": 2, "spine2": 2} | {f"leaf{i}": 1 for i in range(1, 5)}
    assert {trunk.ends for trunk in found.trunks} == {
        ("spine1", "core"), ("spine2", "core"), ("leaf1", "spine1"), ("leaf2", "spine1"), ("leaf3", "spine2"),
        ("leaf4", "spine2"),
    }  # fmt: skip


def test_block_with_a_placeholder() -> None:
    found = read(BLOCK)
    assert found.domains["n05"] == "b2"
    assert found.anomalies == ("topology.conf: line 3: block b3 has no hosts (a placeholder).",)
    assert read(BLOCK.replace("BlockName=b3", "BlockName=b3 Nodes=")) == found


def test_a_host_under_two_leaves_is_used_once_and_said() -> None:
    found = read(TREE.replace("Nodes=n[005-008]", "Nodes=n[004-008]"))
    assert len(found.ports) == 16
    assert any("line 7: host n004 is also under leaf2" in line for line in found.anomalies)


@pytest.mark.parametrize(
    ("text", "place", "problem"),
    [
        (TREE.replace("leaf[3-4]", "leaf[3-5]"), "line 4", "child leaf5, which is not defined"),
        (TREE + "SwitchName=leaf9\n", "line 10", "neither Nodes nor Switches"),
        (TREE + "Nonsense here\n", "line 10", "not KEY=VALUE"),
        (TREE + "SwitchName=x Nodes=a Nodes=b\n", "line 10", "duplicate key Nodes;"),
        (TREE + "SwitchName=x \\", "line 10", "the file is truncated"),
        ("SwitchName=a Switches=b\nSwitchName=b Switches=a\n", "line 2", "a cycle"),
        (
            "BlockName=b Nodes=n[1-2]\nBlockName=c Nodes=n[2-3]\n",
            "line 2",
            "host n2 is in block c, but also in b",
        ),
    ],
)
def test_damage_is_one_line_with_its_place(text: str, place: str, problem: str) -> None:
    with pytest.raises(InputError) as caught:
        read(text)
    assert place in str(caught.value)
    assert problem in str(caught.value)


YAML = """- topology: fast
  cluster_default: False
  tree:
    switches:
    - {switch: root, children: "leaf[1-2]"}
    - {switch: leaf1, nodes: "n[1-2]"}
    - {switch: leaf2, nodes: "n[3-4]"}
- topology: racks
  cluster_default: true
  block:
    block_sizes: [2, 4]
    blocks:
    - {block: b1, nodes: "n[1-2]"}
    - {block: b2, nodes: "n[3-4]"}
- topology: plain
  flat: true
- topology: round
  ring: {rings: [{ring: r1, nodes: "n[1-4]"}]}
"""


def of_default(name: str) -> str:
    """Return YAML with another default."""
    text = YAML.replace("  cluster_default: true\n", "").replace("  cluster_default: False\n", "")
    return text.replace(f"topology: {name}\n", f"topology: {name}\n  cluster_default: true\n")


def test_a_tree_beside_blocks_of_the_same_hosts_is_kept() -> None:
    for default in ("fast", "racks"):
        found = read(of_default(default), "t.yaml")
        assert found.switches == {"root": 2, "leaf1": 1, "leaf2": 1}
        assert (found.domains["n3"], found.blocks) == ("b2", True)
        assert [line.partition(": ")[2] for line in found.anomalies] == [
            "topology 3: topology plain is left out: it is not the default.",
            "topology 4: topology round is left out: it is not the default.",
        ]
    found = read(YAML.replace('leaf2, nodes: "n[3-4]"', 'leaf2, nodes: "n[3-5]"'))
    assert not found.switches
    assert "topology fast is left out: it names other hosts." in found.anomalies[0]


def test_what_scontrol_shows_is_the_tree_of_the_file() -> None:
    shown = (
        "SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=n[1-2]\nSwitchName=leaf2 Level=0 LinkSpeed=1 Nodes=n[3-4]\n"
        "SwitchName=spine Level=1 LinkSpeed=1 Nodes=n[1-4] Switches=leaf[1-2]\n"
    )
    plain = (
        "SwitchName=leaf1 Nodes=n[1-2]\nSwitchName=leaf2 Nodes=n[3-4]\nSwitchName=spine Switches=leaf[1-2]\n"
    )
    assert read(shown) == read(plain)


@pytest.mark.parametrize(
    ("gres", "says"),
    [(" Gres=gpu:h200:8", "give `gpu` h200 and `gpus_per_node` 8"), ("", "give `gpus_per_node`")],
)
def test_the_configuration_of_slurm_is_called_that(gres: str, says: str) -> None:
    with pytest.raises(InputError, match=f"is the configuration of Slurm, not a topology: .*{says}"):
        read(f"ClusterName=lab\nNodeName=n[01-17] CPUs=128{gres} State=UNKNOWN\n", "slurm.conf")


def test_yaml_has_several_topologies() -> None:
    assert kind_of(Source("t.yaml", YAML)) == "slurm-yaml"
    default = read(YAML)
    assert default.domains == {"n1": "b1", "n2": "b1", "n3": "b2", "n4": "b2"}
    assert read(of_default("fast")).switches == {"root": 2, "leaf1": 1, "leaf2": 1}
    assert list(read(of_default("round")).hosts) == ["n1", "n2", "n3", "n4"]


def test_yaml_in_an_object_as_json() -> None:
    text = json.dumps({"topology": yaml.safe_load(YAML)})
    assert kind_of(Source("t.json", text)) == "slurm-yaml"
    assert read(text, "t.yaml") == read(YAML, "t.yaml")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[]", "has 0 topologies"),
        (YAML.replace("cluster_default: true", "cluster_default: false"), "and no default"),
        (of_default("plain"), "names no hosts"),
        (of_default("fast").replace("switch: leaf2", "switch: leaf1"), "duplicate leaf1"),
        ("- topology: a\n  tree: {switches: [1]}\n", "1 must be a mapping of keys to values"),
    ],
)
def test_yaml_damage(text: str, problem: str) -> None:
    with pytest.raises(InputError) as caught:
        parse(Source("t.yaml", text), "slurm-yaml")
    assert str(caught.value).startswith("t.yaml: ")
    assert problem in str(caught.value)


MODEL = """switches:
  core: {switches: [sw1, sw2]}
  sw1: {labels: {zone: a}}
  sw2: {}
blocks:
- switch: sw1
  nodes: ["n[01-03]"]
  annotations: {accelerator.example/domain: d1, accelerator.example/sub-domain: x}
- switch: sw2
  nodes: [n04, "n[05-06]"]
  annotations: {accelerator.example/domain: d2}
- nodes: ["cpu[1-2]"]
"""
CAPACITY = (
    "switches:\n- {name: top, switches: [a, b]}\n- {name: a, capacity_blocks: [c1]}\n"
    "- {name: b, capacity_blocks: [c2]}\n"
    "capacity_blocks:\n- {name: c1, nvlink: nv1, nodes: [x1, x2]}\n- {name: c2, nodes: [y1]}\n"
)
INSTANCES = [
    {"id": f"n{i}", "network_layers": [f"leaf{i // 2}", "top"], "labels": {"accelerator.x.run/domain": "d"}}
    for i in range(4)
]
LABELS = [
    {
        "fabric.topograph.run/tier-1": "top",
        "fabric.topograph.run/tier-0": f"leaf{i // 2}",
        "accelerator.topograph.run/domain": "d",
        "accelerator.topograph.run/sub-domain": f"rack{i // 2}",
        "nvidia.com/gpu.product": "NVIDIA-GB200",
    }
    for i in range(4)
]
NODES = [{"metadata": {"name": f"n{i}", "labels": labels}} for i, labels in enumerate([*LABELS, {}])]
KUBERNETES = json.dumps({"kind": "List", "items": NODES})


@pytest.mark.parametrize(
    ("text", "leaves", "domains", "left_out"),
    [
        (MODEL, "sw1 sw1 sw1 sw2 sw2 sw2", {"n01": "d1", "n05": "d2"}, "2 hosts without a switch"),
        (CAPACITY, "a a b", {"x1": "nv1", "x2": "nv1"}, ""),
        (json.dumps({"instances": INSTANCES}), "leaf0 leaf0 leaf1 leaf1", {"n0": "d", "n3": "d"}, ""),
        (KUBERNETES, "leaf0 leaf0 leaf1 leaf1", {"n0": "d"}, "items[4]: no label names a switch"),
    ],
    ids=["blocks", "capacity blocks", "instances", "kubernetes"],
)
def test_topograph_names_switches_and_domains_in_four_forms(
    text: str, leaves: str, domains: dict[str, str], left_out: str
) -> None:
    assert kind_of(Source("m", text)) == "topograph"
    found = read(text, name="m")
    assert [port.switch for port in found.ports] == leaves.split()
    assert sorted(found.switches.values()) == [1, 1, 2]
    assert domains.items() <= found.domains.items()
    assert [left_out in line for line in found.anomalies] == [True] * bool(left_out)


def test_labels_of_kubernetes_nodes_name_racks_and_the_gpu() -> None:
    found = read(KUBERNETES, name="m")
    assert found.subdomains["n3"] == "d.rack1"
    assert [(name.words, name.gpus) for name in found.gpu_names] == [("NVIDIA-GB200", ("gb200",))]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (MODEL.replace("- switch: sw2", "- switch: sw9"), "switch sw9 is not among"),
        (MODEL.replace("n04", "n03"), "host n03 is in m.yaml: blocks[0] already"),
        (MODEL.replace("[sw1, sw2]", "[core]"), "above and below core (a cycle)"),
        (MODEL.split("- switch: sw1", maxsplit=1)[0] + " []\n", "no hosts under a switch"),
    ],
)
def test_topograph_damage(text: str, problem: str) -> None:
    with pytest.raises(InputError) as caught:
        read(text, name="m.yaml")
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("n1", ["n1"]),
        ("n[08-10]", ["n08", "n09", "n10"]),
        ("n[001-003,020]", ["n001", "n002", "n003", "n020"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("a,b[1-2],c", ["a", "b1", "b2", "c"]),
        ("n[1-2]-ib, m7", ["n1-ib", "n2-ib", "m7"]),
        ("switch.1.[9-11]", ["switch.1.9", "switch.1.10", "switch.1.11"]),
        ("n[9-10]", ["n9", "n10"]),
    ],
)
def test_expands(text: str, hosts: list[str]) -> None:
    assert expand_hosts(text, "here") == hosts


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("n[1-", "or are nested"),
        ("n[5-3]", "runs backwards"),
        ("n[1-9]" + "[0-9]" * 7, "more than 200000 hosts"),
        ("n" + "[1]" * 9, "more than 8 brackets"),
        ("n" + "x" * 1000, "1,001 characters"),
        ("", "empty name"),
        ("n1,,n2", "empty name"),
        ("n[1-3],n2", "n2 twice"),
        ("n[" + "9" * 60 + "]", "not a number"),
    ],
)
def test_refuses_with_the_place(text: str, problem: str) -> None:
    with pytest.raises(InputError, match=r"^f: line 7: ") as caught:
        expand_hosts(text, "f: line 7")
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 250


def test_compress_is_short() -> None:
    assert compress_hosts([f"n{i:03d}" for i in range(1, 101)]) == "n[001-100]"
    assert compress_hosts(["n1", "n2", "n4", "m1"]) == "n[1-2,4],m1"
    assert compress_hosts(["n9", "n10", "n011"]) == "n[9-10,011]"
