"""What layouts of any shape would gain over those that engines deploy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cost.layouts.evaluate import sweep
from cost.layouts.result import Sweep, best_at


def gain_of_any_shape(
    base: Sweep, speeds: Sequence[float] = (), *, cut_experts: bool = True
) -> tuple[float, float, str]:
    """Return the largest gain in tok/s/GPU at one of ``speeds`` per user, that speed, and the layout.

    Without ``speeds`` at any, which is 0. ``base`` was swept with the same ``cut_experts``.
    """
    deployment = replace(base.deployment, any_shape=True)
    wider = sweep(deployment, imbalance=base.imbalance, speeds=speeds, cut_experts=cut_experts)
    gains = [(0.0, 0.0, "")]
    for speed in speeds or (0.0,):
        index, wider_index = best_at(base, speed), best_at(wider, speed)
        if index is not None and wider_index is not None:
            gain = float(wider.tok_s_per_gpu[wider_index] / base.tok_s_per_gpu[index]) - 1
            gains.append((gain, speed, wider.label(wider_index)))
    return max(gains)
