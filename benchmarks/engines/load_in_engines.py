"""Load exported plans with the engines' own code: needs torch and the engines' sources, and skips without.

    python benchmarks/engines/load_in_engines.py --ep 72 --experts 256 --layers 61 --nodes 18 \
        --sglang sglang.whl sglang.json --ascend vllm-ascend-checkout vllm-ascend.json --tp 1 2 4 8 \
        --hygon vllm-plugin-das-checkout hygon.json --lmdeploy lmdeploy-checkout lmdeploy.json

SGLang: ``srt/eplb/expert_location.py`` from the wheel, run whole for some ranks and every dispatch algorithm; its
runtime context (sizes, flags, device) is stubbed. vllm-ascend: ``vllm_ascend/eplb/core/eplb_utils.py`` of a checkout,
``init_eplb_config`` for every layer and some ranks; the device is the CPU. With ``--tp`` all ranks of some layers
take their copies with it, and a slot's share is what ``cost.dispatch.rank_shares`` says. Hygon's plug-in:
``load_static_eplb_plan`` of a checkout. LMDeploy: ``rebalance_experts`` of a checkout on the file's loads, against
what our reader says that it makes of them. Prints one line a check; the exit code is 1 if a file does not load or the
engine's map is not the file's. Nothing of vLLM is here: no release loads a plan.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import tempfile
import types
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

INSIDE = "sglang/srt/eplb/expert_location.py"


def module_of(name: str, path: Path) -> Any:
    """Run a file as a module."""
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def stub(name: str, **members: object) -> None:
    """Put a module with these members where the engine imports it from."""
    parts = name.split(".")
    for end in range(1, len(parts)):
        sys.modules.setdefault(".".join(parts[:end]), types.ModuleType(".".join(parts[:end])))
    module = types.ModuleType(name)
    for key, value in members.items():
        setattr(module, key, value)
    sys.modules[name] = module


def sglang(wheel: Path, plan: Path, args: argparse.Namespace, dispatch: str) -> bool:
    """Start SGLang's expert location on every rank; return whether its map is the file's."""
    rows = json.loads(plan.read_text())["physical_to_logical_map"]
    moe = SimpleNamespace(
        init_expert_location=str(plan),
        ep_num_redundant_experts=len(rows[0]) - args.experts,
        ep_dispatch_algorithm=dispatch,
        ep_join_mode=None,
        moe_a2a_backend="deepep",
        eplb_algorithm="auto",
    )
    parallel = SimpleNamespace(
        ep_size=args.ep, elastic_ep_initial_size=None, nnodes=args.nodes, tp_size=args.ep
    )
    facts = SimpleNamespace(num_layers=args.layers, num_logical_experts=args.experts, num_groups=None)
    model = SimpleNamespace(get_model_config_for_expert_location=lambda _: facts)
    stub(
        "sglang.srt.runtime_context",
        get_device=lambda: SimpleNamespace(device="cpu"),
        get_exec=lambda: SimpleNamespace(moe=moe),
        get_parallel=lambda: parallel,
        get_resources=lambda: SimpleNamespace(expert_location_metadata=None),
    )
    stub("sglang.srt.elastic_ep.elastic_ep", elastic_expanded_world_enabled=lambda: False)
    stub("sglang.srt.model_loader", get_model_architecture=lambda _: (model, None))
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "expert_location.py"
        with zipfile.ZipFile(wheel) as archive:
            source.write_bytes(archive.read(INSIDE))
        engine = module_of("sglang_expert_location", source)
    config = SimpleNamespace(hf_config=None)
    for rank in range(0, args.ep, max(1, args.ep // args.ranks)):
        found = engine.compute_initial_expert_location_metadata(config, rank)
        if (
            found.physical_to_logical_map.tolist() != rows
            or found.num_local_physical_experts * args.ep != len(rows[0])
        ):
            return False
        if dispatch == "static":
            slot = found.logical_to_rank_dispatch_physical_map
            back = found.physical_to_logical_map.gather(1, slot)
            if back.tolist() != [list(range(args.experts))] * args.layers:
                return False
    return True


def ascend(checkout: Path, plan: Path, args: argparse.Namespace) -> bool:
    """Build vllm-ascend's tables for every MoE layer; return whether each slot holds the file's expert."""
    import torch

    stub("vllm.logger", logger=SimpleNamespace(warning=print, info=print))
    stub("vllm.model_executor.layers.fused_moe.expert_map_manager", determine_expert_map=None)
    torch.Tensor.npu = lambda self: self  # type: ignore[attr-defined]
    engine = module_of("ascend_eplb_utils", checkout / "vllm_ascend/eplb/core/eplb_utils.py")
    layers = json.loads(plan.read_text())["layer_list"]
    held = [[device["device_expert"] for device in layer["device_list"]] for layer in layers]
    config = SimpleNamespace(expert_map_path=str(plan), dynamic_eplb=False, num_redundant_experts=0)
    for index, devices in enumerate(held):
        rank = (7 * index) % args.ep
        moe = SimpleNamespace(num_experts=args.experts, ep_size=args.ep, ep_rank=rank)
        tables, own, slots, redundant = engine.init_eplb_config(config, index, moe, tp_size=1)
        each = len(devices[0])
        flat = [expert for device in devices for expert in device]
        if redundant != len(flat) - args.experts or tables.shape != (args.ep, args.experts):
            return False
        if [int(own[expert]) for expert in devices[rank]] != list(range(each)):
            return False
        if [flat[int(slot)] for slot in slots] != list(range(args.experts)):
            return False
    return True


def ascend_split(plan: Path, args: argparse.Namespace, tp: int) -> bool:
    """Let every rank take its copies in some layers; return whether our shares are theirs."""
    import numpy as np

    from cost.assignment import Assignment
    from cost.dispatch import rank_shares

    engine = sys.modules["ascend_eplb_utils"]
    layers = json.loads(plan.read_text())["layer_list"]
    config = SimpleNamespace(expert_map_path=str(plan), dynamic_eplb=False, num_redundant_experts=0)
    for index in range(0, len(layers), max(1, len(layers) // args.ranks)):
        held = [device["device_expert"] for device in layers[index]["device_list"]]
        each = len(held[0])
        slots, owner = np.array(held).reshape(1, -1), np.repeat(np.arange(args.ep), each)
        assignment = Assignment(slots.astype(np.int32), owner.astype(np.int32), args.experts, args.ep)
        theirs = np.zeros(slots.size)
        for rank in range(args.ep):
            moe = SimpleNamespace(num_experts=args.experts, ep_size=args.ep, ep_rank=rank)
            taken = engine.init_eplb_config(config, index, moe, tp_size=tp)[2]
            theirs[taken.numpy()] += 1 / args.ep
        if not np.allclose(theirs, rank_shares(assignment, tp)[0], rtol=0, atol=1e-9):
            return False
    return True


def hygon(checkout: Path, plan: Path, args: argparse.Namespace) -> bool:
    """Load the map of each class; return whether it is the file's."""
    source = checkout / "vllm_hcu/model_executor/layers/fused_moe/static_eplb.py"
    engine = module_of("hygon_static_eplb", source)
    maps = json.loads(plan.read_text())["model_maps"]
    for name, data in maps.items():
        rows = data["physical_to_logical_map"]
        found = engine.load_static_eplb_plan(
            plan,
            model_key=name,
            expected_shape=(len(rows), len(rows[0])),
            num_logical_experts=args.experts,
            num_redundant_experts=len(rows[0]) - args.experts,
        )
        if found.physical_to_logical_map.tolist() != rows:
            return False
    return bool(maps)


def lmdeploy(checkout: Path, plan: Path, args: argparse.Namespace) -> bool:
    """Run EPLB on the file's loads; return whether GPUs hold the experts that our reader says."""
    import numpy as np
    import torch

    from placement.engines.eplb_weights import copies_of, eplb_places

    names = ("experts_statistic_file", "num_groups", "num_redundant_experts", "ranks_per_node")
    stub("lmdeploy.pytorch.envs", **{f"eplb_{name}": 1 for name in names})
    engine = module_of("lmdeploy_eplb", checkout / "lmdeploy/pytorch/nn/eplb.py")
    rows = np.array(json.loads(plan.read_text()))
    rows = rows[args.layers - args.moe_layers :]
    slots = int(copies_of(rows[0]).sum())
    loads = torch.tensor(rows.tolist(), dtype=torch.float32)
    theirs = engine.rebalance_experts(loads, slots, 1, 1, args.ep)[0].numpy()
    ours = np.array([eplb_places(row.astype(np.float64), slots, args.ep) for row in rows])
    held = [np.sort(each.reshape(len(rows), args.ep, -1), axis=2) for each in (theirs, ours)]
    return bool(np.array_equal(*held))


def main() -> int:
    """Run the checks asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--ep", type=int, required=True)
    parser.add_argument("--experts", type=int, required=True)
    parser.add_argument("--layers", type=int, required=True, help="all layers of the model")
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--ranks", type=int, default=4, help="ranks to try")
    parser.add_argument("--sglang", nargs=2, type=Path, metavar=("WHEEL", "PLAN"))
    parser.add_argument("--ascend", nargs=2, type=Path, metavar=("CHECKOUT", "PLAN"))
    parser.add_argument(
        "--tp", nargs="*", type=int, default=[], help="with --ascend: tensor parallelism of attention"
    )
    parser.add_argument("--hygon", nargs=2, type=Path, metavar=("CHECKOUT", "PLAN"))
    parser.add_argument("--lmdeploy", nargs=2, type=Path, metavar=("CHECKOUT", "PLAN"))
    parser.add_argument("--moe-layers", type=int, help="the last ones; absent: all")
    args = parser.parse_args()
    args.moe_layers = args.moe_layers or args.layers
    if importlib.util.find_spec("torch") is None:
        print("skipped: torch is not installed")
        return 0
    done = []
    if args.sglang:
        ways = ("static", "dynamic", "lp")
        done += [(f"SGLang {way}", sglang(*args.sglang, args, way)) for way in ways]
    if args.ascend:
        done.append(("vllm-ascend", ascend(*args.ascend, args)))
        done += [(f"vllm-ascend TP {tp}", ascend_split(args.ascend[1], args, tp)) for tp in args.tp]
    if args.hygon:
        done.append(("Hygon", hygon(*args.hygon, args)))
    if args.lmdeploy:
        done.append(("LMDeploy", lmdeploy(*args.lmdeploy, args)))
    for name, good in done:
        print(f"{name:<16} {'loads, and its map is the plan' if good else 'DIFFERS'}")
    return 0 if all(good for _, good in done) else 1


if __name__ == "__main__":
    sys.exit(main())
