"""Fixtures: texts as ``ibnetdiscover`` prints them, from a plan of cables that a test can damage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest


@dataclass
class Fabric:
    """Names of switches and adapters, and cables as (end, port, end, port, rate)."""

    switches: list[str] = field(default_factory=list)
    adapters: dict[str, str] = field(default_factory=dict)
    cables: list[tuple[str, int, str, int, str]] = field(default_factory=list)

    def guid(self, name: str) -> str:
        if name in self.switches:
            return f"S-{0xA0000000 + self.switches.index(name):016x}"
        return f"H-{0xB0000000 + list(self.adapters).index(name):016x}"

    def describe(self, name: str) -> str:
        return f"MF0;{name}:MQM9700/U1" if name in self.switches else self.adapters[name]

    def text(self) -> str:
        """Every device with its ports, each cable from both its ends."""
        lines = ["#", "# Topology file: made for a test", "#", ""]
        for name in [*self.switches, *self.adapters]:
            switch = name in self.switches
            guid = self.guid(name)
            lines += ["vendid=0x2c9", f"{'switch' if switch else 'ca'}guid=0x{guid[2:]}"]
            if switch:
                lines.append(f'Switch\t65 "{guid}"\t\t# "{self.describe(name)}" enhanced port 0 lid 7 lmc 0')
            else:
                lines.append(f'Ca\t1 "{guid}"\t\t# "{self.describe(name)}"')
            for a, p, b, q, rate in self.cables:
                for near, near_port, far, far_port in ((a, p, b, q), (b, q, a, p)):
                    if near == name:
                        lines.append(self._port(near_port, far, far_port, rate, own=None if switch else guid))
            lines.append("")
        return "\n".join(lines)

    def _port(self, port: int, far: str, far_port: int, rate: str, own: str | None) -> str:
        mine = f"({own[2:]})" if own else ""
        theirs = f"({self.guid(far)[2:]})" if far in self.adapters else ""
        return f'[{port}]{mine} \t"{self.guid(far)}"[{far_port}]{theirs} \t\t# "{self.describe(far)}" lid 9 {rate}'


def rail_fabric(
    pods: int = 2, hosts: int = 3, rails: int = 4, spines: int = 2, links: int = 1, rate: str = "4xNDR"
) -> Fabric:
    """A rail-optimised fabric: leaf (pod, rail), host h on port h + 1, ``links`` from each leaf to each spine."""
    fabric = Fabric()
    fabric.switches = [f"leaf-{pod}-{rail}" for pod in range(pods) for rail in range(rails)]
    fabric.switches += [f"spine-{spine}" for spine in range(spines)]
    numbers = (1, 2, 5, 6, 7, 8, 9, 10)
    for pod in range(pods):
        for host in range(hosts):
            for rail in range(rails):
                key = f"p{pod}h{host}r{rail}"
                scheme = f"HCA-{numbers[rail]}" if pod % 2 == 0 else f"mlx5_{numbers[rail] - 1}"
                fabric.adapters[key] = f"node-{pod}{host} {scheme}"
                fabric.cables.append((f"leaf-{pod}-{rail}", host + 1, key, 1, rate))
        for rail in range(rails):
            for spine in range(spines):
                for link in range(links):
                    near = 33 + spine * links + link
                    far = 1 + (pod * rails + rail) * links + link
                    fabric.cables.append((f"leaf-{pod}-{rail}", near, f"spine-{spine}", far, rate))
    return fabric


@pytest.fixture
def ib_rails() -> Callable[..., Fabric]:
    return rail_fabric
