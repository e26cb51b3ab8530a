"""Balancers in the forms of engines, and plug-ins that put them there; without engines or torch."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from helpers import plan_of
from placement.plans.reading import read_plan
from rackplan.balancers import deepseek, plugin, sglang, streams, vllm, vllm_ascend
from rackplan.balancers.sglang import rebalance_experts
from rackplan.balancers.vllm import RackplanEplbPolicy
from rackplan.balancers.vllm_ascend import RackplanPolicy

Array = NDArray[Any]
LAYERS, EXPERTS, RANKS, SLOTS = 3, 16, 4, 20


@pytest.fixture(autouse=True)
def _nothing_remembered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in [name for name in os.environ if name.startswith("RACKPLAN_")]:
        monkeypatch.delenv(name)
    streams._streams.clear()
    yield
    streams._streams.clear()


def window(seed: int = 0, layers: int = LAYERS) -> Array:
    return np.random.default_rng(seed).lognormal(5, 0.8, (layers, EXPERTS)).astype(np.int64) + 1


def linear(layers: int = LAYERS, slots: int = SLOTS) -> Array:
    return np.tile(np.arange(slots) % EXPERTS, (layers, 1))


def running(layers: int = LAYERS, slots: int = SLOTS) -> Array:
    """A placement that no engine starts with."""
    return linear(layers, slots)[:, ::-1].copy()


def moves(old: Array, new: Array, ranks: int = RANKS) -> int:
    pairs = zip(old.reshape(-1, old.shape[1] // ranks), new.reshape(-1, old.shape[1] // ranks), strict=True)
    return sum((Counter(after.tolist()) - Counter(before.tolist())).total() for before, after in pairs)


def balance(loads: Array, placed: Array, ranks: int = RANKS) -> Array:
    copies = np.stack([np.bincount(row, minlength=loads.shape[1]) for row in placed])
    of_slot = np.take_along_axis(loads / copies, placed, axis=1)
    of_rank = of_slot.reshape(len(placed), ranks, -1).sum(axis=2)
    return of_rank.mean(axis=1) / of_rank.max(axis=1)


def is_complete(placed: Array) -> bool:
    return all(set(row) == set(range(EXPERTS)) for row in placed.tolist())


def test_deepseek_returns_three_maps_of_one_placement() -> None:
    phy2log, log2phy, logcnt = deepseek.rebalance_experts(window(), SLOTS, 1, 1, RANKS)
    assert phy2log.shape == (LAYERS, SLOTS)
    assert is_complete(phy2log)
    assert {table.dtype for table in (phy2log, log2phy, logcnt)} == {np.dtype(np.int64)}
    assert log2phy.shape == (LAYERS, EXPERTS, logcnt.max())
    for layer in range(LAYERS):
        for expert in range(EXPERTS):
            slots = np.flatnonzero(phy2log[layer] == expert).tolist()
            assert log2phy[layer, expert].tolist() == [*slots, *[-1] * (logcnt.max() - len(slots))]
            assert logcnt[layer, expert] == len(slots)
    assert balance(window(), phy2log).min() > 0.95


def from_map(form: str, loads: Array, old: Array, monkeypatch: pytest.MonkeyPatch) -> Array:
    """Return the placement after a call in the form of an engine, where ``old`` lies."""
    if form == "vllm":
        return np.asarray(vllm.rebalance_experts(loads, SLOTS, 1, 1, RANKS, old))
    if form == "sglang":
        held = SimpleNamespace(
            physical_to_logical_map_cpu=SimpleNamespace(shape=old.shape, numpy=lambda: old)
        )
        name = "sglang.srt.eplb.expert_location"
        installed(monkeypatch, name, get_global_expert_location_metadata=lambda: held)
        tokens = loads[None]
        return np.asarray(sglang.rebalance_experts(tokens, SLOTS, SLOTS // RANKS, None, 1, "deepseek")[0])
    copies = np.stack([np.bincount(row, minlength=EXPERTS) for row in old])
    of_slot = np.take_along_axis(loads / copies, old, axis=1).reshape(LAYERS, RANKS, -1)
    found = vllm_ascend.rebalance_experts(old.reshape(of_slot.shape), of_slot)[2]
    return np.asarray(found).reshape(LAYERS, SLOTS)


@pytest.mark.parametrize("form", ["vllm", "sglang", "ascend"])
def test_the_first_call_leaves_the_engines_start_whatever_was_seen_before(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RACKPLAN_MAX_MOVES", "5%")
    first = from_map(form, window(), linear(), monkeypatch)
    assert balance(window(), first).mean() > 0.95
    assert moves(linear(), first) > 0.05 * first.size
    later = from_map(form, window(1), first, monkeypatch)
    assert moves(first, later) <= 0.05 * first.size
    # a process that has seen windows, its answers taken or dropped, answers as one that has seen none
    assert (from_map(form, window(), linear(), monkeypatch) == first).all()
    nearly = linear()
    nearly[0, [0, 1]] = nearly[0, [1, 0]]
    assert moves(nearly, from_map(form, window(), nearly, monkeypatch)) <= 0.05 * nearly.size


def test_vllm_ascends_start_with_shared_experts_is_left_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RACKPLAN_MAX_MOVES", "5%")
    # 14 routed experts in runs of 4, 4, 3, 3, the last two devices one of the next run's, and one shared on each
    runs = [0, 1, 2, 3, 14], [4, 5, 6, 7, 14], [8, 9, 10, 11, 14], [11, 12, 13, 0, 14]
    table = np.tile(np.array(runs), (LAYERS, 1, 1))
    load = np.random.default_rng(0).lognormal(5, 1, table.shape)
    new = vllm_ascend.rebalance_experts(table, load)[2]
    assert moves(table.reshape(LAYERS, -1), new.reshape(LAYERS, -1)) > 0.05 * table.size


def test_an_expert_on_each_rank_is_left_where_an_engine_starts() -> None:
    found = vllm.rebalance_experts(window(), EXPERTS, 1, 1, EXPERTS)
    np.testing.assert_array_equal(found, linear(slots=EXPERTS))
    assert found.dtype == np.int64


def groups_of_nodes(found: Array, nodes: int, size: int) -> list[set[int]]:
    return [set((node // size).tolist()) for row in found for node in row.reshape(nodes, -1)]


def test_groups_lie_on_one_node_each_where_they_divide_over_the_nodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fresh = vllm.rebalance_experts(window(), SLOTS, 4, 2, RANKS)
    assert is_complete(fresh)
    assert [len(groups) for groups in groups_of_nodes(fresh, 2, 4)] == [2] * 2 * LAYERS
    after = vllm.rebalance_experts(window(1), SLOTS, 4, 2, RANKS, fresh)
    assert (after != fresh).any()
    assert groups_of_nodes(after, 2, 4) == groups_of_nodes(fresh, 2, 4)
    spread = vllm.rebalance_experts(window(), SLOTS, 3, 2, RANKS)  # as EPLB: they mean nothing then
    assert (spread == vllm.rebalance_experts(window(), SLOTS, 1, 1, RANKS)).all()
    monkeypatch.setenv("RACKPLAN_NODE_GROUPS", "ignore")
    assert (spread == vllm.rebalance_experts(window(), SLOTS, 4, 2, RANKS)).all()


@pytest.mark.parametrize(("word", "groups_of_a_node"), [("keep", 4), ("gather", 2)])
def test_scattered_groups_are_gathered_only_where_asked(
    word: str, groups_of_a_node: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    scattered = running()[:, np.random.default_rng(0).permutation(SLOTS)]
    monkeypatch.setenv("RACKPLAN_MAX_MOVES", "none")
    monkeypatch.setenv("RACKPLAN_NODE_GROUPS", word)
    new = vllm.rebalance_experts(window(), SLOTS, 4, 2, RANKS, scattered)
    assert max(len(groups) for groups in groups_of_nodes(new, 2, 4)) == groups_of_a_node


@pytest.mark.parametrize(
    ("algorithm", "by_node", "kinds"),
    [
        ("deepseek", (1, 1), [np.int64, np.int64, np.int64]),
        ("elasticity_aware_hierarchical", (4, 2), [np.int64, np.int64, np.int64]),
        ("deepseek_vec_hierarchical", (4, 2), [np.int64, np.int32, np.int32]),
    ],
)
def test_sglang_sums_the_steps_and_answers_in_the_form_of_the_algorithm(
    algorithm: str, by_node: tuple[int, int], kinds: list[type]
) -> None:
    steps = np.stack([window(seed) for seed in range(3)])
    how = SimpleNamespace(name=algorithm)  # the engine's is a member of an enum
    maps = sglang.rebalance_experts(steps, SLOTS, SLOTS // RANKS, 4, 2, how)
    ours = deepseek.rebalance_experts(steps.sum(axis=0), SLOTS, *by_node, RANKS)
    most = ours[2].max()
    for mine, theirs in zip((maps[0], maps[1][..., :most], maps[2]), ours, strict=True):
        assert (mine == theirs).all()
    assert [table.dtype for table in maps] == kinds
    assert maps[1].shape[2] == (SLOTS - EXPERTS + 1 if "vec" in algorithm else most)
    assert (maps[1][..., most:] == -1).all()


def test_sglang_plans_around_lost_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    alive = np.array([1, 1, 0, 1, 1])
    state = SimpleNamespace(active_ranks=SimpleNamespace(cpu=lambda: SimpleNamespace(numpy=lambda: alive)))
    manager = SimpleNamespace(instance=lambda: state)
    installed(monkeypatch, "sglang.srt.elastic_ep.elastic_ep", ElasticEPStateManager=manager)
    maps = sglang.rebalance_experts(window()[None], 25, 5, 4, 2, "elasticity_aware")
    assert (maps[0][:, 10:15] == 0).all()
    assert is_complete(np.delete(maps[0], range(10, 15), axis=1))
    assert not np.isin(maps[1], range(10, 15)).any()
    assert (maps[2].sum(axis=1) == 20).all()
    assert maps[1].shape[2] == maps[2].max()


def test_vllm_ascend_answers_change_priority_and_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RACKPLAN_MAX_MOVES", "5%")
    table = running().reshape(LAYERS, RANKS, -1)
    loads = window()
    of_slot = np.take_along_axis(loads, running(), axis=1).reshape(table.shape)
    policy = vllm_ascend.RackplanPolicy()
    change, priority, new = policy.rebalance_experts(table, of_slot)
    assert change == 1
    assert sorted(priority.tolist()) == list(range(LAYERS))
    assert new.shape == table.shape
    flat, old = new.reshape(LAYERS, -1), table.reshape(LAYERS, -1)
    assert (flat != old).sum() == moves(old, flat) <= 0.05 * old.size
    total = loads * np.stack([np.bincount(row, minlength=EXPERTS) for row in old])
    gain = 1 / balance(total, old) - 1 / balance(total, flat)
    assert (np.diff(gain[priority]) <= 0).all()
    streams._streams.clear()
    windows = np.stack([of_slot // 2, of_slot - of_slot // 2])
    assert (policy.rebalance_experts(table, windows)[2] == new).all()
    assert policy.rebalance_experts(table, of_slot * 0)[0] == 0


def test_calls_that_go_on_remember_the_windows_and_others_do_not() -> None:
    def chain(*seeds: int, begin: Array) -> Array:
        for seed in seeds:
            begin = vllm.rebalance_experts(window(seed), SLOTS, 1, 1, RANKS, begin)
        return begin

    first = chain(0, 1, 2, begin=running())
    assert (chain(0, 1, 2, begin=running()) == first).all()  # a new stream for what lies elsewhere
    middle = chain(0, 1, begin=running())
    streams._streams.clear()
    alone = vllm.rebalance_experts(window(2), SLOTS, 1, 1, RANKS, middle)
    streams._streams.clear()
    assert (chain(2, begin=middle) == alone).all()


def test_stored_scenarios_stand_beside_the_last_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def on_known(given: Array) -> float:
        placed = vllm.rebalance_experts(given, SLOTS, 1, 1, RANKS)[-LAYERS:]
        return float(np.mean([balance(load, placed) for load in known]))

    known = np.stack([window(seed) for seed in range(5, 8)])
    np.save(tmp_path / "known.npy", known)
    np.save(tmp_path / "narrow.npy", known[:, :, :8])
    alone = on_known(window())
    monkeypatch.setenv("RACKPLAN_SCENARIOS", str(tmp_path / "known.npy"))
    assert on_known(window()) > alone
    dense = np.zeros((1, EXPERTS), dtype=np.int64)  # SGLang counts dense layers too
    assert on_known(np.concatenate([dense, window()])) > alone
    assert not caplog.records
    vllm.rebalance_experts(window(layers=1), SLOTS, 1, 1, RANKS)
    assert "stored loads ignored: they have 3 layers, but the engine balances 1" in caplog.text
    for names in ("narrow.npy", "known.npy,narrow.npy"):
        paths = ",".join(str(tmp_path / name) for name in names.split(","))
        monkeypatch.setenv("RACKPLAN_SCENARIOS", paths)
        with pytest.raises(ValueError, match=r"8 experts|recordings of one model"):
            vllm.rebalance_experts(window(), SLOTS, 1, 1, RANKS)


GIVEN: dict[ModuleType, dict[str, Any]] = {
    vllm: {"weight": window(), "num_replicas": SLOTS, "num_groups": 1, "num_nodes": 1, "num_ranks": RANKS},
    sglang: {
        "tokens_per_expert": window()[None],
        "num_physical_experts": SLOTS,
        "num_local_physical_experts": SLOTS // RANKS,
        "num_groups": None,
        "num_nodes": 1,
        "algorithm": "deepseek",
    },
    vllm_ascend: {"current_expert_table": np.zeros((1, 2, 2), int), "expert_workload": np.zeros((1, 2, 2))},
}
UNEVEN = {"algorithm": "deepseek_hierarchical", "num_groups": 3, "num_nodes": 2}


@pytest.mark.parametrize(
    ("form", "wrong", "words"),
    [
        (vllm, {"num_replicas": 21}, "num_replicas 21 is not a multiple of num_ranks 4"),
        (vllm, {"old_global_expert_indices": np.full((3, 20), 16)}, "layer 0, slot 0: 16 is not an expert"),
        (sglang, {"algorithm": "best"}, "expected one of deepseek, "),
        (sglang, UNEVEN, "num_groups 3 do not divide evenly over"),
        (vllm_ascend, {"expert_workload": np.zeros((1, 2, 3))}, "give one load per slot"),
        (vllm_ascend, {"current_expert_table": np.full((1, 2, 2), -1)}, "slot 0 holds -1, which is not"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_used_is_refused_in_one_message(
    form: ModuleType, wrong: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=r"^rackplan: ") as error:
        form.rebalance_experts(**(GIVEN[form] | wrong))
    assert words in str(error.value)


ROOT = Path(__file__).parents[2]


@pytest.fixture
def environ(monkeypatch: pytest.MonkeyPatch) -> Any:
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
    name = "vllm.distributed.eplb.policy"
    installed(monkeypatch, name, EPLB_POLICIES=policies, AbstractEplbPolicy=AbstractEplbPolicy)
    monkeypatch.setitem(sys.modules, "vllm_ascend", None)
    return policies


def test_the_entry_points_are_there() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["entry-points"] == {
        "vllm.general_plugins": {"rackplan": "rackplan.balancers.plugin:vllm"},
        "sglang.srt.plugins": {"rackplan": "rackplan.balancers.plugin:sglang"},
    }


def test_nothing_heavy_is_imported_unless_it_is_switched_on() -> None:
    code = (
        "import sys; from rackplan.balancers import plugin; plugin.vllm(); plugin.sglang(); "
        "print(sorted({'numpy', 'scipy', 'torch', 'vllm', 'sglang'} & set(sys.modules)))"
    )
    environ = {name: value for name, value in os.environ.items() if not name.startswith("RACKPLAN_")}
    environ |= {"RACKPLAN_BALANCER": "0", "RACKPLAN_MAX_MOVES": "nonsense"}
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
    (record,) = caplog.records
    assert record.name == "vllm.rackplan"  # vLLM shows what its own loggers say
    assert "at most 10% of copies" in caplog.text
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
        ("SCENARIOS", "none.npy", "none.npy"),
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
    assert "plan.json ignored" in caplog.text
