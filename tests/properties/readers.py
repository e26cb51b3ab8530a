"""Everything that reads files or words of others, with small whole inputs and the ways to damage them."""

from __future__ import annotations

import io
import json
import re
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from safetensors.numpy import save

import rackplan
from cost.config.build import model_from_config
from cost.dtypes import dtype
from cost.experts.loads import read_loads
from cost.experts.traces.counts import Wanted
from cost.experts.traces.open import open_counts, read_routing
from cost.resolve import resolve_model
from cost.serving.lengths import read_lengths
from cost.validation.read import read_measurements
from placement.engines.mapping import model_facts
from placement.engines.registry import read_mapping
from placement.plans.writing import plan_to_dict, plan_to_json
from rackplan.studies.spec import read_study
from topology.base.errors import RackplanError
from topology.base.units import parse_quantity
from topology.changes.overrides import overrides
from topology.files.resolve import resolve_cluster
from topology.importers import ImportOptions, import_files
from topology.importers.hostlist import expand_hosts
from topology.routes import read_traffic
from toys import TorchWriter

CONFIG: dict[str, Any] = {
    "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "num_local_experts": 4,
    "num_experts_per_tok": 2, "vocab_size": 1000, "max_position_embeddings": 32768, "torch_dtype": "bfloat16",
    "rms_norm_eps": 1e-5, "tie_word_embeddings": False, "sliding_window": None, "rope_theta": 1e6, "hidden_act": "silu",
}  # fmt: skip
LAYERS, EXPERTS, TOP_K, RANKS = 2, 4, 2, 4
_rng = np.random.default_rng(0)
COUNTS = _rng.integers(1, 90, (LAYERS, EXPERTS))
SLOTS = np.array([[0, 1, 2, 3], [3, 2, 1, 0]])
CHOSEN = np.argsort(_rng.random((12, LAYERS, EXPERTS)), axis=2)[:, :, :TOP_K]


Seed = bytes | Mapping[str, bytes]


@dataclass(frozen=True)
class Reader:
    """One way in: the file's name (empty for a folder), whole inputs, and what reads one.

    ``read`` raises a ``RackplanError`` for what it refuses; anything else is a finding.
    """

    name: str
    file: str
    seeds: Callable[[], list[Seed]]
    read: Callable[[Path], object]

    def put(self, folder: Path, seed: Seed, random: Random | None = None) -> Path:
        """Write an input, damaged where ``random`` is given; return its path."""
        if isinstance(seed, bytes):
            path = folder / self.file
            path.write_bytes(seed if random is None else damaged(seed, random))
            return path
        path = folder / "folder"
        path.mkdir()
        hit = random.choice(sorted(seed)) if random else None
        for name, data in seed.items():
            (path / name).write_bytes(damaged(data, random) if random and name == hit else data)
        return path


HOSTILE = (
    b"", b"\x00", b"-1", b"0", b"1e309", b"nan", b"-inf", b"9" * 400, b"99999999999", b"1_0", b"0x10", b"010", b"1:30", b"null", b"true",
    b"[]", b"{}", b'"', b"'", b"&a [*a]", b"!!python/object/apply:os.system [x]", b"\xff\xfe", b"\xed\xa0\x80", b"..", b"/", b"../x",
    b"a" * 5000, b"[" * 3000, b"(" * 200, b"\t", b"\r\n", b"%", b"n[1-99999999]", b"$(x)", b"<x>", b"\xf0\x9f\x92\xa5", b",", b":", b"*",
)  # fmt: skip
"""What is put in place of a word."""
_WORD = re.compile(rb"[A-Za-z0-9_.+-]+")


def damaged(data: bytes, random: Random) -> bytes:
    """Return bytes with a few of them, or a few words or lines, changed; archives by their members."""
    if data.startswith(b"PK\x03\x04") and random.random() < 0.7:
        out = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
            hit = random.choice(old.namelist())
            for name in old.namelist():
                new.writestr(name, damaged(old.read(name), random) if name == hit else old.read(name))
        return out.getvalue()
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        data = random.choice((_words, _words, _lines, _bytes))(data, random)
    return data[:1_000_000]


def _words(data: bytes, random: Random) -> bytes:
    words = list(_WORD.finditer(data))
    if not words:
        return data + random.choice(HOSTILE)
    word, other = random.choice(words), random.choice(words)
    hostile = random.choice(HOSTILE)
    new = random.choice((hostile, hostile, other[0], b"-" + word[0], word[0] * 2))
    return data[: word.start()] + new + data[word.end() :]


def _lines(data: bytes, random: Random) -> bytes:
    lines = data.split(b"\n")
    at, other = random.randrange(len(lines)), random.randrange(len(lines))
    cut = lines[at][: random.randint(0, len(lines[at]))]
    lines[at : at + 1] = random.choice(([], [lines[at]] * 2, [lines[other]], [cut]))
    return b"\n".join(lines)


def _bytes(data: bytes, random: Random) -> bytes:
    at = random.randint(0, len(data))
    end = min(len(data), at + random.choice((1, 2, 8, 64, 300)))
    return data[:at] + random.choice((b"", random.randbytes(end - at), data[at:end] * 3)) + data[end:]


def npy(array: Any) -> bytes:
    out = io.BytesIO()
    np.save(out, array, allow_pickle=False)
    return out.getvalue()


def npz(**arrays: Any) -> bytes:
    out = io.BytesIO()
    np.savez(out, **arrays)
    return out.getvalue()


# Machines
CLUSTERS = (
    b"name: a\ndomains: [{part: hgx-h100, count: 2}]\nfabric: {kind: rail, nic: 400 Gb/s, planes: 2}\n",
    b"domains: [{part: gb200-nvl72}]\nbroken: [{gpu: d0.n0.g1}, {gpu: d0.n1.g2, factor: 0.7}, {switch: d0.s3}]\n",
    b"gpus: {mine: {hbm_bytes: 80 GB, hbm_bytes_per_s: 3 TB/s, bf16_flop_per_s: 900 TFLOP/s}}\nprices: {mine: 2.5 USD/h}\n"
    b"domains: [{gpu: mine, gpus: 8, gpus_per_node: 4, structure: switch, links_per_switch: [5, 5], link: 50 GB/s, latency: 0.5 us, count: 2}]\n"
    b"fabric: {kind: leaf-spine, nic: 400 Gb/s, nodes_per_leaf: 2, spines: 1, latency: 2 us}\n",
    b"gpus: {t: {hbm_bytes: 95 GB, hbm_bytes_per_s: 2.7 TB/s, bf16_flop_per_s: 450 TFLOP/s}}\n"
    b"domains: [{gpu: t, structure: torus, shape: [4, 4, 2], wrap: [true, true, false], link: 100 GB/s, gpus_per_node: 4}]\n",
    b"nodes:\n- {id: a0, kind: gpu, gpu: h100-sxm, domain: A, node: hosta, rack: r1}\n- {id: a1, kind: gpu, gpu: h100-sxm, domain: A, node: hosta, rack: r1}\n"
    b"- {id: sa, kind: switch}\nlinks:\n- {between: [a0, sa], count: 18, fabric: nvlink4}\n- {between: [a1, sa], count: 9, rate: 25 GB/s, latency: 0.3 us}\n",
)
TOPO_M = (
    b"\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \tNV18\tPIX\t0-63\t0\tN/A\n"
    b"GPU1\tNV18\t X \tSYS\t0-63\t0\tN/A\nNIC0\tPIX\tSYS\t X \n\nNIC Legend:\n\n  NIC0: mlx5_0\n"
)
NCCL = (
    b'<system version="1"><cpu numaid="0"><pci busid="0000:10:01.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16">\n'
    b'<gpu dev="0" sm="90" rank="0"><nvlink target="0000:1a:00.0" count="18" tclass="0x068000"/></gpu></pci>\n'
    b'<pci busid="0000:10:02.0" class="0x020700"><nic><net name="mlx5_0" dev="0" speed="400000" port="1"/></nic></pci></cpu>\n'
    b'<cpu numaid="1"><pci busid="0000:20:01.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16">\n'
    b'<gpu dev="1" sm="90" rank="1"><nvlink target="0000:1a:00.0" count="18" tclass="0x068000"/></gpu></pci></cpu></system>\n'
)
SLURM = (
    b"SwitchName=core Switches=leaf[1-2]\nSwitchName=leaf1 Nodes=n[001-002] LinkSpeed=400\nSwitchName=leaf2 Nodes=n[003-004]\n",
    b"BlockName=b1 Nodes=n[01-04]\nBlockName=b2 Nodes=n[05-08]\nBlockSizes=4,8\n",
)
SLURM_YAML = (
    b"- topology: t\n  cluster_default: true\n  tree:\n    switches:\n    - {switch: top, children: 's[1-2]'}\n"
    b"    - {switch: s1, nodes: 'n[1-2]'}\n    - {switch: s2, nodes: 'n[3-4]'}\n"
)
TOPOGRAPH = (
    b"switches: {core: {switches: [a, b]}, a: {}, b: {}}\nblocks: [{switch: a, nodes: ['n[1-2]']}, {switch: b, nodes: ['n[3-4]']}]\n",
    b"instances: [{id: n1, network_layers: [a, s]}, {id: n2, network_layers: [a, s]}, {id: n3, network_layers: [b, s]}]\n",
)
IB = (
    b'vendid=0x2c9\nswitchguid=0xa0(a0)\nSwitch\t65 "S-00a0"\t\t# "MF0;leaf:MQM9700/U1" enhanced port 0 lid 1 lmc 0\n'
    b'[1]\t"H-00b0"[1](00b0)\t\t# "n1 mlx5_0" lid 2 4xNDR\n[2]\t"H-00b1"[1](00b1)\t\t# "n2 mlx5_0" lid 3 4xNDR\n'
    b'\nvendid=0x2c9\ncaguid=0x00b0\nCa\t1 "H-00b0"\t\t# "n1 mlx5_0"\n[1](00b0)\t"S-00a0"[1]\t\t# lid 2 lmc 0 "leaf" lid 1 4xNDR\n'
    b'\nvendid=0x2c9\ncaguid=0x00b1\nCa\t1 "H-00b1"\t\t# "n2 mlx5_0"\n[1](00b1)\t"S-00a0"[2]\t\t# lid 3 lmc 0 "leaf" lid 1 4xNDR\n'
)
IB_PORTS = (
    b"SW     1  2 0x00000000000000a0 4x NDR - CA     3  1 0x00000000000000b1 ( 'MF0;leaf:MQM9700/U1' - 'n2 mlx5_0' )\n"
    b"SW     1  1 0x00000000000000a0 4x NDR - CA     2  1 0x00000000000000b0 ( 'MF0;leaf:MQM9700/U1' - 'n1 mlx5_0' )\n"
    b"SW     1  3 0x00000000000000a0 4x SDR                                    'MF0;leaf:MQM9700/U1'\n"
    b"CA     2  1 0x00000000000000b0 4x NDR - SW     1  1 0x00000000000000a0 ( 'n1 mlx5_0' - 'MF0;leaf:MQM9700/U1' )\n"
    b"CA     3  1 0x00000000000000b1 4x NDR - SW     1  2 0x00000000000000a0 ( 'n2 mlx5_0' - 'MF0;leaf:MQM9700/U1' )\n"
)
AMD_SMI = (
    b"Weight between two GPUs\n      GPU0  GPU1\nGPU0  0     40\nGPU1  40    0\n\nHops between two GPUs\n      GPU0  GPU1\n"
    b"GPU0  0     2\nGPU1  2     0\n\nLink Type between two GPUs\n      GPU0  GPU1\nGPU0  0     PCIE\nGPU1  PCIE  0\n\n"
    b"GPU[0]\t\t: (Topology) Numa Node: 0\nGPU[1]\t\t: (Topology) Numa Node: 1\n",
    b'{"topology": [{"gpu": 0, "bdf": "0000:05:00.0", "links": [{"gpu": 1, "link_type": "XGMI", "weight": 15}]},'
    b' {"gpu": 1, "bdf": "0000:26:00.0", "links": [{"gpu": 0, "link_type": "XGMI", "bandwidth": "50000-100000"}]}]}',
)
LINKS_CSV = b"a,b,count,rate\nh0.g0,h0.s0,18,25 GB/s\nh0.g1,h0.s0,18,25 GB/s\nh0.g0,leaf0,1,50 GB/s\nh0.g1,leaf0,1,50 GB/s\n"


def _import(path: Path, **gpu: Any) -> None:
    options = {"gpu": "hgx-h100", "pcie": "32 GB/s", "socket_link": "40 GB/s", **gpu}
    import_files([str(path)], ImportOptions(**options))


def _words_typed(path: Path) -> None:
    """Names and figures as people type them."""
    rack = resolve_cluster("gb200-nvl72")
    text = path.read_text(encoding="utf-8", errors="replace")
    loads = partial(read_loads, wanted=Wanted((0,), 1, 4), seed=0)
    for read in (
        resolve_cluster,
        resolve_model,
        dtype,
        lambda given: overrides([rack], [given]),
        lambda given: expand_hosts(given, "hosts"),
        lambda given: parse_quantity(given, "byte/s", "link"),
        lambda given: loads([given]),
    ):
        try:
            read(text)
        except RackplanError:
            continue


# Models, loads, traces
SMALL = model_from_config(CONFIG, name="small")


def _loads(path: Path) -> None:
    open_counts(str(path))
    read_loads([str(path)], Wanted((0, 1), LAYERS, EXPERTS), seed=0)


def _routing(path: Path) -> None:
    for trace in read_routing([str(path)], Wanted((0, 1), LAYERS, EXPERTS, TOP_K)):
        trace.counts.sum()


def _torch() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return TorchWriter().save(Path(folder) / "x.pt", {"logical_count": COUNTS}).read_bytes()


def _trtllm() -> dict[str, bytes]:
    files = {"meta_info.json": json.dumps({"num_experts": EXPERTS, "num_experts_per_token": TOP_K}).encode()}
    ranks = {f"5_{layer}": COUNTS[layer] for layer in range(LAYERS)}
    return {**files, "rank0.safetensors": save(ranks), "rank1.safetensors": save(ranks)}


LOADS_CSV = b"scenario,layer,expert,tokens\n" + b"".join(
    b"s,%d,%d,%d\n" % (layer, e, COUNTS[layer, e]) for layer in range(LAYERS) for e in range(EXPERTS)
)
LOADS_CSV_OF_SGLANG = b"layer_id,expert_id,count\n" + b"".join(
    b"%d,%d,%d\n" % (layer, e, COUNTS[layer, e]) for layer in range(LAYERS) for e in range(1, EXPERTS)
)
POINTS = (
    b"id,source,quantity,measured,phase,model,cluster,gpus,engine,weights,kv_dtype,tp,ep,batch_per_gpu,context\n"
    b"a,me,step_ms,21.5,decode,mixtral-8x7b,hgx-h100,8,sglang,bf16,bf16,1,8,16,4096\n"
)
STUDY = (
    b"kind: sweep\nfixed: {model: mixtral-8x7b, cluster: hgx-h100}\ngrid: {weights: [bf16, fp8], context: [1024, 4096]}\nlimit_s: 20\n",
    b"kind: score\nfixed: {model: mixtral-8x7b, cluster: hgx-h100}\ngrid: {ep: [4, 8]}\nsample: {points: 4, seed: 1, context: [1024, 65536]}\n",
)


# Plans, engines' files, studies
@cache
def _plan() -> Any:
    return rackplan.plan(CONFIG, "hgx-h100", loads="zipf:0.6", time_limit_s=0, batch=4, context=1024, ep=4)


@cache
def _plan_text() -> bytes:
    return plan_to_json(plan_to_dict(_plan(), command="rackplan plan", sha256={})).encode()


ENGINES = {"sglang": ".json", "trtllm": ".yaml", "vllm-ascend": ".json", "vllm": ".json"}


def _engine_seed(engine: str) -> list[Seed]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{engine}{ENGINES[engine]}"
        rackplan.export(_plan(), engine, path)
        return [path.read_bytes()]


def _mapping(kind: str, path: Path) -> None:
    read_mapping(path, kind, model_facts(SMALL), RANKS)


def _study(path: Path) -> None:
    study = read_study(path)
    for point, _ in zip(study.points(), range(20), strict=False):
        assert point.digest


def _of(*seeds: bytes) -> Callable[[], list[Seed]]:
    return lambda: [*seeds]


READERS = (
    Reader("cluster", "c.yaml", _of(*CLUSTERS), lambda path: resolve_cluster(str(path))),
    Reader("topo-m", "t.txt", _of(TOPO_M), _import),
    Reader("nccl", "n.xml", _of(NCCL), _import),
    Reader("slurm", "topology.conf", _of(*SLURM), _import),
    Reader("slurm-yaml", "topology.yaml", _of(SLURM_YAML), _import),
    Reader("topograph", "m.yaml", _of(*TOPOGRAPH), _import),
    Reader("ibnetdiscover", "ib.out", _of(IB, IB_PORTS), _import),
    Reader("amd-smi", "amd.txt", _of(*AMD_SMI), partial(_import, gpu="own", hbm="64 GB", fabrics=("nvlink3",))),
    Reader("links", "links.csv", _of(LINKS_CSV), _import),
    Reader("traffic", "t.npy", lambda: [npy(np.ones((8, 8)))], lambda path: read_traffic(path, 8)),
    Reader("words", "w.txt", _of(b"gb200-nvl72@72", b"mixtral-8x7b", b"450 GB/s", b"zipf:1.2", b"gb200.hbm_bytes=2x", b"n[001-016,020]x[1-2]"), _words_typed),
    Reader("model", "config.json", lambda: [json.dumps(CONFIG).encode()], lambda path: resolve_model(str(path))),
    Reader("loads-npy", "l.npy", lambda: [npy(COUNTS)], _loads),
    Reader("loads-npz", "l.npz", lambda: [npz(loads=COUNTS)], _loads),
    Reader("loads-csv", "l.csv", _of(LOADS_CSV), _loads),
    Reader("loads-csv-sglang", "expert_distribution_rank0.csv", _of(LOADS_CSV_OF_SGLANG), _loads),
    Reader("loads-json", "l.json", lambda: [json.dumps({"logical_count": COUNTS.tolist()}).encode()], _loads),
    Reader("loads-pt", "l.pt", lambda: [_torch()], _loads),
    Reader("loads-trtllm", "", lambda: [_trtllm()], _loads),
    Reader("routing", "r.npy", lambda: [npy(CHOSEN)], _routing),
    Reader("routing-npz", "r.npz", lambda: [npz(routed_experts=CHOSEN)], _routing),
    Reader("routing-json", "r.json", lambda: [json.dumps({"choices": [{"routed_experts": CHOSEN.tolist()}]}).encode()], _routing),
    Reader("lengths", "l.csv", _of(b"isl,osl,share\n1024,128,0.5\n4096,1024,0.3\n8192,256,0.2\n"), read_lengths),
    Reader("points", "p.csv", _of(POINTS), read_measurements),
    Reader("plan", "plan.json", lambda: [_plan_text()], rackplan.read_plan),
    Reader("study", "s.yaml", _of(*STUDY), _study),
    Reader("map-npy", "m.npy", lambda: [npy(SLOTS)], partial(_mapping, "npy")),
    *(
        Reader(f"map-{engine}", f"m{suffix}", partial(_engine_seed, engine), partial(_mapping, engine))
        for engine, suffix in ENGINES.items()
    ),
)  # fmt: skip
