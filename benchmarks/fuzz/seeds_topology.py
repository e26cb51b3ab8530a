"""Whole files that describe machines, small ones, made here: what mutation begins with."""

from __future__ import annotations

import json
from typing import Any

CLUSTERS = (
    "name: a\ndomains: [{part: hgx-h100, count: 2}]\nfabric: {kind: rail, nic: 400 Gb/s, planes: 2}\n",
    "name: b\ndomains: [{part: gb200-nvl72, count: 1}]\n",
    "domains: [{part: hgx-h100, count: 2}]\nbroken: [{gpu: d0.n0.g1}, {gpu: d1.n0.g2, factor: 0.7}, {node: d1.n0}]\n",
    """name: own
gpus: {mine: {hbm_bytes: 80 GB, hbm_bytes_per_s: 3 TB/s, bf16_flop_per_s: 900 TFLOP/s, fp8_flop_per_s: 1800 TFLOP/s}}
prices: {mine: 2.5 USD/h}
domains: [{gpu: mine, gpus: 8, gpus_per_node: 4, structure: switch, links_per_switch: [5, 5], link: 50 GB/s, latency: 0.5 us, count: 2}]
fabric: {kind: leaf-spine, nic: 400 Gb/s, nodes_per_leaf: 2, spines: 1, latency: 2 us}
""",
    """name: torus
gpus: {t: {hbm_bytes: 95 GB, hbm_bytes_per_s: 2.7 TB/s, bf16_flop_per_s: 450 TFLOP/s}}
domains: [{gpu: t, structure: torus, shape: [4, 4, 2], wrap: [true, true, false], link: 100 GB/s, gpus_per_node: 4}, {gpu: t, gpus: 4, gpus_per_node: 4, structure: mesh, link: 64 GB/s, links_per_peer: 1}]
fabric: {kind: leaf-spine, nic: 400 Gb/s}
""",
    """name: two hosts
nodes:
  - {id: b0, kind: gpu, gpu: h100-sxm, domain: B, node: hostb, rack: r2}
  - {id: a0, kind: gpu, gpu: h100-sxm, domain: A, node: hosta, rack: r1, rail: 1}
  - {id: a1, kind: gpu, gpu: h100-sxm, domain: A, node: hosta, rack: r1, rail: 0}
  - {id: sa, kind: switch}
  - {id: na, kind: nic, node: hosta}
  - {id: leaf, kind: leaf}
links:
  - {between: [a0, sa], count: 18, fabric: nvlink4}
  - {between: [a1, sa], count: 9, rate: 25 GB/s, latency: 0.3 us, fabric: mine}
  - {between: [a0, na], rate: 64 GB/s}
  - {between: [na, leaf], rate: 400 Gb/s}
  - {between: [b0, leaf], fabric: ib-ndr400}
broken: [{link: [a0, sa], factor: 0.5}]
""",
    """name: hosts
nodes:
- repeat: {h: 08-10}
  nodes:
  - {id: "n{h}.g{g}", kind: gpu, domain: "n{h}", node: "n{h}", rail: "{g}", gpu: h100-sxm, repeat: {g: 2}}
  - {id: "n{h}.s", kind: switch, domain: "n{h}"}
- {id: "leaf{l}", kind: leaf, repeat: {l: [a, b]}}
links:
- {between: ["n{h}.g{g}", "n{h}.s"], fabric: nvlink4, count: 18, repeat: {h: 08-10, g: 0-1}}
- {between: ["n{h}.g0", leafa], fabric: ib-ndr400, repeat: {h: "08,10"}}
- {between: ["n{h+1}.g1", leafb], rate: 400 Gb/s, repeat: {h: 07-09}}
""",
    "domains: [{part: hgx-h100, count: 4}]\nfabric: {kind: fat-tree, nic: 400 Gb/s, radix: 64}\nbroken: [{gpu: d0.n0.g0}]\n",
    "domains: [{part: hgx-h100, count: 4}]\nfabric: {kind: dragonfly, nic: 400 Gb/s, nodes_per_router: 1, routers_per_group: 2}\n",
)

_TRAILING = "CPU Affinity\tNUMA Affinity\tGPU NUMA ID"
_ROWS = [
    ["GPU0", " X ", "NV18", "PIX", "SYS"],
    ["GPU1", "NV18", " X ", "SYS", "PIX"],
    ["NIC0", "PIX", "SYS", " X ", "SYS"],
    ["NIC1", "SYS", "PIX", "SYS", " X "],
]
TOPO_M = (
    f"\tGPU0\tGPU1\tNIC0\tNIC1\t{_TRAILING}\n"
    + "\n".join("\t".join([*row, "0-63", "0", "N/A"] if row[0][0] == "G" else row) for row in _ROWS)
    + "\n\nLegend:\n\n  X    = Self\n\nNIC Legend:\n\n  NIC0: mlx5_0\n  NIC1: mlx5_1\n"
)


def _table(title: str, names: list[str], cells: list[list[str]]) -> str:
    rows = [["", *names], *([name, *row] for name, row in zip(names, cells, strict=True))]
    return f"{title}:\n" + "\n".join("".join(cell.ljust(14) for cell in row) for row in rows) + "\n\n"


_BDF = [f"0000:{number:02x}:00.0" for number in (12, 34, 56, 92)]


def _square(same: str, other: str) -> list[list[str]]:
    return [[same if a == b else other for b in range(4)] for a in range(4)]


AMD_TEXT = "".join(
    _table(title, _BDF, _square(*pair))
    for title, pair in {
        "ACCESS TABLE": ("ENABLED", "ENABLED"),
        "WEIGHT TABLE": ("0", "15"),
        "HOPS TABLE": ("0", "1"),
        "LINK TYPE TABLE": ("SELF", "XGMI"),
        "NUMA BW TABLE": ("N/A", "50000-50000"),
    }.items()
)
_LINK = {
    "weight": 15,
    "link_status": "ENABLED",
    "link_type": "XGMI",
    "num_hops": 1,
    "bandwidth": "50000-50000",
}
_SELF = {**_LINK, "weight": 0, "link_type": "SELF", "num_hops": 0}
AMD_JSON = json.dumps(
    [
        {"gpu": a, "bdf": _BDF[a], "links": [{"gpu": b, **(_SELF if a == b else _LINK)} for b in range(2)]}
        for a in range(2)
    ]
)
ROCM = _table("=== Link Type between two GPUs ===", ["GPU0", "GPU1"], [["0", "XGMI"], ["XGMI", "0"]]).replace(
    ":\n", "\n", 1
) + ("=== Numa Nodes ===\nGPU[0]\t\t: (Topology) Numa Node: 0\nGPU[1]\t\t: (Topology) Numa Node: 1\n")

NCCL = """<system version="1">
<cpu numaid="0" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">
<pci busid="0000:10:00.0" class="0x060400" link_speed="32.0 GT/s PCIe" link_width="16">
<pci busid="0000:10:01.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16">
<gpu dev="0" sm="90" rank="0" gdr="1"><nvlink target="0000:1a:00.0" count="9" tclass="0x068000"/><nvlink target="0000:1b:00.0" count="9" tclass="0x068000"/></gpu></pci>
<pci busid="0000:10:02.0" class="0x020700"><nic><net name="mlx5_0" dev="0" speed="400000" port="1" latency="0.0"/></nic></pci></pci></cpu>
<cpu numaid="1"><pci busid="0000:20:01.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16">
<gpu dev="1" sm="90" rank="1" gdr="1"><nvlink target="0000:1a:00.0" count="9" tclass="0x068000"/><nvlink target="0000:1b:00.0" count="9" tclass="0x068000"/></gpu></pci></cpu>
</system>
"""
LSTOPO = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
<object type="Machine" os_index="0" gp_index="1"><object type="Package" os_index="0" gp_index="2">
<object type="Bridge" bridge_type="0-1" gp_index="3" bridge_pci="0000:[10-2f]">
<object type="Bridge" gp_index="4" bridge_type="1-1" pci_busid="0000:10:01.0" pci_type="0604 [1000:c030] [0:0] b0" pci_link_speed="63.0">
<object type="PCIDev" gp_index="16" pci_busid="0000:11:00.0" pci_type="0302 [10de:2330] [10de:16c1] a1" pci_link_speed="63.0">
<object type="OSDev" gp_index="100" name="nvml0" subtype="NVML" osdev_type="1"><info name="GPUModel" value="NVIDIA H100 80GB HBM3"/></object></object>
<object type="PCIDev" gp_index="17" pci_busid="0000:12:00.0" pci_type="0302 [10de:2330] [10de:16c1] a1" pci_link_speed="63.0">
<object type="OSDev" gp_index="101" name="nvml1" subtype="NVML" osdev_type="1"><info name="GPUModel" value="NVIDIA H100 80GB HBM3"/></object></object>
<object type="PCIDev" gp_index="32" pci_busid="0000:13:00.0" pci_type="0207 [15b3:1021] [0:0] a1" pci_link_speed="50.0">
<object type="OSDev" gp_index="300" name="mlx5_0" osdev_type="3"><info name="NodeGUID" value="248a:0703"/><info name="Port1State" value="4"/></object></object>
<object type="PCIDev" gp_index="64" pci_busid="0000:14:00.0" pci_type="0680 [10de:22a3] [10de:16c1] a1" pci_link_speed="8.0"/>
</object></object></object></object>
<distances2hetero nbobjs="3" kind="25" name="NVLinkBandwidth"><indexes>OSDev:100 OSDev:101 PCIDev:64 </indexes>
<u64values>1000000 0 450000 </u64values><u64values>0 1000000 450000 </u64values><u64values>450000 450000 1000000 </u64values></distances2hetero>
</topology>
"""
SLURM = (
    "SwitchName=core Switches=leaf[1-2]\nSwitchName=leaf1 Nodes=n[001-002] LinkSpeed=400\nSwitchName=leaf2 Nodes=n[003-004],m[1-2]x[1-2]\n",
    "BlockName=b1 Nodes=n[01-04]\nBlockName=b2 Nodes=n[05-08]\nBlockName=b3\nBlockSizes=4,8\n",
    "SwitchName=s Nodes=n[19-22]\n",
)
SLURM_YAML = (
    (
        "- topology: t\n  cluster_default: true\n  tree:\n    switches:\n    - {switch: top, children: 's[1-2]'}\n    - {switch: s1, nodes: 'n[1-2]'}\n    - {switch: s2, nodes: 'n[3-4]'}\n"
        "- topology: b\n  block:\n    block_sizes: [2, 4]\n    blocks: [{block: b1, nodes: 'n[1-2]'}, {block: b2, nodes: 'n[3-4]'}]\n- topology: f\n  flat: true\n"
    ),
)
TOPOGRAPH = (
    (
        "switches: {core: {switches: [a, b]}, a: {}, b: {}}\ncapacity_blocks: []\n"
        "blocks: [{switch: a, nodes: ['n[1-2]'], type: H100}, {switch: b, nodes: ['n[3-4]'], nvlink: nvl1}]\n"
    ),
    "instances: [{id: n1, network_layers: [a, s]}, {id: n2, network_layers: [a, s]}, {id: n3, network_layers: [b, s]}]\n",
    "items:\n- metadata: {name: n1, labels: {network.topology.nvidia.com/leaf: a, network.topology.nvidia.com/spine: s}}\n",
)
_IB = [("leaf", "S-00a0", "n1 mlx5_0", "H-00b0"), ("leaf", "S-00a0", "n2 mlx5_0", "H-00b1")]
IB = (
    "# Topology file: generated\n\nvendid=0x2c9\nswitchguid=0xa0(a0)\n"
    'Switch\t65 "S-00a0"\t\t# "MF0;leaf:MQM9700/U1" enhanced port 0 lid 1 lmc 0\n'
    + "".join(
        f'[{i}]\t"{h}"[1]({h[2:]})\t\t# "{n}" lid {i + 2} 4xNDR\n' for i, (_, _, n, h) in enumerate(_IB, 1)
    )
    + "".join(
        f'\nvendid=0x2c9\ncaguid=0x{h[2:]}\nCa\t1 "{h}"\t\t# "{n}"\n[1]({h[2:]})\t"{s}"[{i}]\t\t# lid {i + 2} lmc 0 "{sw}" lid 1 4xNDR\n'
        for i, (sw, s, n, h) in enumerate(_IB, 1)
    )
)
INFRA = """infrastructure:
  devices:
  - name: server
    components:
    - {name: xpu, choice: xpu, count: 2}
    - {name: nic, choice: nic, count: 2}
    - {name: nvlsw, choice: switch, count: 1}
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
  links: [{name: eth, bandwidth: {gigabits_per_second: 400}}]
  edges:
  - {ep1: {instance: host, component: "nic[0]"}, ep2: {instance: "leaf[0]", component: "port[0:2]"}, scheme: one2one, link: eth}
  - {ep1: {instance: host, component: "nic[1]"}, ep2: {instance: "leaf[1]", component: "port[0:2]"}, scheme: one2one, link: eth}
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
SIMAI = "10 2 2 4 8 H100\n4 5 6 7 8 9\n" + "".join(
    f"{a} {b} {rate} 0\n"
    for a, b, rate in [
        (0, 4, "2880Gbps 0.000025ms"),
        (1, 4, "2880Gbps 0.000025ms"),
        (2, 5, "2880Gbps 0.000025ms"),
        (3, 5, "2880Gbps 0.000025ms"),
        (0, 6, "400Gbps 0.0005ms"),
        (1, 7, "400Gbps 0.0005ms"),
        (2, 6, "400Gbps 0.0005ms"),
        (3, 7, "400Gbps 0.0005ms"),
    ]
)


def _bundle(*cables: tuple[tuple[str, str], tuple[str, str]]) -> dict[str, Any]:
    return {
        "compounded_links": [
            {"interfaces": [{"node": n, "interface": i} for n, i in cable]} for cable in cables
        ],
        "size": len(cables),
    }


NETQ = json.dumps(
    [
        {
            "nodes": [
                {
                    "name": "all",
                    "compounded_nodes": [
                        *(
                            {"id": f"h{i}", "name": f"dgx-{i}", "device_type": "host", "tier": -1}
                            for i in range(2)
                        ),
                        *(
                            {"id": f"l{i}", "name": f"leaf-{i}", "device_type": "switch", "tier": 1}
                            for i in range(2)
                        ),
                        {"id": "s", "name": "spine", "device_type": "switch", "tier": 2},
                    ],
                }
            ],
            "links": [
                *(
                    _bundle(*(((f"h{i}", f"eth{p}"), (f"l{i}", f"swp{p}")) for p in range(2)))
                    for i in range(2)
                ),
                *(
                    _bundle(*(((f"l{i}", f"up{p}"), ("s", f"swp{i}x{p}")) for p in range(2)))
                    for i in range(2)
                ),
            ],
        }
    ]
)
_NETBOX = [
    *(((f"dgx-{h}", f"mlx5_{r}"), (f"leaf-{r}", f"swp{h}")) for h in range(2) for r in range(2)),
    *(((f"leaf-{r}", "swp31"), ("spine-0", f"swp{r}")) for r in range(2)),
]
_ROLES = {"dgx": "gpu-server", "leaf": "leaf-switch", "spine": "spine-switch"}


def _end(device: str, interface: str) -> dict[str, Any]:
    return {"object_type": "dcim.interface", "object": {"device": {"name": device}, "name": interface}}


NETBOX = json.dumps(
    {
        "cables": [
            {
                "id": 1,
                "a_terminations": [_end(*a)],
                "b_terminations": [_end(*b)],
                "status": {"value": "connected", "label": "Connected"},
            }
            for a, b in _NETBOX
        ],
        "interfaces": [
            {"id": 1, "device": {"name": device}, "name": name, "type": {"value": "infiniband-ndr"}}
            for pair in _NETBOX
            for device, name in pair
        ],
        "devices": [
            {"id": 1, "name": name, "role": {"slug": _ROLES[name.split("-")[0]]}}
            for name in dict.fromkeys(end[0] for pair in _NETBOX for end in pair)
        ],
    }
)
NETBOX_CSV = "side_a_device,side_a_type,side_a_name,side_b_device,side_b_type,side_b_name,status\n" + "".join(
    f"{a[0]},dcim.interface,{a[1]},{b[0]},dcim.interface,{b[1]},connected\n" for a, b in _NETBOX
)
SETTINGS = (
    "gb200.hbm_bytes_per_s=2x",
    "nvlink5.link_bytes_per_s=100 GB/s",
    "gpu.hbm_bytes=+10%",
    "scale-out.latency_s=2 us",
    "gb200.usd_per_h=3.1 USD/h",
)
HOSTLISTS = ("n[001-016,020]x[1-2]", "a,b,c[1-3]", "node[1-4][1-2]", "n[19-22]")
