"""vllm-ascend: ``eplb_config.expert_map_path``, nested lists by MoE layer in order and device.

Read from vllm-project/vllm-ascend at 182b75ea84ff (2026-08-22): ``eplb/core/eplb_utils.py`` (loading, choice of a
copy), ``ascend_config.py`` (the path), ``patch/platform/patch_fused_moe.py`` (slots),
``eplb/adaptor/vllm_adaptor.py`` (what it writes). Layers and devices are taken by position; ``layer_id``,
``device_id`` and ``device_count`` are not read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from cost.experts.assignment import Assignment
from cost.experts.dispatch import DISPATCH_POLICIES, rank_shares, rank_tp
from placement.arrays import Floats
from placement.engines.engine import Launch
from placement.engines.findings import Finding, NoRowsError, Outcome, RowRules, Rows, and_more
from placement.engines.mapping import ExpertMapping, ModelFacts
from placement.engines.strict_text import read_json
from placement.engines.vllm import ServedByVllm, json_flag, serve_lines


class VllmAscend(ServedByVllm):
    """vllm-ascend."""

    name = "vllm-ascend"
    title = "vllm-ascend"
    version = "182b75ea84ff (2026-08-22)"
    suffixes = (".json",)
    splits = tuple(split for split in DISPATCH_POLICIES if rank_tp(split))
    split_words = (
        "by source rank: each rank uses one copy of an expert, regardless of its location: rank mod "
        "copies, with tensor parallelism "
        "above 1 (rank % tp + rank // tp + expert) mod copies; nearly an even split where ranks are many"
    )
    contexts: ClassVar[Mapping[str, str]] = {
        "dcp": "vllm-ascend has it for latents and grouped queries on Atlas A2 and A3",
        "pcp": "vllm-ascend has it on Atlas A2 and A3; it gathers all keys and values on each rank",
    }
    rules = RowRules(
        not_whole=Outcome("refused", "vllm-ascend makes an integer tensor of it and fails, or rounds it"),
        length=Outcome("refused", "vllm-ascend makes one tensor of a layer's devices and fails"),
        high=Outcome("refused", "IndexError when the layer is built"),
        negative=Outcome("wrong", "vllm-ascend counts from the end, so -1 is the last expert"),
        absent=Outcome("refused", "RuntimeError: the table from experts to slots is too short"),
        absent_last=Outcome(
            "wrong", "not checked by vllm-ascend, whose table from experts to slots ends before this expert"
        ),
        divisible=Outcome("refused", "devices would have unequal lengths"),
        fewer=Outcome("refused", "the number of redundant experts would be negative"),
        twice=Outcome(
            "wrong", "vllm-ascend keeps one place per expert and device, and loses count of the slots"
        ),
    )

    def shares(self, part: Assignment, tp: int) -> Floats:
        """See :class:`Engine`."""
        return rank_shares(part, tp)

    def cannot_hold(self, mapping: ExpertMapping) -> str:
        """A device's table has one place for each expert, and a map of one device is not read."""
        doubled = mapping.doubled()
        if doubled:
            layer, rank, expert = doubled[0]
            return (
                f"layer {layer}, rank {rank} holds expert {expert} twice{and_more(len(doubled), ' such')}, "
                "but vllm-ascend supports one slot per expert and device; rackplan replan or a fresh "
                "rackplan plan avoids this"
            )
        return (
            "" if mapping.ranks > 1 else "EP size 1: vllm-ascend then ignores the map; plan with EP 2 or more"
        )

    def cannot_run(self, launch: Launch) -> str:
        """Its counter of MoE layers is each process's own."""
        if launch.stages == 1:
            return ""
        return (
            f"it has {launch.stages} pipeline stages, and vllm-ascend counts MoE layers from 0 in each process, so a "
            "stage after the first would read the rows of other layers; make the plan with rackplan plan --stages 1"
        )

    def write(self, mapping: ExpertMapping, facts: ModelFacts) -> str:
        """See :class:`Engine`."""
        layers = [
            {
                "layer_id": index,
                "device_count": mapping.ranks,
                "device_list": [
                    {"device_id": rank, "device_expert": held} for rank, held in enumerate(devices)
                ],
            }
            for index, devices in enumerate(mapping.by_rank().tolist())
        ]
        lines = ",\n".join(json.dumps(layer) for layer in layers)
        return f'{{"moe_layer_count": {len(layers)}, "layer_list": [\n{lines}\n]}}\n'

    def read(self, path: Path, facts: ModelFacts, ranks: int, findings: list[Finding]) -> Rows:
        """See :class:`Engine`."""
        if path.suffix != ".json":
            findings.append(Finding("name", "does not end in .json: TypeError at the start", "refused"))
        data = read_json(path)
        layers = data.get("layer_list") if isinstance(data, dict) else None
        if not isinstance(data, dict) or not isinstance(layers, list):
            raise NoRowsError("the whole file", 'expected an object with "moe_layer_count" and "layer_list"')
        _require_count(data.get("moe_layer_count"), len(layers), facts)
        if findings:
            raise NoRowsError
        rows: list[object] = []
        for layer, entry in zip(facts.moe_layers, layers, strict=True):
            held = _devices(entry, f"layer {layer}", ranks)
            findings += _positions(entry, len(rows), layer)
            rows.append(held)
        return Rows(rows, [f"layer {layer}" for layer in facts.moe_layers])

    def around(self, facts: ModelFacts, ranks: int, *, read: bool) -> tuple[Finding, ...]:
        """See :class:`Engine`."""
        note = Finding("num_redundant_experts", "must be slots - experts; its default is 0", "note")
        single = () if ranks > 1 else (Finding("EP size", "1: vllm-ascend ignores the map", "wrong"),)
        return (note, *single) if read else ()

    def flags(self, launch: Launch) -> list[str]:
        """See :class:`Engine`."""
        config = {"eplb_config": {"expert_map_path": launch.file, "num_redundant_experts": launch.redundant}}
        return [*serve_lines(launch), json_flag("--additional-config", config)]

    def warnings(self, launch: Launch) -> list[str]:
        """See :class:`Engine`."""
        runner = "model runner V1 alone reads the map (VLLM_USE_V2_MODEL_RUNNER unset or 0)"
        notes = [f"{runner}, and its documentation announces the removal of static EPLB"]
        if rank_tp(launch.split) != launch.tp and launch.redundant:
            fitting = [split for split in self.splits if rank_tp(split) == launch.tp]
            notes.append(
                f"the plan was made for split {launch.split}, but here each rank takes the copy given by "
                f"its number, which is nearly even; make the plan with rackplan plan --split {(*fitting, 'even')[0]}"
            )
        return notes


def _require_count(count: object, layers: int, facts: ModelFacts) -> None:
    expected, place = len(facts.moe_layers), "moe_layer_count"
    if type(count) is not int or count != layers:
        raise NoRowsError(place, f"{str(count)[:24]}, layer_list has {layers}: rows and count must agree")
    text = f"{count}, {facts.name} has {expected} MoE layers"
    if count == expected - 1:
        raise NoRowsError(place, f"{text}: the last layer silently gets the default placement", "wrong")
    if count < expected:
        raise NoRowsError(place, f"{text}: ValueError (Invalid EPLB Table)")
    if count > expected:
        raise NoRowsError(
            place, f"{text}: the engine ignores the others; is the plan for another model?", "wrong"
        )


def _positions(entry: object, index: int, layer: int) -> list[Finding]:
    """Names that disagree with positions: the engine goes by position."""
    if not isinstance(entry, dict):
        return []
    named = entry.get("layer_id", index)
    devices = [device.get("device_id", rank) for rank, device in enumerate(entry["device_list"])]
    if named != index:
        text = f"layer_id {str(named)[:24]} at position {index}: vllm-ascend goes by position"
        return [Finding(f"layer {layer}", text, "wrong")]
    if devices != list(range(len(devices))):
        return [Finding(f"layer {layer}", "device_id out of order: vllm-ascend goes by position", "wrong")]
    return []


def _devices(entry: object, place: str, ranks: int) -> list[object]:
    """Return the experts of all devices of a layer in one row."""
    devices = entry.get("device_list") if isinstance(entry, dict) else None
    if not isinstance(devices, list):
        raise NoRowsError(place, 'expected "device_list"')
    if len(devices) < ranks:
        raise NoRowsError(place, f"{len(devices)} devices for {ranks} GPUs: IndexError")
    if len(devices) > ranks:
        problem = f"{len(devices)} devices for {ranks} GPUs: the experts of the others are lost"
        raise NoRowsError(place, problem, "wrong")
    row: list[object] = []
    width = None
    for number, device in enumerate(devices):
        held = device.get("device_expert") if isinstance(device, dict) else None
        if not isinstance(held, list) or not held:
            raise NoRowsError(place, f'device {number}: expected "device_expert" with expert ids')
        width = len(held) if width is None else width
        if len(held) != width:
            text = f"device {number} has {len(held)} experts, device 0 has {width}: {VllmAscend.rules.length.words}"
            raise NoRowsError(place, text)
        row += held
    return row


ENGINE = VllmAscend()
