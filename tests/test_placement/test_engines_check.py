"""What is found in files that an engine would refuse or misread, and text that would surprise a reader."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

import helpers
from cost.experts.loads import ExpertLoads
from cost.resolve import resolve_model
from placement.engines.mapping import ModelFacts, model_facts
from placement.engines.registry import ENGINES, check_file
from placement.engines.strict_text import read_json, read_yaml
from topology.base.errors import InputError

FACTS = ModelFacts("tiny", 4, (1, 2, 3), 8, "deepseek_v3", "DeepseekV3ForCausalLM")
ROW = [0, 1, 2, 3, 4, 5, 6, 7, 0, 1]


def changed(layer: int, slot: int, value: object) -> list[list[object]]:
    rows: list[list[object]] = [list(ROW) for _ in range(4)]
    rows[layer][slot] = value
    return rows


def judged(path: Path, engine: str, text: str, loads: bool, right: bool, words: str) -> None:
    """Check a file against what an engine would say of it: whether it loads, is used as meant, and a finding."""
    path.write_text(text)
    checked = check_file(path, ENGINES[engine], FACTS, 2)
    assert (checked.loads, checked.right) == (loads, right), checked.verdict
    assert any(words in f"{finding.where}: {finding.what}" for finding in checked.findings)


KEY = "physical_to_logical_map"
SGLANG = [
    ({KEY: changed(0, 0, 0)}, True, True, "balancedness"),
    ({KEY: changed(0, 0, 0), "ep_size": 2}, False, False, "'ep_size' is present in addition"),
    ({KEY: changed(2, 8, -1)}, True, False, "layer 2: expert -1"),
    ({KEY: changed(2, 3, 0)}, True, False, "layer 2: expert 3 has no copy"),
    ({KEY: changed(2, 8, True)}, True, False, "True is not a whole number"),
    ({KEY: [*changed(0, 0, 0)[:3], ROW[:9]]}, False, False, "9 slots"),
    ({KEY: changed(0, 0, 0)[1:]}, True, False, "only for the MoE layers"),
    ({KEY: [row[:9] for row in changed(0, 0, 0)]}, False, False, "9 slots do not divide evenly over 2 GPUs"),
    ({"logical_count": [[1] * 8] * 4}, True, False, "a load recording"),
]


@pytest.mark.parametrize(("data", "loads", "right", "words"), SGLANG, ids=lambda value: str(value)[:30])
def test_sglang(tmp_path: Path, data: object, loads: bool, right: bool, words: str) -> None:
    judged(tmp_path / "plan.json", "sglang", json.dumps(data), loads, right, words)


def rows() -> dict[object, object]:
    return {layer: list(ROW) for layer in (1, 2, 3)}


Changes = dict[object, object]
# what changes at the top and among the rows; None takes a key away
TRTLLM: list[tuple[Changes, Changes, bool, bool, str]] = [
    ({}, {}, True, True, "enable_attention_dp"),
    ({"num_slots": 9}, {}, False, False, "10 slots, num_slots says 9"),
    ({"initial_global_assignments": None}, {}, True, False, "default map"),
    ({}, {3: None}, False, False, "layer 3: absent"),
    ({}, {3: None, 0: ROW}, False, False, "count MoE layers from 0"),
    ({}, {2: [0, 1, 2, 3, 4, 5, 6, 6, 0, 1]}, False, False, "expert 7 has no copy"),
    ({}, {2: [*ROW[:9], 1.0]}, True, False, "1.0 is not a whole number, and is read as 1"),
    ({}, {2: [*ROW[:9], 1.5]}, False, False, "1.5 is not a whole number"),
]


@pytest.mark.parametrize(("top", "by", "loads", "right", "words"), TRTLLM, ids=lambda value: str(value)[:30])
def test_trtllm(tmp_path: Path, top: Changes, by: Changes, loads: bool, right: bool, words: str) -> None:
    kept = {key: row for key, row in {**rows(), **by}.items() if row is not None}
    data = {"num_slots": 10, "initial_global_assignments": kept, "layer_updates_per_iter": 0, **top}
    text = dumped({key: value for key, value in data.items() if value is not None})
    judged(tmp_path / "plan.yaml", "trtllm", text, loads, right, words)


def dumped(data: object) -> str:
    """YAML without aliases, which PyYAML writes where one list stands twice, and without quotes."""
    return yaml.safe_dump(json.loads(json.dumps(data))).replace("'", "")


def test_trtllm_ignores_the_file_for_other_models_and_one_gpu(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    top = {"num_slots": 10, "initial_global_assignments": rows(), "layer_updates_per_iter": 0}
    path.write_text(yaml.safe_dump(top))
    other = ModelFacts("tiny", 4, (1, 2, 3), 8, "olmoe", "OlmoeForCausalLM")
    for facts, ranks in ((other, 2), (FACTS, 1)):
        found = check_file(path, ENGINES["trtllm"], facts, ranks)
        assert (found.loads, found.right) == (True, False)
        assert "ignores" in found.verdict


DEVICES = [{"device_id": 0, "device_expert": ROW[:5]}, {"device_id": 1, "device_expert": ROW[5:]}]


def ascend() -> dict[str, Any]:
    layers = [{"layer_id": index, "device_count": 2, "device_list": DEVICES} for index in range(3)]
    data: dict[str, Any] = json.loads(json.dumps({"moe_layer_count": 3, "layer_list": layers}))
    return data


FIRST, SECOND = (("layer_list", 1, "device_list", device, "device_expert") for device in (0, 1))
ASCEND: list[tuple[tuple[str | int, ...], object, bool, bool, str]] = [
    (("moe_layer_count",), 3, True, True, "num_redundant_experts"),
    ((*SECOND, 4), 5, True, False, "expert 5 twice"),
    ((*SECOND, 2), 2, True, False, "expert 7 has no"),
    ((*FIRST, 2), 7, False, False, "expert 2 has no"),
    (("layer_list", 1, "device_list"), DEVICES + DEVICES[:1], True, False, "3 devices for 2"),
    (("layer_list", 1, "layer_id"), 2, True, False, "goes by position"),
    (("layer_list",), ascend()["layer_list"][:2], False, False, "3"),
    (("moe_layer_count",), 4, False, False, "4"),
]


@pytest.mark.parametrize(
    ("where", "value", "loads", "right", "words"), ASCEND, ids=lambda value: str(value)[:30]
)
def test_vllm_ascend(
    tmp_path: Path, where: tuple[str | int, ...], value: object, loads: bool, right: bool, words: str
) -> None:
    text = json.dumps(helpers.changed(ascend(), *where, to=value))
    judged(tmp_path / "plan.json", "vllm-ascend", text, loads, right, words)


VLLM: list[tuple[dict[str, object], str]] = [
    ({"num_redundant_experts": 3}, "num_redundant_experts"),
    ({"version": 2}, "expected 1"),
    ({"record_type": "eplb_load_stats"}, "a load recording"),
    ({"initial_global_assignments": {"0": ROW, "1": ROW}}, "layer 2: absent"),
    ({"initial_global_assignments": {"1": ROW, "2": ROW, "3": ROW}}, "counted from 0"),
]


@pytest.mark.parametrize(("change", "words"), VLLM, ids=str)
def test_vllm(tmp_path: Path, change: dict[str, object], words: str) -> None:
    record: dict[str, object] = {
        "record_type": "eplb_initial_mapping",
        "version": 1,
        "num_redundant_experts": 2,
        "num_slots": 10,
        "initial_global_assignments": {"0": ROW, "1": ROW, "2": ROW},
    }
    path = tmp_path / "plan.jsonl"
    path.write_text(json.dumps(record) + "\n")
    assert check_file(path, ENGINES["vllm"], FACTS, 2).right
    path.write_text(json.dumps({**record, **change}) + "\n")
    found = check_file(path, ENGINES["vllm"], FACTS, 2)
    assert not found.loads
    assert words in found.verdict
    path.write_text((json.dumps(record) + "\n") * 2)
    assert "2 of eplb_initial_mapping" in check_file(path, ENGINES["vllm"], FACTS, 2).verdict


def test_balancedness_is_judged_with_loads(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(ascend()))
    tokens = np.arange(1.0, 25.0).reshape(1, 3, 8)
    loads = ExpertLoads(tokens, ("hand",), synthetic=False)
    # ranks hold 0-4 and 5, 6, 7, 0, 1; with tp 2 rank r takes copy (r % 2 + r // 2 + expert) % 2 of experts 0 and 1
    expected = []
    for load in tokens[0]:
        busy = np.array([load[2:5].sum() + load[:2].sum() / 2, load[5:].sum() + load[:2].sum() / 2])
        expected.append(busy.mean() / busy.max())
    for tp in (1, 2):
        found = check_file(path, ENGINES["vllm-ascend"], FACTS, 2, loads, tp)
        assert found.balancedness == pytest.approx(np.mean(expected))
    assert check_file(path, ENGINES["vllm-ascend"], FACTS, 2).balancedness is None
    with pytest.raises(InputError, match="does not divide the 2 GPUs"):
        check_file(path, ENGINES["vllm-ascend"], FACTS, 2, loads, 4)


def test_a_model_whose_layers_engines_count_otherwise_is_refused():
    halves = replace(resolve_model("deepseek-v3"), config={"model_type": "longcat_flash", "num_layers": 31})
    with pytest.raises(InputError, match="engines count 31 layers where plans count 61"):
        model_facts(halves)


BAD = [
    (read_yaml, 'a: !!python/object/apply:os.system ["touch ran"]', "a YAML tag"),
    (read_yaml, "[" * 100_000, "nest"),
    (read_json, '{"a": 1, "a": 1}', "a: duplicate key"),
]


@pytest.mark.parametrize(("read", "text", "words"), BAD, ids=[words for _, _, words in BAD])
def test_what_would_surprise_a_reader_is_refused(
    tmp_path: Path, read: Callable[[Path], object], text: str, words: str
) -> None:
    (tmp_path / "plan").write_text(text)
    with pytest.raises(InputError, match=words):
        read(tmp_path / "plan")
    assert not (tmp_path / "ran").exists()


LEAVES = st.integers(-(10**17), 10**17) | st.from_regex(r"[a-z]{1,8}x\Z")
LISTS = st.lists(LEAVES | st.lists(LEAVES, max_size=4), max_size=4)
VALUES = LEAVES | LISTS | st.dictionaries(st.from_regex(r"[a-z]{1,8}x\Z"), LEAVES | LISTS, max_size=4)


@settings(deadline=None, max_examples=30)
@given(value=VALUES, flow=st.booleans())
def test_yaml_is_read_as_a_safe_loader_reads_it(
    tmp_path_factory: pytest.TempPathFactory, value: object, flow: bool
) -> None:
    text = yaml.dump(json.loads(json.dumps(value)), Dumper=yaml.SafeDumper, default_flow_style=flow)
    path = tmp_path_factory.mktemp("yaml") / "plan.yaml"
    path.write_text(text)
    assert read_yaml(path) == yaml.safe_load(text)
