"""ibnetdiscover: hosts from adapters, rails from names, and what is cabled otherwise."""

from __future__ import annotations

import re
from typing import Any

import pytest

from topology.base.errors import InputError
from topology.importers.importer import kind_of, parse
from topology.importers.source import Source


def read(fabric: Any) -> Any:
    source = Source("ib.out", fabric if isinstance(fabric, str) else fabric.text())
    assert kind_of(source) == "ibnetdiscover"
    return parse(source, None)


@pytest.mark.parametrize(
    ("rate", "gbit"), [("4xHDR", 200), ("2xHDR", 100), ("4xXDR", 800), ("4xEDR", 100), ("4xQDR", 32)]
)
def test_rates(ib_rails: Any, rate: str, gbit: float) -> None:
    assert {port.rate.value * 8 / 1e9 for port in read(ib_rails(rate=rate)).ports} == {gbit}


def swap(fabric: Any, a: str, b: str) -> None:
    """Exchange the switch ends of the cables of two adapters."""
    cables = fabric.cables
    i, j = (next(n for n, cable in enumerate(cables) if cable[2] == name) for name in (a, b))
    cables[i], cables[j] = (*cables[i][:2], *cables[j][2:]), (*cables[j][:2], *cables[i][2:])


def test_swapped_adapters_are_named_and_kept(ib_rails: Any) -> None:
    fabric = ib_rails()
    swap(fabric, "p0h1r2", "p0h1r3")
    found = read(fabric)
    assert len(found.anomalies) == 2
    assert "node-01 HCA-5 (rail 2) is on leaf-0-3, a leaf of rail 3 (2 others there)" in found.anomalies[0]
    assert re.match(r"ib.out: line \d+: ", found.anomalies[0])
    assert {(port.nic, port.switch) for port in found.ports if port.host == "node-01"} >= {
        ("HCA-5", "leaf-0-3"),
        ("HCA-6", "leaf-0-2"),
    }


def test_a_host_swapped_into_another_pod_stays_in_its_own(ib_rails: Any) -> None:
    fabric = ib_rails()
    swap(fabric, "p0h1r2", "p1h1r2")
    found = read(fabric)
    assert found.pods["node-01"] == "pod0"
    assert found.pods["node-11"] == "pod1"


def test_adapters_without_a_host_take_the_host_on_their_port(ib_rails: Any) -> None:
    fabric = ib_rails()
    fabric.adapters["p0h1r2"] = "MT4129 ConnectX7   Mellanox Technologies"
    found = read(fabric)
    assert {(port.host, port.rail) for port in found.ports if port.nic == ""} == {("node-01", 2)}
    assert len(found.hosts) == 6
    assert "1 adapters do not name their host: 1 assigned" in found.anomalies[0]


def test_hosts_without_any_name_are_counted_by_port(ib_rails: Any) -> None:
    fabric = ib_rails()
    for rail in range(4):
        fabric.adapters[f"p0h1r{rail}"] = "MT4129 ConnectX7   Mellanox Technologies"
        fabric.adapters[f"p1h2r{rail}"] = f"localhost mlx5_{(0, 1, 4, 5)[rail]}"
    found = read(fabric)
    assert len(found.hosts) == 6
    assert "unnamed-pod0-port2" in found.hosts
    assert "localhost-pod1-port3" in found.hosts
    assert {port.rail for port in found.ports if port.host == "unnamed-pod0-port2"} == {0, 1, 2, 3}
    assert "4 adapters do not name their host: 0 assigned" in found.anomalies[0]


def test_sharp_management_and_strangers_are_left_out_and_said(ib_rails: Any) -> None:
    fabric = ib_rails()
    extra = {
        "sharp": "Mellanox Technologies Aggregation Node",
        "u1": "x-CUFM-01 mlx5_0",
        "b1": "ubuntu mlx5_0",
        "b2": "ubuntu mlx5_1",
    }
    fabric.adapters |= extra
    for name, leaf, port in (("sharp", 0, 65), ("u1", 0, 30), ("b1", 2, 31), ("b2", 3, 31)):
        fabric.cables.append((f"leaf-0-{leaf}", port, name, 1, "4xNDR"))
    found = read(fabric)
    assert len(found.hosts) == 6
    assert any("x-CUFM-01" in line for line in found.anomalies)
    assert any("ubuntu-pod0-port31: no adapter is on a leaf of its rail" in line for line in found.anomalies)


def test_unequal_rates_and_routers_are_said(ib_rails: Any) -> None:
    fabric = ib_rails(links=2)
    at = next(i for i, cable in enumerate(fabric.cables) if cable[2] == "spine-0")
    fabric.cables[at] = (*fabric.cables[at][:4], "4xHDR")
    router = 'Rt\t1 "R-00000000c0000000"\t\t# "router"\n[1](c0000000) \t"S-00000000a0000000"[64] # 4xNDR\n'
    leaf = '"MF0;leaf-0-0:MQM9700/U1" enhanced port 0 lid 7 lmc 0\n'
    text = fabric.text().replace(leaf, leaf + '[64] \t"R-00000000c0000000"[1] # 4xNDR\n') + router
    found = read(text)
    assert next(trunk.rate.value for trunk in found.trunks if trunk.ends == ("leaf-0-0", "spine-0")) == 25e9
    assert any(
        "leaf-0-0 to spine-0 runs at 4xNDR, another link of the two at 200 Gb/s" in a for a in found.anomalies
    )
    assert any("R-00000000c0000000: routers; left out." in line for line in found.anomalies)


def facts(found: Any) -> Any:
    """What a fabric is, without the lines of the file that say so."""
    ports = [(p.host, p.switch, p.nic, p.rate.value, p.rail) for p in found.ports]
    trunks = [(trunk.ends, trunk.count, trunk.rate.value) for trunk in found.trunks]
    return [*found.hosts], found.switches, ports, trunks, found.pods, found.switch_rails, found.rails


@pytest.mark.parametrize("shape", [{}, {"links": 3, "rate": "4xHDR"}, {"rails": 8, "spines": 4}])
def test_the_list_of_ports_is_the_same_fabric(ib_rails: Any, shape: dict[str, Any]) -> None:
    fabric = ib_rails(**shape)
    fabric.adapters["p0h1r2"] = "MT4129 ConnectX7   Mellanox Technologies"
    assert facts(read(fabric.ports())) == facts(read(fabric.text()))
    fabric.adapters["two"] = "node-02 mlx4_0"
    fabric.cables += [("leaf-0-0", 31, "two", 1, "4xFDR"), ("leaf-0-1", 31, "two", 2, "4xFDR")]
    found = read(fabric.ports())
    assert [(port.nic, port.rate.value * 8 / 1e9) for port in found.ports if "mlx4" in port.nic] == [
        ("mlx4_0.1", 54.56),
        ("mlx4_0.2", 54.56),
    ]
    assert facts(found) == facts(read(fabric.text().replace("Ca\t1", "Ca\t2")))


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda t: t[: len(t) * 2 // 3], "is no line of `ibnetdiscover -p`; is it truncated"),
        (lambda t: "\n".join(t.split("\n")[:9]), "which is not described; is the file truncated"),
        (lambda t: t.replace("4x NDR", "4x HDR", 1), "runs at 4xHDR, but at 4xNDR in line"),
        (lambda t: t.replace("4x NDR", "4x ???", 1), "has no width and speed"),
        (lambda t: t.replace(" 33 ", " 34 ", 1), r"line 6: duplicate port 34 \(first in line 5\)"),
        (lambda t: t + t.split("\n")[1] + "\n", r"duplicate port 1 \(first in line 2\)"),
    ],
)
def test_damage_of_the_list_of_ports(ib_rails: Any, damage: Any, problem: str) -> None:
    with pytest.raises(InputError, match=problem) as caught:
        read(damage(ib_rails().ports()))
    assert str(caught.value).startswith("ib.out: ")


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda t: t[: len(t) * 2 // 3], "is it truncated|not described"),
        (lambda t: t.replace(" 4xNDR", " 4xHDR", 1), "runs at 4xHDR, but at 4xNDR in line"),
        (lambda t: t.replace("[33] ", "[99] ", 1), "port 99 of a device with 65 ports"),
        (lambda t: t[t.index("[1]") :], "port 1 before any device"),
    ],
)
def test_damage_is_one_line_with_its_place(ib_rails: Any, damage: Any, problem: str) -> None:
    with pytest.raises(InputError, match=problem) as caught:
        parse(Source("ib.out", damage(ib_rails().text())), "ibnetdiscover")
    assert str(caught.value).startswith("ib.out: ")
    assert "\n" not in str(caught.value)
