"""The pipeline's bubble: stages that wait for the first micro-batch and after the last one."""

from __future__ import annotations

from topology.errors import InputError


def bubble_share(stages: int, micro_batches: int) -> float:
    """Share of the time that a stage is idle: ``(p - 1) / (m + p - 1)`` for ``p`` stages and ``m`` micro-batches.

    Raises
    ------
    InputError
        If one of them is not at least 1.
    """
    _refuse_none(stages, micro_batches)
    return (stages - 1) / (micro_batches + stages - 1)


def bubble_slowdown(stages: int, micro_batches: int) -> float:
    """Time over that of a pipeline without a bubble: ``(m + p - 1) / m``.

    Source: GPipe (Huang et al., arXiv 1811.06965), section 2.3.

    Raises
    ------
    InputError
        If one of them is not at least 1.
    """
    _refuse_none(stages, micro_batches)
    return (micro_batches + stages - 1) / micro_batches


def _refuse_none(stages: int, micro_batches: int) -> None:
    for what, count in (("stages", stages), ("micro_batches", micro_batches)):
        if count < 1:
            raise InputError(f"{what} {count}: expected a whole number of at least 1.")
