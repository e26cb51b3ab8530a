"""Kernels by name: every spelling of the sources, defaults by phase and fabric, and what a bad file says."""

import pytest
import yaml

from cost.calibration.alltoall import (
    PATH,
    KernelTable,
    default_kernel,
    find_kernel,
    kernel_names,
    load_kernels,
)
from cost.experts.tokens.volumes import FAMILIES
from helpers import changed
from topology.base.errors import InputError
from topology.base.figures import Evidence
from topology.base.schema import validated

SHIPPED = yaml.safe_load(PATH.read_text(encoding="utf-8"))
SPELLINGS = {
    "low-latency V1 pure RDMA": "deepep-ll-v1",
    "normal V1 (RDMA once per node then NVLink forward)": "deepep-normal",
    "ElasticBuffer V2": "elastic-v2",
    "NVLinkOneSided (rank-major dedup), perfect router": "nvlink-one-sided",
    "NVLinkOneSided post-quant dispatch": "nvlink-one-sided",
    "pplx-EFA": "pplx-efa",
    "pplx-CX7": "pplx-cx7",
    "DeepEP-CX7": "deepep-ll-v1",
    "FusedDispatch/FusedCombine": "ub-fused",
    "HybridEP kernel-only 16 SM": "hybridep",
    "HybridEP kernel-only 32 SM": "hybridep-32",
    "DeepEP LL": "deepep-ll",
    "DeepEP low-latency": "deepep-ll",
    "DeepEP normal 20 SM": "deepep-normal",
    "DeepEP": "deepep-ll",
    "AllGather + ReduceScatter": "nccl-all-gather",
}


@pytest.mark.parametrize(("spelling", "name"), SPELLINGS.items())
def test_spellings_of_the_sources(spelling, name):
    assert find_kernel(spelling, tokens=128).kernel.name == name
    assert find_kernel(spelling.upper(), tokens=128).kernel.name == name


@pytest.mark.parametrize(
    ("spelling", "name"), [("DeepEP-CX7", "deepep-normal-unpack"), ("DeepEP", "deepep-normal")]
)
def test_many_tokens_mean_the_other_kernel_of_the_library(spelling, name):
    found = find_kernel(spelling, tokens=4096)
    assert found.kernel.name == name
    assert "4096 tokens" in found.note


@pytest.mark.parametrize(
    ("phase", "fabric", "crosses", "family", "name"),
    [
        ("prefill", "nvlink4", True, "per-node", "deepep-normal"),
        ("prefill", "nvlink5", False, "per-node", "elastic-v2"),
        ("decode", "nvlink5", False, "per-rank", "nvlink-one-sided"),
        ("decode", "nvlink4", False, "per-rank", "nvlink-one-sided"),
        ("decode", "nvlink4", True, "per-copy", "deepep-ll"),
        ("decode", "nvlink5", True, "per-copy", "deepep-ll"),
        ("decode", "ub-910c", False, "per-copy", "ub-fused"),
    ],
)
def test_default_by_phase_and_fabric(phase, fabric, crosses, family, name):
    kernel = default_kernel(phase, up_fabric=fabric, crosses=crosses)
    assert (kernel.family, kernel.name) == (family, name)


def test_a_fabric_that_nobody_measured_is_said():
    kernel = default_kernel("decode", up_fabric="ici-v5p", crosses=False)
    assert (
        kernel.stand_in("ici-v5p") == f"{kernel.name} was not measured on ici-v5p; using figures from nvlink5"
    )
    assert kernel.stand_in("nvlink5") == ""


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda: find_kernel("carrier pigeon"), "pplx-efa"),
        (lambda: find_kernel("per-rank", up_fabric="nvlink5", crosses=True), "across domains"),
        (lambda: default_kernel("training", up_fabric="nvlink5", crosses=False), "prefill or decode"),
    ],
)
def test_what_is_not_known_says_what_is(ask, words):
    with pytest.raises(InputError, match=words):
        ask()
    assert set(FAMILIES) < set(kernel_names())


def test_every_coefficient_has_evidence_and_a_source():
    for kernel in load_kernels().values():
        for leg in (kernel.dispatch, kernel.combine):
            for name, figure in leg.figures().items():
                assert figure.source, (kernel.name, name)
                assert figure.kind in {Evidence.DERIVED, Evidence.ASSUMED}
                assert figure.value > 0
        if any(figure.kind is Evidence.DERIVED for figure in kernel.dispatch.figures().values()):
            assert kernel.fit.rows or kernel.name in {"hybridep-32", "nccl-all-gather"}
            assert kernel.fit.median_error <= 0.06


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("kernels", "deepep-ll", "family"), "per-token", "per-token"),
        (("kernels", "deepep-ll", "dispatch", "out"), "ethernet", "ethernet"),
        (("kernels", "deepep-ll", "dispatch", "out"), "normal-copies", "byte/s"),
        (("kernels", "deepep-ll", "dispatch", "beta"), "ib", "no such coefficient"),
        (("kernels", "deepep-ll", "dispatch", "alpha_up_s", "source"), "rumour", "rumour"),
        (("kernels", "deepep-ll", "dispatch", "alpha_up_s", "kind"), "guessed", "not a kind of evidence"),
        (("shared", "ib", "value"), 1.2, "not a fraction"),
        (("shared", "low-latency-dispatch", "value"), "3 GB/s", "is needed here"),
        (("shared", "ib", "colour"), "red", "colour"),
    ],
)
def test_a_bad_file_says_where(path, value, message):
    with pytest.raises(InputError, match=message):
        validated(KernelTable, changed(SHIPPED, *path, to=value), PATH.name).kernels_by_name()
