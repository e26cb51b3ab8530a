"""Requests served by one pool of engines, or by a pool that prefills and one that decodes, in steady state.

Closed loop: a fixed number of requests is in the system, each answered before the next is sent.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cost.inputs.workload import CHUNK_TOKENS, StepShape
from cost.quantity import Quantity, positive

IN_STEP = 0.1
"""Part of the prompts of all requests in flight that one waits for in a pool that prefills, where users go on in
step: requests prefilled in one step are answered together, and come back together. Bounds: 0, evenly spread, to 0.5,
all at once. First tokens of 888 measured runs of two pools take longer than a prefill by 3 % of a request's time
where prefill is idle, by 9 % where it is half busy and by 16 % where it is busy; their time per token has no bias."""
ROUNDS, SECANTS = 12, 5

Array = NDArray[np.float64]
Stepper = Callable[[StepShape], Quantity]
"""Expected seconds of a step of one engine for shapes of it."""


@dataclass(frozen=True, eq=False)
class Requests:
    """What is asked: prompt and answer lengths in tokens, and requests in the system at a time."""

    isl: Quantity
    osl: Quantity
    concurrency: Quantity
    draft_tokens: Quantity = 0.0
    accept_length: Quantity = 1.0

    @property
    def context(self) -> Quantity:
        """Mean tokens in the cache while a request decodes."""
        return self.isl + self.osl / 2

    @property
    def steps(self) -> Quantity:
        """Decode steps of one request."""
        return self.osl / self.accept_length


@dataclass(frozen=True, eq=False)
class Served:
    """What a request sees, and how many are served.

    ``tpot_s`` seconds per output token after the first, ``prefill_s`` until the first, ``waiting_s`` for a place
    by Little's law, ``requests_per_s`` in all, ``batch`` sequences per GPU of the pool that decodes, ``step_s`` of a
    decode step.
    """

    tpot_s: Quantity
    prefill_s: Quantity
    waiting_s: Quantity
    requests_per_s: Quantity
    batch: Quantity
    step_s: Quantity


def decode_shape(pool: StepShape, requests: Requests, batch: Quantity) -> StepShape:
    """Return the step of a pool in which ``batch`` sequences per GPU decode and no prompt is prefilled."""
    return replace(
        pool,
        sequences=batch,
        context=requests.context,
        queries=1.0 + requests.draft_tokens,
        prompt_tokens=0.0,
    )


def prefill_seconds(
    step: Stepper, pool: StepShape, requests: Requests, waiting: Quantity
) -> tuple[Quantity, Quantity]:
    """Seconds of one prefill step of an engine, and the prompts that it finishes.

    An attention group takes whole prompts up to :data:`CHUNK_TOKENS`, at least one; a longer prompt takes several
    chunks, which cost what the prompt costs at once. A step takes as long where some groups have no prompt.
    """
    groups = np.minimum(pool.attention_dp, np.maximum(waiting, 1.0))
    prompts_per_group = np.maximum(1.0, np.minimum(CHUNK_TOKENS / requests.isl, waiting / groups))
    tokens = prompts_per_group * requests.isl / pool.tp
    prompts = replace(pool, sequences=0.0, prompt_tokens=tokens, prompt_length=requests.isl)
    return step(prompts), groups * prompts_per_group


def prefill_rate(step: Stepper, pool: StepShape, requests: Requests) -> Quantity:
    """Prompts per second that one engine finishes where enough of them wait, every attention group busy."""
    unlimited = np.full_like(requests.isl, np.inf)
    seconds, prompts = prefill_seconds(step, pool, requests, unlimited)
    return pool.stages * prompts / seconds


def busy_share(prompts_per_s: Quantity, stay_s: Quantity, group: Quantity) -> Quantity:
    """Return the part of the time that a pool which prefills is busy, where it is the slower one.

    Parameters
    ----------
    prompts_per_s, group:
        What it finishes where enough prompts wait, and prompts that an engine takes in a step.
    stay_s:
        Seconds of a request in both pools without waiting.

    Notes
    -----
    As many requests are in flight as would keep it busy if they came one exactly after the other, in ``n =
    prompts_per_s stay_s / group`` groups. They do not: busy for a part ``r`` of the time, it has ``r^2 / (2 (1 -
    r))`` groups waiting (steps of one length, Poisson arrivals: Pollaczek and Khinchine), which are missing
    elsewhere, ``(1 - r) n``. So ``r = 1 / (1 + 1 / sqrt(2 n))``.
    """
    return 1 / (1 + 1 / np.sqrt(2 * prompts_per_s * stay_s / group))


def held_batch(per_s: Quantity, seconds: Callable[[Array], Array], max_batch: Array) -> Array:
    """Return the batch at which ``per_s`` sequences a second are held: ``batch = per_s x seconds(batch)``.

    Little's law; a batch of ``max_batch``, the largest, holds as many or more. Steps are nearly straight lines of the
    batch, which secants find at once.
    """
    batch = np.asarray(max_batch, dtype=np.float64)
    over = batch - per_s * seconds(batch)
    following = np.minimum(batch, batch - over)
    for _ in range(SECANTS):
        previous, over_before = batch, over
        batch = following
        over = batch - per_s * seconds(batch)
        run = over - over_before
        slope = np.where(np.abs(run) > 0, (batch - previous) / np.where(np.abs(run) > 0, run, 1.0), 0.0)
        following = np.clip(batch - slope * over, 0.0, max_batch)
    return following


def aggregated(
    step: Stepper,
    pool: StepShape,
    requests: Requests,
    *,
    workers: Quantity,
    max_batch: Quantity,
    rounds: Quantity = math.inf,
    factor: Quantity = 1.0,
) -> Served:
    """Return how ``workers`` engines that mix both phases serve.

    Parameters
    ----------
    max_batch:
        Sequences per GPU that an engine admits.
    rounds:
        As of :class:`cost.inputs.workload.StepShape`.
    factor:
        What measured steps took over ``step`` (:mod:`cost.calibration.correction`).

    Notes
    -----
    Each of ``S`` requests is served once in a cycle of ``C = n t + S p`` seconds: ``n`` steps that decode, and its
    prompt's part of the chunks that they carry. So ``S / C`` requests a second, and work times rate is the time that
    there is. Before its first token a request waits for its own prompt and a part of the others' (``F``); what is
    left, ``C - F``, is between its tokens. A benchmark that sends more than the engines admit sends them once: they
    are served in waves, the last one partly full.
    """
    concurrency = requests.concurrency / workers
    batch = np.minimum(concurrency / pool.engine_gpus, np.maximum(max_batch, 1.0 / pool.engine_gpus))

    def mixed(batch: Quantity) -> StepShape:
        decode = replace(decode_shape(pool, requests, batch), rounds=rounds)
        return decode.with_prompts(requests.isl, 0.0, requests.steps)

    def served_s(batch: Quantity) -> Quantity:
        return requests.steps * factor * step(replace(mixed(batch), waits=0.0))

    step_s, cycle_s = factor * step(mixed(batch)), served_s(batch)
    first_s = cycle_s - requests.steps * step_s
    waves = concurrency / (batch * pool.engine_gpus)
    last_wave = np.where(waves > 1, waves - np.floor(waves), 0.0)
    rate = batch * pool.engine_gpus / cycle_s
    if math.isfinite(np.max(rounds)) and positive(last_wave):
        rate = np.where(
            last_wave > 0,
            concurrency / (np.floor(waves) * cycle_s + served_s(np.maximum(last_wave, 1e-9) * batch)),
            rate,
        )
    waiting_s = _waiting_s(concurrency, rate, cycle_s)
    return Served(step_s / requests.accept_length, first_s, waiting_s, workers * rate, batch, step_s)


def _waiting_s(requests: Quantity, rate: Quantity, served_s: Quantity) -> Quantity:
    """Seconds that a request waits where ``requests`` are in the system, of which each is served ``served_s``."""
    return np.maximum(0.0, requests / rate - served_s)


def disaggregated(  # noqa: PLR0913 - each pool, and what limits it
    decode_step: Stepper,
    pool: StepShape,
    prefill_step: Stepper,
    prefill_pool: StepShape,
    requests: Requests,
    *,
    workers: Quantity,
    prefill_workers: Quantity,
    max_batch: Quantity,
    fixed_s: Quantity = 0.0,
    rounds: Quantity = math.inf,
    factor: Quantity = 1.0,
) -> Served:
    """Return how a pool of engines that decode and one of engines that prefill serve together.

    Parameters
    ----------
    fixed_s:
        Seconds of a request outside of steps (:mod:`cost.calibration.first_token`).
    rounds:
        As of :class:`cost.inputs.workload.StepShape`: users of a benchmark start at once, so that each waits for half
        of the others' prompts in the first of them.

    Notes
    -----
    Little's law: requests in the system = rate x (time to first token + time of decoding). The rate is at most what
    the prefill pool finishes, and the decode pool holds no more than ``max_batch`` sequences per GPU; the rest waits.
    ``factor`` (what measured decode steps took over ``decode_step``) counts once the batch has settled: it was
    learned of what comes out.
    """
    slots = workers * pool.engine_gpus
    largest = np.maximum(max_batch, 1.0 / pool.engine_gpus)
    batch = np.clip(requests.concurrency / slots, 0.5 / slots, largest)
    prefill_s, _ = prefill_seconds(prefill_step, prefill_pool, requests, np.ones_like(requests.isl))
    most_rate = prefill_workers * prefill_rate(prefill_step, prefill_pool, requests)
    first_s = prefill_s + fixed_s + (IN_STEP + 0.5 / rounds) * requests.concurrency / most_rate
    tpot_s: Quantity = 0.0
    rate: Quantity = 0.0
    for _ in range(ROUNDS):
        step_s = decode_step(decode_shape(pool, requests, np.maximum(batch, 1.0 / slots)))
        tpot_s = step_s / requests.accept_length
        decoding_s = requests.osl * tpot_s
        rate = np.minimum(requests.concurrency / (decoding_s + first_s), most_rate)
        held = np.sqrt(batch * np.minimum(rate * decoding_s, requests.concurrency) / slots)
        batch = np.clip(held, 0.5 / slots, largest)
    rate = np.minimum(rate, batch * slots / decoding_s)

    def bound(decoding_s: Quantity) -> Quantity:
        free = np.minimum(requests.concurrency / (decoding_s + first_s), most_rate)
        return np.minimum(free, largest * slots / decoding_s)

    rate = rate * (bound(factor * decoding_s) / bound(decoding_s))
    step_s, tpot_s, decoding_s = factor * step_s, factor * tpot_s, factor * decoding_s
    waiting_s = _waiting_s(requests.concurrency, rate, decoding_s + first_s)
    return Served(tpot_s, first_s, waiting_s, rate, batch, step_s)
