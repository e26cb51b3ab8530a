"""Refusals of what is too large to plan for, before anything heavy is done: what was asked, the limit, what fits."""

from __future__ import annotations

import math

from topology.errors import InputError
from topology.limits import (
    DRAWN_PAIRS,
    GPUS,
    LAYER_EXPERTS,
    LAYER_GPUS,
    LISTED_GPUS,
    LOAD_NUMBERS,
    PLAN_COPIES,
    PLANNED_NUMBERS,
    PLANNED_SCENARIOS,
    REPLAY_WORK,
    TOK_S,
    WHOLE,
)
from topology.reading import shown


def check_whole(value: object, name: str) -> None:
    """Refuse a whole number that is asked for beyond :data:`topology.limits.WHOLE`; what is none is not looked at.

    Raises
    ------
    InputError
        If it is.
    """
    if isinstance(value, int) and abs(value) > WHOLE:
        raise InputError(f"{name} {shown(value)}: has more than {len(str(WHOLE))} digits.")


def check_listed_gpus(gpus: int, where: str) -> None:
    """Refuse a cluster that lists more GPUs one by one than :data:`topology.limits.LISTED_GPUS`.

    Raises
    ------
    InputError
        If it does.
    """
    if gpus > LISTED_GPUS:
        raise InputError(
            f"{where}: nodes: {gpus:,} GPUs listed one by one; at most {LISTED_GPUS:,} are supported. What "
            f"`domains:` and `fabric:` can say may have up to {GPUS:,}."
        )


def check_tok_s(tok_s: float) -> None:
    """Refuse to plan for more output tokens per second than :data:`topology.limits.TOK_S`.

    Raises
    ------
    InputError
        If they are more.
    """
    if tok_s > TOK_S:
        raise InputError(f"`tok_s` {tok_s:g}: expected at most {TOK_S:g} output tokens/s.")


def check_peak(tok_s: float, utilization: float) -> None:
    """Refuse a mean of ``tok_s`` whose peak, at a utilization above 0, is more than :data:`topology.limits.TOK_S`.

    Raises
    ------
    InputError
        If it is more.
    """
    if tok_s > TOK_S * utilization:
        raise InputError(
            f"`utilization` {utilization:g}: the peak of {tok_s:g} output tokens/s would be above {TOK_S:g}."
        )


def check_layer_gpus(layers: int, gpus: int, model: str, cluster: str) -> None:
    """Refuse a model on a cluster whose layers times GPUs are beyond :data:`topology.limits.LAYER_GPUS`.

    Raises
    ------
    InputError
        If they are; it says how many GPUs would fit.
    """
    if layers * gpus > LAYER_GPUS:
        raise InputError(
            f"{model} on {cluster}: {layers:,} layers x {gpus:,} GPUs are {layers * gpus:,}, and at most "
            f"{LAYER_GPUS:,} are supported; with so many layers take at most {LAYER_GPUS // layers:,} GPUs."
        )


def check_layer_experts(layers: int, experts: int) -> None:
    """Refuse to place the experts of more MoE layers times experts than :data:`topology.limits.LAYER_EXPERTS`.

    Raises
    ------
    InputError
        If they are more; it says how many layers would fit.
    """
    if layers * experts > LAYER_EXPERTS:
        raise InputError(
            f"experts: {layers:,} MoE layers x {experts:,} experts are {layers * experts:,} to place, and at most "
            f"{LAYER_EXPERTS:,} are supported; with so many experts at most {LAYER_EXPERTS // experts:,} layers."
        )


def check_plan_copies(replicas: int, gpus: int, copies: int, what: str) -> None:
    """Refuse a plan that would list more expert copies than :data:`topology.limits.PLAN_COPIES`.

    ``gpus``, ``copies``: of one replica, over all layers; ``what``: the layout, as messages name it.

    Raises
    ------
    InputError
        If it would; it says how many GPUs would fit.
    """
    if replicas * copies > PLAN_COPIES:
        raise InputError(
            f"{what}: {replicas:,} replicas x {copies:,} expert copies are {replicas * copies:,} to write into a "
            f"plan, and at most {PLAN_COPIES:,} are supported; take at most "
            f"{max(1, PLAN_COPIES // copies) * gpus:,} GPUs, or replicas of more GPUs (`ep`)."
        )


def check_load_numbers(scenarios: int, layers: int, experts: int) -> None:
    """Refuse more scenarios than :data:`topology.limits.LOAD_NUMBERS` leaves room for.

    Raises
    ------
    InputError
        If they are more; it says how many scenarios would fit.
    """
    if scenarios * layers * experts > LOAD_NUMBERS:
        raise InputError(
            f"loads: {scenarios:,} scenarios x {layers:,} MoE layers x {experts:,} experts are "
            f"{scenarios * layers * experts:,} numbers, too many to plan for (at most {LOAD_NUMBERS:,}); give at "
            f"most {LOAD_NUMBERS // (layers * experts):,} scenarios, or a recording with fewer `windows`."
        )


def check_planned_loads(scenarios: int, layers: int, experts: int) -> None:
    """Refuse to plan for more scenarios than there is time for: :data:`topology.limits.PLANNED_NUMBERS` and the next.

    Raises
    ------
    InputError
        If they are more; it says how many scenarios would fit.
    """
    most = min(PLANNED_SCENARIOS, PLANNED_NUMBERS // (layers * experts))
    if scenarios > most:
        raise InputError(
            f"loads: a plan for {scenarios:,} scenarios x {layers:,} MoE layers x {experts:,} experts takes more "
            f"than two minutes; give at most {most:,} scenarios, or as many "
            "`windows` of a recording (more are merged)."
        )


def check_replay(windows: int, work: float, policies: int, layers: int, experts: int) -> None:
    """Refuse a replay of more windows than :data:`topology.limits.REPLAY_WORK` leaves time for.

    ``work`` is that of one window over all ``policies``, each interval of one counted.

    Raises
    ------
    InputError
        If they are more; it says how many windows would fit, and what else makes it smaller.
    """
    if windows * work > REPLAY_WORK:
        fit = max(2, int(REPLAY_WORK // work))
        raise InputError(
            f"loads: {windows:,} windows x {layers:,} MoE layers x {experts:,} experts, re-planned after by "
            f"{policies} policies and intervals, take more than two minutes; "
            f"take at most {fit:,} `windows` (more are merged), fewer of `policy`, or a longer `interval`."
        )


def check_drawn_pairs(gpus: int, pattern: str) -> None:
    """Refuse to draw what each of more pairs of GPUs sends than :data:`topology.limits.DRAWN_PAIRS`.

    Raises
    ------
    InputError
        If they are more; it says how many GPUs would fit.
    """
    if gpus * gpus > DRAWN_PAIRS:
        raise InputError(
            f"traffic pattern {pattern}: {gpus:,} GPUs are {gpus * gpus:,} pairs to draw, and at most "
            f"{DRAWN_PAIRS:,} are supported; take at most {math.isqrt(DRAWN_PAIRS):,} GPUs, or lognormal:1, which "
            "is alike from all."
        )
