"""What a plan file says of its own figures, against those that follow from its inputs and its placement.

The file's are never used. Where they differ somebody edited the file, or another version wrote it, and who reads the
file alone is misled.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from placement.plan import Plan, Proof
from placement.plans.writing import plan_score_to_dict
from placement.scoring import placement_proof
from topology.base.reading import shown

_ROUNDING = 1e-6
"""Relative: sums may be rounded in another way on another machine."""
_SHOWN = 3
"""Figures that are named; of more their number is."""
_RATES = ("tok_s_per_gpu", "tok_s_per_gpu_used", "tok_s_per_user")
_WHATEVER_STEP = ("tokens", "tokens_per_step", "hbm_bytes", "batch_per_gpu", "max_batch_per_gpu")


def held_against(plan: Plan, stored: object, where: str) -> Plan:
    """Return a plan that was read from ``where`` with the figures that its file has wrong, in words.

    ``plan`` is scored again, and has the proof of the file; that is computed again where it is wrong. ``stored`` is
    the ``score`` of the file.
    """
    score = _inside(stored)
    computed: dict[str, Any] = {**plan_score_to_dict(plan)} if score else {}
    traced = bool(_inside(score.get("traffic")).get("routing"))
    if traced:
        computed = _without_traces(score, computed)
    wrong_proof = [] if traced else [*_of_proof(plan)]
    differences = [*_different("score", score, computed), *wrong_proof]
    if not differences:
        return plan
    rest = f" and {len(differences) - _SHOWN} more" if len(differences) > _SHOWN else ""
    words = (
        f"{where}: stored figures differ from those computed again: {', '.join(differences[:_SHOWN])}{rest}; the "
        "file was edited, or is from another version of rackplan, and the computed ones are used"
    )
    return replace(plan, differences=words, proof=_proof_again(plan) if wrong_proof else plan.proof)


def _without_traces(stored: dict[str, Any], computed: dict[str, Any]) -> dict[str, Any]:
    """Return what can be computed of a score with routing traces, which no file holds: its parts are taken as stored.

    A rate is so much work over the time of a step, whatever that is.
    """
    terms = _inside(stored.get("terms_s")).values()
    step_s = math.fsum(seconds for seconds in terms if isinstance(seconds, float))
    work = {key: computed[key] * computed["step_s"] for key in _RATES}
    rates = {key: amount / step_s for key, amount in work.items()} if step_s else {}
    return {"step_s": step_s, **rates, **{key: computed[key] for key in _WHATEVER_STEP}}


def _inside(value: object) -> dict[str, Any]:
    """Return a mapping of a file; empty where something else is there."""
    return value if isinstance(value, dict) else {}


def _different(where: str, stored: object, computed: object) -> Iterator[str]:
    """Yield the figures of ``computed`` that are not as stored."""
    if isinstance(computed, Mapping) and isinstance(stored, Mapping):
        for key, value in computed.items():
            yield from _different(f"{where}.{key}", stored.get(key), value)
    elif isinstance(computed, list | tuple) and isinstance(stored, list) and len(computed) == len(stored):
        for place, value in enumerate(computed):
            yield from _different(f"{where}[{place}]", stored[place], value)
    elif not _same(stored, computed):
        yield f"{where} {_short(stored)} (computed {_short(computed)})"


def _same(stored: object, computed: object) -> bool:
    if isinstance(computed, float) and isinstance(stored, float):
        return math.isclose(stored, computed, rel_tol=_ROUNDING)
    return stored == computed


def _short(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else "absent" if value is None else shown(value)


def _of_proof(plan: Plan) -> Iterator[str]:
    """Yield what the file's proof says that is not so.

    A search may prove a higher bound than the one that is quickly computed, as far as the objective.
    """
    proof, quick = plan.proof, _proof_again(plan)
    yield from _different("proof.objective", proof.objective, quick.objective)
    if proof.bound < quick.bound * (1 - _ROUNDING):
        yield from _different("proof.bound", proof.bound, quick.bound)
    elif proof.bound > quick.bound * (1 + _ROUNDING):
        priced = _proof_again(plan, priced=True)
        if proof.bound > priced.bound * (1 + _ROUNDING):
            yield from _different("proof.bound", proof.bound, priced.bound)
    gap = max(0.0, 1 - proof.bound / quick.objective)
    if abs(proof.gap - gap) > _ROUNDING:
        yield from _different("proof.gap", proof.gap, gap)
    if proof.status == "OPTIMAL" and gap > _ROUNDING:
        yield from _different("proof.status", proof.status, quick.status)


def _proof_again(plan: Plan, *, priced: bool = False) -> Proof:
    """Return the proof of the placement; ``priced``: with the highest bound that a search may have proven."""
    if plan.loads is None or not plan.parts():
        return Proof("OPTIMAL", 1.0, 1.0, 0.0)
    return placement_proof(plan, priced=priced)
