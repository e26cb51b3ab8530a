"""Options of a plan besides cluster, model and workload."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeVar, get_args

from cost.experts.dispatch import DispatchPolicy, rank_tp, require_policy
from cost.inputs.layout import Layout
from cost.inputs.workload import Workload
from topology.base.errors import InputError, input_name
from topology.base.figures import Evidence, Figure

Spread = Literal["gpu", "node", "rack"]
SPREADS: tuple[Spread, ...] = get_args(Spread)
"""What may fail at once: a GPU, all GPUs of a node, all of a rack."""

Objective = Literal["mean", "worst"]
OBJECTIVES: tuple[Objective, ...] = get_args(Objective)
"""What counts over several loads: the mean, or the worst of them."""

Goal = Literal["throughput", "latency", "gpus", "usd", "power"]
GOALS: tuple[Goal, ...] = get_args(Goal)
"""What a layout is chosen for: most tokens per second, least time per token, fewest GPUs, least cost or energy of a
token."""

AUTO: Literal["auto"] = "auto"
NO_LIMIT: Literal["none"] = "none"
OFF: Literal["off"] = "off"

TOLERANCE = 0.02
"""Errors of the estimate are the same for layouts on one machine and cancel for the most part: what is left of a
difference this small is no reason for a layout that is harder to run."""

USUAL_TPOT = Figure(
    0.05,
    "s",
    Evidence.ASSUMED,
    "DeepSeek, inference system overview of V3 and R1, March 2025: 20 to 22 output tokens/s for a user on average",
    "20 tok/s/user",
)
"""Longest time per output token where nobody says."""

_Word = TypeVar("_Word", Spread, Objective, Goal)


def require_objective(objective: str) -> Objective:
    """Return ``objective`` if it is known; InputError if it is not."""
    return _known("objective", objective, OBJECTIVES)


def _known(name: str, word: str, words: tuple[_Word, ...]) -> _Word:
    for known in words:
        if word == known:
            return known
    *leading, final = words
    raise InputError(f"expected {', '.join(leading)} or {final}.", field=name, value=word)


@dataclass(frozen=True)
class ServiceLevel:
    """Limits that a layout must meet.

    Attributes
    ----------
    limit_s:
        Longest time per output token (prefill: of a step), in seconds; None for no limit.
    usual:
        Whether nobody asked for that: it gives way where no layout holds it.
    first_s:
        Decode: longest time to the first token of one prompt alone, in seconds; None for no limit.
    """

    limit_s: float | None = None
    usual: bool = False
    first_s: float | None = None


@dataclass(frozen=True)
class PlanOptions:
    """Options of the planner.

    Attributes
    ----------
    redundant:
        Extra copies per layer above one of each expert; None for the fewest that make the slots divisible;
        ``auto`` for as many as give most throughput (:mod:`placement.analysis.redundancy`).
    tpot_s:
        Longest time per output token, in seconds; ``none`` for no limit; None: of decode that of
        :data:`placement.options.USUAL_TPOT`, as far as a layout holds it and no batch is asked for.
    time_limit_s:
        Seconds of search for the experts' placement after the fast path; 0 for the reproducible fast path alone; None
        for as long as it is worth (:func:`placement.experts.solve.worth_searching`).
    seed:
        Seed of synthetic loads and of the search.
    ep, tp, stages:
        GPUs that one layer's experts are spread over, tensor-parallel width and pipeline stages; None leaves
        them to the search.
    tolerance:
        Of layouts within this fraction of the best by the goal the simplest is taken; 0 takes the best.
    spread:
        Failure domain: the copies of an expert lie in different GPUs, nodes or racks.
    objective:
        Over several loads: the mean or the worst of the largest over mean GPU load.
    split:
        How the engine splits an expert's tokens over its copies (:data:`cost.experts.dispatch.DISPATCH_POLICIES`);
        ``quota`` with the slots of :attr:`cost.inputs.workload.Workload.quota_slots`.
    goal:
        What the layout is chosen for (:data:`placement.options.GOALS`).
    ttft_s:
        Longest time to the first token, in seconds: of decode a prompt of the context's length that is prefilled
        alone on the same GPUs, of prefill the step; None for no limit.
    afd:
        Attention apart from the experts (:mod:`placement.layouts.apart`): ``off``, ``auto`` where that is better, or
        GPUs of both, ``48:24``.
    """

    redundant: int | Literal["auto"] | None = None
    tpot_s: float | Literal["none"] | None = None
    time_limit_s: float | None = None
    seed: int = 0
    ep: int | None = None
    tp: int | None = None
    stages: int | None = None
    tolerance: float = TOLERANCE
    spread: Spread = "gpu"
    objective: Objective = "mean"
    split: DispatchPolicy = "even"
    goal: Goal = "throughput"
    ttft_s: float | None = None
    afd: str = OFF

    def service_level(self, workload: Workload) -> ServiceLevel:
        """Return the limits of a plan for ``workload``.

        Raises
        ------
        InputError
            If a time per output token is asked of prefill, or the least latency at a given batch; if there are quota
            slots for another split, or none for ``quota``.
        """
        slots = workload.quota_slots
        if (self.split == "quota") != (slots > 0):
            raise InputError(
                f"{input_name('split')} quota and 1 slot or more go together.",
                field="quota_slots",
                value=slots,
            )
        tpot_s = None if self.tpot_s == NO_LIMIT else self.tpot_s
        if self.goal == "latency" and workload.batch:
            raise InputError(
                f"{input_name('goal')} latency and {input_name('batch')} {workload.batch}: the goal sets "
                "the batch; leave one out."
            )
        if not workload.decodes:
            if tpot_s is not None:
                raise InputError(
                    f"prefill yields no output tokens; limit its step by {input_name('ttft_ms')}.",
                    field="tpot_ms",
                    value=f"{tpot_s * 1e3:g}",
                )
            return ServiceLevel(self.ttft_s)
        usual = self.tpot_s is None and not workload.batch and self.goal != "latency"
        return ServiceLevel(USUAL_TPOT.value if usual else tpot_s, usual, self.ttft_s)

    @property
    def copies(self) -> int | None:
        """Extra copies asked for; None where they are left to a rule."""
        return None if self.redundant == AUTO else self.redundant

    @property
    def widths(self) -> dict[str, int]:
        """Widths asked for by name: of ``ep``, ``tp`` and ``stages``."""
        values = {"ep": self.ep, "tp": self.tp, "stages": self.stages}
        return {name: value for name, value in values.items() if value is not None}

    @property
    def prefill_split(self) -> DispatchPolicy:
        """How tokens of a pool that prefills choose copies: not by the ranks of the pool that decodes."""
        return self.split if rank_tp(self.split) is None else "even"

    @property
    def cuts_experts(self) -> bool:
        """Whether tensor parallelism is to cut each expert over all GPUs of a stage."""
        return self.ep == 1

    def admits(self, layout: Layout) -> bool:
        """Whether a layout matches the request; experts that are cut are cut over as many GPUs as attention is."""
        if self.ep == 1 and self.tp is not None and layout.moe_tp != self.tp:
            return False
        return all(getattr(layout, name) == value for name, value in self.widths.items())

    def __post_init__(self) -> None:
        for name, count in (("ep", self.ep), ("tp", self.tp), ("stages", self.stages)):
            if count is not None and count < 1:
                raise InputError("expected a whole number of at least 1.", field=name, value=count)
        if not 0 <= self.tolerance < 1:
            raise InputError(
                "expected a fraction, 0 or more and below 1.", field="tolerance", value=f"{self.tolerance:g}"
            )
        if self.copies is not None and (not isinstance(self.copies, int) or self.copies < 0):
            raise InputError(
                "expected a number of extra copies, 0 or more, or auto.",
                field="redundant",
                value=self.redundant,
            )
        _known("spread", self.spread, SPREADS)
        for name, extra in (
            ("redundant", self.redundant),
            ("spread", self.spread != "gpu" and self.spread),
            ("split", self.split == "quota" and self.split),
        ):
            if self.ep == 1 and extra:
                raise InputError(
                    f"with {input_name('ep')} 1 no expert has copies; leave one of the two out.",
                    field=name,
                    value=extra,
                )
        require_objective(self.objective)
        object.__setattr__(self, "tp", _tensor_parallel(require_policy(self.split), self.tp))
        _known("goal", self.goal, GOALS)
        if isinstance(self.tpot_s, str) and self.tpot_s != NO_LIMIT:
            raise InputError("expected milliseconds, or none.", field="tpot_ms", value=self.tpot_s)
        for name, value, least in (
            ("tpot_ms", None if isinstance(self.tpot_s, str) else self.tpot_s, math.ulp(0.0)),
            ("ttft_ms", self.ttft_s, math.ulp(0.0)),
            ("time_limit_s", self.time_limit_s, 0.0),
        ):
            if value is not None and (not math.isfinite(value) or value < least):
                expected = "0 or more seconds" if least == 0.0 else "a number above 0"
                raise InputError(f"expected {expected}, not {value:g}.", field=name)
        if self.seed < 0:
            raise InputError("expected a whole number of at least 0.", field="seed", value=self.seed)


def _tensor_parallel(split: DispatchPolicy, tp: int | None) -> int | None:
    """Return the tensor parallelism that is asked for: where ranks choose copies by number, the split says it."""
    width = rank_tp(split)
    if width is not None and tp not in (None, width):
        raise InputError(
            f"for attention with tensor parallelism {width}, but {input_name('tp')} is {tp}.",
            field="split",
            value=split,
        )
    return tp if width is None else width
