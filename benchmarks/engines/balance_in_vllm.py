"""vLLM's own re-plans with its balancer or ours: its plug-in loader, state and transfers, over gloo, no GPU.

    RACKPLAN_BALANCER=1 python benchmarks/engines/balance_in_vllm.py [RANKS]

Run with a Python that has torch, vLLM's sources and rackplan installed with its entry points. Every rank is a process
with a hash seed of its own. After each re-plan every slot must hold the weights of the expert that the map says, and
all ranks the same map.
"""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

LAYERS, EXPERTS, SPARE, WINDOWS = 4, 32, 8, 6
SLOTS = EXPERTS + SPARE


class Event:
    """Stands in for a device's event."""

    def __init__(self, **_: object) -> None:
        pass

    def record(self) -> None:
        """Do nothing."""

    synchronize = record

    def elapsed_time(self, _: object) -> float:
        """Return nothing elapsed."""
        return 0.0


def main() -> None:
    """Start a process for each rank; end as the worst of them."""
    ranks = int(sys.argv[1]) if len(sys.argv) > 1 else 4
    started = []
    for rank in range(ranks):
        environ = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": os.environ.get("MASTER_PORT", "29517")}
        environ |= {"RANK": str(rank), "WORLD_SIZE": str(ranks), "PYTHONHASHSEED": str(rank)}
        started.append(subprocess.Popen([sys.executable, __file__, "rank"], env=os.environ | environ))  # noqa: S603
    sys.exit(max(each.wait() for each in started))


def serve(rank: int, ranks: int) -> None:
    """Re-plan after each of some windows, as one rank."""
    import torch
    import torch.distributed as dist
    from vllm.distributed.eplb import eplb_communicator, eplb_state
    from vllm.plugins import load_general_plugins

    torch.set_num_threads(1)
    load_general_plugins()
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    group: Any = dist.group.WORLD
    eplb_state.get_ep_group = lambda: SimpleNamespace(device_group=group)
    eplb_state.get_node_count = lambda: 1
    eplb_state.torch.Event = Event
    eplb_state.PIN_MEMORY = eplb_communicator.PIN_MEMORY = False
    eplb_communicator.is_local_first_rank = lambda: False

    first = eplb_state.EplbState.build_initial_global_physical_to_logical_map(EXPERTS, SPARE)
    placed = torch.tensor([first] * LAYERS)
    mine = slice(rank * SLOTS // ranks, (rank + 1) * SLOTS // ranks)
    weights = [[(1000.0 * layer + placed[layer, mine])[:, None].repeat(1, 8)] for layer in range(LAYERS)]
    slots_of, count = eplb_state.compute_logical_maps(placed, EXPERTS)
    model = SimpleNamespace(
        num_logical_experts=EXPERTS,
        num_moe_layers=LAYERS,
        num_physical_experts=SLOTS,
        num_expert_groups=1,
        expert_weights=weights,
    )
    held = SimpleNamespace(
        expert_load_window=torch.zeros(1, LAYERS, SLOTS, dtype=torch.int32),
        physical_to_logical_map=placed,
        logical_to_physical_map=torch.nn.functional.pad(
            slots_of, (0, SPARE + 1 - slots_of.shape[-1]), value=-1
        ),
        logical_replica_count=count,
        model=model,
        expert_buffer=[torch.empty_like(weights[0][0])],
        communicator=eplb_communicator.TorchDistNcclEplbCommunicator(group),
    )
    state = eplb_state.EplbState.__new__(eplb_state.EplbState)
    state.model_states, state.is_async, state.expert_load_window_size = {"model": held}, False, 1
    state.policy = eplb_state.EPLB_POLICIES["default"]
    state.rearrange(is_profile=True)
    for window in range(WINDOWS):
        loads = torch.rand(LAYERS, EXPERTS, generator=torch.Generator().manual_seed(window)) ** 3 * 1000
        before, old = held.physical_to_logical_map, held.physical_to_logical_map.clone()
        held.expert_load_window.zero_()
        held.expert_load_window[0, :, mine] = (
            (loads / held.logical_replica_count).gather(1, before)[:, mine].int()
        )
        state.rearrange()
        placed = held.physical_to_logical_map
        for layer in range(LAYERS):
            assert torch.equal(weights[layer][0][:, 0], 1000.0 * layer + placed[layer, mine]), "wrong weights"
        others = [torch.empty_like(placed) for _ in range(ranks)]
        dist.all_gather(others, placed)
        assert all(torch.equal(each, placed) for each in others), "ranks differ"
        if rank == 0:
            changed = int((placed != old).sum())
            print(
                f"{state.policy.__name__}: window {window}, {changed} of {placed.numel()} slots changed",
                flush=True,
            )
    dist.destroy_process_group()


if __name__ == "__main__":
    if sys.argv[1:] == ["rank"]:
        serve(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    else:
        main()
