"""Catalog lists of GPUs, clusters and models, and single entries."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

from pydantic.dataclasses import dataclass

from cost.resolve import (
    model_called,
    model_names,
    model_title,
    published,
    spelled_models,
    without_owner,
)
from rackplan.views.blocks import Lines, Table, View, sections
from rackplan.views.catalog_entry import (
    ClusterData,
    DomainData,
    GpuData,
    ModelData,
    PhysicalData,
    cluster_view,
    domain_data,
    gpu_view,
    model_data,
    model_view,
    physical_view,
)
from rackplan.views.data import LEFT_OUT, Maybe
from topology import (
    cluster_names,
    find_scale_out,
    format_quantity,
    gpu_names,
    load_domain,
    load_gpu,
    resolve_cluster,
)
from topology.base.errors import InputError
from topology.base.names import Names
from topology.base.reading import shown
from topology.catalog.spelled import counted, spelled_clusters, spelled_gpus
from topology.cluster import Cluster

LISTS = ("clusters", "gpus", "models")
"""Available lists."""
_GPU_FIGURES = {
    "bf16_flop_per_s": ("bf16", "flop/s"),
    "fp8_flop_per_s": ("fp8", "flop/s"),
    "fp4_flop_per_s": ("fp4", "flop/s"),
    "hbm_bytes": ("HBM", "byte"),
    "hbm_bytes_per_s": ("HBM/s", "byte/s"),
}
"""Title and unit of each figure in the list of GPUs."""


@dataclass(frozen=True, kw_only=True)
class GpuRowData:
    """Short form of a catalog GPU; unpublished figures are absent.

    Attributes
    ----------
    name, title, status:
        What it is called, written out, and whether it is sold.
    hbm_bytes, hbm_bytes_per_s:
        Memory, and its rate.
    bf16_flop_per_s, fp8_flop_per_s, fp4_flop_per_s:
        Dense peaks.
    power_w, usd_per_h:
        Of one.
    flop_per_byte_bf16:
        Peak over rate; null where one is missing.
    """

    name: str
    title: str
    status: str
    hbm_bytes: Maybe[float] = LEFT_OUT
    hbm_bytes_per_s: Maybe[float] = LEFT_OUT
    bf16_flop_per_s: Maybe[float] = LEFT_OUT
    fp8_flop_per_s: Maybe[float] = LEFT_OUT
    fp4_flop_per_s: Maybe[float] = LEFT_OUT
    power_w: Maybe[float] = LEFT_OUT
    usd_per_h: Maybe[float] = LEFT_OUT
    flop_per_byte_bf16: float | None


@dataclass(frozen=True, kw_only=True)
class ClusterRowData(DomainData):
    """A system of the catalog in a list.

    Attributes
    ----------
    gpu:
        Its name.
    """

    gpu: str


@dataclass(frozen=True, kw_only=True)
class RefusedModelData:
    """A model of the catalog that cannot be counted.

    Attributes
    ----------
    name, title:
        What it is called, and written out.
    refused:
        Why.
    """

    name: str
    title: str
    refused: Maybe[str] = LEFT_OUT


@dataclass(frozen=True, kw_only=True)
class ClusterListData:
    """The systems of the catalog.

    Attributes
    ----------
    clusters:
        A row for each.
    """

    clusters: list[ClusterRowData]


@dataclass(frozen=True, kw_only=True)
class GpuListData:
    """The GPUs of the catalog.

    Attributes
    ----------
    gpus:
        A row for each.
    """

    gpus: list[GpuRowData]


@dataclass(frozen=True, kw_only=True)
class ModelListData:
    """The models of the catalog.

    Attributes
    ----------
    models:
        A row for each.
    """

    models: list[ModelData | RefusedModelData]


@dataclass(frozen=True, kw_only=True)
class ListsData(ClusterListData, GpuListData, ModelListData):
    """All lists of the catalog."""


CatalogResult = (
    ListsData
    | ClusterListData
    | GpuListData
    | ModelListData
    | ClusterData
    | GpuData
    | ModelData
    | PhysicalData
)
"""Output of ``rackplan catalog``: lists, or one entry with its figures."""


def catalog_view(what: str | None, cluster: Cluster | None = None) -> View:
    """Return all lists, one of them (:data:`LISTS`), or one entry with its figures.

    ``cluster`` is the entry where it is one that has figures of the user's.

    Raises
    ------
    InputError
        If the catalog has no entry of that name (the nearest are offered), or a cluster cannot be built.
    """
    if cluster is not None:
        return cluster_view(cluster) if cluster.name in cluster_names() else physical_view(cluster)
    if what is not None and what not in LISTS:
        return _entry(what)
    lists = {"clusters": _clusters, "gpus": _gpus, "models": _models}
    if what is not None:
        return lists[what]()
    views = [lists[name]() for name in LISTS]
    rows = {name: value for view in views for name, value in vars(view.result).items()}
    return View(sections(*(view.blocks for view in views)), ListsData(**rows))


def _gpus() -> View:
    """All GPUs: dense peaks, memory, flop per byte in BF16."""
    rows = []
    for gpu in map(load_gpu, gpu_names()):
        known = {key: gpu.figures[key].value for key in _GPU_FIGURES if key in gpu.figures}
        flop, rate = known.get("bf16_flop_per_s"), known.get("hbm_bytes_per_s")
        ratio = flop / rate if flop is not None and rate is not None else None
        rows.append(
            GpuRowData(name=gpu.name, title=gpu.title, status=gpu.status, **known, flop_per_byte_bf16=ratio)
        )
    table = Table.of(
        rows,
        ("GPU", lambda row: row.name),
        *((title, partial(_amount, key, unit)) for key, (title, unit) in _GPU_FIGURES.items()),
        ("flop/B", lambda row: _known(row.flop_per_byte_bf16, ".0f")),
        ("status", lambda row: _short(row.status)),
        indent=0,
    )
    note = "Dense peaks; HBM as reported by the driver where known; flop/B: bf16 peak / HBM bandwidth."
    return View(sections([table], [Lines([note])]), GpuListData(gpus=rows))


def _clusters() -> View:
    """All clusters: domain, links, and how much slower the fabric between domains is."""
    rows = []
    for name in cluster_names():
        domain = load_domain(name)
        rows.append(ClusterRowData(**domain_data(domain, find_scale_out(name)), gpu=domain.gpu.name))
    table = Table.of(
        rows,
        ("cluster", lambda row: row.name),
        ("GPU", lambda row: row.gpu),
        ("domain", lambda row: str(row.gpus_per_domain)),
        ("node", lambda row: str(row.gpus_per_node)),
        ("scale-up/GPU", partial(_amount, "scale_up_bytes_per_s", "byte/s")),
        ("scale-out/GPU", partial(_amount, "scale_out_bytes_per_s", "byte/s")),
        ("ratio", lambda row: _known(row.scale_up_over_scale_out, ".3g")),
        ("status", lambda row: _short(row.status)),
        indent=0,
    )
    notes = (
        "Rates per GPU and direction, from links x rate; dash: not published.",
        "name@GPUS builds several domains, name@4x4x8 a torus of that shape; spelling is flexible.",
    )
    return View(sections([table], [Lines(notes)]), ClusterListData(clusters=rows))


def _models() -> View:
    """All models: parameters as counted from their configs, beside the published figures."""
    rows: list[ModelData | RefusedModelData] = []
    for name in model_names():
        try:
            rows.append(model_data(name))
        except InputError as error:
            rows.append(RefusedModelData(name=name, title=model_title(name), refused=str(error)))

    def count(key: str, row: ModelData | RefusedModelData) -> str:
        return str(getattr(row, key, 0) or "-")

    def billions(key: str, row: ModelData | RefusedModelData) -> str:
        params = getattr(row, key, None)
        return "-" if params is None else f"{params / 1e9:.1f} B"

    table = Table.of(
        rows,
        ("model", lambda row: row.name),
        ("total", partial(billions, "total_params")),
        ("active", partial(billions, "active_params")),
        ("published", lambda row: " / ".join(filter(None, _published(row.name)))),
        ("layers", partial(count, "layers")),
        ("experts", partial(count, "experts")),
        ("per token", partial(count, "experts_per_token")),
        indent=0,
    )
    notes = (
        "Active: per token, with output head, without input embedding.",
        "Spelling is flexible: a name prefix or a Hugging Face id also works (`catalog NAME` lists them).",
    )
    return View(sections([table], [Lines(notes)]), ModelListData(models=rows))


def _published(name: str) -> tuple[str, str]:
    known = published(name)
    return known.total, known.active


def _entry(name: str) -> View:
    """Return one GPU, cluster (also ``name@GPUS`` and a YAML file) or model, each figure with its origin."""
    if "@" in name or name.lower().endswith((".yaml", ".yml")):
        return physical_view(resolve_cluster(name))
    kinds: list[tuple[Names, tuple[str, ...], Callable[[str], View]]] = [
        (spelled_clusters(), cluster_names(), lambda cluster: cluster_view(resolve_cluster(cluster))),
        (spelled_gpus(), gpu_names(), gpu_view),
        (spelled_models(), model_names(), model_view),
    ]
    for _, names, view in kinds:
        if name in names:
            return view(name)
    for spelled in (kinds[1], kinds[0]):
        found = spelled[0].one(name)
        if found is not None:
            return spelled[2](found)
    if counted(name) is not None:
        return physical_view(resolve_cluster(name))
    if spelled_models().meant(without_owner(name)) or spelled_models().meant(name):
        return model_view(model_called(name), name)
    every = {text: one for names, _, _ in kinds for text, one in names.spellings.items()}
    lists = {text: text for text in ("gpus", "clusters", "models")}
    near = Names("entry", {**every, **lists}).near(without_owner(name))
    raise InputError(f"{shown(name)} is not in the catalog; {near}")


def _known(value: float | None, form: str) -> str:
    return "-" if value is None else f"{value:{form}}"


def _amount(key: str, unit: str, row: GpuRowData | DomainData) -> str:
    value = getattr(row, key)
    return "-" if value is None or value is LEFT_OUT else format_quantity(value, unit)


def _short(status: str) -> str:
    words = re.split(r"[;,(]", status, maxsplit=1)[0].strip()
    return words.replace("export variant", "export")
