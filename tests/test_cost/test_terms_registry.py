"""The registry of terms: what a step is made of is declared there, once."""

import pytest

from cost.inputs.deployment import Deployment
from cost.inputs.layout import StageSpec
from cost.inputs.machine import PEAK
from cost.inputs.workload import StepShape, Workload
from cost.layouts import sweep
from cost.model import MoeFfn
from cost.resolve import resolve_model
from cost.step.step import even_parts, priced
from cost.terms.registry import TERMS
from cost.terms.work import FIXED, LayerStep, Parts, Term
from topology import resolve_cluster
from topology.base.figures import Evidence, Figure


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
