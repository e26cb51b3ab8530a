"""Layouts of any shape beside those that engines deploy; a sweep without a layout says what is lacking."""

from __future__ import annotations

import pytest

from cost.inputs.deployment import Deployment
from cost.inputs.workload import Workload
from cost.layouts import best_at, sweep
from cost.layouts.any_shape import gain_of_any_shape
from cost.resolve import resolve_model
from topology import resolve_cluster
from topology.base.errors import InfeasibleError


def test_the_gain_is_that_of_the_best_of_any_shape() -> None:
    found = sweep(Deployment(resolve_cluster("hgx-h100"), resolve_model("mixtral-8x7b"), Workload()))
    gain, speed, label = gain_of_any_shape(found, (20.0, 100.0))
    assert gain >= 0
    assert not label or (speed in (20.0, 100.0) and best_at(found, speed) is not None)
    assert gain_of_any_shape(found, (1e9,)) == (0.0, 0.0, "")  # which nothing reaches


def test_a_sweep_without_a_layout_says_what_is_lacking() -> None:
    there = Deployment(resolve_cluster("hgx-h100"), resolve_model("deepseek-v3"), Workload())
    with pytest.raises(
        InfeasibleError, match=r"no layout of deepseek-v3 on hgx-h100 .* the closest lacks [0-9.]+ GB"
    ):
        sweep(there).that_fits()
    fits = sweep(Deployment(there.cluster, resolve_model("mixtral-8x7b"), Workload()))
    assert fits.that_fits() is fits
