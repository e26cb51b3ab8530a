"""Shapes and seconds of stages over arrays, whatever machines they run on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from cost.deployment import Deployment
from cost.held import Held
from cost.machine import Machine
from cost.shape import StepShape
from cost.step import even_step, overlapped
from cost.step_cost import StepCost
from cost.sweep.layouts import slots_of
from cost.sweep.stages import StageTable
from cost.validation.serving_times import with_imbalance

Array = NDArray[np.float64]


class StageSeconds:
    """Seconds of stages, ``[rows]`` each: in all, at least, by part and by what binds."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self.total = np.zeros(rows)
        self.lower = np.zeros(rows)
        self.terms: dict[str, Array] = {}
        self.limits: dict[str, Array] = {}

    def put(self, where: NDArray[np.int64], cost: StepCost) -> None:
        """Enter the seconds of the rows ``where``."""
        self.total[where], self.lower[where] = cost.total_s, cost.lower_s
        for into, found in ((self.terms, cost.terms_s), (self.limits, cost.limits_s)):
            for name, seconds in found.items():
                if np.any(np.asarray(seconds)):
                    into.setdefault(name, np.zeros(self._rows))[where] = seconds


def stage_shape(
    deployment: Deployment,
    stages: StageTable,
    rows: NDArray[np.int64],
    *,
    tp: NDArray[np.int64],
    moe_tp: NDArray[np.int64],
    batch: Array,
    redundant: int | None,
    imbalance: float | None = 1.0,
) -> StepShape:
    """Return what the stages ``rows`` process, ``batch`` sequences per GPU of their replica in flight.

    ``imbalance``: busiest GPU's expert load over the mean, experts else used alike; None: as served models are
    measured, the usual one of wide groups and experts of unequal use (:func:`with_imbalance`).
    """
    workload, gpus = deployment.workload, stages.gpus[rows]
    sequences = batch * stages.at_once[rows]
    ep = gpus / moe_tp
    moe = deployment.model.moe
    slots = np.zeros_like(ep) if moe is None else slots_of(moe.experts, ep, redundant)
    shape = StepShape(
        tp=tp.astype(np.float64),
        attention_dp=gpus / tp,
        ep=ep,
        moe_tp=moe_tp.astype(np.float64),
        slots=slots,
        domain_gpus=stages.domain_gpus[rows],
        context=float(workload.context),
        prompt_length=float(workload.context),
        prompt_cached=workload.prompt_cached,
        imbalance=0.0 if imbalance is None else np.full_like(ep, imbalance),
    )
    if imbalance is None:
        shape = with_imbalance(shape, workload.phase)
    if workload.decodes:
        return replace(shape, sequences=sequences, queries=1.0 + workload.draft_tokens)
    return replace(shape, prompt_tokens=sequences * workload.tokens_per_pass)


def stage_seconds(
    deployment: Deployment,
    machines: Sequence[Machine],
    machine: NDArray[np.int64],
    shape: StepShape,
    held: Held,
) -> StageSeconds:
    """Return what a step of each stage costs, experts balanced; ``machine`` is the index into ``machines``.

    A GPU with one expert copy more than others is the one that the step waits for.
    """
    shape = replace(shape, slots=np.ceil(shape.slots / shape.ep) * shape.ep)
    found = StageSeconds(len(machine))
    for index, what in enumerate(machines):
        where = np.flatnonzero(machine == index)
        if len(where):
            found.put(where, _step(deployment, what, _some(shape, where), _held(held, where)))
    return found


def _step(deployment: Deployment, machine: Machine, shape: StepShape, held: Held) -> StepCost:
    """One step, in two half batches where that is asked for."""
    whole = even_step(deployment.model, shape, machine, held)
    if not deployment.workload.overlap:
        return whole
    half = replace(
        shape,
        sequences=np.asarray(shape.sequences) / 2,
        prompt_tokens=np.asarray(shape.prompt_tokens) / 2,
    )
    halved = even_step(deployment.model, half, machine, held)
    return overlapped(whole, halved, machine.efficiency["overlap"])


def _some(shape: StepShape, where: NDArray[np.int64]) -> StepShape:
    arrays = {name: value[where] for name, value in vars(shape).items() if isinstance(value, np.ndarray)}
    return replace(shape, **arrays)


def _held(held: Held, where: NDArray[np.int64]) -> Held:
    layers = tuple((layer, np.asarray(count)[where]) for layer, count in held.layers)
    return Held(layers, np.asarray(held.first)[where], np.asarray(held.last)[where])
