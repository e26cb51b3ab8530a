"""The table of families: one row is all that a new family takes."""

import re

import pytest

from cost.config.build import model_from_config
from cost.config.families import FAMILIES, TABLE
from cost.config.family import Count, Dense, Family, Flag, Grouped, Routed, after_first
from topology.base.errors import InputError

NEWCOMER = Family(
    "newcomer",
    "A family that nobody has published.",
    Grouped(kv_heads_required=True, bias=Flag("attention_bias"), qk_norm="head"),
    Routed(
        shared=Count("n_shared_experts", least=0),
        router_bias=True,
        sparse=after_first,
        dense=Dense("ffn_dim"),
    ),
    must={"use_gate": (False, "false: gates are not modelled")},
    ignore="moe_flavour",
)
CONFIG = {
    "model_type": "newcomer", "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 8,
    "num_key_value_heads": 2, "ffn_dim": 96, "moe_intermediate_size": 24, "num_experts": 8, "num_experts_per_tok": 2,
    "n_shared_experts": 1, "first_k_dense_replace": 1, "vocab_size": 100, "moe_flavour": 7,
}  # fmt: skip


@pytest.fixture(autouse=True)
def _newcomer(monkeypatch):
    monkeypatch.setitem(FAMILIES, "newcomer", NEWCOMER)


def test_a_row_is_all_that_a_family_takes():
    model = model_from_config(CONFIG, name="newcomer")
    attention = 2 * 64 * 64 + 2 * 64 * 16 + 2 * 8
    expert = 3 * 64 * 24
    dense, sparse = 3 * 64 * 96, 9 * expert + 8 * 64 + 8
    assert model.moe_layers == (1, 2)
    assert model.total_params == 3 * (attention + 2 * 64) + dense + 2 * sparse + 2 * 64 * 100 + 64
    assert model.notes == ()


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("use_gate", True, "use_gate: True must be false: gates are not modelled."),
        (
            "n_shared_experts",
            None,
            "n_shared_experts is null, and a newcomer model cannot be read without it.",
        ),
        ("attention_sinks", 4, "attention_sinks is 4, and a newcomer model is not known to have it"),
        ("num_experts_per_tok", 9, "a token uses 9 experts, but there are only 8"),
    ],
)
def test_a_row_refuses_what_it_does_not_describe(key, value, words):
    with pytest.raises(InputError, match=re.escape(words)):
        model_from_config({**CONFIG, key: value}, name="newcomer")


def test_a_model_type_stands_in_one_row():
    names = [name for family in TABLE for name in family.names.split()]
    assert sorted(names) == sorted(set(FAMILIES) - {"newcomer"})
