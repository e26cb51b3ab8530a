"""Activation memory of training: the paper's formula, real shapes by hand, pipelines, what is refused."""

from __future__ import annotations

import math

import pytest

from cost.activations import (
    POLICIES,
    activation_bytes,
    in_flight,
    layer_activation_bytes,
    pipeline_activation_bytes,
    training_compute,
)
from cost.attention import GroupedQuery
from cost.model import DenseFfn, Layer
from cost.resolve import resolve_model
from topology import InputError

H, HEADS, SEQUENCE = 12_288, 96, 2_048  # GPT-3
GPT3 = Layer(GroupedQuery(H, HEADS, HEADS, H // HEADS, H // HEADS), DenseFfn(8 * H * H), 4 * H)


def test_the_papers_layer_is_the_papers_formula() -> None:
    # Korthikanti et al., equation 1: s b h (34 + 5 a s / h), of GPT-3 80 beside the 34
    assert layer_activation_bytes(GPT3, H, dropout=True) == 34 * H
    assert layer_activation_bytes(GPT3, H, dropout=True, scores_over=SEQUENCE) == H * (34 + 80)
    # without dropout no masks, and of each score the softmax alone
    assert layer_activation_bytes(GPT3, H) == 32 * H
    assert layer_activation_bytes(GPT3, H, scores_over=SEQUENCE) == 32 * H + 2 * HEADS * SEQUENCE


def test_a_gated_layer_of_grouped_queries_by_hand() -> None:
    model = resolve_model("llama-3.1-70b")
    h, kv, inner = 8_192, 1_024, 28_672
    # norms, attention's input, q k v and the output's input, the feed-forward part's input, gate, up, product
    elements = 2 * h + h + (h + kv + kv + h) + h + 3 * inner
    assert layer_activation_bytes(model.layers[0], model.hidden) == 2 * elements == 274_432


def test_a_mixture_of_experts_with_latents_by_hand() -> None:
    model = resolve_model("deepseek-v3")
    h, inner = 7_168, 2_048
    latents = 2 * 1_536 + 2 * 512 + 64
    heads = 128 * (192 + 192 + 128 + 128)
    experts = 8 * (h + 3 * inner + h) + 3 * inner
    elements = 2 * h + h + latents + heads + h + experts
    assert layer_activation_bytes(model.layers[-1], h) == 2 * elements + 4 * 256


def test_a_window_bounds_the_kept_scores() -> None:
    model = resolve_model("gpt-oss-120b")
    windowed = next(layer for layer in model.layers if layer.attention.kind == "swa")
    near, far = (layer_activation_bytes(windowed, model.hidden, scores_over=s) for s in (128, 100_000))
    assert near == far > layer_activation_bytes(windowed, model.hidden)


def test_policies_of_a_whole_model() -> None:
    model = resolve_model("llama-3.1-70b")
    layer = 274_432
    assert activation_bytes(model, "plain") == 80 * layer
    assert activation_bytes(model, "recompute") == 80 * 2 * 8_192 + layer
    assert activation_bytes(model, "reversible") == 4 * 8_192 + layer
    half = activation_bytes(model, "reversible", layers=range(40))
    assert half == activation_bytes(model, "reversible")  # constant in layers
    assert [training_compute(policy) for policy in POLICIES] == pytest.approx([1, 4 / 3, 4 / 3])


def test_the_first_stage_of_a_pipeline_saves_nothing() -> None:
    model = resolve_model("llama-3.1-70b")
    whole = activation_bytes(model, "plain") * 4_096
    found = pipeline_activation_bytes(model, "plain", stages=8, micro_batches=32, tokens=4_096)
    assert found[0] == pytest.approx(whole)
    assert found == pytest.approx([whole * (8 - stage) / 8 for stage in range(8)])
    # fewer micro-batches than stages: no more than there are
    few = pipeline_activation_bytes(model, "plain", stages=8, micro_batches=2, tokens=4_096)
    assert few == pytest.approx([whole * min(2, 8 - stage) / 8 for stage in range(8)])
    one = pipeline_activation_bytes(model, "recompute", stages=1, micro_batches=32, tokens=1)
    assert one == pytest.approx([activation_bytes(model, "recompute")])


def test_stages_split_every_layer_once() -> None:
    model = resolve_model("deepseek-v3")
    found = pipeline_activation_bytes(model, "plain", stages=7, micro_batches=1, tokens=1)
    assert sum(found) == pytest.approx(activation_bytes(model, "plain"))


def test_in_flight_is_the_distance_to_the_last_stage() -> None:
    assert [in_flight(4, 8, stage) for stage in range(4)] == [4, 3, 2, 1]
    assert [in_flight(4, 2, stage) for stage in range(4)] == [2, 2, 2, 1]


@pytest.mark.parametrize(("stages", "micro_batches", "stage"), [(0, 1, 0), (1, 0, 0), (2, 1, 2), (2, 1, -1)])
def test_no_such_pipeline(stages: int, micro_batches: int, stage: int) -> None:
    with pytest.raises(InputError):
        in_flight(stages, micro_batches, stage)


def test_what_is_not_counted_is_refused() -> None:
    model = resolve_model("llama-3.1-8b")
    with pytest.raises(InputError, match=r"activations 'some': choose plain, recompute, reversible\."):
        activation_bytes(model, "some")
    with pytest.raises(InputError, match=r"stages 33: llama-3\.1-8b has 32 layers"):
        pipeline_activation_bytes(model, "plain", stages=33, micro_batches=1, tokens=1)
    with pytest.raises(InputError, match="stages 0"):
        pipeline_activation_bytes(model, "plain", stages=0, micro_batches=1, tokens=1)
    for tokens in (0.0, math.nan, math.inf):
        with pytest.raises(InputError, match="tokens"):
            pipeline_activation_bytes(model, "plain", stages=1, micro_batches=1, tokens=tokens)
    with pytest.raises(
        InputError, match="dsa attention: activations are counted for grouped queries and MLA"
    ):
        activation_bytes(resolve_model("glm-5"), "plain")
