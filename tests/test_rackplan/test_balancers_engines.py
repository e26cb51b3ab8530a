"""Balancers against the engines' own code: signatures, forms, and what the engines check of an answer.

Needs torch and, in the folder that ``ENGINE_SOURCES`` names, vLLM's and SGLang's wheels, ``eplb.py`` of DeepSeek and
``vllm-ascend/`` with its sources; each test skips, saying so, where its engine is not there.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from helpers import script
from rackplan.balancers import deepseek, sglang, streams, vllm, vllm_ascend

torch = pytest.importorskip("torch", reason="torch is not installed: the engines' own policies cannot run")

LAYERS, EXPERTS, RANKS, SLOTS = 3, 16, 8, 24
BY_NODE = 8, 2  # groups and nodes


@pytest.fixture(autouse=True)
def _nothing_remembered() -> Iterator[None]:
    streams._streams.clear()
    yield
    streams._streams.clear()


@pytest.fixture(scope="module")
def loader() -> ModuleType:
    return script("benchmarks/engine_policies.py")


def sources(pattern: str) -> Path:
    folder = Path(os.environ.get("ENGINE_SOURCES", "wheels"))
    found = sorted(folder.glob(pattern))
    if not found:
        pytest.skip(f"no {pattern} in ENGINE_SOURCES ({folder}): download it without its dependencies")
    return found[-1]


def window(seed: int = 0, kind: Any = torch.int32) -> Any:
    loads = np.random.default_rng(seed).lognormal(5, 0.8, (LAYERS, EXPERTS)) + 1
    return torch.from_numpy(loads).to(kind)


def linear() -> Any:
    return (torch.arange(SLOTS) % EXPERTS).repeat(LAYERS, 1)


def parameters(call: Callable[..., Any]) -> list[tuple[str, Any, Any]]:
    """Names, kinds and defaults."""
    return [(each.name, each.kind, each.default) for each in inspect.signature(call).parameters.values()]


def alike(ours: Any, theirs: Any, *, width: bool = True) -> None:
    """Tensors of one type on one device, of one shape where ``width``, else but for the last axis."""
    assert ours.dtype == theirs.dtype
    assert ours.device == theirs.device
    assert ours.ndim == theirs.ndim
    assert ours.shape[: None if width else -1] == theirs.shape[: None if width else -1]


def consistent(phy2log: Any, log2phy: Any, logcnt: Any) -> None:
    assert torch.equal((log2phy >= 0).sum(dim=-1), logcnt)
    for layer in range(LAYERS):
        for expert in range(EXPERTS):
            slots = log2phy[layer, expert]
            assert set(phy2log[layer, slots[slots >= 0].long()].tolist()) == {expert}


def test_deepseek(loader: ModuleType) -> None:
    eplb = loader.engine_module(sources("eplb.py").parent, "", "eplb")
    assert parameters(deepseek.rebalance_experts)[:-1] == parameters(eplb.rebalance_experts)  # and `old`
    given = window(kind=torch.bfloat16), SLOTS, *BY_NODE, RANKS
    ours, theirs = deepseek.rebalance_experts(*given), eplb.rebalance_experts(*given)
    for index, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
        alike(mine, other, width=index != 1)
    assert ours[1].shape[2] == ours[2].max()  # as theirs: the most copies of any expert
    assert theirs[1].shape[2] == theirs[2].max()
    consistent(*ours)


@contextmanager
def vllm_policy(loader: ModuleType) -> Iterator[Any]:
    wheel = sources("vllm-0*.whl")
    folder = "vllm/distributed/eplb/policy"
    with loader.in_package(abstract=loader.engine_module(wheel, folder, "abstract")):
        yield loader.engine_module(wheel, folder, "default", "_policies.default").DefaultEplbPolicy


def test_vllm(loader: ModuleType) -> None:
    with vllm_policy(loader) as theirs:
        assert parameters(vllm.rebalance_experts) == parameters(theirs.rebalance_experts)
        assert parameters(vllm.RackplanEplbPolicy.rebalance_experts) == parameters(theirs.rebalance_experts)
        old = linear()
        for seed in range(3):
            given = window(seed), SLOTS, *BY_NODE, RANKS, old
            ours = vllm.RackplanEplbPolicy.rebalance_experts(*given)
            alike(ours, theirs.rebalance_experts(*given))
            # from the engine's own start all may move
            assert seed == 0 or (ours != old).sum() <= 0.05 * old.numel()
            # what would be copied within a rank for nothing is what vLLM itself would put back
            again = theirs.preserve_intragpu_slots(ours.numpy(), RANKS, old.numpy())
            assert np.array_equal(again, ours.numpy())
            old = ours


@contextmanager
def sglang_algorithms(loader: ModuleType) -> Iterator[Any]:
    wheel, folder = sources("sglang-0*.whl"), "sglang/srt/eplb/eplb_algorithms"
    package = "sglang.srt.eplb.eplb_algorithms"
    inside: dict[str, ModuleType] = {}
    for name in ("deepseek", "deepseek_vec", "elasticity_aware"):
        with loader.modules_there(**inside):
            inside[f"{package}.{name}"] = loader.engine_module(wheel, folder, name)
    state = SimpleNamespace(
        instance=lambda: None, healthy_rank_state=lambda: torch.ones(RANKS, dtype=torch.int32)
    )
    inside["sglang.srt.elastic_ep.elastic_ep"] = elastic = ModuleType("elastic_ep")
    elastic.__dict__["ElasticEPStateManager"] = state
    with loader.modules_there(**inside):
        import sys

        for name in ("deepseek", "deepseek_vec", "elasticity_aware"):
            setattr(sys.modules[package], name, inside[f"{package}.{name}"])
        yield loader.engine_module(wheel, folder, "__init__", f"{package}.__init__")


@pytest.mark.parametrize("algorithm", ["deepseek", "deepseek_vec"])
def test_sglang(loader: ModuleType, algorithm: str) -> None:
    with sglang_algorithms(loader) as theirs:
        assert parameters(sglang.rebalance_experts) == parameters(theirs.rebalance_experts)
        assert {each.name for each in theirs.EplbAlgorithm} == set(sglang._ALGORITHMS)
        steps = torch.stack([window(seed) for seed in range(4)])
        given = {
            "tokens_per_expert": steps,
            "num_physical_experts": SLOTS,
            "num_local_physical_experts": SLOTS // RANKS,
            "num_groups": 8,
            "num_nodes": 2,
            "algorithm": theirs.EplbAlgorithm[algorithm],
        }
        answers = sglang.rebalance_experts(**given), theirs.rebalance_experts(**given)
    for index, (mine, other) in enumerate(zip(*answers, strict=True)):
        alike(mine, other, width=index != 1 or "vec" in algorithm)
    consistent(*answers[0])


def test_vllm_ascend(loader: ModuleType) -> None:
    where = sources("vllm-ascend")
    base = loader.engine_module(where, "vllm_ascend/eplb/core/policy", "policy_abstract").EplbPolicy
    assert parameters(vllm_ascend.RackplanPolicy.rebalance_experts) == parameters(base.rebalance_experts)


def test_tensors_stay_where_the_engine_wants_them() -> None:
    assert isinstance(vllm.rebalance_experts(window().numpy(), SLOTS, 1, 1, RANKS), np.ndarray)
    grown = window(kind=torch.float32).requires_grad_()
    assert not vllm.rebalance_experts(grown, SLOTS, 1, 1, RANKS).requires_grad
    complex_one = window().to(torch.complex64)
    with pytest.raises(ValueError, match="weight holds complex64, not numbers"):
        vllm.rebalance_experts(complex_one, SLOTS, 1, 1, RANKS)
