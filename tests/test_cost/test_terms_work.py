"""Adding up parts: seconds by part and by limit, what kernels lose, what resources are busy at peak."""

from dataclasses import replace

import numpy as np
import pytest

from cost.step.step import priced
from cost.terms.work import (
    LinkPart,
    Parts,
    StepCost,
    Work,
    kernel_seconds,
    smooth_max,
)


def work(compute=2.0, memory=3.0, *, fraction="gemm.bf16", hbm="hbm.weights", layers=1.0, columns=np.inf):
    return Work("a part", fraction, hbm, compute, memory, layers, columns)


def some(parts):
    """The parts that take any time."""
    return {name: seconds for name, seconds in parts.items() if np.any(seconds)}


def test_at_peak_the_larger_counts_and_else_both(toy):
    assert kernel_seconds(3.0, 4.0, toy.coefficients()) == 4.0
    assert kernel_seconds(3.0, 4.0, toy.coefficients(ideal=False)) == smooth_max(3.0, 4.0) == 5.0


def test_fractions_stretch_their_own_side(toy):
    lossy = toy.coefficients(gemm__bf16=0.5, hbm__weights=0.25, experts__bf16=0.1, hbm__cache=0.1)
    assert work().seconds(lossy) == (4.0, 12.0)


def test_narrow_slices_use_multipliers_badly(toy):
    # 100 columns where 300 reach half of the fraction: a quarter
    narrow = toy.coefficients(columns__gemm=300.0, columns__experts=900.0)
    assert work(columns=100.0).seconds(narrow) == (8.0, 3.0)
    assert work(fraction="experts.bf16", columns=100.0).seconds(narrow) == (20.0, 3.0)
    assert work(fraction="attention.decode.bf16").seconds(narrow) == (2.0, 3.0)


def test_parts_add_up_by_name_and_by_limit(toy):
    cost, peak = StepCost(), toy.coefficients()
    cost.add_work(work(2.0, 3.0, layers=2), peak)
    cost.add_work(work(5.0, 1.0), peak)
    assert cost.parts_s == {("a part", "compute"): 5.0, ("a part", "HBM bandwidth"): 6.0}
    assert cost.terms_s == {"a part": 11.0}
    assert cost.limits_s == {"compute": 5.0, "HBM bandwidth": 6.0}
    assert cost.total_s == 11.0
    assert cost.floor_s == {"compute": 9.0, "HBM bandwidth": 7.0}
    assert cost.lower_s == 9.0


def test_the_slower_fabric_binds_a_dispatch(toy):
    rates = toy.machine(toy.cluster(4, 4)).rates
    cost = StepCost()
    cost.add_links(LinkPart("dispatch", np.array([2.0, 1.0]), np.array([1.0, 2.0]), 5.0, 3.0), rates)
    assert cost.parts_s["dispatch", "up"].tolist() == [15.0, 0.0]
    assert cost.parts_s["dispatch", "out"].tolist() == [0.0, 15.0]
    assert cost.floor_s["up"].tolist() == [6.0, 3.0]
    assert cost.floor_s["out"].tolist() == [3.0, 6.0]


def test_fixed_delays_are_counted_by_what_they_belong_to(toy):
    parts = Parts(
        counts={
            "delay.layer": 10,
            "delay.latent_layer": 4,
            "delay.moe_layer": 6,
            "delay.step": 1,
            "delay.sequence": 8,
        }
    )
    names = ("delay__layer", "delay__latent_layer", "delay__moe_layer", "delay__step", "delay__sequence")
    counts = (10, 4, 6, 1, 8)
    rates = toy.machine(toy.cluster(4)).rates
    for name, count in zip(names, counts, strict=True):
        cost = priced(parts, toy.coefficients(**{name: 1e-3}), rates)
        assert some(cost.parts_s) == {("overhead", "fixed overhead"): pytest.approx(count * 1e-3)}, name
    assert priced(parts, toy.coefficients(), rates).total_s == 0


def test_ranks_wait_for_the_one_with_most_to_do(toy):
    uneven = replace(work(2.0, 3.0, layers=2), uneven=0.4)
    cost = StepCost()
    cost.add_work(uneven, toy.coefficients(ranks__uneven=0.5))
    assert some(cost.terms_s) == {"a part": 6.0, "rank_imbalance": pytest.approx(0.5 * 0.4 * 6.0)}
    assert some(cost.limits_s) == {"HBM bandwidth": pytest.approx(7.2)}
    assert cost.floor_s["HBM bandwidth"] == 6.0, "a floor knows no chance"
    peak = StepCost()
    peak.add_work(uneven, toy.coefficients())
    assert peak.total_s == 6.0


def test_the_engine_loses_a_share_of_the_time_of_kernels(toy):
    parts = Parts(works=[replace(work(2.0, 3.0), uneven=1.0), work(1.0, 1.0)], counts={"delay.step": 1})
    parts.links.append(LinkPart("dispatch", 1.0, 0.0, 5.0))
    efficiency = toy.coefficients(engine__share=0.1, ranks__uneven=1.0, delay__step=7.0)
    cost = priced(parts, efficiency, toy.machine(toy.cluster(4)).rates)
    # 3 s and 3 s of waiting and 1 s; neither links nor delays
    assert cost.parts_s["engine", "fixed overhead"] == pytest.approx(0.7)
    assert cost.total_s == pytest.approx(7.0 + 0.7 + 5.0 + 7.0)


def test_layers_with_an_index_or_compressed_entries_pay_for_them(toy):
    rates = toy.machine(toy.cluster(4)).rates
    efficiency = toy.coefficients(delay__index_layer=1e-3, delay__compress_layer=1e-2)
    cost = priced(
        Parts(counts={"delay.layer": 9, "delay.index_layer": 3, "delay.compress_layer": 5}), efficiency, rates
    )
    assert some(cost.parts_s) == {("sparse_attention", "fixed overhead"): pytest.approx(0.053)}
    assert "sparse_attention" not in priced(Parts(counts={"delay.layer": 9}), efficiency, rates).terms_s
