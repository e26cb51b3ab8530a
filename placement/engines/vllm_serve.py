"""How vLLM and its plug-ins are started on several hosts: the lines that they share.

Read from the wheel of vLLM 0.33.0 (``engine/arg_utils.py``, ``envs.py``). With data parallelism each host serves its
own groups (hybrid load balancing, as ``--data-parallel-start-rank`` implies); one group over several hosts has the
others headless.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping

from placement.engines.engine import Engine, Launch

RPC_PORT = 13345


def serve_lines(launch: Launch, *flags: str) -> list[str]:
    """Return the lines that start ``vllm serve`` with ``flags``, or the module that serves in its place."""
    start = f"python3 -m {launch.module} --model" if launch.module else "vllm serve"
    if launch.stages > 1:
        start = f"VLLM_PP_LAYER_PARTITION={','.join(map(str, launch.cut))} {start}"
    lines = [
        f"{start} {launch.model} {' '.join(('--enable-expert-parallel', *flags))}",
        f"--tensor-parallel-size {launch.tp}",
    ]
    if launch.attention_dp > 1:
        lines.append(f"--data-parallel-size {launch.attention_dp}")
    if launch.stages > 1:
        lines.append(f"--pipeline-parallel-size {launch.stages}")
    if launch.nodes > 1 and not launch.module:
        lines += _hosts(launch)
    if launch.role != "both":
        lines.append(json_flag("--kv-transfer-config", _TRANSFER))
    if launch.role != "both" and launch.module:
        lines.append(f"--disaggregation-mode {launch.role}")
    return lines


class ServedByVllm(Engine):
    """An engine that ``vllm serve`` starts."""

    def cannot_spread(self, launch: Launch) -> str:
        """See :class:`Engine`."""
        if launch.nodes == 1 or (launch.stages == 1 and launch.attention_dp == 1):
            return ""
        if launch.stages > 1:
            return (
                f"it has {launch.stages} pipeline stages on {launch.nodes} hosts, and vLLM puts all stages of a "
                "data-parallel group side by side, so its ranks are not the plan's; make it with rackplan plan "
                "`stages` 1"
            )
        if launch.gpus_per_node % launch.tp:
            return (
                f"its attention groups of {launch.tp} GPUs do not fit hosts with {launch.gpus_per_node} each; make "
                "it with a `tp` that divides them"
            )
        return ""

    def answers_everywhere(self, launch: Launch) -> bool:
        """See :class:`Engine`."""
        return launch.nodes == 1 or self.serves_everywhere(launch)

    def serves_everywhere(self, launch: Launch) -> bool:
        """See :class:`Engine`: each host serves its own data-parallel groups."""
        return launch.attention_dp > 1 and launch.stages == 1


_TRANSFER = {"kv_connector": "NixlConnector", "kv_role": "kv_both"}


def json_flag(name: str, value: Mapping[str, object]) -> str:
    """Return a flag whose value is JSON, as a shell takes it."""
    return f"{name} {shlex.quote(json.dumps(value))}"


def _hosts(launch: Launch) -> list[str]:
    if launch.stages == 1 and launch.attention_dp > 1:
        local = max(1, launch.gpus_per_node // launch.tp)
        return [
            f"--data-parallel-size-local {local} --data-parallel-start-rank $(({launch.rank} * {local}))",
            f"--data-parallel-address {launch.address} --data-parallel-rpc-port {RPC_PORT + launch.offset}",
        ]
    others = f"$([ {launch.rank} = 0 ] || echo --headless)"
    return [f"--nnodes {launch.nodes} --node-rank {launch.rank} --master-addr {launch.address} {others}"]
