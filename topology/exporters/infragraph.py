"""InfraGraph (MLCommons), as :mod:`topology.importers.infragraph` reads it: devices, their instances, and edges.

Hosts that are alike inside are instances of one device. A switch chip of one host is a component of it, any other
switch an instance. Of a NIC that a GPU has for itself only the count is known, so each of its links is one.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from topology.cluster import Cluster
from topology.exporters.limits import decimal, refuse_kinds, refuse_unpublished


@dataclass
class _Host:
    """What is in a host: its nodes by id with component and number, and the edges between those, counted."""

    parts: dict[str, tuple[str, int]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    edges: Counter[tuple[tuple[str, int], tuple[str, int], str]] = field(default_factory=Counter)
    links: dict[str, str] = field(default_factory=dict)

    def add(self, node: str, component: str) -> tuple[str, int]:
        """Add a node, once, and return what it is."""
        if node not in self.parts:
            self.parts[node] = component, self.counts[component]
            self.counts[component] += 1
        return self.parts[node]

    def join(self, a: tuple[str, int], b: tuple[str, int], link: str, count: int = 1) -> None:
        """Add edges between two components; they join both ways."""
        self.edges[min(a, b), max(a, b), link] += count

    def _edges(self) -> list[str]:
        """Return an edge of each component to every run of others that it has as many links to."""
        runs: list[tuple[tuple[str, int], str, int, int, str, int]] = []
        for (a, (name, number), link), count in sorted(
            self.edges.items(), key=lambda one: (one[0][2], one[0])
        ):
            if runs and runs[-1][:2] == (a, name) and runs[-1][3:] == (number, link, count):
                runs[-1] = (a, name, runs[-1][2], number + 1, link, count)
            else:
                runs.append((a, name, number, number + 1, link, count))
        lines = []
        for (one, place), name, first, end, link, count in runs:
            ends = f'{{ep1: {{component: "{one}[{place}]"}}, ep2: {{component: "{name}{_slice(first, end)}"}}'
            lines += [f"      - {ends}, scheme: many2many, link: {link}}}"] * count
        return lines

    def device(self, name: str) -> list[str]:
        """Return the lines of the device that it is."""
        kinds = {"xpu": "xpu", "nvlsw": "switch", "nic": "nic"}
        lines = [f"  - name: {name}", "    components:"]
        lines += [
            f"      - {{name: {one}, choice: {kinds[one]}, count: {count}}}"
            for one, count in self.counts.items()
        ]
        lines += ["    links:", *(f"      - {{name: {key}{what}}}" for key, what in self.links.items())]
        return [*lines, "    edges:" if self.edges else "    edges: []", *self._edges()]


def _slice(first: int, end: int) -> str:
    return f"[{first}]" if end == first + 1 else f"[{first}:{end}]"


def infragraph(cluster: Cluster) -> str:
    """Return ``cluster`` as an infrastructure of InfraGraph.

    Raises
    ------
    InputError
        If it has PCIe switches or sockets, whose rates are not conserved, or a rate that is not published.
    """
    refuse_kinds(cluster, "InfraGraph as it is read here", ("pcie", "host"))
    refuse_unpublished(cluster, "InfraGraph")
    return "\n".join(_Writer(cluster).lines()) + "\n"


class _Writer:
    """Instances by node, devices by what is in them, and the edges between instances."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        graph = cluster.graph
        self._nodes: Mapping[str, Mapping[str, Any]] = {node: graph.nodes[node] for node in graph}
        self._host_of = self._hosts()
        self._hosts_inside: dict[str, _Host] = {
            host: _Host() for host in dict.fromkeys(self._host_of.values())
        }
        for gpu in cluster.gpus:
            self._hosts_inside[gpu.node].add(gpu.id, "xpu")
        self._links: dict[tuple[str, float, float], str] = {}
        self._ports: Counter[str] = Counter()
        self._outer: list[tuple[str, str, str, int]] = []
        for a, b, data in graph.edges(data=True):
            self._add(a, b, data)

    def _hosts(self) -> dict[str, str]:
        """Return the host of each node that is inside one."""
        spans: dict[int, set[str]] = defaultdict(set)
        for gpu in self._cluster.gpus:
            spans[gpu.domain].add(gpu.node)
        found = {gpu.id: gpu.node for gpu in self._cluster.gpus}
        for node, data in self._nodes.items():
            own = spans.get(data["domain"], set()) if data["kind"] == "switch" else set()
            if data["kind"] == "nic" and data["node"] is not None:
                found[node] = data["node"]
            elif len(own) == 1 or (data["kind"] == "switch" and data["node"] in own):
                found[node] = data["node"] or next(iter(own))
        return found

    def _add(self, a: str, b: str, data: Mapping[str, Any]) -> None:
        """Add the links between two nodes: inside a host, or between instances."""
        one, other = self._host_of.get(a), self._host_of.get(b)
        up = {self._nodes[end]["kind"] for end in (a, b)} <= {"gpu", "switch"}
        link = self._link(data)
        if one is not None and one == other:
            host = self._hosts_inside[one]
            shared = not up
            ends = host.add(a, self._component(a)), host.add(b, self._component(b))
            host.links.setdefault("pcie" if shared else link, "" if shared else self._figures(data))
            host.join(*ends, "pcie" if shared else link, 1 if shared else data["count"])
            return
        self._outer.append((a, b, link, data["count"]))

    def _component(self, node: str) -> str:
        return {"gpu": "xpu", "nic": "nic", "switch": "nvlsw"}[self._nodes[node]["kind"]]

    def _link(self, data: Mapping[str, Any]) -> str:
        """Return the name of a link's fabric, with its rate where two of one name differ or it is degraded."""
        key = data["fabric"], data["link_bytes_per_s"] * data["health"], data["latency_s"]
        if key not in self._links:
            name = (
                json.dumps(data["fabric"])
                if not data["fabric"].replace("-", "").isalnum()
                else data["fabric"]
            )
            taken = name in self._links.values()
            self._links[key] = json.dumps(f"{data['fabric']} {len(self._links)}") if taken else name
        return self._links[key]

    @staticmethod
    def _figures(data: Mapping[str, Any]) -> str:
        rate = decimal(data["link_bytes_per_s"] * data["health"] * 8 / 1e9)
        latency = decimal(data["latency_s"] * 1e6)
        return (
            f", physical: {{bandwidth: {{choice: gigabits_per_second, gigabits_per_second: {rate}}}, "
            f"latency: {{choice: us, us: {latency}}}}}"
        )

    def lines(self) -> list[str]:
        """Return the lines of the file."""
        outer = list(self._outer_edges())  # these add NICs to hosts, so devices come after
        devices: dict[tuple[str, ...], str] = {}
        members: dict[str, list[str]] = defaultdict(list)
        for name, host in self._hosts_inside.items():
            key = tuple(host.device("?"))
            device = devices.setdefault(key, f"host{len(devices)}" if devices else "host")
            members[device].append(name)
        place = {name: f"{device}[{i}]" for device, names in members.items() for i, name in enumerate(names)}
        switches: dict[str, list[str]] = defaultdict(list)
        for node, data in self._nodes.items():
            if node not in self._host_of:
                switches["nvswitch" if data["kind"] == "switch" else data["kind"]].append(node)
        place |= {name: f"{kind}[{i}]" for kind, names in switches.items() for i, name in enumerate(names)}
        lines = [f"name: {json.dumps(self._cluster.name)}", "devices:"]
        for device in devices.values():
            lines += self._hosts_inside[members[device][0]].device(device)
        for kind, names in switches.items():
            ports = max(self._ports[name] for name in names)
            lines += [f"  - name: {kind}", "    components:"]
            lines += [
                f"      - {{name: port, choice: port, count: {max(1, ports)}}}",
                "    links: []",
                "    edges: []",
            ]
        lines.append("instances:")
        counts = {
            **{device: len(names) for device, names in members.items()},
            **{k: len(v) for k, v in switches.items()},
        }
        lines += [f"  - {{name: {name}, device: {name}, count: {count}}}" for name, count in counts.items()]
        used = {link for *_, link in outer}
        lines.append("links:" if used else "links: []")
        for (_, rate, latency), name in self._links.items():
            if name in used:
                data = {"link_bytes_per_s": rate, "health": 1.0, "latency_s": latency}
                lines.append(f"  - {{name: {name}{self._figures(data)}}}")
        lines.append("edges:" if outer else "edges: []")
        for (a, part), (b, other), link in outer:
            scheme = "one2one" if ":" not in part + other or (":" in part and ":" in other) else "many2many"
            lines.append(
                f'  - {{ep1: {{instance: "{place[a]}", component: "{part}"}}, ep2: {{instance: "{place[b]}", '
                f'component: "{other}"}}, scheme: {scheme}, link: {link}}}'
            )
        return lines

    def _outer_edges(self) -> Any:
        """Yield the edges between instances: each end with its component, and the link."""
        for a, b, link, count in self._outer:
            ends = []
            for end, far in ((a, b), (b, a)):
                ends.append(self._end(end, self._nodes[far]["kind"], count))
            yield (*ends, link)

    def _end(self, node: str, far: str, count: int) -> tuple[str, str]:
        """Return the instance of a node with the ports of it that ``count`` links take."""
        host = self._host_of.get(node)
        if host is None:
            first = self._ports[node]
            self._ports[node] += count
            return node, f"port{_slice(first, first + count)}"
        inside = self._hosts_inside[host]
        kind = self._nodes[node]["kind"]
        if kind == "gpu" and far not in ("gpu", "switch"):
            first = inside.counts["nic"]
            inside.links.setdefault("pcie", "")
            for i in range(first, first + count):
                inside.join(inside.add(node, "xpu"), inside.add(f"{node} nic {i}", "nic"), "pcie")
            return host, f"nic{_slice(first, first + count)}"
        name, number = inside.add(node, self._component(node))
        return host, f"{name}[{number}]"
