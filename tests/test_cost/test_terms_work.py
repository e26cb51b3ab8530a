"""Adding up parts: seconds by part and by limit, what kernels lose, what is busy; the terms declared."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cost.inputs.deployment import Deployment
from cost.inputs.layout import StageSpec
from cost.inputs.machine import PEAK, Unit
from cost.inputs.workload import StepShape, Workload
from cost.layouts import sweep
from cost.model import MoeFfn
from cost.resolve import resolve_model
from cost.step.step import even_parts, priced
from cost.terms.registry import TERMS
from cost.terms.work import (
    FIXED,
    LayerStep,
    LinkPart,
    Parts,
    StepCost,
    Term,
    Work,
    kernel_seconds,
    smooth_max,
)
from topology import resolve_cluster
from topology.base.figures import Evidence, Figure


def work(compute=2.0, memory=3.0, *, fraction="gemm.bf16", hbm="hbm.weights", layers=1.0, columns=np.inf):
    return Work("a part", (Unit(fraction),), hbm, compute, memory, layers, columns)


def some(parts):
    """The parts that take any time."""
    return {name: seconds for name, seconds in parts.items() if np.any(seconds)}


def test_at_peak_the_larger_counts_and_else_both(toy):
    assert kernel_seconds(3.0, 4.0, toy.coefficients()) == 4.0
    assert kernel_seconds(3.0, 4.0, toy.coefficients(ideal=False)) == smooth_max(3.0, 4.0) == 5.0


def test_narrow_slices_use_multipliers_badly(toy):
    # 100 columns where 300 reach half of the fraction: a quarter
    narrow = toy.coefficients(columns__gemm=300.0, columns__experts=900.0)
    assert work(columns=100.0).seconds(narrow) == (8.0, 3.0)
    assert work(fraction="experts.bf16", columns=100.0).seconds(narrow) == (20.0, 3.0)
    assert work(fraction="attention.decode.bf16").seconds(narrow) == (2.0, 3.0)


@pytest.mark.parametrize(
    ("name", "term"),
    [
        *((name, "overhead") for name in ("layer", "latent_layer", "moe_layer", "step", "sequence")),
        *((name, "sparse_attention") for name in ("index_layer", "compress_layer")),
    ],
)
def test_a_fixed_delay_is_counted_by_what_it_belongs_to(toy, name, term):
    parts, rates = Parts(counts={f"delay.{name}": 7}), toy.machine(toy.cluster(4)).rates
    cost = priced(parts, toy.coefficients(**{f"delay__{name}": 1e-3}), rates)
    assert some(cost.parts_s) == {(term, "fixed overhead"): pytest.approx(7e-3)}
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


# --- the registry of terms


def test_every_part_of_a_step_is_declared():
    cluster, model = resolve_cluster("hgx-h100@16"), resolve_model("deepseek-v2-lite")
    found = sweep(Deployment(cluster, model, Workload(draft_tokens=1, accept_length=1.5)))
    assert len(found.terms_s) > 8
    assert set(found.terms_s) <= set(TERMS)


def _route(parts: Parts, at: LayerStep) -> None:
    parts.count("delay.route", at.count * isinstance(at.layer.ffn, MoeFfn))


def test_a_delay_that_no_fit_knows_needs_its_term_alone(monkeypatch):
    model = resolve_model("deepseek-v2-lite")  # 26 of 27 layers have experts
    seconds = Figure(30e-6, "s", Evidence.MEASURED, "by hand")
    route = Term("route", "#225577", known_delays={"delay.route": seconds}, of_layer=_route)
    deployment = Deployment(resolve_cluster("hgx-h100"), model, Workload())
    machine = deployment.machine(StageSpec(tuple(range(8)), range(27)))
    shape = StepShape(tp=1, attention_dp=1, ep=8, slots=64, domain_gpus=8).under(Workload(), 8.0)
    before = priced(even_parts(model, shape, machine), machine.efficiency, machine.rates)
    monkeypatch.setitem(TERMS, "route", route)
    parts = even_parts(model, shape, machine)
    after = priced(parts, machine.efficiency, machine.rates)
    assert after.parts_s["route", FIXED] == pytest.approx(26 * 30e-6, rel=1e-12)
    assert {name: s for name, s in after.terms_s.items() if name != "route"} == before.terms_s
    assert after.floor_s == before.floor_s
    assert "route" not in priced(parts, PEAK, machine.rates).terms_s
