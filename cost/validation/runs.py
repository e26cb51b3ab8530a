"""Measured points as runs that a correction is learned from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from cost.calibration.correction import (
    FEATURES,
    OWN_PARTS,
    PHYSICS,
    Correction,
    Runs,
    correction_with,
)
from cost.calibration.serving import calibrated
from cost.validation.predict import (
    Reach,
    Settled,
    group_points,
    quantity_of,
    unpredictable,
)
from cost.validation.read import ALLTOALL, OF_STEPS, Point
from topology.base.errors import InputError


def measured_runs(
    points: Sequence[Point],
    correction: Correction = PHYSICS,
    reach: Reach = calibrated,
) -> tuple[Runs, NDArray[np.float64], list[int]]:
    """Return the runs of points that decode, and the logarithm of what their steps took over the prediction.

    Points of prefill, of one exchange, of half batches that overlap, of first tokens, and those that do not say
    whether tokens were drafted are left out. The third are the places of the runs in ``points``.
    """
    able = [i for i, point in enumerate(points) if point.phase != ALLTOALL and not unpredictable(point)]
    groups, _ = group_points([points[i] for i in able])
    rows = []
    for group in groups:
        if group.phase == "prefill" or group.overlap:
            continue
        settled = Settled.of(group, correction, reach)
        for position, i in enumerate(group.index.tolist()):
            point = points[able[i]]
            if point.quantity not in OF_STEPS or not point.drafts_recorded:
                continue
            log = np.log(point.measured / quantity_of(point, group, settled.times, position))
            if np.isfinite(log):
                slower = -log if point.quantity == "tok_s_per_gpu" else log
                rows.append((able[i], settled.kind, settled.features[position], slower, point.engine_version))
    rows.sort(key=lambda row: row[0])
    places, kinds, features, logs, versions = zip(*rows, strict=True) if rows else ((),) * 5
    matrix = np.array(features).reshape(-1, len(FEATURES))
    runs = Runs(tuple(kinds), matrix, np.zeros(len(kinds)), versions=tuple(versions))
    return runs, np.array(logs, dtype=np.float64), list(places)


def with_own_runs(points: Sequence[Point], name: str, *, physics: bool = False) -> Correction:
    """Return the shipped correction with a user's runs on top, which say what it leaves over on the user's machines.

    Raises
    ------
    InputError
        If no point says how long a decode step of a served model took.
    """
    base = correction_with(physics=physics)
    runs, logs, _ = measured_runs(points, base)
    if not len(logs):
        raise InputError(
            f"{name}: no row has a time per token or a throughput that can be predicted; run `rackplan "
            "validate` on it for the reasons."
        )
    return replace(base, own=replace(runs, parts=OWN_PARTS).fitted(logs))
