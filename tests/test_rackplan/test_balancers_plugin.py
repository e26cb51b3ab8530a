"""Plug-ins that engines load: what they put in place, when, with which options, and what they refuse at start."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from helpers import plan_of
from placement.plans.reading import read_plan
from rackplan.balancers import plugin, vllm
from rackplan.balancers.sglang import rebalance_experts
from rackplan.balancers.vllm import RackplanEplbPolicy
from rackplan.balancers.vllm_ascend import RackplanPolicy

ROOT = Path(__file__).parents[2]


@pytest.fixture
def environ(monkeypatch: pytest.MonkeyPatch) -> Any:
    for name in [name for name in os.environ if name.startswith("RACKPLAN_")]:
        monkeypatch.delenv(name)
    return lambda **values: [monkeypatch.setenv(f"RACKPLAN_{name}", value) for name, value in values.items()]


def installed(monkeypatch: pytest.MonkeyPatch, name: str, **inside: object) -> ModuleType:
    """Stand in for a module of an engine, its packages too."""
    parts = name.split(".")
    for end in range(1, len(parts)):
        monkeypatch.setitem(sys.modules, ".".join(parts[:end]), package := ModuleType(".".join(parts[:end])))
        package.__path__ = []
    module = ModuleType(name)
    module.__dict__.update(inside)
    monkeypatch.setitem(sys.modules, name, module)
    setattr(sys.modules[".".join(parts[:-1])], parts[-1], module)
    return module


class AbstractEplbPolicy:
    """vLLM's."""


def vllm_installed(monkeypatch: pytest.MonkeyPatch) -> dict[str, type]:
    policies: dict[str, type] = {"default": AbstractEplbPolicy}
    installed(
        monkeypatch,
        "vllm.distributed.eplb.policy",
        EPLB_POLICIES=policies,
        AbstractEplbPolicy=AbstractEplbPolicy,
    )
    monkeypatch.setitem(sys.modules, "vllm_ascend", None)
    return policies


def test_the_entry_points_are_there() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = project["entry-points"]
    assert set(found) == {"vllm.general_plugins", "sglang.srt.plugins"}
    for group, name in (("vllm.general_plugins", "vllm"), ("sglang.srt.plugins", "sglang")):
        module, _, attribute = found[group]["rackplan"].partition(":")
        assert getattr(import_module(module), attribute) is getattr(plugin, name)


def test_nothing_happens_and_nothing_heavy_is_imported_unless_it_is_switched_on() -> None:
    code = (
        "import sys; from rackplan.balancers import plugin; plugin.vllm(); plugin.sglang(); "
        "print(sorted({'numpy', 'scipy', 'torch', 'vllm', 'sglang'} & set(sys.modules)))"
    )
    off = {name: value for name, value in os.environ.items() if not name.startswith("RACKPLAN_")}
    for environ in (off, {**off, "RACKPLAN_BALANCER": "0", "RACKPLAN_MAX_MOVES": "nonsense"}):
        done = subprocess.run(
            [sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True
        )
        assert done.stdout == "[]\n"


def test_vllm_gets_our_class_in_the_place_of_its_default(
    monkeypatch: pytest.MonkeyPatch, environ: Any, caplog: pytest.LogCaptureFixture
) -> None:
    policies = vllm_installed(monkeypatch)
    environ(BALANCER="1", MAX_MOVES="10%", HISTORY="4")
    with caplog.at_level(logging.INFO):
        plugin.vllm()
    ours = policies["default"]
    assert issubclass(ours, RackplanEplbPolicy)
    assert issubclass(ours, AbstractEplbPolicy)
    assert "rackplan balances experts for vLLM (RACKPLAN_BALANCER=1): at most 10% of copies" in caplog.text
    assert "keeping 4 windows" in caplog.text
    (record,) = caplog.records
    assert record.name == "vllm.rackplan"  # vLLM shows what its own loggers say
    plugin.vllm()
    assert policies["default"] is ours


def test_vllm_ascend_gets_our_class_for_every_number(monkeypatch: pytest.MonkeyPatch, environ: Any) -> None:
    vllm_installed(monkeypatch)
    monkeypatch.delitem(sys.modules, "vllm_ascend")

    class PolicyFactory:
        @staticmethod
        def generate_policy(policy_type: int) -> object:
            return policy_type

    installed(monkeypatch, "vllm_ascend.eplb.core.policy.policy_factory", PolicyFactory=PolicyFactory)
    environ(BALANCER="1")
    plugin.vllm()
    for number in range(4):
        assert isinstance(PolicyFactory.generate_policy(number), RackplanPolicy)


def test_sglang_gets_our_function(monkeypatch: pytest.MonkeyPatch, environ: Any) -> None:
    registered: list[tuple[object, ...]] = []
    kinds = SimpleNamespace(REPLACE="replace")
    registry = SimpleNamespace(register=lambda *given: registered.append(given))
    installed(monkeypatch, "sglang.srt.plugins.hook_registry", HookRegistry=registry, HookType=kinds)
    environ(BALANCER="true")
    plugin.sglang()
    assert registered == [("sglang.srt.eplb.eplb_algorithms.rebalance_experts", rebalance_experts, "replace")]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("BALANCER", "perhaps", "expected 1 or 0"),
        ("HISTORY", "0", "from 1 to 1000"),
        ("SCENARIOS", "a.npy,,b.npy", "comma-separated"),
        ("MAX_MOVE", "5%", "did you mean RACKPLAN_MAX_MOVES?"),
    ],
)
def test_an_option_that_cannot_be_used_ends_the_start(name: str, text: str, words: str, environ: Any) -> None:
    environ(**({"BALANCER": "1"} | {name: text}))
    with pytest.raises(ValueError, match=r"^rackplan: ") as error:
        plugin.vllm()
    assert words in str(error.value)
    with pytest.raises(
        SystemExit, match=r"^rackplan: "
    ) as stop:  # SGLang would go on after an error of a plug-in
        plugin.sglang()
    assert words in str(stop.value)


def test_scenarios_are_read_at_the_start(
    monkeypatch: pytest.MonkeyPatch, environ: Any, tmp_path: Path
) -> None:
    vllm_installed(monkeypatch)
    np.save(tmp_path / "good.npy", np.ones((2, 3, 4)))
    np.save(tmp_path / "bad.npy", np.full((3, 4), -1.0))
    environ(BALANCER="1", SCENARIOS=f"{tmp_path / 'good.npy'}, {tmp_path / 'bad.npy'}")
    with pytest.raises(ValueError, match="is not a token count"):
        plugin.vllm()
    environ(SCENARIOS=str(tmp_path / "good.npy"))
    plugin.vllm()


def test_a_plan_is_placed_where_nothing_lies_and_its_loads_are_scenarios(
    prepared: Any, few_layers: Any, tmp_path: Path, environ: Any, caplog: pytest.LogCaptureFixture
) -> None:
    prepared(*plan_of(few_layers("mixtral-8x7b", 2)), "--batch", "4", "--redundant", 8)
    plan = read_plan(tmp_path / "plan" / "plan.json")
    (part,) = plan.experts
    assert part is not None
    assert plan.loads is not None
    environ(PLAN=str(tmp_path / "plan" / "plan.json"), MAX_MOVES="0")
    loads = plan.loads.tokens[0]
    found = vllm.rebalance_experts(loads, 16, 1, 1, 8)
    assert (found == part.slot_expert).all()
    assert not caplog.records
    assert vllm.rebalance_experts(loads, 16, 1, 1, 4).shape == found.shape
    assert "plan.json ignored: it has 16 slots on 8 ranks, but the engine has 16 on 4" in caplog.text
    with pytest.raises(ValueError, match="2 layers with 8 experts; the engine balances 4 experts"):
        vllm.rebalance_experts(loads[:, :4], 16, 1, 1, 8)
