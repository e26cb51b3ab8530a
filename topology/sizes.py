"""Refusals of what is too large to plan for, before anything heavy is done: what was asked, the limit, what fits."""

from __future__ import annotations

from topology.errors import InputError
from topology.limits import LAYER_EXPERTS, LAYER_GPUS, LOAD_NUMBERS


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
