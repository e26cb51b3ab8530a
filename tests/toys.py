"""Small machines and models with round figures, so that every expected number can be worked out by hand."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType, SimpleNamespace

import numpy as np
import pytest

from cost.attention import GroupedQuery
from cost.calibration.serving import calibrated
from cost.experts.tokens.reach import balanced_use
from cost.inputs.deployment import Deployment
from cost.inputs.layout import Layout, StageSpec
from cost.inputs.machine import PEAK, Efficiency, Machine, kernels_for, stage_rates
from cost.inputs.workload import Workload
from cost.memory import budget
from cost.memory.engines import Coefficient, EngineMemory, Taken, engine_memory
from cost.model import DenseFfn, Layer, Model, MoeFfn
from cost.queueing.schedulers import SCHEDULERS, Scheduler
from cost.step.score import LayoutScorer
from topology import (
    ClusterSpec,
    DomainSpec,
    Evidence,
    FabricSpec,
    Figure,
    GpuSpec,
    build_cluster,
    load_domain,
)
from topology.fabrics.rail import RailFabric
from topology.structures.switch import SwitchDomain


class ToyEngine(EngineMemory):
    """Takes nothing: nine tenths of a toy GPU are for weights and cache."""

    def taken_gib(self, **_: object) -> Taken:
        return Taken(0.0, 0.0, 0.0, {"workspace": 0.0, "graphs": 0.0, "buffers": 0.0})


TOY_ENGINE = ToyEngine("toy", "total", Coefficient(0.9, 0.9, 0.9, "made up", 0))
TOY_SCHEDULER = Scheduler(mixes=True, tokens=8192, sequences=1_000_000, reserved=0.0)
budget.ENGINES_ON["toys"] = ("toy",)
budget.TITLES["toy"] = "toy"
SCHEDULERS["toy"] = TOY_SCHEDULER
budget.engine_memory = lambda name, *rest: TOY_ENGINE if name == "toy" else engine_memory(name, *rest)

PARTS = ("experts", "shared", "attention", "dense", "router", "embedding", "head", "norm")


def figure(value: float, unit: str, kind: Evidence = Evidence.DATASHEET) -> Figure:
    return Figure(value, unit, kind, "made up for a test", str(value))


def gpu(*, hbm=1e9, hbm_rate=1e12, bf16=1e14, fp8=2e14, name="toy", kind=Evidence.DATASHEET) -> GpuSpec:
    """1 GB at 1 TB/s, 100 Tflop/s in BF16 and 200 in FP8."""
    figures = {
        "hbm_bytes": figure(hbm, "byte", kind),
        "hbm_bytes_per_s": figure(hbm_rate, "byte/s", kind),
        "bf16_flop_per_s": figure(bf16, "flop/s", kind),
    }
    if fp8:
        figures["fp8_flop_per_s"] = figure(fp8, "flop/s", kind)
    return GpuSpec(name, name, "toys", "made up", 1, figures)


def domain(gpus=4, *, link=1e10, latency=0.0, chip=None) -> DomainSpec:
    """Ten links of 10 GB/s for each GPU: 100 GB/s; two GPUs a node where that goes."""
    node = 1 if gpus % 2 else 2
    fabric = FabricSpec("up", "nvlink", figure(link, "byte/s"), figure(latency, "s"))
    return SwitchDomain(
        part="toy",
        title="toy",
        status="made up",
        gpu=chip or gpu(),
        gpus=gpus,
        gpus_per_node=node,
        fabric=fabric,
        links_per_switch=(5, 5),
        nodes_per_rack=1,
    )


def cluster(*domains, out=1e10, latency=0.0, kind=Evidence.DATASHEET):
    """Domains with one NIC of 10 GB/s for each GPU; a bare number is a domain of so many GPUs."""
    rows = tuple(domain(row) if isinstance(row, int) else row for row in domains)
    fabric = FabricSpec("out", "ib", figure(out, "byte/s", kind), figure(latency, "s"))
    scale_out = RailFabric(fabric=fabric, nodes_per_pod=8, spines=1) if out else None
    return build_cluster(ClusterSpec("toy", rows, scale_out))


ATTENTION = GroupedQuery(hidden=64, heads=4, kv_heads=2, head_dim=16, value_dim=16)
DENSE = Layer(ATTENTION, DenseFfn(20_000), norm_params=128)
MOE = Layer(
    ATTENTION,
    MoeFfn(experts=8, top_k=2, expert_params=3_000, shared_params=1_000, router_params=512, columns=16),
    norm_params=128,
)


def model(*, dense=1, moe=2, precision="bf16", tied=False, hidden=64, layer=MOE, head=64_000) -> Model:
    """Hidden width 64, vocabulary 1,000, ``dense`` dense layers, then ``moe`` with 8 experts, top 2."""
    return Model(
        name="toy",
        hidden=hidden,
        vocab=1000,
        layers=(DENSE,) * dense + (layer,) * moe,
        embedding_params=64_000,
        head_params=head,
        final_norm_params=64,
        tied=tied,
        precision=dict.fromkeys(PARTS, precision),
        precision_source="test",
        source="test",
    )


def coefficients(ideal=True, **changed: float) -> Efficiency:
    """The peak but for some coefficients, dots written as two underscores: ``hbm__cache=0.5``."""
    named = {name.replace("__", "."): figure(value, "1") for name, value in changed.items()}
    assert set(named) <= set(PEAK.table)
    return replace(PEAK, table={**PEAK.table, **named}, ideal=ideal)


def fitted() -> Efficiency:
    """What is calibrated for an H100, whatever that is."""
    return calibrated(load_domain("hgx-h100").gpu)


def machine(where, *, efficiency=PEAK, phase="decode", kv="bf16", gpus=None) -> Machine:
    """All GPUs of a cluster as one machine, for weights in BF16 and FP8."""
    rates = stage_rates(where, gpus or range(len(where.gpus)), ["bf16", "fp8", "nvfp4"])
    return Machine(rates, efficiency, kernels_for(rates, phase), kv)


def deployment(
    machine, what=None, *, batch=1, context=100, efficiency=PEAK, kv="bf16", **workload
) -> Deployment:
    return Deployment(machine, what or model(), Workload(context, batch, kv, **workload), efficiency)


def layout(*replicas, tp=1) -> Layout:
    """Each replica a list of stages, each stage (GPUs, layers)."""
    return Layout(
        tuple(tuple(StageSpec(tuple(gpus), layers) for gpus, layers in stages) for stages in replicas), tp
    )


def even_slots(slots, gpus):
    return np.array([slots // gpus + (g < slots % gpus) for g in range(gpus)], dtype=np.int64)


def uses(where, what, *, slots=None):
    """The use of perfectly balanced experts on every stage of every replica."""
    found = []
    for stages in what.replicas:
        row = []
        for stage in stages:
            count = sum(i in stage.layers for i in where.model.moe_layers)
            moe = where.model.moe
            spread = even_slots(slots or (moe.experts if moe else 0), len(stage.gpus))
            row.append(balanced_use(count, spread, moe.experts, moe.top_k) if count else None)
        found.append(row)
    return found


def scorer(where, what=None, *, slots=None, tp=1, synthetic=False) -> LayoutScorer:
    """Score of a layout, one stage over all GPUs if not given, experts balanced."""
    what = what or layout([(range(len(where.cluster.gpus)), range(len(where.model.layers)))], tp=tp)
    return LayoutScorer(where, what, uses(where, what, slots=slots), synthetic=synthetic)


@pytest.fixture
def nine_tenths(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let weights and cache fill nine tenths of NVIDIA's chips too, whatever engines keep."""
    monkeypatch.setitem(budget.ENGINES_ON, "NVIDIA", ("toy",))
    monkeypatch.setattr(budget, "seen_gib", lambda total: total)


@pytest.fixture(scope="session")
def toy() -> SimpleNamespace:
    """Makers of small machines, models, settings, layouts and scores."""
    makers = (figure, gpu, domain, cluster, coefficients, fitted, machine, model, deployment, layout)
    made = {make.__name__: make for make in (*makers, uses, scorer)}
    return SimpleNamespace(**made, attention=ATTENTION, moe=MOE)


def topo_m(
    names: list[str], cells: dict[tuple[int, int], str], *, tabs: bool = True, legend: str = ""
) -> str:
    """What ``nvidia-smi topo -m`` prints of GPUs and NICs, with PHB wherever ``cells`` has nothing."""
    between = "\t" if tabs else "   "
    lines = [between + between.join([*names, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"])]
    for i, name in enumerate(names):
        row = [" X " if i == j else cells.get((min(i, j), max(i, j)), "PHB") for j in range(len(names))]
        tail = ["0-63", "0", "N/A"] if name.startswith("GPU") else []
        lines.append(between.join([name, *row, *tail]))
    return "\n".join(lines) + "\n\nLegend:\n\n  X    = Self\n" + legend


class TorchWriter:
    """Writes what ``torch.save`` would: a zip of a pickle (protocol 2) and a stored member for each storage.

    NumPy arrays become tensors; ``raw`` bytes stand in the pickle as they are; ``storage`` names a shared one.
    """

    TYPES = MappingProxyType(
        {
            "int32": "IntStorage",
            "int64": "LongStorage",
            "float16": "HalfStorage",
            "float32": "FloatStorage",
            "uint8": "ByteStorage",
            "bool": "BoolStorage",
            "uint16": "BFloat16Storage",
        }
    )

    def __init__(self, order: str = "<") -> None:
        self.order = order
        self.storages: list[bytes] = []

    def tensor(self, array: np.ndarray) -> bytes:
        self.storages.append(array.astype(array.dtype.newbyteorder(self.order)).tobytes())
        strides = tuple(stride // array.itemsize for stride in np.zeros(array.shape, array.dtype).strides)
        kind, name = self.TYPES.get(array.dtype.name, "UntypedStorage"), array.dtype.name
        size = array.size if name in self.TYPES else array.nbytes
        view = self.view(kind, len(self.storages) - 1, size, 0, array.shape, strides)
        if name in self.TYPES:
            return view
        return view.replace(b"_v2\n", b"_v3\n").removesuffix(b"tR") + f"ctorch\n{name}\ntR".encode()

    def view(
        self, kind: str, key: int, size: int, first: int, shape: tuple[int, ...], strides: tuple[int, ...]
    ) -> bytes:
        """The opcodes of one tensor."""
        storage = b"(" + self.of("storage") + f"ctorch\n{kind}\n".encode()
        storage += self.of(str(key)) + self.of("cpu") + self.of(size) + b"tQ"
        rest = self.of(first) + self.of(tuple(shape)) + self.of(tuple(strides))
        return (
            b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + rest + b"\x89ccollections\nOrderedDict\n)RtR"
        )

    def of(self, value: object) -> bytes:
        """The opcodes of any value."""
        if isinstance(value, bytes | np.ndarray):
            return value if isinstance(value, bytes) else self.tensor(value)
        if isinstance(value, dict):
            items = [item for pair in value.items() for item in pair]
            return b"}(" + b"".join(map(self.of, items)) + b"u"
        if isinstance(value, list | tuple):
            inner = b"(" + b"".join(map(self.of, value))
            return inner + b"t" if isinstance(value, tuple) else b"]" + inner + b"e"
        if isinstance(value, str):
            return b"X" + struct.pack("<I", len(value.encode())) + value.encode()
        if value is None or isinstance(value, bool):
            return {None: b"N", True: b"\x88", False: b"\x89"}[value]
        assert isinstance(value, int)
        return b"\x8a\x09" + value.to_bytes(9, "little", signed=True)

    def save(self, path: Path, value: object, compression: int = zipfile.ZIP_STORED) -> Path:
        data = b"\x80\x02" + self.of(value) + b"."
        order = {"<": b"little", ">": b"big"}[self.order]
        members = {"data.pkl": data, "byteorder": order, "version": b"3\n"}
        members |= {f"data/{key}": storage for key, storage in enumerate(self.storages)}
        with zipfile.ZipFile(path, "w", compression) as archive:
            for name, content in members.items():
                info = zipfile.ZipInfo(f"{path.stem}/{name}")
                info.extra = b"FB\x06\x00ZZZZZZ"  # torch pads members so that storages are aligned
                info.compress_type = compression
                archive.writestr(info, content)
        return path


@pytest.fixture
def torch_save() -> Callable[..., Path]:
    """``torch_save(path, value)``, without torch."""
    return lambda path, value, **options: TorchWriter().save(path, value, **options)


@pytest.fixture
def torch_writer() -> type[TorchWriter]:
    """For tensors that share storages, other byte orders and broken ones."""
    return TorchWriter
