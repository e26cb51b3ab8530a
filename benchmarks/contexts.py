"""What decode context parallelism gains, beside published runs: ``python benchmarks/contexts.py``.

Gains are of output tokens per second over the same engine and GPUs without it; what a source does not say (lengths,
format of the cache) is priced both ways.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cost.inputs.deployment import Deployment
from cost.inputs.workload import Workload
from cost.layouts import sweep
from cost.resolve import resolve_model
from topology import resolve_cluster


def tok_s(deployment: Deployment, tp: int, ep: int, sequences: int) -> float:
    """Return the most tok/s of one replica over all GPUs with at most so many sequences."""
    gpus = len(deployment.cluster.gpus)
    swept = sweep(deployment, imbalance=None, batches=[sequences / gpus])
    rows = (swept.tp == tp) & (swept.ep == ep) & (swept.gpus == gpus) & (swept.stages == 1)
    return float(swept.tok_s[rows & (swept.batch <= sequences / gpus)].max())


def gain(deployment: Deployment, dcp: int, tp: int, ep: int, sequences: int) -> float:
    """Return by what part ``dcp`` gives more."""
    plain, split = (tok_s(replace(deployment, dcp=width), tp, ep, sequences) for width in (1, dcp))
    return split / plain - 1


def vllm_25049() -> None:
    """DeepSeek-R1 in FP8, TP 8, 2,048 + 1,024 tokens, 4,096 users (duration and tokens of its log); a Hopper GPU."""
    work = Workload(phase="both", context=2_560, prompt=2_048, answer=1_024)
    where = Deployment(resolve_cluster("hgx-h200@8"), resolve_model("deepseek-r1"), work, engine="vllm")
    for dcp, published in ((4, 0.28), (8, 0.50)):
        print(f"vllm #25049 dcp {dcp}: published {published:+.0%}, ours {gain(where, dcp, 8, 1, 4096):+.0%}")


def sglang_32795() -> None:
    """Qwen3.5-397B in NVFP4 on 16 GB300, TP 16, 1,024 users: +40 % with DCP 4; lengths and cache are not said."""
    model, cluster = resolve_model("qwen3.5-397b-a17b", weights="nvfp4"), resolve_cluster("gb300-nvl72@16")
    for prompt in (1_024, 8_192, 32_768):
        for kv_dtype in ("fp8", "bf16"):
            work = Workload(context=prompt + 512, kv_dtype=kv_dtype)
            where = Deployment(cluster, model, work, engine="sglang", max_seqs=1024)
            ours = ", ".join(f"EP {ep} {gain(where, 4, 16, ep, 1024):+.0%}" for ep in (1, 16))
            print(f"sglang #32795 {prompt} + 1024 {kv_dtype}: published +40%, ours {ours}")


def sglang_33926() -> None:
    """TP 8 on Blackwell, MLA: between which concurrencies DCP 8 overtakes, and the gain at 64 users."""
    model, cluster = resolve_model("deepseek-r1", weights="nvfp4"), resolve_cluster("hgx-b200@8")
    published = {
        32_768: ("8 to 16", 0.57),
        65_536: ("4 to 8", 0.57),
        131_072: ("2 to 4", 0.68),
        262_144: ("below 1", 0.52),
    }
    for context, (between, measured) in published.items():
        where = Deployment(cluster, model, Workload(context=context, kv_dtype="fp8"), engine="sglang")
        gains = {users: gain(where, 8, 8, 8, users) for users in (1, 2, 4, 8, 16, 64)}
        first = next(users for users, ours in gains.items() if ours > 0)
        ours = f"{first // 2} to {first}" if first > 1 else "below 1"
        print(
            f"sglang #33926 {context}: overtakes at {between}, ours {ours}; {measured:+.0%}, ours {gains[64]:+.0%}"
        )


def cached_tokens() -> None:
    """SGLang #31821: 2,292,288 tokens become 4,252,416 by DCP 2 with an FP8 cache; of a DSA model."""
    published = 4_252_416 / 2_292_288
    for name in ("glm-5.2", "deepseek-v3.2"):
        attentions = [(layer.attention, count) for layer, count in resolve_model(name).whole.layers]
        each = [
            sum(
                float(count * one.cache_share(one.cache_bytes(1e5, 1.0), 1e5, 8.0, dcp))
                for one, count in attentions
            )
            for dcp in (1.0, 2.0)
        ]
        print(f"sglang #31821 tokens: published x{published:.3f}, {name} x{each[0] / each[1]:.3f}")


if __name__ == "__main__":
    np.seterr(all="raise", under="ignore")
    vllm_25049()
    sglang_32795()
    sglang_33926()
    cached_tokens()
