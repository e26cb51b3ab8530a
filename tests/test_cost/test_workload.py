"""What is asked of the model: limits of a workload, and what one step of it processes."""

from __future__ import annotations

import re

import numpy as np
import pytest

from cost.inputs.workload import StepShape, Workload
from cost.quantity import MAX_CONTEXT_TOKENS
from topology.base.errors import InputError


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"context": 0}, "`context` 0"),
        ({"context": -5}, "`context` -5"),
        ({"context": MAX_CONTEXT_TOKENS + 1}, "`context` 1000000001"),
        ({"context": 10**400}, "`context` 1000"),
        ({"context": 4096.0}, "`context` 4096.0"),
        ({"context": float("nan")}, "`context` nan"),
        ({"context": True}, "`context` True"),
        ({"batch": -1}, "`batch` -1"),
        ({"batch": 10**9 + 1}, "`batch` 1000000001"),
        ({"batch": 10**400}, "`batch` 1000"),
        ({"batch": float("inf")}, "`batch` inf"),
        ({"phase": "training"}, "`phase` training: choose decode or prefill"),
        ({"draft_tokens": -1}, "`draft_tokens` -1"),
        ({"draft_tokens": 65}, "`draft_tokens` 65"),
        ({"draft_tokens": 1.0}, "`draft_tokens` 1.0"),
        ({"accept_length": 1.5}, "`accept_length` 1.5: with 0 draft tokens, a step yields 1 to 1 tokens"),
        ({"draft_tokens": 2, "accept_length": 3.1}, "`accept_length` 3.1"),
        ({"draft_tokens": 2, "accept_length": 0.9}, "`accept_length` 0.9"),
        ({"draft_tokens": 2, "accept_length": float("nan")}, "`accept_length` nan"),
        ({"draft_tokens": 2, "phase": "prefill"}, "`draft_tokens`: draft tokens apply only to decode"),
    ],
)
def test_bad_values_are_named_in_one_line(given, said):
    with pytest.raises(InputError, match="^" + re.escape(said)) as error:
        Workload(**given)
    assert "\n" not in str(error.value)


def test_tokens_of_each_phase():
    decode = Workload(context=100, draft_tokens=3, accept_length=2.5)
    assert (decode.tokens_per_pass, decode.tokens_per_step, decode.token_word) == (4, 2.5, "output")
    prefill = Workload(context=100, phase="prefill")
    assert (prefill.tokens_per_pass, prefill.tokens_per_step, prefill.token_word) == (100, 100, "input")


def test_a_cached_prefix_is_not_prefilled():
    prefill = Workload(context=1000, phase="prefill", prefix_hit=0.75)
    assert (prefill.prompt_cached, prefill.tokens_per_pass, prefill.tokens_per_step) == (750, 250, 1000)
    assert prefill.prompts_at_once() == 32  # of 250 tokens each
    assert Workload(context=50_000, phase="prefill").prompts_at_once() == 1
    # the last token of a prompt is always prefilled
    assert Workload(context=1, phase="prefill", prefix_hit=0.9).tokens_per_pass == 1
    for hit in (-0.1, 1.0, float("nan")):
        with pytest.raises(InputError, match="`prefix_hit`"):
            Workload(phase="prefill", prefix_hit=hit)
    with pytest.raises(InputError, match="applies only to prefill"):
        Workload(prefix_hit=0.5)


def test_many_shapes_at_once():
    shape = StepShape(tp=np.array([1.0, 2.0]), attention_dp=4, sequences=np.array([[0.0], [5.0]]))
    assert shape.gpus.tolist() == [4, 8]
    assert np.broadcast_shapes(shape.gpus.shape, shape.tokens.shape) == (2, 2)
    assert shape.decodes, "one of them does"
