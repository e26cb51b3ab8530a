"""Identities of the blackboard lecture: what a roofline says before any detail.

Each is the simplest form of a term that the cost model computes in full; ``examples/blackboard.py`` prints them. The
roofline of a whole domain gives latency and price of a token against batch; from it follow fast modes, prices of
input and output, the context at which prices step up, the life of a model, bubbles, and where to keep a cached
context.

Figures that cannot be (a batch below 1, a negative price) raise InputError; a chip whose peak or bandwidth nobody
publishes raises MissingFigureError.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from cost.dtypes import cache_bytes_per_element, multiply_dtype
from cost.model import Model
from cost.prices import Batch, CacheTier
from cost.quantity import require_number
from topology.errors import InputError
from topology.figures import Evidence, Figure
from topology.spec import DomainSpec, GpuSpec


def flop_per_byte(gpu: GpuSpec, dtype: str) -> float:
    """Dense flop/s of ``dtype`` over HBM bytes/s: how much a chip computes while it reads one byte."""
    return gpu.dense_flop_per_s(dtype) / gpu.hbm_bytes_per_s


def balancing_batch(
    gpu: GpuSpec, dtype: str, total_params: float, active_params: float, param_bytes: float
) -> float:
    """Tokens per step at which computing takes as long as reading all weights once.

    ``2 * batch * active / flop_per_s = total * param_bytes / hbm_bytes_per_s``, so the batch is
    ``flop_per_byte * param_bytes / 2 * total / active``: with BF16 weights on a chip of 300 flop per byte,
    300 times the sparsity.
    """
    return flop_per_byte(gpu, dtype) * param_bytes / 2 * total_params / active_params


def hbm_read_s(gpu: GpuSpec) -> float:
    """Seconds to read all of HBM once: no step that uses the whole memory is faster."""
    return gpu.hbm_bytes / gpu.hbm_bytes_per_s


def tokens_per_s(batch: float, step_s: float) -> float:
    """Tokens per second of ``batch`` sequences that each get one token a step."""
    return batch / step_s


def train_wait_s(step_s: float) -> tuple[float, float]:
    """Return the mean and the longest time until a request that finds a place has its next token: 1.5 and 2 steps.

    A batch leaves as a train does: who arrives just after it left waits one step for the next and rides in it for
    another; who arrives at any time waits half a step on average.

    Notes
    -----
    ``step_s`` is the time in which a token passes all pipeline stages (:class:`cost.score.Score`), not that of one
    stage: the place that becomes free belongs to one micro-batch, which leaves once in that time. A request that may
    join any of ``p`` micro-batches waits at most ``1 + 1/p`` steps. Requests that queue for a place wait longer.
    """
    return 1.5 * step_s, 2 * step_s


def experts_per_gpu(experts: int, domain: DomainSpec) -> tuple[int, int]:
    """Return how many experts a GPU holds and how many GPUs of the domain are used, all holding equally many.

    The most GPUs that divide the experts: 256 experts in a domain of 72 go 4 each on 64 GPUs.
    """
    used = max(count for count in range(1, domain.gpus + 1) if experts % count == 0)
    return experts // used, used


def leaving_share(domains: int) -> float:
    """Share of uniform all-to-all traffic that leaves its domain when experts span ``domains`` of them."""
    return 1 - 1 / domains


def spanning_slowdown(domains: int, domain: DomainSpec, scale_out_bytes_per_s: float) -> tuple[float, float]:
    """How much longer an all-to-all takes when its GPUs span ``domains`` domains instead of one.

    Returns the ratio with both networks side by side, ``max(stay, leave * r)``, and one after the other,
    ``stay + leave * r``, with ``r`` the scale-up over the scale-out rate of a GPU.
    """
    leave = leaving_share(domains)
    ratio = domain.scale_up_bytes_per_s / scale_out_bytes_per_s
    return max(1 - leave, leave * ratio), (1 - leave) + leave * ratio


def pipeline_hop_ratio(
    active_experts: int, layers_per_stage: int, domain: DomainSpec, scale_out_bytes_per_s: float
) -> float:
    """Time on the scale-up fabric over time on the scale-out one, for a token passing one pipeline stage.

    In the stage a token goes to its experts and back in every layer, ``active_experts * 2 * layers_per_stage``
    vectors; to the next stage it goes once, ``r`` times slower.
    """
    ratio = domain.scale_up_bytes_per_s / scale_out_bytes_per_s
    return active_experts * 2 * layers_per_stage / ratio


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
            require_number(name, getattr(self, name), above=0)
        for name in ("kv_bytes_per_token", "context"):
            require_number(name, getattr(self, name), least=0)
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
        # finite where all experts are used, times any batch
        rest = math.log1p(-self.routed_fraction) if self.routed_fraction < 1 else -1e280
        idle: Batch = np.exp(rest * (batch - 1))
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
        require_number("batch", batch, least=1)
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


def prefill_cost_per_token(line: Roofline, chunk: Batch) -> Batch:
    """GPU-seconds per input token when ``chunk`` tokens are computed at once after ``line.context`` cached ones.

    ``max(chunk * compute, weights of the chunk + one sequence's caches) / chunk``; attention's own arithmetic is
    left out, as in the lecture.
    """
    require_number("chunk", chunk, least=1)
    memory_s = line.params_read(chunk) * line.param_bytes / line.hbm_bytes_per_s + line.cache_s_per_sequence
    step: Batch = np.maximum(line.compute_s(chunk), memory_s)
    return line.domain.gpus * step / chunk


def output_over_input(line: Roofline, batch: Batch, *, chunk: float) -> Batch:
    """Cost of an output token at ``batch`` over that of an input token in chunks of ``chunk``.

    Prefill computes a chunk of tokens for one read of weights and context; decode reads the weights for one token of
    each sequence and the caches of every one. Where prefill is bound by compute and decode by memory, their ratio is
    the inverse of the share of peak that decode reaches: a price ratio of 5 says decode computes a fifth of the time.
    """
    return line.cost_per_token(batch) / float(prefill_cost_per_token(line, chunk))


def batch_for_output_price(line: Roofline, ratio: float, *, chunk: float) -> float:
    """Return the smallest batch at which an output token costs at most ``ratio`` times an input token.

    Raises
    ------
    InputError
        If the chunk is not a number of at least 1, or no batch is that cheap.
    """
    floor = line.best_cost_per_token() / float(prefill_cost_per_token(line, chunk))
    if not (math.isfinite(ratio) and ratio > floor):
        raise InputError(
            f"ratio {ratio:g}: an output token costs more than {floor:.3g} times an input token at any batch here; "
            "ask for more, or for a shorter context."
        )
    return _first(lambda batch: batch >= 1 and output_over_input(line, batch, chunk=chunk) <= ratio)


_MOST_BATCH = 1e12
_GRID = 241  # 20 batches in each decade
_HALVINGS = 80
_TOLERANCE = 1e-6
_MOST_DOUBLINGS = 128
_BISECTIONS = 60


@dataclass(frozen=True)
class FastMode:
    """Two batches of one machine; ``speed`` and ``price`` are ratios per token, fast over regular.

    Nothing but the batch differs, so ``price * speed = regular batch / fast batch``, whatever the curve: 2.5 times
    the speed at 6 times the price is a batch 15 times smaller. The curve says which two batches those are. Where
    memory binds, a step takes ``w + k * batch`` (weights once, caches of each sequence), and with ``x = k * batch /
    w`` at the regular batch ``(1 + x) = speed * (1 + x / (price * speed))``, so ``x = price * (speed - 1) / (price -
    1)``: for 2.5 and 6 caches take 1.8 times as long as weights, and no smaller batch is more than 2.8 times as fast
    while it still uses all experts.
    """

    regular_batch: float
    fast_batch: float
    speed: float
    price: float


def cache_over_weights(speed: float, price: float) -> float:
    """Seconds for the caches over seconds for the weights, at the regular batch, where memory binds both.

    ``price * (speed - 1) / (price - 1)``; while all weights are read, no batch is more than one more than this
    times as fast.
    """
    require_number("speed", speed, above=1, kind="ratio")
    require_number("price", price, above=1, kind="ratio")
    return price * (speed - 1) / (price - 1)


def fast_mode(line: Roofline, regular_batch: float, speed: float) -> FastMode:
    """Return the cheapest fast mode that steps ``speed`` times as fast as ``regular_batch``.

    The largest batch whose step is short enough; its price follows.

    Raises
    ------
    InputError
        If the batch is none, the speed is not above 1, or not even a batch of 1 is that fast.
    """
    require_number("regular_batch", regular_batch, least=1)
    require_number("speed", speed, above=1, kind="ratio")
    regular_s = float(line.step_s(regular_batch))
    fast = _fast_batch(line, regular_batch, speed)
    if math.isnan(fast):
        raise InputError(
            f"speed {speed:g}: a batch of 1 is only {regular_s / line.step_s(1.0):.3g} times as fast as one of "
            f"{regular_batch:,.0f}; ask for less, or start from a larger batch."
        )
    reached = regular_s / float(line.step_s(fast))
    return FastMode(regular_batch, fast, reached, regular_batch / fast / reached)


def fast_mode_for_price(line: Roofline, speed: float, price: float) -> FastMode:
    """Return the largest regular batch from which ``speed`` times the speed costs ``price`` times as much.

    Raises
    ------
    InputError
        If one of the two is not above 1, or no batch of ``line`` has that price at that speed.
    """
    require_number("speed", speed, above=1, kind="ratio")
    require_number("price", price, above=1, kind="ratio")

    def too_cheap(batch: float) -> bool:
        fast = _fast_batch(line, batch, speed)
        return not math.isnan(fast) and batch / fast / speed < price

    grid = np.geomspace(1.0, _MOST_BATCH, _GRID)
    below = next((k for k in range(_GRID - 1, -1, -1) if not too_cheap(float(grid[k]))), None)
    if below is None or below == _GRID - 1:
        raise _no_such_price(line, speed, price)
    # just above the solution the fast mode exists; just below it may not
    mode = fast_mode(line, _last(float(grid[below]), float(grid[below + 1]), too_cheap)[1], speed)
    if abs(mode.price / price - 1) > 1e-3:
        raise _no_such_price(line, speed, price)
    return mode


def _no_such_price(line: Roofline, speed: float, price: float) -> InputError:
    return InputError(
        f"speed {speed:g} at price {price:g}: no batch has both on this roofline, whose caches take "
        f"{line.cache_s_per_sequence / line.compute_s_per_token:.2g} times as long as computing; a fast mode has a "
        "price of its own where caches bind (a longer context), and none beyond the latency floor."
    )


def _fast_batch(line: Roofline, regular: float, speed: float) -> float:
    """Return the largest batch that steps ``speed`` times as fast as ``regular``, NaN if there is none."""
    most_s = float(line.step_s(regular)) / speed * (1 + _TOLERANCE * 1e-3)
    if line.step_s(1.0) > most_s:
        return math.nan
    return _last(1.0, regular, lambda batch: float(line.step_s(batch)) > most_s)[0]


def _last(low: float, high: float, beyond: Callable[[float], bool]) -> tuple[float, float]:
    """Halve ``low`` to ``high`` around where ``beyond`` becomes true; return the two sides of it."""
    for _ in range(_HALVINGS):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if beyond(middle) else (middle, high)
        if high / low - 1 < _TOLERANCE * 1e-6:
            break
    return low, high


def kv_bytes_from_price_step(gpu: GpuSpec, dtype: str, active_params: float, context: float) -> float:
    """Cache bytes of a token of context if compute and cache reads balance at ``context`` tokens.

    A provider that charges more per token above some context says where reading the caches overtakes computing:
    ``2 * active_params / flop_per_s = context * kv_bytes_per_token / hbm_bytes_per_s``. With 300 multiplications per
    number read (600 flop per byte in FP8), 100 B active parameters and 200k tokens that is 1.7 kB a token.
    Attention's own arithmetic is left out, as in the lecture.
    """
    return _balance(gpu, dtype, active_params, "context", context)


def price_step_context(gpu: GpuSpec, dtype: str, active_params: float, kv_bytes_per_token: float) -> float:
    """Tokens of context above which a token's caches take longer to read than the token to compute.

    ``2 * active_params / (flop_per_byte * kv_bytes_per_token)``: the inverse of :func:`kv_bytes_from_price_step`.
    """
    return _balance(gpu, dtype, active_params, "kv_bytes_per_token", kv_bytes_per_token)


def model_price_step_context(model: Model, gpu: GpuSpec, kv_dtype: str) -> float:
    """Return :func:`price_step_context` of a model whose reads need not grow in proportion to the context.

    At the batch that balances computing and reading the weights (:func:`cost.lecture.balancing_batch`) the caches
    take longer to read than the weights from this context on. Infinite where they never do; experts (else the dense
    part) say what the weights are multiplied in.
    """
    unit, _ = multiply_dtype(model.precision["experts" if model.moe else "dense"], gpu)
    element, kinds = cache_bytes_per_element(kv_dtype), model.kind_counts(range(len(model.layers)))
    budget = 2 * model.active_params / flop_per_byte(gpu, unit)

    def over(context: float) -> bool:
        return sum(n * float(layer.attention.read_bytes(context, element)) for layer, n in kinds) >= budget

    return _first(over)


def _first(reached: Callable[[float], bool]) -> float:
    """Return the least number for which ``reached`` is true, as it stays from there on; infinite if there is none."""
    low, high = 0.0, 1.0
    for _ in range(_MOST_DOUBLINGS):
        if reached(high):
            break
        low, high = high, 2 * high
    else:
        return math.inf
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    return high


def _balance(gpu: GpuSpec, dtype: str, active_params: float, what: str, other: float) -> float:
    """Bytes that are read while ``active_params`` are multiplied, over ``other``."""
    require_number("active_params", active_params, above=0)
    require_number(what, other, above=0)
    return 2 * active_params / (flop_per_byte(gpu, dtype) * other)


CHINCHILLA_TOKENS_PER_PARAM = Figure(
    20.0,
    "1",
    Evidence.DERIVED,
    "Hoffmann et al., arXiv 2203.15556 (Chinchilla): 70 B parameters trained on 1.4 T tokens",
    "20",
)
_TRAIN_FLOP, _GENERATE_FLOP = 6.0, 2.0  # per parameter and token: Kaplan et al., arXiv 2001.08361, table 1


@dataclass(frozen=True)
class EqualSpend:
    """Tokens of the three parts of a model's life that cost the same.

    Attributes
    ----------
    pretraining_tokens, rl_tokens, inference_tokens:
        Trained on first; generated in reinforcement learning; served to users.
    training_flop:
        Cost of each part, as flop at the efficiency of pre-training.
    over_training:
        Pre-training tokens over those of Chinchilla for as many active parameters.
    """

    pretraining_tokens: float
    rl_tokens: float
    inference_tokens: float
    training_flop: float
    over_training: float


def equal_spend(
    active_params: float, inference_tokens: float, *, decode_efficiency: float, trained: float
) -> EqualSpend:
    """Return how many tokens to train on if each part shall cost what inference costs.

    A sum of costs that trade against each other is near its least where they are equal. Per parameter that a token
    uses, training takes 6 flop a token (forward 2, backward 4) and generating one takes 2, on hardware that decode
    keeps ``decode_efficiency`` times as busy as pre-training does:

    - pre-training: ``6 N D_pre``
    - inference: ``2 / decode_efficiency * N D_inf``
    - reinforcement learning: ``(2 / decode_efficiency + 6 * trained) * N D_rl``, for tokens that are generated and of
      which a share ``trained`` is trained on

    Setting all equal to inference, ``D_pre = D_inf / (3 * decode_efficiency)``: where decode is a third as efficient,
    as many tokens are trained on as will ever be served. A model of 100 B active parameters that serves 50 M
    tokens/s for two months serves 2.6e14; Chinchilla's 20 tokens per parameter are 2e12: it is trained on 130 times
    as many, the lecture's "about 100 times".

    Parameters
    ----------
    active_params:
        Parameters that a token uses; Chinchilla's rule, made for dense models, is applied to them.
    inference_tokens:
        Tokens served in the model's life.
    decode_efficiency:
        Share of the flop/s of pre-training that decode reaches; prices of output tokens 3 times those of input
        tokens suggest a third.
    trained:
        Share of the tokens generated in reinforcement learning that is trained on, from 0 to 1.
    """
    require_number("active_params", active_params, above=0)
    require_number("inference_tokens", inference_tokens, above=0)
    if not 0 < decode_efficiency <= 1:
        raise InputError(f"decode_efficiency {decode_efficiency:g}: expected a share above 0 and at most 1.")
    if not 0 <= trained <= 1:
        raise InputError(f"trained {trained:g}: expected a share from 0 to 1.")
    generate = _GENERATE_FLOP / decode_efficiency
    spent = generate * inference_tokens  # flop per parameter
    pretraining = spent / _TRAIN_FLOP
    return EqualSpend(
        pretraining_tokens=pretraining,
        rl_tokens=spent / (generate + _TRAIN_FLOP * trained),
        inference_tokens=inference_tokens,
        training_flop=spent * active_params,
        over_training=pretraining / (CHINCHILLA_TOKENS_PER_PARAM.value * active_params),
    )


def bubble_share(stages: int, micro_batches: int) -> float:
    """Share of the time that a stage is idle: ``(p - 1) / (m + p - 1)`` for ``p`` stages and ``m`` micro-batches."""
    require_number("stages", stages, least=1, kind="whole number")
    require_number("micro_batches", micro_batches, least=1, kind="whole number")
    return (stages - 1) / (micro_batches + stages - 1)


def bubble_slowdown(stages: int, micro_batches: int) -> float:
    """Time over that of a pipeline without a bubble: ``(m + p - 1) / m``.

    Source: GPipe (Huang et al., arXiv 1811.06965), section 2.3.
    """
    require_number("stages", stages, least=1, kind="whole number")
    require_number("micro_batches", micro_batches, least=1, kind="whole number")
    return (micro_batches + stages - 1) / micro_batches


RECOMPUTE = "recompute"
"""Name of keeping nothing."""


@dataclass(frozen=True)
class TierSpan:
    """From which holding time to which a tier (or :data:`RECOMPUTE`) is the cheapest; the last has no end."""

    name: str
    from_s: float
    to_s: float


def hbm_tier(gpu: GpuSpec, price: Figure) -> CacheTier:
    """Return the HBM of ``gpu`` as a tier, at the price of the whole GPU (:func:`cost.prices.gpu_price`)."""
    return CacheTier(
        "hbm",
        f"HBM of {gpu.title}",
        gpu.figure("hbm_bytes"),
        gpu.figure("hbm_bytes_per_s"),
        price,
        in_place=True,
    )


def tier_spans(tiers: Sequence[CacheTier], *, recompute_usd_per_byte: float) -> list[TierSpan]:
    """Return which tier is the cheapest from when to when, by holding time from 0 s on.

    The costs are straight lines over time: from each, the next is the flatter one that crosses it first.

    Raises
    ------
    InputError
        If there is no tier or the cost of recomputing is not above 0.
    """
    if not tiers:
        raise InputError("tiers: name at least one tier to choose from.")
    if not recompute_usd_per_byte > 0:
        raise InputError(f"recompute_usd_per_byte {recompute_usd_per_byte:g}: expected a cost above 0.")
    lines = [(tier.name, tier.retrieve_usd_per_byte, tier.hold_usd_per_byte_s) for tier in tiers]
    if math.isfinite(recompute_usd_per_byte):
        lines.append((RECOMPUTE, recompute_usd_per_byte, 0.0))
    now = min(lines, key=lambda line: (line[1], line[2]))
    spans: list[TierSpan] = []
    since = 0.0
    while True:
        flatter = [line for line in lines if line[2] < now[2]]
        if not flatter:
            return [*spans, TierSpan(now[0], since, math.inf)]
        after, line = min(
            (((line[1] - now[1]) / (now[2] - line[2]), line) for line in flatter),
            key=lambda crossing: (
                crossing[0],
                crossing[1][2],
            ),  # where several cross at once, the flattest goes on
        )
        if after > since:
            spans.append(TierSpan(now[0], since, after))
        since, now = max(since, after), line
