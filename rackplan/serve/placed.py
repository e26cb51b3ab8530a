"""What the page shows of a plan: line to forward, figures, pictures and drawing; of a loss what is left of it."""

from __future__ import annotations

from typing import Any

from cost.calibration.errors import errors_in
from placement.migrate.replan import Replanned
from placement.plan import Plan
from rackplan.results import svg
from rackplan.serve.point import picture_data
from rackplan.views.blocks import Diagram, ExpertMap, Text
from rackplan.views.explain import explain_plan, verdict
from rackplan.views.money import dollars, rate_words
from rackplan.views.pictures.experts import expert_map
from rackplan.views.pictures.memory import memory_picture
from rackplan.views.pictures.step import step_picture
from rackplan.views.replan import replan_section
from rackplan.views.words import baseline_name, limit_words, range_words, sentence
from topology.base.units import mean_of


def plan_data(plan: Plan, *, command: str) -> dict[str, Any]:
    """Return a plan as the page shows it."""
    deployment = plan.deployment
    return {
        "title": f"{deployment.model.name} on {deployment.cluster.name}",
        "verdict": " ".join(filter(None, [sentence(limit_words(plan)), verdict(plan)])),
        "figures": figures(plan),
        "baselines": _baselines(plan),
        "pictures": [picture_data(one) for one in _pictures(plan)],
        "svg": svg(plan) or "",
        "command": command,
        "interrupted": plan.interrupted,
        "experts": bool(plan.balancedness),
        "gpus": len(deployment.cluster.gpus),
    }


def loss_data(found: Replanned, before: Plan, lost: tuple[str, ...], *, command: str) -> dict[str, Any]:
    """Return what is left of a plan where something is lost, re-planned in few moves, beside the plan before."""
    said = [one.text for one in replan_section(found) if isinstance(one, Text)]
    return plan_data(found.plan, command=command) | {
        "lost": list(lost),
        "lost_gpus": found.lost_gpus,
        "lost_copies": found.lost_copies,
        "moves": found.moves,
        "copies": found.copies,
        "bytes": found.bytes,
        "said": said,
        "before": figures(before),
    }


def figures(plan: Plan) -> list[dict[str, Any]]:
    """Return the figures of a plan: what, the number for differences, and how it is said."""
    score, totals = plan.score, plan.totals
    rows: list[tuple[str, float | None, str]] = [
        (f"{score.tokens} tok/s per user", score.tok_s_per_user, f"{score.tok_s_per_user:,.1f}"),
        (f"{score.tokens} tok/s per GPU", score.tok_s_per_gpu, f"{score.tok_s_per_gpu:,.0f}"),
        ("tok/s of all GPUs", totals.tok_s, f"{totals.tok_s:,.0f}"),
    ]
    if band := range_words(score.tok_s_per_gpu, errors_in(plan.deployment, plan.layout)):
        rows.insert(2, ("80% range of tok/s per GPU", None, band))
    if totals.usd_per_million_tokens is not None:
        rows.append(
            ("$ per million tokens", totals.usd_per_million_tokens, dollars(totals.usd_per_million_tokens))
        )
    if totals.tok_s_per_mw is not None:
        rows.append(("tok/s per MW", totals.tok_s_per_mw, rate_words(totals.tok_s_per_mw)))
    rows += [
        ("step, ms", score.step_s * 1e3, f"{score.step_s * 1e3:,.2f}"),
        ("step at best, ms", score.lower_step_s * 1e3, f"{score.lower_step_s * 1e3:,.2f}"),
        ("sequences per GPU", score.batch, f"{score.batch:,}"),
        ("most that fit", score.max_batch, f"{score.max_batch:,}"),
        ("bound by", None, score.bound_by),
    ]
    if plan.balancedness:
        balanced = mean_of(plan.balancedness.values())
        proof = plan.proof
        rows += [
            ("balancedness", balanced, f"{balanced:.4f}"),
            ("largest over mean GPU load", proof.objective, f"{proof.objective:.4f}"),
            ("none can be below", proof.bound, f"{proof.bound:.4f}, gap {proof.gap:.2%}"),
        ]
    return [{"what": what, "value": value, "said": said} for what, value, said in rows]


def _baselines(plan: Plan) -> list[dict[str, Any]]:
    """Return what engines would do without us, under the same loads, layout and batch."""
    return [
        {
            "name": baseline_name(name),
            "balancedness": mean_of(entry.balancedness.values()) if entry.balancedness else None,
            "tok_s_per_gpu": entry.score.tok_s_per_gpu if entry.score else None,
            "reason": entry.reason,
        }
        for name, entry in plan.baselines.items()
    ]


def _pictures(plan: Plan) -> list[Diagram | ExpertMap]:
    experts = expert_map(plan)
    others: list[Diagram | ExpertMap] = [step_picture(explain_plan(plan)), memory_picture(plan)]
    return others if experts is None else [experts, *others]
