"""A chip with every figure at least as good, domain and links included, is never slower: catalog and invented ones.

Where every chip has the same coefficients, any loss would be one of structure: layouts, batches or kernels that the
better machine does not get.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache
from itertools import permutations
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cost.calibration.serving import calibrated
from cost.inputs.deployment import Deployment
from cost.inputs.machine import COEFFICIENTS, Efficiency
from cost.inputs.workload import Workload
from cost.layouts import sweep
from cost.resolve import model_names, resolve_model
from helpers import few_layers
from topology import Evidence, Figure, InputError, build_cluster, cluster_names, load_domain, resolve_cluster
from topology.base.errors import MissingFigureError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cost.layouts import Sweep
    from cost.model import Model
    from topology.cluster import Cluster
    from topology.spec import FabricSpec

UNITS = ("bf16", "fp8", "fp4")
STRUCTURES = {"switch": 2, "two-tier": 2, "mesh": 1, "torus": 0, "nested": 0}
"""A mesh, a torus and a nested domain reach the sum of a GPU's links in some patterns only."""
SHAPES = {16: {2: "4x4", 3: "2x2x4"}}
"""Tori of so many GPUs by their dimensions."""
CHIPS = ("hgx-h100", "hgx-h200", "hgx-b200", "gb200-nvl72", "mi300x", "vr-nvl72")
DENSE, LATENT, PLAIN, GROUPED, SPARSE = (
    "llama-3.1-70b",
    "deepseek-v3",
    "mixtral-8x22b",
    "gpt-oss-120b",
    "deepseek-v3.2",
)

pytestmark = pytest.mark.wide
"""Dense; latent attention in FP8; experts in BF16; in FP4; sparse attention."""


@cache
def neutral() -> Efficiency:
    """The same coefficients for every chip: geometric means over the measured ones."""
    each = [calibrated(load_domain(name).gpu) for name in ("hgx-h100", "hgx-h200", "hgx-b200", "gb200-nvl72")]
    table = {}
    for name in COEFFICIENTS:
        value = math.exp(np.mean([math.log(one[name]) for one in each]))
        table[name] = Figure(value, "1", Evidence.ASSUMED, "mean over chips", f"{value:.3g}")
    return Efficiency(table, "any chip")


def figures(cluster: Cluster) -> dict[str, float]:
    """What a chip and its links are judged by, the larger the better."""
    domains, out = cluster.spec.domains, cluster.spec.scale_out
    first = domains[0]
    found: dict[str, float] = {}
    best = 0.0
    for unit in UNITS:  # what a chip cannot multiply runs at the next wider type
        best = max(best, first.gpu.dense_flop_per_s(unit) if first.gpu.multiplies(unit) else 0.0)
        found[unit] = best
    return found | {
        "HBM": first.gpu.hbm_bytes,
        "HBM rate": first.gpu.hbm_bytes_per_s,
        "scale-up": first.scale_up_bytes_per_s,
        "structure": STRUCTURES[first.structure],
        "latency": -first.fabric.latency_s.value,
        "domain": min(domain.gpus for domain in domains),
        "scale-out": out.scale_out_bytes_per_s / out.total_oversubscription if out else 0.0,
        "scale-out latency": -out.fabric.latency_s.value if out else -math.inf,
    }


def at_least_as_good(one: Cluster, other: Cluster) -> bool:
    """Whether no figure is worse; a larger domain holds whole ones of the smaller."""
    ours, theirs = figures(one), figures(other)
    if len(other.spec.domains) == 1:  # nothing leaves its domain
        ours |= {name: theirs[name] for name in ("scale-out", "scale-out latency")}
    whole = ours["domain"] % theirs["domain"] == 0
    structures = {cluster.spec.domains[0].structure for cluster in (one, other)}
    if "nested" in structures and ours["structure"] < STRUCTURES["switch"]:
        return False  # which pattern suits which of them is not told by figures
    return whole and all(ours[name] >= theirs[name] for name in theirs)


@cache
def catalog(gpus: int) -> tuple[Cluster, ...]:
    """Every cluster of the catalog that can be cut to so many GPUs and has all figures; of equal ones the first."""
    found: dict[tuple[float, ...], Cluster] = {}
    for name in cluster_names():
        domain = load_domain(name)
        cut = SHAPES.get(gpus, {}).get(len(domain.shape)) if domain.structure == "torus" else gpus
        try:
            cluster = resolve_cluster(f"{name}@{cut}")
            known = tuple(figures(cluster).values())
        except (InputError, MissingFigureError):
            continue
        if not any(math.isnan(value) for value in known):
            found.setdefault(known, cluster)
    return tuple(found.values())


def pairs(gpus: int) -> list[tuple[Cluster, Cluster]]:
    return [(one, other) for one, other in permutations(catalog(gpus), 2) if at_least_as_good(one, other)]


@dataclass(frozen=True, eq=False)
class Best:
    """The best of a sweep at every speed: tokens per second of a user, growing, and of a GPU, falling."""

    found: Sweep
    rows: NDArray[np.int64]
    speed: NDArray[np.float64]
    rate: NDArray[np.float64]


def swept(
    cluster: Cluster,
    model: str,
    efficiency: Efficiency | None,
    workload: Workload | None = None,
    *,
    cut_experts: bool = True,
) -> Best:
    deployment = Deployment(cluster, resolved(model), workload or Workload(), efficiency)
    found = sweep(deployment, cut_experts=cut_experts)
    rows = found.frontier()
    return Best(found, rows, found.tok_s_per_user[rows], found.tok_s_per_gpu[rows])


@cache
def resolved(model: str) -> Model:
    """The model, of those with most layers the first 16: their splits are quick to price."""
    return few_layers(model, 16) if model in (DENSE, LATENT, PLAIN) else resolve_model(model)


def behind(better: Best, worse: Best) -> str:
    """Say at which speed ``worse`` yields more tokens than ``better`` does; empty: at none.

    So also at 60 and at 20 ms a token, and without a limit.
    """
    place = np.searchsorted(better.speed, worse.speed * (1 - 1e-9))
    rate = np.append(better.rate, 0.0)[place]
    lost = np.flatnonzero(rate < worse.rate * (1 - 1e-9))
    if not len(lost):
        return ""
    most = lost[np.argmin(rate[lost] / worse.rate[lost])]
    row, what = int(worse.rows[most]), worse.found
    names = [one.found.deployment.cluster.name for one in (better, worse)]
    return f"{names} at {worse.speed[most]:.4g} tok/s/user: {what.label(row)} at batch {what.batch[row]:g}"


def improved(cluster: Cluster, figure: str, factor: float) -> Cluster | None:
    """The cluster with one figure better and under names that no catalog has; None where it has no such figure."""
    domain, out = cluster.spec.domains[0], cluster.spec.scale_out
    gpu = domain.gpu
    count = len(cluster.spec.domains)
    if figure == "domain":
        size = domain.gpus * 2
        if len(cluster.gpus) % size:  # as many GPUs in whole domains, or another cluster is compared
            return None
        domain, count = replace(domain, gpus=size), count // 2
    elif figure == "link":
        domain = replace(domain, fabric=scaled(domain.fabric, factor))
    elif figure == "latency":
        fast = replace(domain.fabric.latency_s, value=domain.fabric.latency_s.value / factor)
        domain = replace(domain, fabric=replace(domain.fabric, name="invented", latency_s=fast))
    elif figure == "nic":
        if out is None:
            return None
        out = replace(out, fabric=scaled(out.fabric, factor))
    elif figure == "another unit":  # a chip without FP4 gets it, little faster than what it had
        if gpu.multiplies("fp4"):
            return None
        unit = times(gpu.figures["fp8_flop_per_s" if gpu.multiplies("fp8") else "bf16_flop_per_s"], factor)
        gpu = replace(gpu, figures={**gpu.figures, "fp4_flop_per_s": unit})
    elif figure in gpu.figures:
        gpu = replace(gpu, figures={**gpu.figures, figure: times(gpu.figures[figure], factor)})
    else:
        return None
    domain = replace(domain, gpu=replace(gpu, name=f"invented {gpu.name}"))
    name = f"{cluster.name}, {figure} x {factor:g}"
    return build_cluster(replace(cluster.spec, name=name, domains=(domain,) * count, scale_out=out))


FIGURES = (
    "bf16_flop_per_s",
    "fp8_flop_per_s",
    "fp4_flop_per_s",
    "another unit",
    "hbm_bytes",
    "hbm_bytes_per_s",
    "link",
    "latency",
    "nic",
    "domain",
)


def scaled(fabric: FabricSpec, factor: float) -> FabricSpec:
    return replace(fabric, name="invented", link_bytes_per_s=times(fabric.link_bytes_per_s, factor))


def times(figure: Figure, factor: float) -> Figure:
    return replace(figure, value=figure.value * factor)


def vendor_of(cluster: Cluster) -> str:
    return cluster.spec.domains[0].gpu.vendor


def wrong_pairs(found: dict[str, Best], gpus: int = 16) -> list[str]:
    """What is slower than a worse one of ``found``, by cluster."""
    both = [(found.get(one.name), found.get(other.name)) for one, other in pairs(gpus)]
    told = (behind(one, other) for one, other in both if one is not None and other is not None)
    return list(filter(None, told))


@pytest.mark.parametrize(
    ("gpus", "model", "workload"),
    [
        (16, LATENT, Workload()),
        (72, GROUPED, Workload(context=16_000, kv_dtype="fp8", overlap=True)),
        (16, "qwen3-next-80b-a3b", Workload(phase="prefill")),
    ],
)
def test_no_better_chip_of_the_catalog_is_slower_at_any_speed(
    gpus: int, model: str, workload: Workload
) -> None:
    assert len(pairs(gpus)) > 20
    found = {cluster.name: swept(cluster, model, neutral(), workload) for cluster in catalog(gpus)[::2]}
    assert not wrong_pairs(found, gpus)


@given(
    st.sampled_from([f"{chip}@16" for chip in CHIPS] + ["hgx-h800@24", "gb200-nvl72@72", "cm384@32"]),
    st.sampled_from(FIGURES),
    st.floats(1.0, 4.0),
    st.sampled_from([DENSE, LATENT, PLAIN, GROUPED, SPARSE]),
    st.sampled_from(["decode", "prefill"]),
    st.integers(100, 40_000),
)
@example("vr-nvl72@16", "fp8_flop_per_s", 2.0, LATENT, "decode", 13_904)  # a layout that leaves a GPU idle
@settings(max_examples=12)
def test_nor_is_one_with_any_figure_better_by_any_factor(
    chip: str, figure: str, factor: float, model: str, phase: str, context: int
) -> None:
    cluster = resolve_cluster(chip)
    better = improved(cluster, figure, factor)
    if better is not None:
        workload = Workload(context=context, phase=phase)
        assert not behind(
            swept(better, model, neutral(), workload), swept(cluster, model, neutral(), workload)
        )


@pytest.mark.parametrize(("turn", "chip"), list(enumerate(CHIPS[::2])))
def test_nor_is_one_with_its_own_coefficients_that_follow_its_figures(turn: int, chip: str) -> None:
    """By a little of one figure and by much of the next."""
    cluster, model = resolve_cluster(f"{chip}@16"), (DENSE, LATENT, PLAIN)[turn]
    plain = swept(cluster, model, None)
    factors = [(1.05, 3.0)[(turn + number) % 2] for number in range(len(FIGURES))]
    better = [improved(cluster, figure, factor) for figure, factor in zip(FIGURES, factors, strict=True)]
    assert not list(filter(None, (behind(swept(one, model, None), plain) for one in better if one)))


def structures() -> list[str]:
    """Models of the catalog so that each combination of attentions, and each type of weights, is in one of them."""
    seen: set[object] = set()
    found = []
    for name in model_names():
        model = resolved(name)
        attentions = frozenset(type(layer.attention) for layer in model.layers)
        parts = {(attentions, model.moe is None), *model.precision.values()}
        if parts - seen:
            found.append(name)
            seen |= parts
    return found


def test_in_the_right_order_with_the_coefficients_of_each_chip() -> None:
    """Chips of one vendor: kernels of others reach less, by what is published of theirs."""
    models = structures()
    for turn, model in enumerate(models[::2]):
        chips = catalog(16)[turn % 3 :: 3]
        for vendor in {vendor_of(cluster) for cluster in chips}:
            mine = [cluster for cluster in chips if vendor_of(cluster) == vendor]
            found = {cluster.name: swept(cluster, model, None, cut_experts=False) for cluster in mine}
            assert not wrong_pairs(found)
