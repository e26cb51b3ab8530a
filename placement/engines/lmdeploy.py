"""LMDeploy (and DLBlas, whose balancer it is): loads by layer and expert, on which it runs EPLB when it starts.

Read from InternLM/lmdeploy at 1263d5cd889b (``pytorch/nn/eplb.py``, ``pytorch/envs.py``, ``cli/utils.py``) and
DeepLink-org/DLBlas at aae234451e77 (``layers/moe/eplb.py``, the same but for the names of the variables). No map is
read: the file holds loads under which its EPLB makes the plan (:mod:`placement.engines.eplb_weights`), with one group
of experts and one node, which two variables say. With its own defaults (4 groups, 8 ranks a node) EPLB is another
one, and where groups do not divide by nodes it packs nothing: expert j stays in slot j.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path

import numpy as np

from placement.arrays import Ints
from placement.engines.engine import Engine, Launch
from placement.engines.eplb_weights import copies_of, eplb_places, weights_for
from placement.engines.findings import Finding, NoRowsError, Outcome, RowRules, Rows, and_more
from placement.engines.mapping import ExpertMapping, ModelFacts
from placement.engines.strict_text import read_json

_BALANCED = (
    "DeepseekV2ForCausalLM",
    "DeepseekV3ForCausalLM",
    "DeepseekV32ForCausalLM",
    "Qwen3MoeForCausalLM",
)
_RECORDING = (
    "a recording of loads, not a plan: LMDeploy places experts by it; plan with rackplan plan `loads` FILE"
)


class LMDeploy(Engine):
    """LMDeploy."""

    name = "lmdeploy"
    title = "LMDeploy"
    version = "1263d5cd889b (2026-08-21)"
    suffixes = (".json",)
    port = 23333
    keeps_ranks = False
    split_words = "evenly: each token takes a copy at random"
    rules = RowRules(
        not_whole=Outcome("refused", "it makes a tensor of numbers of it"),
        length=Outcome("refused", "AssertionError: it wants a load for each expert of each layer"),
        high=Outcome("refused", "no such expert"),
        negative=Outcome("refused", "no such expert"),
        absent=Outcome("refused", "no copy"),
        divisible=Outcome("refused", "its EPLB asserts that slots divide by the ranks"),
        fewer=Outcome("refused", "its EPLB asserts that there are a slot and more for each expert"),
    )

    def cannot_hold(self, mapping: ExpertMapping) -> str:
        """Loads can say most placements, not all."""
        doubled = mapping.doubled()
        if doubled:
            layer, rank, expert = doubled[0]
            return f"layer {layer}, rank {rank} holds expert {expert} twice{and_more(len(doubled), ' such')}"
        lost = [
            layer for layer, found in zip(mapping.layer_ids, _weights(mapping), strict=True) if found is None
        ]
        if not lost:
            return ""
        return (
            f"it reads loads and runs EPLB on them, and no loads make it place layer {lost[0]}{and_more(len(lost))} "
            f"so: {mapping.slots_per_rank} slots a GPU are too few for experts with several copies; make it with "
            "fewer copies (rackplan plan `redundant`) or with more slots on fewer GPUs (`ep`)"
        )

    def write(self, mapping: ExpertMapping, facts: ModelFacts) -> str:
        """See :class:`Engine`; dense layers, at which it does not look, have what it takes without a file."""
        rows = [list(range(mapping.experts, 0, -1)) for _ in range(facts.layers)]
        for layer, found in zip(mapping.layer_ids, _weights(mapping), strict=True):
            if found is None:
                raise AssertionError(f"layer {layer}: asked to write what cannot be held, please report it")
            rows[layer] = found.tolist()
        return "[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n"

    def read(self, path: Path, facts: ModelFacts, ranks: int, found: list[Finding]) -> Rows:
        """See :class:`Engine`: what its EPLB makes of the loads."""
        data = read_json(path)
        if not isinstance(data, list) or len(data) != facts.layers:
            what = f"{len(data)} rows" if isinstance(data, list) else "not a list"
            text = f"{what}, {facts.name} has {facts.layers} layers, dense ones too: AssertionError"
            raise NoRowsError("the whole file", text)
        loads = [_loads(data[layer], f"layer {layer}", facts) for layer in facts.moe_layers]
        slots = {int(copies_of(row).sum()) for row in loads}
        if len(slots) > 1 or max(slots) > facts.experts * ranks:
            raise NoRowsError("the whole file", _RECORDING, "wrong")
        each = slots.pop()
        if each % ranks:
            text = f"{each} slots on {ranks} GPUs do not divide: {self.rules.divisible.words}"
            raise NoRowsError("slots", text)
        rows: list[object] = [eplb_places(row.astype(np.float64), each, ranks).tolist() for row in loads]
        found.append(Finding("slots", f"{each}, as the loads were made for", "note"))
        return Rows(rows, [f"layer {layer}" for layer in facts.moe_layers])

    def around(self, facts: ModelFacts, ranks: int, *, read: bool) -> tuple[Finding, ...]:
        """See :class:`Engine`."""
        if not read:
            return ()
        text = f"LMDEPLOY_EPLB_NUM_GROUPS=1 and LMDEPLOY_EPLB_RANKS_PER_NODE={ranks}: else its EPLB is another one"
        notes = [Finding("variables", text, "note")]
        if facts.architecture and facts.architecture not in _BALANCED:
            words = f"{facts.architecture}: it balances {', '.join(_BALANCED)} alone"
            notes.append(Finding("architecture", words, "wrong"))
        return tuple(notes)

    def flags(self, launch: Launch) -> list[str]:
        """See :class:`Engine`."""
        lines = [
            f"LMDEPLOY_EPLB_EXPERTS_STATISTIC_FILE={launch.file}",
            f"LMDEPLOY_EPLB_NUM_REDUNDANT_EXPERTS={launch.redundant} LMDEPLOY_EPLB_NUM_GROUPS=1",
            f"LMDEPLOY_EPLB_RANKS_PER_NODE={launch.ep}",
        ]
        if launch.attention_dp > 1:
            lines.append(f"LMDEPLOY_DP_MASTER_ADDR={launch.address} LMDEPLOY_DP_MASTER_PORT=29555")
        lines += [
            f"lmdeploy serve api_server {launch.model} --backend pytorch --enable-eplb",
            f"--dp {launch.attention_dp} --ep {launch.ep}",
        ]
        if launch.attention_dp > 1:
            lines.append(f"--nnodes {launch.nodes} --node-rank {launch.rank} --proxy-url http://PROXY:8000")
        return lines

    def listen(self, port: int) -> str:
        """See :class:`Engine`."""
        return f"--server-name 0.0.0.0 --server-port {port}"

    def cannot_run(self, launch: Launch) -> str:
        """It has no pipeline stages."""
        return (
            "" if launch.stages == 1 else "it has no pipeline stages; make it with rackplan plan `stages` 1"
        )

    def cannot_spread(self, launch: Launch) -> str:
        """See :class:`Engine`."""
        if launch.attention_dp == 1:
            return ""
        return "with data-parallel attention it needs its proxy and a Ray cluster, which nothing here starts"

    def warnings(self, launch: Launch) -> list[str]:
        """See :class:`Engine`."""
        found = super().warnings(launch)
        if launch.architecture not in _BALANCED:
            found.append(
                f"{launch.model} may not be of a class that it balances ({', '.join(_BALANCED)}; experts in FP8)"
            )
        return found


def _weights(mapping: ExpertMapping) -> list[Ints | None]:
    """Return the loads of each MoE layer; None where there are none."""
    table = mapping.by_rank()
    return list(_found(table.tobytes(), table.shape, mapping.experts))


@lru_cache(maxsize=2)
def _found(data: bytes, shape: tuple[int, int, int], experts: int) -> tuple[Ints | None, ...]:
    table = np.frombuffer(data, dtype=np.int64).reshape(shape)
    return tuple(weights_for(held, experts) for held in table)


def _loads(row: object, place: str, facts: ModelFacts) -> Ints:
    """Return the loads of a layer: whole numbers above 0, or a recording."""
    if not isinstance(row, list) or len(row) != facts.experts:
        what = f"{len(row)} loads" if isinstance(row, list) else "not a list"
        raise NoRowsError(place, f"{what}, {facts.name} has {facts.experts} experts: AssertionError")
    if any(isinstance(value, bool) or not isinstance(value, int | float) for value in row):
        raise NoRowsError(place, LMDeploy.rules.not_whole.words)
    if not all(isinstance(value, int) and 0 < value < 1 << 24 for value in row):
        raise NoRowsError("the whole file", _RECORDING, "wrong")
    return np.array(row, dtype=np.int64)


ENGINE = LMDeploy()
