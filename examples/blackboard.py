"""The blackboard lecture as numbers, every one of them from the library.

Run it with ``python examples/blackboard.py`` where rackplan is installed.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cost import resolve_model
from cost.expert_use import balanced_use
from cost.lecture import (
    Roofline,
    balancing_batch,
    experts_per_gpu,
    flop_per_byte,
    hbm_read_s,
    leaving_share,
    pipeline_hop_ratio,
    spanning_slowdown,
    tokens_per_s,
)
from cost.terms.alltoall import alltoall_volume
from topology import cluster_names, find_scale_out, gpu_names, load_domain, load_gpu, load_scale_out

LECTURE_EXPERTS, LECTURE_ACTIVE = 256, 32
"""The lecture's sparse model: 32 of every 256 weights are active."""


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
    print(f"  the lecture rounds to 2,000 x 64 = {tokens_per_s(2000, 1 / 64):,.0f} tokens/s")


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
    volume = alltoall_volume(use, tokens=1.0, domain=np.repeat(np.arange(2), used))
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


def main() -> None:
    """Print the lecture."""
    chips()
    batches()
    experts()
    pipeline()
    cost_of_small_batches()
    ratios()


if __name__ == "__main__":
    main()
