"""What a plan file holds beside the plan itself: how it fares under each load, and what one failure would do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from itertools import pairwise
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from cost.deployment import Deployment
from placement.failure_domains import domain_name
from placement.failures import AtRisk, Failures, LayerAtRisk, WhatIf
from placement.options import Objective, Spread
from placement.redundancy import RedundancyCurve
from placement.scenarios.report import ScenarioReport, ScenarioRow
from topology.errors import InputError

_Count = Annotated[int, Field(ge=0)]
_Spread = Annotated[Spread, Field()]
_Objective = Annotated[Objective, Field()]
_Fraction = Annotated[float, Field(ge=0.0, le=1.0 + 1e-9)]
_Positive = Annotated[float, Field(ge=0.0)]


class _Fields(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True, allow_inf_nan=False)


class _ScenarioRow(_Fields):
    name: str
    in_sample: _Fraction
    left_out: _Fraction | None
    worst_layer: _Fraction


class ScenarioFields(_Fields):
    """``scenarios`` of a plan file."""

    objective: _Objective
    rows: Annotated[list[_ScenarioRow], Field(min_length=1)]


class _LayerAtRisk(_Fields):
    layer: _Count
    experts: _Count
    share: _Fraction
    worst: str
    worst_experts: _Count
    worst_share: _Fraction


class _AtRisk(_Fields):
    layer: _Count
    expert: _Count
    copies: Annotated[int, Field(ge=1)]
    share: _Fraction
    domain: str


class _WhatIf(_Fields):
    unit: _Spread
    choices: Annotated[int, Field(ge=1)]
    tried: Annotated[int, Field(ge=1)]
    balancedness_mean: _Fraction
    balancedness_worst: _Fraction
    tok_s_per_gpu_mean: _Positive
    tok_s_per_gpu_worst: _Positive
    tokens_lost_mean: _Fraction
    tokens_lost_most: _Fraction
    experts_lost_most: _Count
    worst: str


class FailureFields(_Fields):
    """``failures`` of a plan file."""

    spread: _Spread
    layers: list[_LayerAtRisk]
    experts: list[_AtRisk]
    what_if: list[_WhatIf]


class _CurvePoint(_Fields):
    redundant: _Count
    slots_per_gpu: Annotated[int, Field(ge=1)]
    balancedness: _Fraction
    batch: Annotated[int, Field(ge=1)]
    max_batch: Annotated[int, Field(ge=1)]
    tok_s_per_gpu: _Positive
    tpot_s: _Positive
    expert_bytes: _Positive


class _CurveLayout(_Fields):
    ep: Annotated[int, Field(ge=1)]
    tp: Annotated[int, Field(ge=1)]
    stages: Annotated[int, Field(ge=1)]


class RedundancyFields(_Fields):
    """``redundancy`` of a plan file."""

    layout: _CurveLayout
    points: Annotated[list[_CurvePoint], Field(min_length=1)]


def scenarios_to_dict(report: ScenarioReport) -> dict[str, Any]:
    """Return how a plan fares under each load, as the plan file holds it."""
    return {
        "objective": report.objective,
        "in_sample": report.in_sample,
        "left_out": report.left_out,
        "rows": [asdict(row) for row in report.rows],
    }


def failures_to_dict(failures: Failures) -> dict[str, Any]:
    """Return what one failure would do, as the plan file holds it."""
    return {
        "spread": failures.spread,
        "experts_at_risk": failures.experts_at_risk,
        "share_at_risk": failures.share_at_risk,
        "what_if": [asdict(row) for row in failures.what_if],
        "experts": [asdict(row) for row in failures.experts],
        "layers": [asdict(row) for row in failures.layers],
    }


def read_scenarios(fields: ScenarioFields | None, names: Iterable[str]) -> ScenarioReport | None:
    """Return what :func:`scenarios_to_dict` wrote, of loads with these names.

    Raises
    ------
    InputError
        If it is of other loads.
    """
    if fields is None:
        return None
    rows = tuple(ScenarioRow(**row.model_dump()) for row in fields.rows)
    found, wanted = [row.name for row in rows], list(names)
    if found != wanted:
        raise InputError(
            f"scenarios.rows: of {', '.join(found)}, but inputs.loads are {', '.join(wanted) or 'none'}."
        )
    return ScenarioReport(fields.objective, rows)


def read_failures(fields: FailureFields | None, deployment: Deployment) -> Failures | None:
    """Return what :func:`failures_to_dict` wrote, of a plan in this deployment.

    Raises
    ------
    InputError
        If it names a layer, an expert, a GPU, a node or a rack that there is not.
    """
    if fields is None:
        return None
    _check_names(fields, deployment)
    moe = deployment.model.moe
    known = set(deployment.model.moe_layers)
    layers = {
        "layers": [row.layer for row in fields.layers],
        "experts": [row.layer for row in fields.experts],
    }
    for key, numbers in layers.items():
        for place, layer in enumerate(numbers):
            if layer not in known:
                raise InputError(
                    f"failures.{key}.{place}.layer: {deployment.model.name} has no experts in layer {layer}."
                )
    for place, named in enumerate(fields.experts):
        if moe is None or named.expert >= moe.experts:
            raise InputError(f"failures.experts.{place}.expert: there is no expert {named.expert}.")
    return Failures(
        fields.spread,
        tuple(LayerAtRisk(**row.model_dump()) for row in fields.layers),
        tuple(AtRisk(**row.model_dump()) for row in fields.experts),
        tuple(WhatIf(**row.model_dump()) for row in fields.what_if),
    )


def read_redundancy(fields: RedundancyFields | None) -> RedundancyCurve | None:
    """Return the curve that :meth:`placement.redundancy.RedundancyCurve.to_dict` wrote.

    Raises
    ------
    InputError
        If its points are not by rising number of copies.
    """
    if fields is None:
        return None
    from placement.redundancy import RedundancyCurve, RedundancyPoint

    copies = [point.redundant for point in fields.points]
    if any(after <= before for before, after in pairwise(copies)):
        raise InputError(f"redundancy.points: {copies} copies; expected rising numbers.")
    points = tuple(RedundancyPoint(**point.model_dump()) for point in fields.points)
    return RedundancyCurve(points, **fields.layout.model_dump())


def _check_names(fields: FailureFields, deployment: Deployment) -> None:
    """Refuse ids that the cluster does not have; a layer without experts at risk names none."""
    named: list[tuple[str, Spread, str]] = [
        *(
            (f"layers.{i}.worst", fields.spread, row.worst)
            for i, row in enumerate(fields.layers)
            if row.worst
        ),
        *((f"experts.{i}.domain", fields.spread, row.domain) for i, row in enumerate(fields.experts)),
        *((f"what_if.{i}.worst", row.unit, row.worst) for i, row in enumerate(fields.what_if)),
    ]
    known: dict[Spread, set[str]] = {}
    for place, spread, name in named:
        if spread not in known:
            known[spread] = {domain_name(gpu, spread) for gpu in deployment.cluster.gpus}
        if name not in known[spread]:
            raise InputError(f"failures.{place}: {name!r} is no {spread} of {deployment.cluster.name}.")
