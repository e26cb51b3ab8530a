"""Placements chosen by their step, fed with what tokens choose together: four GPUs in two domains, two in each."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost.config.build import model_from_config
from cost.experts.loads import ExpertLoads, routed_loads
from cost.experts.traces.routing import RoutingTrace
from cost.inputs.deployment import Deployment
from cost.inputs.workload import Workload
from cost.resolve import resolve_model
from placement.options import PlanOptions
from placement.plan import Plan
from placement.planner import make_plan
from placement.plans.writing import plan_to_dict, plan_to_json
from placement.scoring import with_loads
from placement.traffic.place import (
    Places,
    domains_by_tokens,
    in_domains,
    shares_of,
)
from placement.traffic.tokens import Tokens
from placement.verify import verify_plan
from rackplan.report.plan import plan_doc
from test_placement.builders import reread
from topology import build_cluster, resolve_cluster

EXPERTS = 8
CUT = PlanOptions(ep=4, tp=1, stages=1, time_limit_s=0.0, redundant=0)


@cache
def setting(layers: int = 1, model: str = "mixtral-8x7b") -> Deployment:
    spec = resolve_cluster("hgx-h100@16").spec
    two = replace(spec.domains[0], gpus=2, gpus_per_node=2)
    config = {**resolve_model(model).config, "num_hidden_layers": layers}
    if model == "deepseek-v3":
        config |= {"n_routed_experts": EXPERTS, "n_group": 4, "topk_group": 2, "num_experts_per_tok": 2}
        config["num_hidden_layers"] += 3  # that have no experts
    cluster = build_cluster(replace(spec, name="tiny", domains=(two, two)))
    return Deployment(cluster, model_from_config(config, name="tiny"), Workload(1024, 1, phase="prefill"))


def traced(choices: np.ndarray) -> ExpertLoads:
    """Loads with a trace of ``choices`` ``[layers, tokens, k]``."""
    counts = np.array([np.bincount(layer.ravel(), minlength=EXPERTS) for layer in choices])
    return routed_loads([RoutingTrace(choices.astype(np.int16), counts, choices.shape[1], "t.npy")])


def drawn(
    topics: int, strength: float, *, layers: int = 1, experts: int = EXPERTS, tokens: int = 600, k: int = 2
) -> np.ndarray:
    """Choices ``[layers, tokens, k]`` of tokens that each have a topic, which likes some experts; 0: none does."""
    rng = np.random.default_rng(0)
    choices = []
    for _ in range(layers):
        taste = strength * np.eye(topics)[np.arange(experts) % topics][rng.permutation(experts)].T
        score = taste[rng.integers(0, topics, tokens)] + 0.2 * rng.standard_normal(experts)
        score += rng.gumbel(size=(tokens, experts))
        choices.append(np.argsort(-score, axis=1)[:, :k])
    return np.stack(choices)


def check_rows(plan: Plan) -> None:
    """Nothing that was compared is faster, and the plan is what its row says."""
    report = plan.by_traffic
    assert verify_plan(plan) == []
    assert report.rows[0].placement == "balance"
    assert report.after.step_s <= min(row.step_s for row in report.rows) * (1 + 1e-6)
    assert plan.score.step_s == pytest.approx(report.after.step_s, rel=1e-12)
    assert plan.traffic.domains_per_token == pytest.approx(report.after.domains_per_token, rel=1e-12)
    for name, baseline in plan.baselines.items():
        if baseline.score is not None and plan.spread == "gpu":  # else they need not be legal
            assert plan.score.step_s <= baseline.score.step_s * (1 + 1e-6), name


def test_what_tokens_need_is_as_counted_from_the_plan_file_and_the_trace_and_read_back() -> None:
    loads = traced(drawn(4, 4.0, layers=2))
    plan = make_plan(setting(2), loads, CUT)
    check_rows(plan)
    written = json.loads(plan_to_json(plan_to_dict(with_loads(plan, loads))))
    traffic, crossings, needs = written["score"]["traffic"], 0.0, []
    for layer, per_gpu in written["experts"]["layers"].items():
        gpu_of = {expert: gpu for gpu, held in enumerate(per_gpu) for expert in held}
        for token in loads.routing[0].choices[int(layer)].tolist():
            domains = {gpu_of[expert] // 2 for expert in token}
            needs.append(len(domains))
            crossings += sum(domain != source // 2 for domain in domains for source in range(4)) / 4
    assert traffic["domains_per_token"] == pytest.approx(np.mean(needs), rel=1e-9)
    # one copy of a token goes to each domain that is not its own (FP8 with scales), and one comes back (BF16)
    tokens = plan.score.batch * 1024 * 4
    width = 4096
    sizes = {width + width / 128 * 4 + 2 * width, width + 2 * width, 2 * width + 2 * width}
    (fabric,) = set(traffic["bytes_per_step"]) - {"nvlink4"}
    each = traffic["bytes_per_step"][fabric] / (tokens * crossings / 600)
    assert any(each == pytest.approx(size, rel=1e-3) for size in sizes), each
    by_traffic = written["by_traffic"]
    taken = next(row for row in by_traffic["rows"] if row["placement"] == by_traffic["chosen"])
    assert taken["bytes_per_step"] == pytest.approx(plan.traffic.bytes_per_step, rel=1e-12)
    assert taken["domains_per_token"] < by_traffic["rows"][0]["domains_per_token"]
    marked = [row for row in plan_doc(plan).data["by_traffic"] if row["mark"] == "chosen"]
    assert [row["domains_per_token"] for row in marked] == [taken["domains_per_token"]]
    read = reread(plan)
    assert (read.differences, read.by_traffic) == ("", plan.by_traffic)
    again, before = with_loads(read, loads), with_loads(plan, loads)
    assert (again.score.step_s, again.traffic) == (before.score.step_s, before.traffic)


def test_a_plan_promises_what_unseen_tokens_confirm() -> None:
    """Of tokens that use one of four pairs of experts each."""
    pairs = np.random.default_rng(4).permutation(EXPERTS).reshape(4, 2)
    rngs = (np.random.default_rng(seed) for seed in (0, 1))
    loads, unseen = (traced(pairs[rng.integers(0, 4, 4000)][None]) for rng in rngs)
    plan = make_plan(setting(), loads, CUT)
    assert plan.by_traffic.after.domains_per_token == pytest.approx(1)
    later = with_loads(plan, unseen)
    assert plan.score.step_s == pytest.approx(later.score.step_s, rel=0.015)
    assert plan.traffic.tokens == 1000  # the last quarter
    assert plan.traffic.domains_per_token == pytest.approx(later.traffic.domains_per_token)
    assert plan.loads is loads  # all of them place the experts


def test_whole_groups_in_domains_are_looked_at_without_a_trace() -> None:
    deployment = setting(2, model="deepseek-v3")
    load = np.random.default_rng(1).lognormal(0, 0.1, (1, 2, EXPERTS))
    plan = make_plan(deployment, ExpertLoads(load, ("some",), synthetic=False), CUT)
    check_rows(plan)
    report = plan.by_traffic
    assert report.traces == ()
    assert "2 of 4 groups" in report.known
    rows = {row.placement: row for row in report.rows}
    aligned = rows["groups in domains"]
    # two groups of a token's are in one domain in 2 of 6 ways; in the others both experts are of one group in 1 of 3
    assert aligned.domains_per_token == pytest.approx(1 + 4 / 6 * 2 / 3, rel=0.03)
    assert aligned.domains_per_token < rows["balance"].domains_per_token or report.chosen == "balance"


@pytest.mark.parametrize("spread", ["gpu", "rack"])
def test_copies_lie_apart_as_asked(spread: Any) -> None:
    plan = make_plan(setting(2), traced(drawn(4, 4.0, layers=2)), replace(CUT, redundant=8, spread=spread))
    check_rows(plan)
    for part in plan.experts:
        if spread != "gpu":  # a node is a domain here
            for row in part.slot_expert:
                assert sorted(row[:8]) == sorted(row[8:]) == list(range(EXPERTS))


def topical(number: int) -> Tokens:
    return Tokens.of(drawn(6, 3.0, experts=24, tokens=number, k=4)[0], 24)


def domains_of(domains: int, gpus: int, slots: int) -> Places:
    """Domains of ``gpus`` GPUs."""
    total = domains * gpus
    return Places.of(shares_of(np.ones(total, dtype=np.int64), slots), np.arange(total) // gpus)


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 3), st.integers(2, 4), st.integers(0, 9))
def test_slots_are_exact(seed: int, domains: int, gpus: int, spare: int) -> None:
    tokens, places = topical(200), domains_of(domains, gpus, 24 + spare)
    load = np.random.default_rng(seed).lognormal(0, 0.5, (2, 24))
    part = domains_by_tokens(tokens, places, load, share=0.05)
    assert np.bincount(part, minlength=domains).tolist() == shares_of(places.domain_slots, 24).tolist()
    empty = np.full((1, 24 + spare), -1, dtype=np.int32)
    (row,) = in_domains([part], load[:, None], places, empty)
    for domain in range(domains):
        assert set(row[places.slot_domain == domain].tolist()) == set(np.flatnonzero(part == domain).tolist())
    gpu = np.repeat(np.arange(domains * gpus), places.slots_per_gpu)
    assert len(set(zip(gpu.tolist(), row.tolist(), strict=True))) == row.size


def test_topics_are_kept_together_under_the_limit_and_hold_on_other_tokens() -> None:
    tokens = topical(4000)
    train, test = tokens.rows(slice(0, 2000)), tokens.rows(slice(2000, None))
    part = domains_by_tokens(train, domains_of(4, 2, 24), train.load[None], slack=0.1, share=0.05)
    load = np.bincount(part, train.load)
    assert load.max() / load.mean() <= 1.1
    reached = train.reach(part, 4).mean()
    assert reached < 0.75 * train.reach(np.arange(24) % 4, 4).mean()
    assert test.reach(part, 4).mean() == pytest.approx(reached, rel=0.05)
