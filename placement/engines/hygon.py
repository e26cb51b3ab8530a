"""Hygon's plug-in of vLLM for its DCUs (vllm-plugin-das): ``eplb_config.expert_map_path``, a map per model class.

Read from HYGON-AI/vllm-plugin-das at 1114afbd6d1e (``vllm_hcu/model_executor/layers/fused_moe/static_eplb.py``, with
pull request #69), and the newer line for vLLM 0.28.1 (its ``patch_offline_eplb.py``), which wants the version, the
counts and one pipeline stage. A map is looked up by the class of the model in vLLM; it is checked before weights are
loaded.
"""

from __future__ import annotations

import json
from pathlib import Path

from placement.engines.engine import Launch
from placement.engines.findings import Finding, NoRowsError, Outcome, RowRules, Rows
from placement.engines.mapping import ExpertMapping, ModelFacts
from placement.engines.strict_text import read_json
from placement.engines.vllm_serve import ServedByVllm, json_flag, serve_lines

FORMAT = "vllm_offline_eplb_physical_to_logical_by_model"
MAPS, ROWS, OLD_ROWS = "model_maps", "physical_to_logical_map", "expert_map"
_COUNTS = "num_moe_layers num_logical_experts num_physical_experts num_redundant_experts"


class Hygon(ServedByVllm):
    """vLLM with Hygon's plug-in."""

    name = "hygon"
    title = "vLLM with Hygon's plug-in (vllm-plugin-das)"
    version = "1114afbd6d1e (September 2026)"
    suffixes = (".json",)
    split_words = (
        "evenly: a token takes the copy that its place in the batch says, a rank's nearest comes first"
    )
    rules = RowRules(
        not_whole=Outcome("refused", "ValueError: expert ids are integers"),
        length=Outcome("refused", "ValueError: ragged rows"),
        high=Outcome("refused", "ValueError: beyond the logical experts"),
        negative=Outcome("refused", "ValueError: negative expert ids"),
        absent=Outcome("refused", "ValueError: a layer misses logical experts"),
        divisible=Outcome("refused", "vLLM gives every rank equally many slots"),
        fewer=Outcome("refused", "num_redundant_experts would be negative"),
    )

    def cannot_run(self, launch: Launch) -> str:
        """It looks the map up by class, and its newer line knows no pipeline stages."""
        if not launch.architecture:
            return (
                f"it looks the map up by the class of the model in vLLM, and nothing says that of {launch.model}: "
                "plan with the path of its config.json as `model`"
            )
        if launch.stages > 1:
            return (
                f"it has {launch.stages} pipeline stages, which the plug-in for vLLM 0.28.1 refuses with a static "
                "map; make it with rackplan plan `stages` 1"
            )
        return ""

    def write(self, mapping: ExpertMapping, facts: ModelFacts) -> str:
        """See :class:`Engine`."""
        entry = {
            "record_kind": "proposal",
            "model_name": facts.name,
            "model_class": facts.architecture,
            "num_moe_layers": len(mapping.layer_ids),
            "num_logical_experts": mapping.experts,
            "num_physical_experts": mapping.slots,
            "num_redundant_experts": mapping.redundant,
        }
        rows = ",\n".join(json.dumps(row) for row in mapping.slot_expert.tolist())
        head = json.dumps(entry)[:-1]
        name = json.dumps(facts.architecture)
        return f'{{"version": 2, "format": "{FORMAT}", "{MAPS}": {{\n{name}: {head}, "{ROWS}": [\n{rows}\n]}}}}}}\n'

    def read(self, path: Path, facts: ModelFacts, ranks: int, found: list[Finding]) -> Rows:
        """See :class:`Engine`."""
        del ranks
        data = read_json(path)
        if not isinstance(data, dict):
            raise NoRowsError("the whole file", "ValueError: must be an object")
        entry, place = _entry(data, facts)
        rows = entry.get(ROWS, entry.get(OLD_ROWS))
        if rows is None:
            raise NoRowsError(place or "keys", f"ValueError: must contain {ROWS}")
        if not isinstance(rows, list) or not rows:
            raise NoRowsError(f"{place}{ROWS}", "ValueError: must be a list of rows")
        wanted = len(facts.moe_layers)
        if len(rows) != wanted:
            what = f"{len(rows)} rows, {facts.name} has {wanted} MoE layers: ValueError (shape)"
            raise NoRowsError(f"{place}{ROWS}", what)
        found += [*_version(data), *_counts(entry, place, rows, facts)]
        return Rows(rows, [f"layer {layer} (row {row})" for row, layer in enumerate(facts.moe_layers)])

    def around(self, facts: ModelFacts, ranks: int, *, read: bool) -> tuple[Finding, ...]:
        """See :class:`Engine`."""
        del facts, ranks
        text = "must be slots - experts, with --enable-eplb and --enable-expert-parallel: else ValueError"
        return (Finding("num_redundant_experts", text, "note"),) if read else ()

    def flags(self, launch: Launch) -> list[str]:
        """See :class:`Engine`."""
        config = {
            "num_redundant_experts": launch.redundant,
            "use_async": False,
            "expert_map_path": launch.file,
        }
        return [*serve_lines(launch, "--enable-eplb"), json_flag("--eplb-config", config)]

    def warnings(self, launch: Launch) -> list[str]:
        """See :class:`Engine`."""
        draft = (
            "a draft model (MTP) looks for a map of its own class in the file and fails without: serve without "
            "speculative decoding, or add it"
        )
        return [*super().warnings(launch), draft]


def _entry(data: dict[str, object], facts: ModelFacts) -> tuple[dict[str, object], str]:
    """Return what the file has for a model: under its class, or the whole of an older file."""
    maps = data.get(MAPS)
    if maps is None:
        return data, ""
    if not isinstance(maps, dict) or not maps:
        raise NoRowsError(MAPS, "ValueError: not a mapping by model class")
    keys = ", ".join(str(key)[:40] for key in list(maps)[:4])
    if not facts.architecture and len(maps) > 1:
        raise NoRowsError(MAPS, f"has {keys}, and nothing says the class of {facts.name}")
    key = facts.architecture or next(iter(maps))
    if key not in maps:
        raise NoRowsError(MAPS, f"ValueError: no key {key}, the class of {facts.name}; it has {keys}")
    if not isinstance(maps[key], dict):
        raise NoRowsError(f"{MAPS}.{key}", "ValueError: not an object")
    return maps[key], f"{key}, "


def _version(data: dict[str, object]) -> list[Finding]:
    if data.get("version") == 2 and data.get("format", FORMAT) == FORMAT:
        return []
    text = f'not 2 with "format": "{FORMAT}": the plug-in for vLLM 0.28.1 may refuse it'
    return [Finding("version", text, "note")]


def _counts(entry: dict[str, object], place: str, rows: list[object], facts: ModelFacts) -> list[Finding]:
    """Counts that stand beside the rows and differ from them."""
    slots = len(rows[0]) if isinstance(rows[0], list) else 0
    wanted = (len(rows), facts.experts, slots, slots - facts.experts)
    return [
        Finding(f"{place}{key}", f"{str(entry[key])[:24]}, but the rows have {count}: ValueError", "refused")
        for key, count in zip(_COUNTS.split(), wanted, strict=True)
        if key in entry and (type(entry[key]) is not int or entry[key] != count)
    ]


ENGINE = Hygon()
