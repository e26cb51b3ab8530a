"""Files that describe a whole cluster: InfraGraph, SimAI; and NetQ's cables."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from topology.build import build_cluster
from topology.errors import InputError
from topology.importers import Imported, ImportOptions, import_files

if TYPE_CHECKING:
    from pathlib import Path

INFRA = """infrastructure:
  devices:
  - name: server
    components:
    - {name: xpu, choice: xpu, count: 2}
    - {name: nic, choice: nic, count: 2}
    - {name: nvlsw, choice: switch, count: 1}
    - {name: pciesw, choice: switch, count: 1}
    links:
    - {name: nvlink, physical: {bandwidth: {gigabytes_per_second: 450}, latency: {ns: 300}}}
    - {name: pcie, bandwidth: {choice: gigatransfers_per_second, gigatransfers_per_second: 32}}
    edges:
    - {ep1: {component: xpu}, ep2: {component: nvlsw}, scheme: many2many, link: nvlink}
    - {ep1: {component: "xpu[0:2]"}, ep2: {component: "nic[0:2]"}, scheme: one2one, link: pcie}
  - name: switch
    components: [{name: asic, choice: cpu, count: 1}, {name: port, choice: port, count: 8}]
    links: [{name: ic}]
    edges: [{ep1: {component: asic}, ep2: {component: port}, scheme: many2many, link: ic}]
  instances:
  - {name: host, device: server, count: 2}
  - {name: leaf, device: switch, count: 2}
  - {name: spine, device: switch, count: 1}
  links:
  - {name: eth, bandwidth: {gigabits_per_second: 400}}
  edges:
  - ep1: {instance: host, component: "nic[0]"}
    ep2: {instance: "leaf[0]", component: "port[0:2]"}
    scheme: one2one
    link: eth
  - ep1: {instance: host, component: "nic[1]"}
    ep2: {instance: "leaf[1]", component: "port[0:2]"}
    scheme: one2one
    link: eth
  - ep1: {instance: leaf, component: "port[7]"}
    ep2: {instance: spine, component: "port[0:2]"}
    scheme: one2one
    link: eth
"""

CONNECTIONS = """devices:
- name: server
  components: [{name: xpu, type: xpu}, {name: nic, type: nic}]
  links: [{name: pcie}]
  connections: [xpu.0.pcie.nic.0, xpu.1.pcie.nic.0]
- name: switch
  components: [{name: port, type: nic, count: 4}]
instances: [{name: host, device: server, count: 2}, {name: sw, device: switch}]
links: [{name: eth, bandwidth: {giga_bytes_per_second: 50}}]
connections: [host.0.nic.0.eth.sw.0.port.0, host.1.nic.0.eth.sw.0.port.1]
"""

SIMAI = """10 2 2 4 12 H100
4 5 6 7 8 9
0 4 2880Gbps 0.000025ms 0
1 4 2880Gbps 0.000025ms 0
2 5 2880Gbps 0.000025ms 0
3 5 2880Gbps 0.000025ms 0
0 6 400Gbps 0.0005ms 0
1 7 400Gbps 0.0005ms 0
2 6 400Gbps 0.0005ms 0
3 7 400Gbps 0.0005ms 0
6 8 400Gbps 0.0005ms 0
6 9 400Gbps 0.0005ms 0
7 8 400Gbps 0.0005ms 0
7 9 400Gbps 0.0005ms 0
"""


@pytest.fixture
def take(tmp_path: Path) -> Any:
    def call(text: str, name: str = "whole.txt", **options: Any) -> Imported:
        path = tmp_path / name
        path.write_text(text)
        return import_files([str(path)], ImportOptions(**options))

    return call


def test_infragraph_edges(take: Any) -> None:
    imported = take(INFRA, gpu="h100-sxm")
    graph = build_cluster(imported.spec).graph
    kinds = dict(graph.nodes(data="kind"))
    assert sorted(kinds.values()) == ["gpu"] * 4 + ["leaf"] * 2 + ["spine"] + ["switch"] * 2
    assert imported.hosts == ("host.0", "host.1")
    assert graph.edges["d0.n0.g1", "d0.s0"]["bytes_per_s"] == 450e9
    assert graph.edges["d0.n0.g1", "d0.s0"]["latency_s"] == pytest.approx(300e-9)
    assert graph.edges["d1.n0.g0", "f.p0.l0"]["bytes_per_s"] == 50e9
    assert graph.edges["f.p0.l1", "f.s0"]["bytes_per_s"] == 50e9
    assert [domain.gpus for domain in imported.spec.domains] == [2, 2]


def test_infragraph_connections_and_a_shared_nic(take: Any) -> None:
    imported = take(CONNECTIONS, gpu="h100-sxm", pcie="64 GB/s")
    graph = build_cluster(imported.spec).graph
    assert graph.nodes["host.0.nic.0"]["kind"] == "nic"
    assert set(graph["host.0.nic.0"]) == {"host.0.xpu.0", "host.0.xpu.1", "sw.0"}


def test_infragraph_reads_json_too(take: Any) -> None:
    import yaml

    text = json.dumps(yaml.safe_load(INFRA))
    assert take(text, "a.json", gpu="h100-sxm").spec == take(INFRA, "a.json", gpu="h100-sxm").spec


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (
            "device: switch, count: 1",
            "device: router, count: 1",
            "the device of spine is not among the devices",
        ),
        ("instance: spine, component", "instance: spin, component", "'spin' is not defined"),
        (
            '"leaf[1]", component: "port[0:2]"',
            '"leaf[1]", component: "port[0:3]"',
            "one2one joins 2 ends to 3",
        ),
        ('component: "port[7]"', 'component: "port[9]"', "outside 0 to 7"),
        ("link: eth\n", "link: ether\n", "link ether is not among the links"),
        ("link: nvlink}", "link: nvl}", "link nvl of an edge"),
        ("gigabits_per_second: 400", "gigabits_per_second: -400", "greater than zero"),
        ("count: 2}\n  - {name: leaf", "count: 99999999999}\n  - {name: leaf", "whole number from 1"),
        ("choice: xpu", "choice: gpu", "no GPUs in it"),
        ("scheme: many2many, link: nvlink", "scheme: all, link: nvlink", "is not one2one"),
    ],
)
def test_infragraph_damage(take: Any, old: str, new: str, problem: str) -> None:
    assert old in INFRA
    with pytest.raises(InputError) as caught:
        take(INFRA.replace(old, new), gpu="h100-sxm")
    assert problem in str(caught.value)
    assert str(caught.value).startswith("whole.txt: ")


def test_infragraph_without_a_rate_asks_for_it(take: Any) -> None:
    text = INFRA.replace("bandwidth: {gigabits_per_second: 400}", "description: fast")
    with pytest.raises(InputError, match="the rate of a NIC: give option `nic`"):
        take(text, gpu="h100-sxm")
    assert take(text, gpu="h100-sxm", nic="400 Gb/s").spec.gpus == 4


def test_simai(take: Any) -> None:
    imported = take(SIMAI, gpu="h100-sxm")
    graph = build_cluster(imported.spec).graph
    assert graph.nodes["f.s1"]["kind"] == "spine"
    assert graph.edges["d0.n0.g0", "d0.s0"]["bytes_per_s"] == 360e9
    assert graph.edges["d0.n0.g0", "d0.s0"]["latency_s"] == pytest.approx(25e-9)
    assert [domain.gpus for domain in imported.spec.domains] == [2, 2]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (SIMAI.rsplit("\n", 2)[0] + "\n", "line 13: 11 links of the 12"),
        (SIMAI.replace("0 4 2880", "0 44 2880"), "line 3: node 44 is not among"),
        (SIMAI.replace("1 4 2880", "0 4 2880"), "line 4: nodes 0 and 4 are joined in line 3"),
        (SIMAI.replace("0 4 2880Gbps", "0 0 2880Gbps"), "line 3: joins node 0 to itself"),
        (SIMAI.replace("7 9 400Gbps", "7 9 400GBps"), "line 14: '7 9 400GBps"),
        (SIMAI.replace("4 5 6 7 8 9", "4 5 6 7 8"), "line 2: must list the switches"),
        (SIMAI.replace("10 2 2 4 12", "10 3 2 4 12"), "line 1: 10 nodes less 6 switches are 4 GPUs"),
    ],
)
def test_simai_damage(take: Any, text: str, problem: str) -> None:
    with pytest.raises(InputError) as caught:
        take(text, gpu="h100-sxm")
    assert f"whole.txt: {problem}" in str(caught.value)


def netq(hosts: int = 2, ports: int = 2, uplinks: tuple[int, ...] = (2, 2)) -> Any:
    """Hosts on two leaves in turn, ``uplinks`` cables from each leaf to the spine."""
    devices = [
        *({"id": f"h{i}", "name": f"dgx-{i}", "device_type": "host", "tier": -1} for i in range(hosts)),
        *({"id": f"l{i}", "name": f"leaf-{i}", "device_type": "switch", "tier": 1} for i in range(2)),
        {"id": "s", "name": "spine", "device_type": "switch", "tier": 2},
    ]
    links = [
        bundle([((f"h{i}", f"eth{p}"), (f"l{i % 2}", f"swp{i}s{p}")) for p in range(ports)])
        for i in range(hosts)
    ]
    links += [
        bundle([((f"l{i}", f"up{p}"), ("s", f"swp{i}x{p}")) for p in range(n)]) for i, n in enumerate(uplinks)
    ]
    return [{"nodes": [{"name": "all", "compounded_nodes": devices}], "links": links}]


def bundle(cables: Any) -> dict[str, Any]:
    rows = [{"interfaces": [{"node": n, "interface": i} for n, i in cable]} for cable in cables]
    return {"compounded_links": rows, "size": len(rows)}


def test_netq(take: Any) -> None:
    with pytest.raises(InputError, match="the rate of a link between switches: give option `uplink` RATE"):
        take(json.dumps(netq()), gpu="hgx-h100")
    imported = take(json.dumps(netq()), gpu="hgx-h100", uplink="200 Gb/s")
    graph = build_cluster(imported.spec).graph
    assert graph.edges["leaf-0", "spine"]["bytes_per_s"] == 50e9
    assert graph.edges["leaf-0", "spine"]["count"] == 2
    assert imported.spec.gpus == 16
    assert not imported.anomalies


def test_netq_uneven_uplinks_and_cables_are_named(take: Any) -> None:
    data = netq(hosts=4, uplinks=(4, 3))
    data[0]["links"][0] = bundle([(("h0", "eth0"), ("l0", "swp0s0"))])
    imported = take(json.dumps(data), gpu="hgx-h100", uplink="200 Gb/s")
    assert any("host dgx-0 has 1 cables, most have 2" in line for line in imported.anomalies)
    assert any(
        "switch leaf-1 has 3 uplinks, another of its tier has 4" in line for line in imported.anomalies
    )


def test_netq_oversubscription_gives_the_rate_of_counted_uplinks(take: Any) -> None:
    imported = take(json.dumps(netq()), gpu="hgx-h100", oversubscription=2.0)
    graph = build_cluster(imported.spec).graph
    assert graph.edges["leaf-0", "spine"]["bytes_per_s"] == pytest.approx(2 * 50e9 / 2)
    assert graph.edges["leaf-0", "spine"]["count"] == 2


def damaged(change: Any) -> str:
    data = netq()
    change(data[0])
    return json.dumps(data)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda d: d["links"][0].update(size=9), "size is 9, but 2 cables are listed"),
        (
            lambda d: d["links"].append(bundle([(("h0", "x"), ("h1", "y"))])),
            "joins two hosts, dgx-0 and dgx-1",
        ),
        (lambda d: d["links"].append(bundle([(("h0", "eth0"), ("l0", "y"))])), "dgx-0 eth0 is cabled twice"),
        (
            lambda d: d["links"].append(bundle([(("h7", "x"), ("l0", "y"))])),
            "device 'h7' is not among the nodes",
        ),
        (lambda d: d["nodes"][0]["compounded_nodes"][0].update(tier="low"), "tier: 'low' must be"),
        (
            lambda d: d["nodes"][0]["compounded_nodes"][0].update(name="dgx-1"),
            "two devices are called dgx-1",
        ),
        (lambda d: d.update(links=d["links"][2:]), "no cable between a host and a switch"),
    ],
)
def test_netq_damage(take: Any, change: Any, problem: str) -> None:
    with pytest.raises(InputError) as caught:
        take(damaged(change), gpu="hgx-h100", uplink="200 Gb/s")
    assert problem in str(caught.value)
    assert "whole.txt: whole.txt" not in str(caught.value)


SHARING = """devices:
- name: server
  components:
  - {name: xpu, choice: xpu, count: 4}
  - {name: nvlsw, choice: switch, count: 1}
  - {name: pciesw, choice: custom, count: 2}
  - {name: nic, choice: nic, count: NICS}
  links: [{name: nvlink, bandwidth: {gigabytes_per_second: 450}}, {name: pcie}]
  edges:
  - {ep1: {component: xpu}, ep2: {component: nvlsw}, scheme: many2many, link: nvlink}
  - {ep1: {component: "pciesw[0]"}, ep2: {component: "xpu[0:2]"}, scheme: many2many, link: pcie}
  - {ep1: {component: "pciesw[1]"}, ep2: {component: "xpu[2:4]"}, scheme: many2many, link: pcie}
  - {ep1: {component: "pciesw[0]"}, ep2: {component: "nic[0:HALF]"}, scheme: many2many, link: pcie}
  - {ep1: {component: "pciesw[1]"}, ep2: {component: "nic[HALF:NICS]"}, scheme: many2many, link: pcie}
- name: switch
  components: [{name: port, choice: port, count: 8}]
instances: [{name: host, device: server, count: 2}, {name: leaf, device: switch, count: 1}]
links: [{name: eth, bandwidth: {gigabits_per_second: 400}}]
edges:
- {ep1: {instance: host, component: nic}, ep2: {instance: leaf, component: "port[0:ALL]"}, scheme: one2one, link: eth}
"""


@pytest.mark.parametrize("nics", [2, 4, 6])
def test_infragraph_nics_are_conserved(take: Any, nics: int) -> None:
    text = SHARING.replace("NICS", str(nics)).replace("HALF", str(nics // 2)).replace("ALL", str(2 * nics))
    graph = build_cluster(take(text.replace("count: 8", "count: 16"), gpu="h100-sxm").spec).graph
    kinds = {node: data["kind"] for node, data in graph.nodes(data=True)}
    leaf = next(node for node, kind in kinds.items() if kind == "leaf")
    assert sum(graph.edges[leaf, other]["bytes_per_s"] for other in graph[leaf]) == 2 * nics * 50e9
    for nic in (node for node, kind in kinds.items() if kind == "nic"):
        assert {kinds[other]: graph.edges[nic, other]["bytes_per_s"] for other in graph[nic]} == {
            "leaf": 50e9,
            "pcie": 50e9,
        }
    # two GPUs and as many NICs on a switch: one each; else a switch between that all share
    assert ("pcie" in kinds.values()) == (nics != 4)


def test_infragraph_keeps_the_rate_of_pcie(take: Any) -> None:
    text = SHARING.replace("NICS", "2").replace("HALF", "1").replace("ALL", "4")
    slow = text.replace("{name: pcie}", "{name: pcie, bandwidth: {gigabytes_per_second: 32}}")
    graph = build_cluster(take(slow, gpu="h100-sxm").spec).graph
    around = graph["host.0.pciesw.0"]
    assert {data["bytes_per_s"] for data in around.values()} == {32e9, 50e9}
