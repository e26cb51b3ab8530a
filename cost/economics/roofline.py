"""Latency and cost of a token against batch: the lecture's roofline of a whole domain, with both floors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from topology.errors import InputError
from topology.spec import DomainSpec

Batch = TypeVar("Batch", float, "NDArray[np.float64]")
"""A batch or an array of batches (concurrent sequences of the whole domain); answers have its shape."""


@dataclass(frozen=True)
class Roofline:
    """A step of a whole domain by the lecture's two terms: compute and memory.

    Attributes
    ----------
    domain:
        The GPUs that hold the model; their rates add up.
    dtype:
        Precision that weights are multiplied at; ``param_bytes`` each.
    routed_fraction:
        Fraction of the routed experts that a token uses (8/256); 1 for a dense model.
    kv_bytes_per_token:
        Cache bytes of one token of context in all layers.
    context:
        Tokens of context that each sequence of the batch reads in a step.

    Raises
    ------
    InputError
        If a figure is not a number that it can be.
    """

    domain: DomainSpec
    total_params: float
    active_params: float
    dtype: str
    param_bytes: float
    routed_fraction: float = 1.0
    kv_bytes_per_token: float = 0.0
    context: float = 0.0

    def __post_init__(self) -> None:
        for name in ("total_params", "active_params", "param_bytes", "routed_fraction"):
            _refuse_unless(name, getattr(self, name), least=0.0, reached=False)
        for name in ("kv_bytes_per_token", "context"):
            _refuse_unless(name, getattr(self, name), least=0.0, reached=True)
        if self.active_params > self.total_params or self.routed_fraction > 1:
            raise InputError(
                f"active_params {self.active_params:g} of total_params {self.total_params:g}, routed_fraction "
                f"{self.routed_fraction:g}: a token cannot use more than there is."
            )

    @property
    def flop_per_s(self) -> float:
        """Dense peak of all GPUs together."""
        return self.domain.gpus * self.domain.gpu.dense_flop_per_s(self.dtype)

    @property
    def hbm_bytes_per_s(self) -> float:
        """HBM bandwidth of all GPUs together."""
        return self.domain.gpus * self.domain.gpu.hbm_bytes_per_s

    @property
    def compute_s_per_token(self) -> float:
        """Seconds in which the domain computes one token: ``2 * active / flop_per_s``."""
        return 2 * self.active_params / self.flop_per_s

    @property
    def cache_s_per_sequence(self) -> float:
        """Seconds in which the domain reads the caches of one sequence."""
        return self.context * self.kv_bytes_per_token / self.hbm_bytes_per_s

    @property
    def weights_s(self) -> float:
        """Seconds in which the domain reads all weights once."""
        return self.total_params * self.param_bytes / self.hbm_bytes_per_s

    def compute_s(self, batch: Batch) -> Batch:
        """``2 * batch * active / flop_per_s``."""
        return batch * self.compute_s_per_token

    def params_read(self, batch: Batch) -> Batch:
        """Weights that some token of the batch uses: the active ones at batch 1, soon all of them.

        An expert is left alone by ``batch`` tokens with probability ``(1 - routed_fraction) ** batch``.
        """
        idle: Batch = np.power(1 - self.routed_fraction, batch - 1)
        return self.total_params - (self.total_params - self.active_params) * idle

    def memory_s(self, batch: Batch) -> Batch:
        """The weights in use and the caches of the batch, read once."""
        return (
            self.params_read(batch) * self.param_bytes / self.hbm_bytes_per_s
            + batch * self.cache_s_per_sequence
        )

    def step_s(self, batch: Batch) -> Batch:
        """A step takes at least the larger of the two.

        Raises
        ------
        InputError
            If a batch is not a number of at least 1.
        """
        check_batch("batch", batch)
        step: Batch = np.maximum(self.compute_s(batch), self.memory_s(batch))
        return step

    def cost_per_token(self, batch: Batch) -> Batch:
        """GPU-seconds per token."""
        return self.domain.gpus * self.step_s(batch) / batch

    def latency_floor_s(self) -> float:
        """Step that no batch beats: the weights of one token, read once (no money buys a faster one)."""
        return self.active_params * self.param_bytes / self.hbm_bytes_per_s

    def best_cost_per_token(self) -> float:
        """GPU-seconds per token that no batch beats: weights are read for nothing, compute or caches remain."""
        return self.domain.gpus * max(self.compute_s_per_token, self.cache_s_per_sequence)


@dataclass(frozen=True)
class BatchCurve:
    """Latency and cost against batch, and what neither falls below.

    Attributes
    ----------
    batch, step_s, gpu_s_per_token:
        Arrays of one shape: concurrent sequences, seconds of a step, GPU-seconds of a token.
    latency_floor_s, weights_s:
        Reading the weights of one token, and all weights: a mixture of experts soon reads all of them.
    cost_floor_gpu_s:
        GPU-seconds of a token at an endless batch.
    """

    batch: NDArray[np.float64]
    step_s: NDArray[np.float64]
    gpu_s_per_token: NDArray[np.float64]
    latency_floor_s: float
    weights_s: float
    cost_floor_gpu_s: float


def batch_curve(line: Roofline, batches: NDArray[np.float64]) -> BatchCurve:
    """Return latency and cost at each of ``batches``.

    Raises
    ------
    InputError
        If a batch is not a number of at least 1.
    """
    batch = np.asarray(batches, dtype=np.float64)
    return BatchCurve(
        batch=batch,
        step_s=line.step_s(batch),
        gpu_s_per_token=line.cost_per_token(batch),
        latency_floor_s=line.latency_floor_s(),
        weights_s=line.weights_s,
        cost_floor_gpu_s=line.best_cost_per_token(),
    )


def check_batch(what: str, batch: float | NDArray[np.float64]) -> None:
    """Refuse a batch that is none.

    Raises
    ------
    InputError
        If ``batch``, or one of them, is not a number of at least 1.
    """
    values = np.asarray(batch, dtype=np.float64)
    wrong = values[~(np.isfinite(values) & (values >= 1))]
    if wrong.size:
        raise InputError(f"{what} {wrong.flat[0]:g}: expected a number of at least 1.")


def _refuse_unless(name: str, value: float, *, least: float, reached: bool) -> None:
    """Refuse a figure that is not finite, or not above (or at) ``least``."""
    if not (math.isfinite(value) and (value > least or (reached and value == least))):
        raise InputError(
            f"{name} {value:g}: expected a number {'of at least' if reached else 'above'} {least:g}."
        )
