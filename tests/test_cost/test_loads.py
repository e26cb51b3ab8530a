"""Scenarios weighted equally, each layer by its own mean; generators and their parameters."""

from __future__ import annotations

import numpy as np
import pytest

from cost.experts.loads import ExpertLoads, is_generator, read_loads, routed_loads, synthetic_loads
from cost.experts.traces.routing import RoutingTrace
from topology.base.errors import InputError


def draw(text: str, seed: int = 0, number: int = 0) -> np.ndarray:
    return synthetic_loads(text, layers=40, experts=64, seed=seed, draw=number)


def test_each_layer_of_each_scenario_counts_the_same() -> None:
    loads = ExpertLoads(np.array([[[1.0, 3.0]], [[30.0, 10.0]]]), ("a", "b"), synthetic=False)
    assert loads.normalised.tolist() == [[[0.5, 1.5]], [[1.5, 0.5]]]
    assert loads.mean.tolist() == [[1.0, 1.0]]


def test_normalised_does_not_overflow() -> None:
    loads = ExpertLoads(np.full((1, 1, 4), 1e308), ("a",), synthetic=False)
    assert loads.normalised.tolist() == [[[1.0, 1.0, 1.0, 1.0]]]


def test_lognormal_has_the_spread_it_is_given() -> None:
    assert np.log(draw("lognormal:0.63")).std(axis=1).mean() == pytest.approx(0.63, rel=0.03)
    assert (draw("lognormal:0") == 1000).all()


def test_zipf_is_a_power_of_the_rank() -> None:
    loads = np.sort(draw("zipf:1.2"), axis=1)[:, ::-1]
    assert loads[:, 0] / loads[:, 9] == pytest.approx(10**1.2)
    assert len({int(row.argmax()) for row in draw("zipf:1.2")}) > 5  # not the same expert in every layer


def test_seed_and_position_decide() -> None:
    assert (draw("zipf:1", seed=3) == draw("zipf:1", seed=3)).all()
    assert not (draw("zipf:1", seed=3) == draw("zipf:1", seed=4)).all()
    assert not (draw("lognormal:1", number=0) == draw("lognormal:1", number=1)).all()


@pytest.mark.parametrize(
    "text",
    [
        "lognormal:nan",
        "lognormal:-1",
        "lognormal:",
        "lognormal",
        "lognormal:1e9",
        "zipf:inf",
        "zipf:x",
        "uniform:1",
    ],
)
def test_bad_parameters_are_refused(text: str) -> None:
    assert is_generator(text)
    with pytest.raises(InputError, match=text.split(":", maxsplit=1)[0]):
        draw(text)


def test_generators_are_marked_synthetic() -> None:
    loads = read_loads(["uniform", "zipf:1"], moe_layers=[1, 2], layers=3, experts=4, seed=5)
    assert loads.synthetic
    assert loads.tokens.shape == (2, 2, 4)
    assert loads.names == ("uniform (synthetic, seed 5)", "zipf:1 (synthetic, seed 5)")


def test_a_negative_seed_is_refused() -> None:
    with pytest.raises(InputError, match="seed -1"):
        draw("uniform", seed=-1)


def test_traces_are_divided_in_the_order_of_their_tokens() -> None:
    """The last quarter judges; loads that the trace implies are those of each part, measured ones stay."""
    choices = np.random.default_rng(0).permuted(np.tile(np.arange(4), (2, 400, 1)), axis=2)[:, :, :2]
    counts = np.array([np.bincount(layer.ravel(), minlength=4) for layer in choices])
    trace = RoutingTrace(choices.astype(np.int16), counts, 400, "t")
    loads = routed_loads([trace]).divided()
    assert loads.held_out is not None
    assert loads.judged is loads.held_out
    for part, kept in ((loads, choices[:, :300]), (loads.held_out, choices[:, 300:])):
        assert (part.routing[0].choices == kept).all()
        assert (part.tokens[0] == [np.bincount(layer.ravel(), minlength=4) for layer in kept]).all()
    second = loads.rows([1]).sampled(10)
    assert second.held_out is not None
    assert (second.held_out.routing[0].choices == choices[1:, 300::10]).all()
    assert loads.untraced.judged.routing == ()
    measured = ExpertLoads(np.ones((1, 2, 4)), ("m",), synthetic=False)
    apart = routed_loads([trace], measured).divided()
    assert apart.held_out is not None
    assert (apart.tokens == 1).all()
    assert (apart.held_out.tokens == 1).all()
    assert measured.divided() is measured
    short = routed_loads([trace.part(0, 100)]).divided()
    assert (short.routing, short.held_out) == ((), None)
    assert "100 tokens are too few" in short.notes[-1]
