"""Scores of whole layouts: by hand, what must never happen, and what does not fit."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost.inputs.machine import PEAK
from cost.step.step import batch_cost
from topology import Evidence, InfeasibleError, InputError


def test_the_slowest_replica_sets_the_step_and_each_its_own_throughput(toy):
    cluster = toy.cluster(4, toy.domain(4, chip=toy.gpu(hbm_rate=5e11)))
    where = toy.deployment(cluster)
    rows = [[(range(start, start + 4), range(3))] for start in (0, 4)]
    fast, slow = (toy.scorer(where, toy.layout(row)).at(2) for row in rows)
    both = toy.scorer(where, toy.layout(*rows)).at(2)
    assert fast.tok_s_per_gpu_used == pytest.approx(2 * fast.tok_s_per_gpu) == pytest.approx(2 / fast.step_s)
    assert slow.step_s > fast.step_s
    assert both.step_s == slow.step_s
    assert both.tok_s_per_gpu * 8 == pytest.approx(8 / fast.step_s + 8 / slow.step_s)


def test_two_stages_by_hand(toy):
    # Stages of 4 and 2 GPUs in two domains, 6 sequences a batch in two micro-batches of 3 x batch: 4.5 tokens a GPU
    # on the first stage and 9 on the second at batch 6.
    where = toy.deployment(toy.cluster(4, 2), batch=6)
    layout = toy.layout([(range(4), range(2)), (range(4, 6), range(2, 3))])
    uses = toy.uses(where, layout)[0]
    score = toy.scorer(where, layout).at(6)
    seconds = [
        float(batch_cost(where, stage, tokens, use, last=last, tp=1).total_s)
        for stage, tokens, use, last in zip(layout.replicas[0], (4.5, 9.0), uses, (False, True), strict=True)
    ]
    # 9 vectors of 128 bytes enter each GPU of the smaller stage, 9 tokens of 4 bytes leave it; 10 GB/s
    hops = (9 * 128 + 9 * 4) / 1e10
    assert score.terms_s["pipeline_hops"] == pytest.approx(hops)
    assert score.step_s == pytest.approx(max(2 * max(seconds), sum(seconds) + hops))
    bubble = max(0, 2 * max(seconds) - sum(seconds) - hops)
    assert score.terms_s.get("pipeline_bubble", 0.0) == pytest.approx(bubble)
    assert score.tok_s_per_gpu * 6 == pytest.approx(36 / score.step_s)


def test_evidence_is_the_weakest_in_use(toy):
    projected = toy.gpu(kind=Evidence.PROJECTED)
    plain, odd = toy.cluster(4, 4), toy.cluster(4, toy.domain(4, chip=projected))
    half = toy.layout([(range(4), range(3))])

    def evidence(cluster, layout=None, *, efficiency=PEAK, synthetic=False):
        where = toy.deployment(cluster, efficiency=efficiency)
        return toy.scorer(where, layout, synthetic=synthetic).at(1).evidence

    assert evidence(plain) is Evidence.DATASHEET
    assert evidence(odd) is Evidence.PROJECTED
    assert evidence(odd, half) is Evidence.DATASHEET  # the projected GPUs stay idle
    guessed = toy.cluster(4, 4, kind=Evidence.PROJECTED)  # the rate of the fabric between the domains
    assert evidence(guessed) is Evidence.PROJECTED
    assert evidence(guessed, half) is Evidence.DATASHEET
    lossy = toy.coefficients(ideal=False)
    assumed = replace(lossy, table={**lossy.table, "overlap": toy.figure(0.5, "1", Evidence.ASSUMED)})
    assert evidence(plain, efficiency=assumed) is Evidence.ASSUMED
    assert evidence(plain, synthetic=True) is Evidence.ASSUMED


CASES = st.fixed_dictionaries(
    {
        "sizes": st.sampled_from([(4,), (2, 2), (2, 4), (4, 4, 2)]),
        "kind": st.sampled_from(["whole", "stages", "replicas"]),
        "tp": st.sampled_from([1, 2]),
        "moe": st.integers(0, 2),
        "precision": st.sampled_from(["bf16", "fp8", "nvfp4"]),
        "kernels": st.sampled_from(["peak", "fitted", "lossy"]),
        "batch": st.integers(1, 300),
        "context": st.sampled_from([1, 100, 4096]),
        "peak": st.sampled_from([1e11, 1e14]),  # with the first of them the flop bind
        "asked": st.sampled_from(
            [{}, {"draft_tokens": 2, "accept_length": 2.5}, {"overlap": True}, {"phase": "prefill"}]
        ),
    }
)
"""Domains alike or not, one stage over all, a stage or a replica on each domain, experts or none."""


def score_of(toy, case):
    """Score a case of three layers; domains that differ have no replicas."""
    chip = toy.gpu(hbm=1e11, bf16=case["peak"], fp8=2 * case["peak"])
    cluster = toy.cluster(*(toy.domain(size, chip=chip) for size in case["sizes"]))
    lossy = toy.coefficients(ideal=False, prompts__gemm=1, prompts__scores=1, prompts__experts=1)
    given = {"context": case["context"], "batch": case["batch"], **case["asked"]}
    given["efficiency"] = {"peak": PEAK, "fitted": toy.fitted(), "lossy": lossy}[case["kernels"]]
    model = toy.model(dense=3 - case["moe"], moe=case["moe"], precision=case["precision"])
    starts = np.cumsum([0, *case["sizes"]]).tolist()
    rows = [[(range(starts[-1]), range(3))]]
    if case["kind"] == "replicas" and len(set(case["sizes"])) == 1:
        rows = [[(range(a, b), range(3))] for a, b in pairwise(starts)]
    elif case["kind"] == "stages":
        cuts = [round(3 * i / len(case["sizes"])) for i in range(len(starts))]
        rows = [
            [(range(*gpus), range(*run)) for gpus, run in zip(pairwise(starts), pairwise(cuts), strict=True)]
        ]
    return toy.scorer(toy.deployment(cluster, model, **given), toy.layout(*rows, tp=case["tp"])).at(
        case["batch"]
    )


@settings(max_examples=30)
@given(case=CASES)
def test_what_holds_of_every_score(toy, case):
    score = score_of(toy, case)
    assert 0 < score.lower_step_s <= score.step_s * (1 + 1e-9)
    assert sum(score.terms_s.values()) == pytest.approx(score.step_s)
    assert sum(score.limits_s.values()) == pytest.approx(score.step_s)
    assert sum(score.parts_s.values()) == pytest.approx(score.step_s)
    assert min(*score.terms_s.values(), *score.limits_s.values(), *score.parts_s.values()) >= 0
    for term, seconds in score.terms_s.items():
        assert sum(s for (name, _), s in score.parts_s.items() if name == term) == pytest.approx(seconds)
    assert max(score.floor_s.values()) <= score.lower_step_s * (1 + 1e-9)
    assert {limit for _, limit in score.parts_s} == set(score.limits_s)
    assert score.limits_s[score.bound_by] == max(score.limits_s.values())
    assert sum(score.hbm_bytes.values()) == pytest.approx(1e11)
    assert score.hbm_bytes["free"] >= 0
    assert score.tok_s_per_gpu <= score.tok_s_per_gpu_used * (1 + 1e-12)
    prefill, drafts = "phase" in case["asked"], "draft_tokens" in case["asked"]
    gained = case["context"] if prefill else 2.5 if drafts else 1.0
    assert score.tok_s_per_user * score.step_s == pytest.approx(gained)
    assert score.tok_s_per_gpu_used * score.step_s == pytest.approx(gained * case["batch"])
    assert score.tokens == ("input" if prefill else "output")
    assert score.tpot_s == pytest.approx(score.step_s / (2.5 if drafts else 1.0))


@settings(max_examples=8)
@given(st.integers(1, 3_000), st.sampled_from([1e7, 1e8, 1e9]), st.integers(0, 2), st.booleans())
def test_the_largest_batch_fits_and_one_more_does_not(toy, context, hbm, moe, staged):
    cluster = toy.cluster(*(toy.domain(2, chip=toy.gpu(hbm=hbm)) for _ in range(2)))
    where = toy.deployment(cluster, toy.model(dense=2, moe=moe), context=context)
    layers = len(where.model.layers)
    layout = toy.layout([((0, 1), range(1)), ((2, 3), range(1, layers))]) if staged else None
    scorer = toy.scorer(where, layout)
    largest = scorer.max_batch
    assert largest >= 1
    assert scorer.at(largest).hbm_bytes["free"] >= -1e-6
    with pytest.raises(InfeasibleError, match=f"the largest .*is {largest}"):
        scorer.at(largest + 1)
    with pytest.raises(InputError, match="`batch` 0: "):
        scorer.at(0)
