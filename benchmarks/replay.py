"""Online balancers on windows blended from published workloads: ours, engines', and vllm-ascend's own beside ours.

Eight published DeepSeek-V3 workloads where they lie beside the repository (``../shared/data/expert_loads``). Each of
thirty windows is a blend of them with Poisson noise; five of the eight are stored beforehand, three are not.
``python benchmarks/replay.py [--windows N] [--seed N] [--ascend FOLDER]`` prints a table for each size; with a folder
of vllm-ascend's policies (``vllm_ascend/eplb/core/policy``), torch and numba, its own FlashLB and SwiftBalancer too.
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from cost.deployment import Deployment
from cost.loads import ExpertLoads
from cost.resolve import resolve_model
from cost.workload import Workload
from placement.online.policies import NAMES, entries
from placement.online.setting import plan_setting
from placement.online.simulate import Entry, Run, replay
from placement.options import PlanOptions
from placement.planner import make_plan
from topology.resolve import resolve_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from placement.arrays import Experts, Floats
    from placement.online.policy import Group, MakePolicy

REAL = Path(__file__).resolve().parents[2] / "shared" / "data" / "expert_loads"
STORED = (0, 2, 3, 5, 7)
SETTINGS = (("gb200-nvl72", 72, 32), ("hgx-h200@32", 32, 32))  # cluster, GPUs of a group, redundant copies
STEPS = 3000
POLICIES = (*NAMES, "rackplan:1%", "rackplan:none")


def main() -> None:
    """Print one table per size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--windows", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--ascend", type=Path, help="folder of vllm-ascend's policies")
    options = parser.parse_args()
    paths = sorted(REAL.glob("*.npy"))
    if not paths:
        print(f"no workloads in {REAL.parent.parent.name}/data/expert_loads beside the repository")
        return
    print(f"Python {platform.python_version()}, NumPy {np.__version__}, {platform.machine()}")
    tokens = np.stack([np.load(path) for path in paths]).astype(np.float64)
    stored = ExpertLoads(tokens[list(STORED)], tuple(paths[at].stem for at in STORED), synthetic=False)
    windows = blended(tokens, options.windows, options.seed)
    for cluster, gpus, redundant in SETTINGS:
        print(f"\n{cluster}, {gpus} GPUs, {redundant} redundant copies, {len(windows)} windows\n")
        print("| policy | every | balance | worst | moved | imbalance s | moves s | tokens | CPU s |")
        print("|---|---|---|---|---|---|---|---|---|")
        found = list(runs(cluster, gpus, redundant, windows, stored, options.ascend))
        for run in found:
            print(row(run, next(each for each in found if each.entry.name == "vllm")), flush=True)


def blended(tokens: Floats, windows: int, seed: int) -> Floats:
    """Return ``[windows, layers, experts]``: each a Dirichlet blend (.3) of the workloads, 1,000 tokens an expert."""
    rng = np.random.default_rng(seed)
    loads = tokens / tokens.mean(axis=2, keepdims=True)
    weights = rng.dirichlet(np.full(len(loads), 0.3), windows)
    return rng.poisson(np.einsum("ws,sle->wle", weights, loads) * 1000.0).astype(np.float64)


def runs(
    cluster: str, gpus: int, redundant: int, windows: Floats, stored: ExpertLoads, ascend: Path | None
) -> Iterator[Run]:
    """Replay all policies; their own of vllm-ascend after ours."""
    deployment = Deployment(resolve_cluster(cluster), resolve_model("deepseek-v3"), Workload())
    plan = make_plan(deployment, stored, PlanOptions(redundant=redundant, time_limit_s=0.0, ep=gpus))
    setting = plan_setting(plan, STEPS, stored)
    shape: dict[str, Any] = {"windows": len(windows), "layers": setting.layers, "planned": False}
    found = entries(POLICIES, steps_per_window=STEPS, **shape)
    for name, make in originals(ascend).items() if ascend else ():
        found.append(Entry(f"{name} (its own code)", make, linear=True))
    begun = time.process_time()
    yield from replay(windows, found, setting).runs
    print(f"\n{time.process_time() - begun:.1f} s of CPU for all of it\n", file=sys.stderr)


def row(run: Run, baseline: Run) -> str:
    """Return one row of the table."""
    cells = [run.entry.name, str(run.entry.interval or "-"), f"{run.mean:.4f}", f"{run.worst:.4f}"]
    cells += [f"{run.copies_moved:.1%}", f"{run.imbalance_s:.1f}", f"{run.moves_s:.2f}"]
    cells += [f"{run.tok_s / baseline.tok_s - 1:+.2%}", f"{run.cpu_s:.2f}"]
    return f"| {' | '.join(cells)} |"


def originals(where: Path) -> dict[str, MakePolicy]:
    """Return vllm-ascend's own FlashLB and SwiftBalancer by name; they are read from their files alone."""
    import torch

    torch.set_num_threads(1)
    torch.npu = SimpleNamespace(device_count=lambda: 8)  # only split by node, which is not asked for
    quiet = SimpleNamespace(info=print, debug=print, warning=print, error=print)
    stubs: dict[str, dict[str, object]] = {"torch_npu": {}, "vllm": {}, "vllm_ascend": {}, "_ascend": {}}
    stubs["vllm.logger"] = {"logger": quiet}
    stubs["vllm_ascend.distributed"] = {}
    ranks = SimpleNamespace(world_size=0)
    stubs["vllm_ascend.distributed.parallel_state"] = {"get_dynamic_eplb_group": lambda: ranks}
    for name, holds in stubs.items():
        sys.modules[name] = ModuleType(name)
        sys.modules[name].__dict__.update(holds)
    classes = {}
    for file, name in (("abstract", ""), ("flashlb", "FlashLB"), ("swift_balancer", "SwiftBalanceEplb")):
        source = (
            (where / f"policy_{file}.py").read_text(encoding="utf-8").replace("cache=True", "cache=False")
        )
        module = ModuleType(f"_ascend.policy_{file}")
        module.__package__ = "_ascend"
        sys.modules[module.__name__] = module
        exec(compile(source, f"policy_{file}.py", "exec"), module.__dict__)  # noqa: S102  the rival's own code
        classes[name] = module.__dict__.get(name)

    class Original:
        def __init__(self, group: Group, name: str) -> None:
            ranks.world_size = group.gpus
            self._group, self._stages, self._policy = group, name == "FlashLB", classes[name]()
            self._load = np.zeros(0)

        def observe(self, window: Floats) -> None:
            self._load = window

        def place(self, old: Experts) -> Experts:
            table = old.reshape(len(old), self._group.gpus, -1).astype(np.int64)
            load = self._group.problem(self._load).assignment(old).slot_load(self._load).reshape(table.shape)
            seen = torch.from_numpy(load[None] if self._stages else load)
            found = self._policy.rebalance_experts(torch.from_numpy(table.copy()), seen)[2]
            return np.array(found).reshape(old.shape).astype(np.int32)

    return {
        "flashlb": lambda group: Original(group, "FlashLB"),
        "swift": lambda group: Original(group, "SwiftBalanceEplb"),
    }


if __name__ == "__main__":
    main()
