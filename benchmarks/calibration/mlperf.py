"""How far off the throughput of layouts that the model chooses is on MLPerf Inference v6.0, which no fit has seen.

``python benchmarks/calibration/mlperf.py MLPERF.csv``: results of the closed division of models and chips of the
catalog. Offline has no limit on latency: beside each is the most output tokens/s/GPU of ``sweep`` on as many GPUs.
Server has limits on the 99th percentiles: beside each is the most that a simulation keeps them at. Requests are of
the mean lengths of the data set, all alike; TensorRT-LLM, NVFP4 weights and an FP8 cache, without drafts.
"""

from __future__ import annotations

import csv
import re
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path

import numpy as np

from cost.inputs.deployment import Deployment
from cost.inputs.workload import Workload
from cost.queueing.choice import best_under_load
from cost.queueing.load import LoadLimits
from cost.serving.lengths import Lengths
from cost.serving.serving import Serving
from cost.validation.predict import group_points
from cost.validation.read import Point, Pool
from topology.files.resolve import resolve_cluster

PROMPTS = {"deepseek-r1": ("deepseek-r1", 800), "llama3.1-405b": ("llama-3.1-405b", 9400)}
"""Model of the catalog and mean tokens of a prompt by benchmark. Source: MLCommons' texts on Inference v5.1 (about
800) and v5.0 (9,400). Those of an answer follow from tokens and samples a second."""
LIMITS = {"deepseek-r1": LoadLimits(2.0, 0.08), "llama3.1-405b": LoadLimits(6.0, 0.175)}
"""99th percentiles of the server scenario in seconds (MLCommons inference rules, latency constraints)."""
SYSTEMS = {
    "hgx-b200": r"B200-SXM|nebius_b200",
    "hgx-b300": r"B300|nebius_b300",
    "gb200-nvl72": r"GB200-NVL72",
    "gb300-nvl72": r"GB300-NVL72",
}
"""What the name of a system holds, by cluster; the last that fits counts."""
NODE_GPUS = 8


def main() -> None:
    """Print each result, and the errors by cluster and model."""
    errors = defaultdict(list)
    with Path(sys.argv[1]).open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if _counts(row)]
    for row in rows:
        cluster, gpus = _system(row["system"])
        model, isl = PROMPTS[row["benchmark"]]
        tokens, samples = float(row["tokens_per_s"]), float(row["samples_per_s"])
        scenario, limits = row["scenario"].lower(), LIMITS[row["benchmark"]]
        measured, osl = tokens / gpus, round(tokens / samples, -1)
        told = most(model, cluster, gpus, isl, osl, limits if scenario == "server" else None)
        errors[scenario, cluster, model].append(told / measured)
        sys.stdout.write(
            f"{scenario:8} {model:15} {cluster:12} {gpus:4} {row['submitter']:24} {measured:8,.0f} {told:8,.0f} "
            f"tok/s/GPU {told / measured:6.2f}x\n"
        )
        sys.stdout.flush()
    sys.stdout.write("\n")
    for (scenario, cluster, model), ratios in sorted(errors.items()):
        off = np.abs(np.array(ratios) - 1)
        sys.stdout.write(
            f"{scenario:8} {model:15} {cluster:12} {len(off):3} rows: median error {np.median(off):.1%}, "
            f"predicted over measured {np.median(ratios):.2f}\n"
        )


def _counts(row: dict[str, str]) -> bool:
    known = row["benchmark"] in PROMPTS and _system(row["system"])[0] and row["samples_per_s"]
    asked = row["division"], row["scenario"].lower(), row["valid"]
    return bool(known) and asked in (("closed", "offline", "VALID"), ("closed", "server", "VALID"))


def _system(name: str) -> tuple[str, int]:
    """Return cluster (empty: none of ours) and GPUs of a system by its name."""
    found = [cluster for cluster, pattern in SYSTEMS.items() if re.search(pattern, name)]
    count = re.search(r"(?:GB|aarch64)x(\d+)_", f"{name}_")
    return (found[-1] if found else ""), int(count[1]) if count else NODE_GPUS


@cache
def most(model: str, cluster: str, gpus: int, isl: int, osl: float, limits: LoadLimits | None) -> float:
    """Return the most output tokens/s/GPU of a cluster, where limits are given while they are kept."""
    point = Point(
        "", "", "tok_s_per_gpu", 1.0, "aggregated", cluster, model, weights="nvfp4", kv_dtype="fp8", pool=Pool(),
        concurrency=1, isl=isl, osl=int(osl), engine="trtllm",
    )  # fmt: skip
    group = group_points([point])[0][0]
    where = resolve_cluster(f"{cluster}@{gpus}")
    deployment = Deployment(where, group.model, Workload(kv_dtype="fp8"), engine="trtllm")
    speeds = [] if limits is None or limits.tpot_s is None else [1 / limits.tpot_s]
    serving = Serving.of(deployment, Lengths.of(isl, int(osl)), speeds=speeds)
    if limits is None:
        best = serving.best()
        if best is None:
            raise ValueError(f"{model} does not fit {where.name}.")
        return best.output_tok_s_per_gpu
    loaded = best_under_load(serving, limits)
    rate = loaded.requests_per_s if loaded is not None else None
    return 0.0 if rate is None else rate * osl / gpus


if __name__ == "__main__":
    main()
