"""What layouts of any shape would gain over those that engines deploy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cost.layouts.evaluate import sweep
from cost.layouts.result import Sweep, best_at


def gain_of_any_shape(
    found: Sweep, speeds: Sequence[float] = (), *, cut_experts: bool = True
) -> tuple[float, float, str]:
    """Return the largest gain in tok/s/GPU at one of ``speeds`` per user, that speed, and the layout.

    Without ``speeds`` at any, which is 0. ``found`` was swept with the same ``cut_experts``.
    """
    deployment = replace(found.deployment, any_shape=True)
    other = sweep(deployment, imbalance=found.imbalance, speeds=speeds, cut_experts=cut_experts)
    gains = [(0.0, 0.0, "")]
    for speed in speeds or (0.0,):
        now, then = best_at(found, speed), best_at(other, speed)
        if now is not None and then is not None:
            gain = float(other.tok_s_per_gpu[then] / found.tok_s_per_gpu[now]) - 1
            gains.append((gain, speed, other.label(then)))
    return max(gains)
