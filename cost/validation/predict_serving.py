"""What the cost model says about measured points of served models."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from cost.calibration.first_token import FirstToken
from cost.calibration.serving import calibrated
from cost.efficiency import Efficiency
from cost.quantity import Quantity
from cost.validation.point import Point, Prediction
from cost.validation.serving_groups import Group, group_points
from cost.validation.serving_times import Times, group_residual, group_times


def predict_serving(
    points: Sequence[Point],
    efficiency_of: Callable[[Group], Efficiency] | None = None,
    *,
    residual: bool = True,
) -> list[Prediction]:
    """Return a prediction for each point, in the order of ``points``; one without a value says why.

    Parameters
    ----------
    efficiency_of:
        What kernels reach on a group's machine; None: as calibrated.
    residual:
        Correct the time per token of served requests, and the throughput that follows from it, by what measured runs
        near them took over the physics. Never with ``efficiency_of``: the correction belongs to the calibration.
    """
    groups, refused = group_points(points)
    found = [refused.get(i, Prediction(None)) for i in range(len(points))]
    for group in groups:
        efficiency = efficiency_of(group) if efficiency_of else calibrated(group.gpu, group.engine)
        times = physics = group_times(group, efficiency)
        corrected = np.zeros(group.index.shape, bool)
        if residual and efficiency_of is None:
            factor, _ = group_residual(group, efficiency, physics)
            corrected = factor != 1
            times = group_times(group, efficiency, factor=factor) if corrected.any() else physics
        for position, i in enumerate(group.index.tolist()):
            if points[i].quantity == "ttft_ms" and physics.first_token is not None:
                found[i] = _first_token(physics.first_token, position)
                continue
            value = quantity_of(points[i], group, times, position)
            if not np.isfinite(value):
                found[i] = Prediction(None, "the phase has no such time")
                continue
            alone = quantity_of(points[i], group, physics, position) if corrected[position] else None
            found[i] = Prediction(value, physics=alone)
    return found


def _first_token(first: FirstToken, position: int) -> Prediction:
    """The unloaded time with its interval; where waiting dominates the interval and the reason alone."""
    reason = first.reason(position)
    return Prediction(
        None if reason else float(first.unloaded_s[position]) * 1e3,
        reason,
        float(first.low_s[position]) * 1e3,
        float(first.high_s[position]) * 1e3,
    )


def quantity_of(point: Point, group: Group, times: Times, position: int) -> float:
    """Return the value of a point's quantity in its unit, NaN where its phase has none."""

    def at(values: Quantity) -> float:
        return float(np.broadcast_to(values, group.index.shape)[position])

    if point.quantity == "tpot_ms":
        return at(times.tpot_s) * 1e3
    if point.quantity == "ttft_ms":
        return at(times.ttft_s) * 1e3
    if point.quantity == "step_ms":
        return at(times.step_s) * 1e3
    output, given = at(times.tokens_per_s), at(times.input_per_s)
    if point.phase == "decode":
        rate = output
    elif point.phase == "prefill":
        rate = given
    else:
        rate = {"output": output, "input": given}.get(point.token_kind, output + given)
    if point.token_kind == "input_cached":  # noqa: S105 - tokens of text
        rate /= 1 - point.cache_hit
    return rate / float(group.gpus[position])
