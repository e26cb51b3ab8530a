"""Engines under load: queues, Little's law, conservation, a plain simulator; rate x work = time in any plan."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rackplan
from cost.calibration.correction import PHYSICS
from cost.inputs.workload import Workload
from cost.layouts import Sweep
from cost.queueing.engine import Engine
from cost.queueing.requests import made_requests
from cost.queueing.schedulers import Scheduler
from cost.queueing.simulation import Simulation
from cost.queueing.steps import StepTable
from cost.serving.lengths import Lengths
from cost.serving.serving import ONE_POOL, Serving

PER_TOKEN, PER_SEQUENCE = 1e-4, 1e-3
MIXED = Scheduler(mixes=True, tokens=2048, sequences=64, reserved=0.0)
PROMPTS_FIRST = Scheduler(mixes=False, tokens=2048, sequences=64, reserved=1.0)


def table(fixed_s=0.0, groups=1):
    def seconds(sequences, tokens, cached, context):
        step = fixed_s * (sequences + tokens > 0) + PER_SEQUENCE * sequences + PER_TOKEN * tokens
        return np.stack([step, np.zeros_like(step)])

    return StepTable.of(seconds, groups=groups, max_sequences=64, context=1000.0)


def engines(number, scheduler, room=1e9, **more):
    return [Engine(table(**more), scheduler, room) for _ in range(number)]


@pytest.mark.parametrize("scheduler", [MIXED, PROMPTS_FIRST])
def test_users_are_rate_times_stay(scheduler):
    users = 24
    asked = made_requests(Lengths.of(600, 80), 3000, users=users, cv=0.3)
    outcome = Simulation(engines(2, scheduler, fixed_s=0.002), asked).run()
    middle = slice(users, len(asked) - users)
    spans = np.sort(outcome.done_s)
    rate = (len(asked) - 2 * users) / (spans[-users - 1] - spans[users - 1])
    stay = (outcome.done_s - outcome.arrival_s)[middle].mean()
    assert rate * stay == pytest.approx(users, rel=0.02)


@settings(max_examples=25)
@given(
    seed=st.integers(0, 10**6),
    users=st.integers(1, 40),
    scheduler=st.sampled_from([MIXED, PROMPTS_FIRST]),
    room=st.sampled_from([1e9, 4000.0]),
)
def test_work_is_conserved_however_it_is_batched(seed, users, scheduler, room):
    asked = made_requests(Lengths.of(700, 30), 120, users=users, cv=0.5, seed=seed)
    pool = engines(2, scheduler, room)
    outcome = Simulation(pool, asked).run()
    work = PER_TOKEN * outcome.isl.sum() + PER_SEQUENCE * (outcome.osl - 1).sum()
    done = sum(request.busy_s for request in pool)
    assert outcome.preempted or done == pytest.approx(work)
    assert done >= work * (1 - 1e-9)  # what was preempted is computed again
    assert (outcome.done_s >= outcome.first_s).all()
    assert (outcome.first_s > outcome.arrival_s).all()
    for request in pool:
        assert (request.running, request.load, len(request.waiting)) == (0, 0, 0)
        assert request.used == pytest.approx(0, abs=1e-6)
        assert request.context == pytest.approx(0, abs=1e-6)


@given(seed=st.integers(0, 10**6), mixes=st.booleans(), rate=st.floats(2, 30))
def test_stretches_are_what_a_simulator_of_single_steps_finds(seed, mixes, rate):
    scheduler = Scheduler(mixes=mixes, tokens=512, sequences=8, reserved=0.0)
    asked = made_requests(Lengths.of(400, 25), 60, requests_per_s=rate, cv=0.6, seed=seed)
    outcome = Simulation([Engine(table(fixed_s=0.002), scheduler, 1e9)], asked).run()
    first, done = step_by_step(asked, scheduler, table(fixed_s=0.002))
    assert outcome.first_s == pytest.approx(first)
    assert outcome.done_s == pytest.approx(done)


def step_by_step(asked, scheduler, steps):
    """First and last tokens of one engine with room for all, one step after the other."""
    now, waiting, started, left, made = 0.0, list(range(len(asked))), [], {}, {}
    first, done = [0.0] * len(asked), [0.0] * len(asked)
    while waiting or started:
        if not started:
            now = max(now, asked.starts_s[waiting[0]])
        decoding = [request for request in started if made.get(request)]
        budget = scheduler.tokens - (len(decoding) if scheduler.mixes else 0)
        taken = {}
        for request in [*started, *waiting]:
            if request in waiting:
                if asked.starts_s[request] > now or len(started) == scheduler.sequences or budget <= 0:
                    break
                started.append(request)
                left[request] = asked.isl[request]
            if left.get(request):
                taken[request] = min(left[request], budget)
                budget -= taken[request]
        waiting = [request for request in waiting if request not in started]
        taken = {request: tokens for request, tokens in taken.items() if tokens}
        tokens = sum(taken.values())
        beside = decoding if scheduler.mixes or not tokens else []
        now += steps.decode(len(beside), 0.0) if beside else 0.0
        if tokens:
            now += steps.prompts(tokens, 0.0, tokens, len(beside))
        for request in beside:
            made[request] += 1
        for request, part in taken.items():
            left[request] -= part
            if not left[request]:
                made[request], first[request] = 1, now
        for request in [request for request in started if made.get(request, 0) >= asked.osl[request]]:
            done[request] = now
            started.remove(request)
    return first, done


QUESTIONS = [
    ("llama-3.1-8b", "hgx-h100", "vllm", 1024, 1024),
    ("qwen3-30b-a3b", "hgx-h200", "trtllm", 2048, 256),
    ("deepseek-v3", "gb200-nvl72@16", "trtllm", 8192, 1024),
]


def serving_of(model, cluster, engine, isl, osl) -> Serving:
    deployment = rackplan.make_deployment(model, cluster, engine=engine)
    # what measured runs took over the physics differs by phase
    return Serving.of(replace(deployment, correction=PHYSICS), Lengths.of(isl, osl), imbalance=1.0)


def step_s(answer: Sweep, row: int, work: Workload, batch: float) -> float:
    """Seconds of a step of a row's layout under another workload."""
    layouts = answer.parts_of.layouts.under(replace(answer.deployment, workload=work))
    return float(layouts.price(answer.parts_of.layout[[row]], np.array([batch])).step_s[0])


@pytest.mark.parametrize(("model", "cluster", "engine", "isl", "osl"), QUESTIONS)
def test_engines_do_the_work_that_they_have_time_for(model, cluster, engine, isl, osl):
    serving = serving_of(model, cluster, engine, isl, osl)
    both, matches = serving.both, serving.ways()[ONE_POOL]
    random = np.random.default_rng(0)
    for at in random.choice(len(matches), min(20, len(matches)), replace=False).tolist():
        match = matches.row(at)
        row, batch = match.decode, match.step_batch
        work = both.deployment.workload
        decode_s = step_s(both, row, replace(work, phase="decode", prompt=0.0, answer=0.0), batch)
        whole_s = step_s(both, row, replace(work, prompt_share=1.0), batch)
        requests = batch * float(both.gpus[row])
        prompt_s = osl * (whole_s - decode_s) / requests
        each_s = match.requests_per_s / match.decode_workers
        assert prompt_s > 0 or both.stages[row] > 1  # layers are split for the whole step
        # decode steps are shared by all requests, a prompt is the work of one
        assert each_s * (osl * decode_s / requests + prompt_s) == pytest.approx(1.0, rel=1e-6)


@pytest.mark.parametrize(
    ("model", "cluster", "asked"),
    [
        ("llama-3.1-8b", "hgx-h100", {"isl": 2048, "osl": 512, "engine": "vllm"}),
        ("llama-3.1-405b", "hgx-h200@16", {"isl": 1024, "osl": 1024, "engine": "sglang", "weights": "fp8"}),
        ("qwen3-30b-a3b", "hgx-h200@16", {"isl": 8192, "osl": 1024, "engine": "trtllm"}),
        ("gpt-oss-120b", "hgx-h100", {"isl": 2048, "osl": 256, "engine": "trtllm"}),
    ],
)
def test_a_plan_keeps_its_promise_in_the_simulator(model, cluster, asked):
    plan = rackplan.plan(model, cluster, time_limit_s=0, tpot_ms=50, **asked)
    answer = plan.requests
    in_flight = answer.totals.requests_per_s * (answer.tpot_s * answer.osl + answer.ttft_s)
    simulation = rackplan.simulate(plan, concurrency=max(1, round(in_flight)))
    under, columns = simulation.found, simulation.columns()
    answered_s = columns["done_s"] - columns["first_s"]
    assert columns["tpot_s"] * (columns["osl"] - 1) == pytest.approx(answered_s)
    assert under.requests_per_s / answer.totals.requests_per_s == pytest.approx(1, abs=0.05)
    assert float(np.mean(under.tpot_s)) / answer.tpot_s == pytest.approx(1, abs=0.05)
