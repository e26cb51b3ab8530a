"""What an engine's writer writes, its reader gives back, slot for slot."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement.engines.findings import require_sound
from placement.engines.mapping import ExpertMapping, ModelFacts
from placement.engines.registry import ENGINES, read_mapping
from topology.base.errors import InputError

if TYPE_CHECKING:
    from placement.engines.engine import Engine

NAMES = sorted(ENGINES)


@st.composite
def mappings(draw: st.DrawFn) -> tuple[ExpertMapping, ModelFacts]:
    """Mappings with every expert in every layer, and no expert twice on a rank."""
    experts = draw(st.integers(2, 9))
    ranks = draw(st.integers(2, 4))
    slots = draw(st.integers(-(-experts // ranks), experts))
    layers = draw(st.integers(1, 6))
    moe = tuple(sorted(draw(st.sets(st.integers(0, layers - 1), min_size=1))))
    rows = []
    for _ in moe:
        order = draw(st.permutations(range(experts)))
        held = []
        for rank in range(ranks):
            mine = list(order[rank::ranks])
            others = [expert for expert in draw(st.permutations(range(experts))) if expert not in mine]
            held.append(mine + others[: slots - len(mine)])
        rows.append([expert for row in held for expert in draw(st.permutations(row))])
    facts = ModelFacts("tiny", layers, moe, experts, "deepseek_v3")
    return ExpertMapping(np.array(rows), moe, experts, ranks), facts


def written(engine: Engine, mapping: ExpertMapping, facts: ModelFacts, folder: str) -> Path:
    path = Path(folder) / f"plan{engine.suffixes[0] if engine.suffixes else '.jsonl'}"
    path.write_text(engine.write(mapping, facts))
    return path


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=12)
@given(case=mappings())
def test_round_trip(name: str, case: tuple[ExpertMapping, ModelFacts]) -> None:
    mapping, facts = case
    engine = ENGINES[name]
    assert engine.cannot_hold(mapping) == ""
    with TemporaryDirectory() as folder:
        path = written(engine, mapping, facts, folder)
        back = read_mapping(path, engine.name, facts, mapping.ranks)
        again = written(engine, back, facts, folder).read_text()
    assert np.array_equal(back.slot_expert, mapping.slot_expert)
    assert again == engine.write(mapping, facts)
    assert (back.layer_ids, back.experts, back.ranks) == (mapping.layer_ids, mapping.experts, mapping.ranks)


FACTS = ModelFacts("tiny", 3, (1, 2), 3, "deepseek_v3", "DeepseekV3ForCausalLM")
MAPPING = ExpertMapping(np.array([[0, 1, 2, 0], [2, 1, 1, 0]]), (1, 2), 3, 2)


@pytest.mark.parametrize("name", NAMES)
def test_an_expert_that_is_lost_is_noticed(name: str, tmp_path: Path) -> None:
    engine, lost = ENGINES[name], replace(MAPPING, slot_expert=np.array([[0, 1, 2, 0], [0, 1, 1, 0]]))
    path = written(engine, lost, FACTS, str(tmp_path))
    inspected = engine.inspect(path, FACTS, 2)
    assert inspected.mapping is None
    with pytest.raises(InputError, match="expert 2 has no copy"):
        require_sound(path, engine.title, replace(inspected, findings=inspected.findings[:1]))


def test_phy2log(tmp_path: Path) -> None:
    np.save(tmp_path / "map.npy", MAPPING.slot_expert)
    back = read_mapping(tmp_path / "map.npy", "npy", FACTS, 2)
    assert np.array_equal(back.slot_expert, MAPPING.slot_expert)
    for shape, words in (((1, 2, 4), "save one map"), ((3, 4), r"drop the rows of dense layers \[0\]")):
        np.save(tmp_path / "other.npy", np.zeros(shape, dtype=np.int64))
        with pytest.raises(InputError, match=words):
            read_mapping(tmp_path / "other.npy", "npy", FACTS, 2)
