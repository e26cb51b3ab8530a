"""What engines do by default while they serve: nothing, vLLM's and SGLang's expert load balancers.

Both engines place afresh by EPLB (:mod:`placement.experts.baselines`), hierarchically where the model's expert
groups divide over the nodes; neither asks where copies lie now, but vLLM leaves those that stay on a GPU in their
slot.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from placement.arrays import Experts, Floats
from placement.experts.baselines import Baseline, eplb_global, eplb_hierarchical
from placement.online.policy import Group
from topology.base.errors import InputError, input_name

VLLM_STEPS, VLLM_WINDOW = 3000, 1000
"""vLLM 0.33.0: ``step_interval`` and ``window_size`` of ``--eplb-config``."""
SGLANG_STEPS = 1000
"""SGLang 0.5.23: ``--eplb-rebalance-num-iterations``."""


class Static:
    """Nothing moves."""

    def __init__(self, group: Group) -> None:
        del group

    def observe(self, window: Floats) -> None:
        """Ignore the window."""

    def place(self, old: Experts) -> Experts:
        """Return the old placement."""
        return old


class Eplb:
    """EPLB on the sum of the last ``windows`` windows.

    Raises
    ------
    InputError
        If GPUs have unequal numbers of slots, which EPLB does not know.
    """

    def __init__(self, group: Group, windows: int) -> None:
        if not group.equal_slots:
            raise InputError(
                f"EPLB places the same number of copies on each GPU; {group.slot_gpu.size} slots are "
                f"unequal over {group.gpus} GPUs: choose {input_name('redundant')} so that they divide."
            )
        self._group = group
        self._seen: deque[Floats] = deque(maxlen=windows)

    def observe(self, window: Floats) -> None:
        """Keep the window."""
        self._seen.append(window)

    def place(self, old: Experts) -> Experts:
        """Return EPLB's placement of what was seen."""
        problem = self._group.problem(np.sum(self._seen, axis=0))
        nodes, groups = int(np.unique(self._group.nodes).size), self._group.expert_groups
        baseline = Baseline(None)
        if nodes > 1 and groups % nodes == 0:
            baseline = eplb_hierarchical(problem, groups=groups, nodes=nodes)
        if baseline.assignment is None:
            baseline = eplb_global(problem)
        placed = (
            old if baseline.assignment is None else baseline.assignment.slot_expert
        )  # slots are equal, so it applies
        return self._group.kept_in_place(old, placed)
