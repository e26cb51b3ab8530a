"""A key that repeats another under a longer name (Gemma 2 has ``sliding_window`` and ``sliding_window_size``)."""

from __future__ import annotations

import pytest

from cost import model_from_config
from topology import InputError

GEMMA2 = {
    "model_type": "gemma2",
    "attention_bias": False,
    "head_dim": 256,
    "hidden_size": 3584,
    "intermediate_size": 14336,
    "max_position_embeddings": 8192,
    "num_attention_heads": 16,
    "num_hidden_layers": 42,
    "num_key_value_heads": 8,
    "sliding_window": 4096,
    "torch_dtype": "bfloat16",
    "vocab_size": 256000,
}


def test_a_repeated_value_is_a_note() -> None:
    model = model_from_config({**GEMMA2, "sliding_window_size": 4096}, name="gemma2")
    assert round(model.total_params / 1e9, 1) == 9.2  # published: 9B, 9.24 B with the tied embedding once
    assert any("sliding_window_size" in note for note in model.notes)


def test_another_value_is_refused() -> None:
    with pytest.raises(InputError, match="sliding_window_size is 1024"):
        model_from_config({**GEMMA2, "sliding_window_size": 1024}, name="gemma2")
