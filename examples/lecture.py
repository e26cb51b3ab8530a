"""The blackboard lecture as numbers: what a roofline says of a mixture of experts, by the package's functions.

The lecture's rack is 72 GPUs of 2.4 PFLOP/s in BF16, 8 TB/s and 160 GB, each with 900 GB/s inside the rack and an
eighth of that outside. ``rackplan plan`` and ``rackplan size`` count what a blackboard leaves out.
"""

from __future__ import annotations

import numpy as np

from cost import resolve_model
from cost.experts.tokens.reach import Routing
from cost.experts.tokens.volumes import alltoall_volumes
from cost.inputs.deployment import Deployment
from cost.inputs.layout import StageSpec
from cost.inputs.machine import PEAK
from cost.inputs.workload import StepShape, Workload
from cost.step.step import even_step
from cost.terms.pipeline import ACTIVATION_BYTES, bubble_seconds, hop_seconds
from topology import load_domain, load_gpu, load_scale_out, resolve_cluster

MODEL, EXPERTS, ACTIVE = "deepseek-v3", 256, 8
GPUS = 72


def floors(batch: int, context: int) -> dict[str, float]:
    """Seconds that compute and memory of the rack are busy in a step of ``batch`` sequences, all at peak."""
    cluster, model = resolve_cluster("lecture-72"), resolve_model(MODEL)
    deployment = Deployment(cluster, model, Workload(context=context), efficiency=PEAK)
    stage = StageSpec(tuple(range(GPUS)), range(len(model.layers)))
    shape = StepShape(tp=1, attention_dp=GPUS, ep=GPUS, domain_gpus=GPUS)
    step = even_step(model, shape.under(deployment.workload, batch / GPUS), deployment.machine(stage))
    return {limit: float(seconds) for limit, seconds in step.floor_s.items()}


def balance() -> None:
    """Weights are read once a step: a small batch pays for reading, a large one for computing."""
    gpu, model = load_gpu("lecture"), resolve_model(MODEL)
    ratio = gpu.dense_flop_per_s("bf16") / gpu.hbm_bytes_per_s
    print(f"A GPU computes {ratio:.0f} flop while it reads a byte")
    print(
        f"so 32 of 256 weights active balance at {ratio:.0f} x 256/32 = {ratio * 256 / 32:,.0f} tokens a step,"
    )
    own = ratio * model.total_params / model.active_params
    print(
        f"{MODEL} at {ratio:.0f} x {model.total_params / 1e9:.0f}/{model.active_params / 1e9:.0f} = {own:,.0f}"
    )
    print(
        f"All of HBM is read in {gpu.hbm_bytes / gpu.hbm_bytes_per_s * 1e3:.0f} ms: no step that uses it is faster"
    )


def step() -> None:
    """A step takes at least as long as the busier of compute and memory."""
    print(f"\nA step of {MODEL} on the rack, context 4,096: max(compute, memory)")
    print(f"  {'batch':>7}{'compute':>12}{'memory':>12}{'step':>12}{'GPU-s a token':>16}")
    for batch in (72, 720, 7_200, 72_000):
        busy = floors(batch, 4_096)
        compute_s, memory_s = busy["compute"], busy["HBM bandwidth"]
        longest_s = max(compute_s, memory_s)
        print(
            f"  {batch:>7,}{compute_s * 1e3:9.2f} ms{memory_s * 1e3:9.2f} ms{longest_s * 1e3:9.2f} ms"
            f"{GPUS * longest_s / batch:16.2e}"
        )


def cache() -> None:
    """Weights are shared by a batch, caches are not: at some context reading them takes longer than anything else."""
    layers = resolve_model(MODEL).layers
    print(f"\nKV cache of {MODEL} in BF16, and a step of 720 sequences")
    for context in (1_024, 4_096, 16_384, 65_536):
        stored = sum(float(layer.attention.cache_bytes(context, 2.0)) for layer in layers)
        busy = floors(720, context)
        print(
            f"  {context:>7,} tokens: {stored / 1e9:6.3f} GB a sequence, step {max(busy.values()) * 1e3:6.2f} ms"
        )


def all_to_all() -> None:
    """Inside a rack an all-to-all has eight times the rate that it has outside."""
    up_rate = load_domain("lecture-72").scale_up_bytes_per_s
    out_rate = load_scale_out("lecture-72").scale_out_bytes_per_s
    print(
        f"\nScale-up links are {up_rate / out_rate:.0f} times as fast as scale-out ones. A dispatch of a token:"
    )
    inside = alltoall_volumes("per-copy", Routing(EXPERTS, ACTIVE), tokens=1.0, ep=GPUS, domain_gpus=GPUS)
    across = alltoall_volumes("per-copy", Routing(EXPERTS, ACTIVE), tokens=1.0, ep=2 * GPUS, domain_gpus=GPUS)
    one_s = inside.up / up_rate
    both_s = np.maximum(across.up / up_rate, across.out / out_rate)
    share = across.out / (across.up + across.out)
    print(f"  over two racks {share:.0%} of it leaves the rack, and takes {both_s / one_s:.1f} times as long")


def pipeline() -> None:
    """Layers on different racks cross the slow links once a stage, experts would in every layer."""
    cluster, model = resolve_cluster("lecture-72@144"), resolve_model(MODEL)
    deployment = Deployment(cluster, model, Workload(context=4_096), efficiency=PEAK)
    half = len(model.layers) // 2
    first = StageSpec(tuple(range(GPUS)), range(half))
    second = StageSpec(tuple(range(GPUS, 2 * GPUS)), range(half, len(model.layers)))
    vector = model.hidden * ACTIVATION_BYTES
    fabric, _, hop_s = hop_seconds(deployment, first, second, moved=vector)
    up_rate = load_domain("lecture-72").scale_up_bytes_per_s
    inside_s = half * 2 * ACTIVE * vector / up_rate
    print(
        f"\nTwo racks, {half} layers on the first: a token spends {inside_s / hop_s:.0f} times as long on its"
    )
    print(f"  dispatches and combines inside a rack as on its hop over {fabric}")
    wait = float(bubble_seconds(4, 1.25 / 4, 1.0, 0.0))
    print(f"  of 4 stages one a quarter above their mean: {wait:.0%} of a pass is waiting for it")


def where_it_holds() -> None:
    """The blackboard's round numbers on systems that are sold."""
    print("\nOn real systems     flop/byte   HBM read   scale-up over scale-out")
    for system in ("lecture-72", "hgx-h100", "hgx-b200", "gb200-nvl72", "gb300-nvl72", "mi300x"):
        domain = load_domain(system)
        ratio = domain.gpu.dense_flop_per_s("bf16") / domain.gpu.hbm_bytes_per_s
        read_s = domain.gpu.hbm_bytes / domain.gpu.hbm_bytes_per_s
        apart = domain.scale_up_bytes_per_s / load_scale_out(system).scale_out_bytes_per_s
        print(f"  {system:<16}{ratio:11.0f}{read_s * 1e3:8.0f} ms{apart:19.0f} x")
    print(
        "  300 flop/byte holds on NVIDIA's GPUs, 20 ms to read HBM on no chip: capacity grew faster than bandwidth."
    )
    print("  Eight times slower outside is an H100 host; a rack of GB200 with a 400 Gb/s NIC each is at 18.")
    print(
        "  A token alone reads its active weights: it costs as often as much as one in a large batch as a chip"
    )
    print("  has flop/byte, 247 to 312 times, not a thousand.")
    old, new = load_gpu("h100-sxm"), load_gpu("b200-sxm")
    faster = new.hbm_bytes_per_s / old.hbm_bytes_per_s
    domain = GPUS / 8 * faster
    print(
        f"  B200 has {faster:.1f} times the bandwidth of H100; 72 of them read weights {domain:.0f} times as fast as"
    )
    print("  8 H100: a larger domain matters for its bandwidth more than for its capacity.")


def main() -> None:
    """Print the lecture."""
    balance()
    step()
    cache()
    all_to_all()
    pipeline()
    where_it_holds()


if __name__ == "__main__":
    main()
