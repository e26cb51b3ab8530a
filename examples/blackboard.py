"""The blackboard lecture as numbers, every one of them from the library.

Run it with ``python examples/blackboard.py`` where rackplan is installed.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from cost import resolve_model
from cost.activations import (
    POLICIES,
    activation_bytes,
    layer_activation_bytes,
    pipeline_activation_bytes,
    training_compute,
)
from cost.attention.sparse import as_if_sparse
from cost.dispatch import balanced_use
from cost.lecture import (
    Roofline,
    balancing_batch,
    batch_for_output_price,
    bubble_share,
    bubble_slowdown,
    cache_over_weights,
    equal_spend,
    experts_per_gpu,
    fast_mode_for_price,
    flop_per_byte,
    hbm_read_s,
    hbm_tier,
    kv_bytes_from_price_step,
    leaving_share,
    model_price_step_context,
    output_over_input,
    pipeline_hop_ratio,
    prefill_cost_per_token,
    price_step_context,
    spanning_slowdown,
    tier_spans,
    tokens_per_s,
    train_wait_s,
)
from cost.prices import (
    cache_tier,
    cache_tier_names,
    gpu_price,
    power_w_per_gpu,
    price_per_gpu_s,
    tok_s_per_mw,
    usd_per_million_tokens,
)
from cost.terms.placed_volumes import placed_volumes
from topology import (
    cluster_names,
    find_scale_out,
    gpu_names,
    load_domain,
    load_gpu,
    load_scale_out,
    resolve_cluster,
)

LECTURE_EXPERTS, LECTURE_ACTIVE = 256, 32
"""The lecture's sparse model: 32 of every 256 weights are active."""

ACTIVE_PARAMS, LONG_CONTEXT, KV_BYTES = 100e9, 200_000, 2_000.0
"""The lecture's model in numbers of one byte: 100 B active of 800 B, 2 kB of cache a token, 200k tokens of it."""
CHUNK = 8_192
"""Tokens that prefill computes at once: any chunk that keeps compute busy prices them alike."""
MONTH_S = 365.25 / 12 * 24 * 3600

DTYPES = ("bf16", "fp8", "fp4")


def chips() -> None:
    """Flop per byte of each catalog GPU: about 300 in BF16 on Hopper and Blackwell."""
    print("Flop per byte of HBM, dense (a dash: no such unit)")
    print(f"  {'GPU':<12}{'bf16':>8}{'fp8':>8}{'fp4':>8}{'read all of HBM':>18}")
    for name in gpu_names():
        gpu = load_gpu(name)
        if not gpu.multiplies("bf16"):
            print(f"  {name:<12}{'nothing is published yet':>24}")
            continue
        ratios = [f"{flop_per_byte(gpu, dtype):.0f}" if gpu.multiplies(dtype) else "-" for dtype in DTYPES]
        print(f"  {name:<12}{''.join(f'{ratio:>8}' for ratio in ratios)}{hbm_read_s(gpu) * 1e3:15.1f} ms")


def batches() -> None:
    """The batch that balances compute and weight reads."""
    gpu = load_gpu("lecture")
    lecture = balancing_batch(gpu, "bf16", LECTURE_EXPERTS, LECTURE_ACTIVE, 2.0)
    print("\nBatch that balances compute and weight reads")
    print(f"  lecture: 300 x {LECTURE_EXPERTS}/{LECTURE_ACTIVE} = {lecture:,.0f} tokens a step")
    model = resolve_model("deepseek-v3")
    own = balancing_batch(gpu, "bf16", model.total_params, model.active_params, 2.0)
    said = f"{model.total_params / 1e9:.0f}/{model.active_params / 1e9:.0f}"
    print(f"  DeepSeek-V3: 300 x {said} = {own:,.0f} tokens a step")
    step_s = hbm_read_s(gpu)
    print(f"\nA rack at that batch, one step per read of HBM ({step_s * 1e3:.0f} ms)")
    print(f"  {lecture:,.0f} tokens in {step_s * 1e3:.0f} ms = {tokens_per_s(lecture, step_s):,.0f} tokens/s")
    rack = tokens_per_s(2000, 1 / 64)
    print(f"  the lecture rounds to 2,000 x 64 = {rack:,.0f} tokens/s")
    print(
        f"  200 M tokens/s take {math.ceil(200e6 / rack):,} such racks (`rackplan size` counts what this leaves out)"
    )
    mean, longest = (wait * 1e3 for wait in train_wait_s(step_s))
    print(f"A batch leaves as a train does: a request waits {longest:.0f} ms at worst, {mean:.0f} on average")


def experts() -> None:
    """Experts on GPUs, and what leaving the domain costs."""
    domain, out = load_domain("lecture-72"), load_scale_out("lecture-72").scale_out_bytes_per_s
    each, used = experts_per_gpu(LECTURE_EXPERTS, domain)
    print(f"\n{LECTURE_EXPERTS} experts in a domain of {domain.gpus}: {each} each on {used} GPUs")
    share = leaving_share(2)
    beside, after = spanning_slowdown(2, domain, out)
    print(f"Experts over two domains: {share:.0%} of the traffic leaves its domain, and an all-to-all takes")
    print(
        f"  {beside:.1f} times as long with both networks side by side, {after:.1f} times one after the other"
    )
    # the same from the cost model: pairs that the busiest GPU moves over each network
    use = balanced_use(1, np.full(2 * used, each, dtype=np.int64), LECTURE_EXPERTS, 8)
    volume = placed_volumes("per-copy", use, tokens=1.0, domain=np.repeat(np.arange(2), used))
    moved = volume.out[0, 0] + volume.up[0, 0]
    print(
        f"  the cost model's volumes: {volume.out[0, 0] / moved:.1%} of what moves goes over the scale-out fabric"
    )


def pipeline() -> None:
    """Why layers go on different racks."""
    domain, out = load_domain("lecture-72"), load_scale_out("lecture-72").scale_out_bytes_per_s
    print("\nScale-up time over scale-out time of a token passing a pipeline stage (8 active experts)")
    for layers in (1, 4, 15, 61):
        print(f"  {layers:>2} layers a stage: {pipeline_hop_ratio(8, layers, domain, out):6.0f}")


def cost_of_small_batches() -> None:
    """Cost per token at batch 1 against the best."""
    model = resolve_model("deepseek-v3")
    domain = load_domain("lecture-72")
    moe = model.moe
    used = moe.top_k / moe.experts if moe else 1.0
    line = Roofline(domain, model.total_params, model.active_params, "bf16", 2.0, used)
    context = 4096
    kv = sum(layer.attention.cache_bytes(1.0, 2.0) for layer in model.layers)
    cached = replace(line, kv_bytes_per_token=kv, context=context)
    print("\nCost per token at batch 1 over the best (DeepSeek-V3 on lecture-72, BF16)")
    for what, roofline in (
        ("weights alone", line),
        (f"with the caches of {context:,} tokens of context", cached),
    ):
        print(f"  {what}: {roofline.cost_per_token(1.0) / roofline.best_cost_per_token():,.0f} times")


def ratios() -> None:
    """How much slower the fabric between domains is, from the links."""
    print("\nScale-up over scale-out rate of a GPU, from its links")
    for name in cluster_names():
        domain, out = load_domain(name), find_scale_out(name)
        if out is not None:
            print(f"  {name:<12}{domain.scale_up_bytes_per_s / out.scale_out_bytes_per_s:5.3g}")


def lecture_line(context: float) -> Roofline:
    """The lecture's model on a rack of 72, each sequence with ``context`` tokens cached."""
    total = ACTIVE_PARAMS * LECTURE_EXPERTS / LECTURE_ACTIVE
    share = LECTURE_ACTIVE / LECTURE_EXPERTS
    return Roofline(load_domain("lecture-72"), total, ACTIVE_PARAMS, "fp8", 1.0, share, KV_BYTES, context)


def both_floors() -> None:
    """Latency and cost against batch."""
    line = lecture_line(LONG_CONTEXT)
    batches = np.geomspace(1, 4**8, 9)
    floor = line.best_cost_per_token()
    print("\nLatency and cost against batch")
    print(f"  (a rack of 72, 100 B of 800 B parameters active, FP8, {LONG_CONTEXT:,} tokens of context)")
    print(f"  {'batch':>8}{'step':>12}{'cost over its floor':>22}")
    for batch, step_s, cost in zip(batches, line.step_s(batches), line.cost_per_token(batches), strict=True):
        print(f"  {batch:8,.0f}{step_s * 1e3:9.2f} ms{cost / floor:22,.1f}")
    print(f"  shortest step: {line.latency_floor_s() * 1e3:.2f} ms for the weights of one token,")
    print(f"  {line.weights_s * 1e3:.2f} ms for all; the floor of cost is the larger of compute and caches")


def fast() -> None:
    """What a fast mode sells."""
    speed, price = 2.5, 6.0
    line = lecture_line(LONG_CONTEXT)
    mode = fast_mode_for_price(line, speed, price)
    fast_batch, regular, caches = mode.fast_batch, mode.regular_batch, cache_over_weights(speed, price)
    print(f"\nA fast mode of {speed} times the speed for {price:.0f} times the price")
    print(
        f"  is a batch {speed * price:.0f} times smaller: {fast_batch:,.0f} sequences instead of {regular:,.0f},"
    )
    print(f"  where caches take {caches:.1f} times as long to read as weights;")
    print(f"  no batch that uses all experts is more than {1 + caches:.1f} times as fast as that")


def price_steps() -> None:
    """What a price that steps up says of the caches."""
    gpu = load_gpu("lecture")
    kv = kv_bytes_from_price_step(gpu, "fp8", ACTIVE_PARAMS, LONG_CONTEXT)
    print(f"\nA price that steps up at {LONG_CONTEXT:,} tokens of context with 100 B active (FP8)")
    print(f"  says {kv:,.0f} bytes of cache a token, about {kv / 1e3:.0f} kB")
    own = resolve_model("deepseek-v3")
    bytes_per_token = sum(layer.attention.cache_bytes(1.0, 2.0) for layer in own.layers)
    context = price_step_context(gpu, "fp8", own.active_params, bytes_per_token)
    print(
        f"  DeepSeek-V3 keeps {bytes_per_token:,.0f} bytes (BF16): from {context:,.0f} tokens on, reading them takes"
    )
    print("  longer than multiplying the weights")


def sparse() -> None:
    """What if attention read the square root of the context."""
    model, gpu = resolve_model("deepseek-v3"), load_gpu("lecture")
    print("\nWhat if DeepSeek-V3's attention were sparse (nobody measured it): bytes that a sequence reads")
    rules = {"dense": "", "at most 2,048": "2048", "square root": "sqrt"}
    print(f"  {'tokens of context':<20}" + "".join(f"{name:>16}" for name in rules))
    for context in (4_096, 65_536, 1_048_576):
        reads = [
            sum(layer.attention.read_bytes(context, 2.0) for layer in as_if_sparse(model, rule).layers)
            for rule in rules.values()
        ]
        print(f"  {context:<20,}" + "".join(f"{read / 1e6:13,.1f} MB" for read in reads))
    steps = [
        model_price_step_context(as_if_sparse(model, rule), gpu, "bf16") for rule in ("", "2048", "sqrt")
    ]
    print(f"  {'over weights from':<20}" + "".join(f"{step:16,.0f}" for step in steps) + " tokens")
    print(
        "  (at the batch that balances computing and reading weights; all stays cached: no more sequences fit)"
    )


def activations() -> None:
    """What training keeps for the backward pass."""
    stages, micro_batches, tokens = 8, 32, 8_192
    print(f"\nActivations of training, {tokens:,} tokens a micro-batch, BF16, scores not kept")
    print(f"  {'':<28}{'a layer':>12}{'all layers':>12}{'stage 1 of 8':>14}{'stage 8':>9}{'compute':>9}")
    for name in ("llama-3.1-70b", "deepseek-v3"):
        model = resolve_model(name)
        each = layer_activation_bytes(model.layers[-1], model.hidden)
        for policy in POLICIES:
            whole = activation_bytes(model, policy) * tokens
            held = pipeline_activation_bytes(
                model, policy, stages=stages, micro_batches=micro_batches, tokens=tokens
            )
            first = f"{each / 1e3:.0f} kB/token" if policy == "plain" else ""
            print(
                f"  {name:<15}{policy:<13}{first:>12}{whole / 1e9:9.1f} GB{held[0] / 1e9:11.1f} GB"
                f"{held[-1] / 1e9:6.1f} GB{training_compute(policy):8.2f}x"
            )


def phases() -> None:
    """Output tokens against input tokens."""
    line = lecture_line(LONG_CONTEXT)
    print(f"\nOutput over input price, from decode over prefill ({LONG_CONTEXT:,} tokens of context)")
    for batch in (240.0, 1_000.0, 3_600.0, 1e6):
        print(f"  batch {batch:9,.0f}: {output_over_input(line, batch, chunk=CHUNK):5.1f}")
    print(f"  5 is a batch of {batch_for_output_price(line, 5.0, chunk=CHUNK):,.0f}")


def tiers() -> None:
    """Where to keep a cached context."""
    gpu = load_gpu("gb200")
    price = gpu_price(gpu, "rental")
    choices = [hbm_tier(gpu, price), *map(cache_tier, cache_tier_names())]
    line = replace(lecture_line(LONG_CONTEXT), domain=load_domain("gb200-nvl72"))
    usd_per_token = prefill_cost_per_token(line, float(CHUNK)) * price.value / 3600
    print(
        "\nThe cheapest place for a cached context, by how long it is kept (drain time: capacity over bandwidth)"
    )
    drains = {tier.name: f", drains in {duration(tier.drain_s)}" for tier in choices}
    for span in tier_spans(choices, recompute_usd_per_byte=usd_per_token / KV_BYTES):
        until = f"to {duration(span.to_s)}" if np.isfinite(span.to_s) else "on"
        print(f"  {span.name:<10}from {duration(span.from_s)} {until}{drains.get(span.name, '')}")


def duration(seconds: float) -> str:
    """A time in the unit that suits it."""
    for unit, size in (("years", 365.25 * 86400), ("hours", 3600), ("minutes", 60), ("s", 1)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e3:.3g} ms"


def bubbles() -> None:
    """Stages that wait."""
    print("\nPipeline bubble: time over the ideal, and share of it idle")
    for stages, micro_batches in ((4, 4), (4, 16), (8, 8), (8, 64)):
        slowdown, idle = bubble_slowdown(stages, micro_batches), bubble_share(stages, micro_batches)
        print(f"  {stages} stages, {micro_batches:>2} micro-batches: {slowdown:.2f} times, {idle:.0%} idle")


def life() -> None:
    """Equal spending on training and serving."""
    served = 50e6 * 2 * MONTH_S
    spend = equal_spend(ACTIVE_PARAMS, served, decode_efficiency=1 / 3, trained=1.0)
    print(
        "\nEqual spending on pre-training, reinforcement learning and inference (decode a third as efficient)"
    )
    trained, rl = spend.pretraining_tokens / 1e12, spend.rl_tokens / 1e12
    print(f"  50 M tokens/s for two months serve {served / 1e12:,.0f} T tokens:")
    print(f"  train on {trained:,.0f} T and generate {rl:,.0f} T in reinforcement learning;")
    print(
        f"  that is {spend.over_training:.0f} times Chinchilla's 20 tokens for each of 100 B active parameters"
    )
    print("  (the lecture: about 100 times)")


def prices() -> None:
    """Dollars and watts of a throughput."""
    cluster, tok_s = resolve_cluster("gb200-nvl72"), 5_789.6
    usd, power = price_per_gpu_s(cluster, "owner"), power_w_per_gpu(cluster)
    print(f"\n{tok_s:,} tokens/s on a GPU of {usd * 3600:.2f} USD/h and {power / 1e3:.2f} kW all in")
    per_mw = tok_s_per_mw(tok_s, power) / 1e6
    print(
        f"  {usd_per_million_tokens(tok_s, usd):.3f} USD per million tokens, {per_mw:.3f} M tokens/s per MW"
    )


def main() -> None:
    """Print the lecture."""
    chips()
    batches()
    experts()
    pipeline()
    bubbles()
    cost_of_small_batches()
    both_floors()
    fast()
    price_steps()
    sparse()
    phases()
    tiers()
    activations()
    life()
    prices()
    ratios()


if __name__ == "__main__":
    main()
