"""SGLang: ``--init-expert-location FILE.json``, one row of slots for every layer of the model.

Read from the wheel of version 0.5.23: ``srt/eplb/expert_location.py`` (loading, nearest copy, static dispatch),
``srt/eplb/expert_location_dispatch.py`` (the three dispatch algorithms), ``srt/eplb/lplb_solver.py`` (the
architectures that may use ``lp``), ``srt/arg_groups/fields`` (flags: ``--dp-size N --enable-dp-attention`` is
deprecated for ``--attn-dp-size N``; ``--dcp-size``, ``--enable-prefill-cp``), ``srt/distributed/utils.py``
(``SGLANG_PP_LAYER_PARTITION``). Rows of dense layers are looked at like all others when SGLang starts, so each must
hold every expert: they get slot j = expert j mod E, SGLang's own trivial map.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np

from placement.engines.engine import Engine, Launch
from placement.engines.findings import Finding, NoRowsError, Outcome, RowRules, Rows
from placement.engines.mapping import ExpertMapping, ModelFacts
from placement.engines.strict_text import MOST_CELLS, read_json, require_file
from topology.base.errors import InputError

KEY = "physical_to_logical_map"
COUNT = "logical_count"
PORT = 20000
"""Where the hosts of a replica meet."""
_DISPATCH = {"even": "dynamic", "source": "static", "lp": "lp"}
_LP_MODELS = ("deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "glm_moe_dsa", "glm4_moe_lite")


class Sglang(Engine):
    """SGLang."""

    name = "sglang"
    title = "SGLang"
    version = "0.5.23 (wheel)"
    suffixes = (".json",)
    framework = "sglang"
    port = 30000
    splits = ("source", "even", "lp")
    split_words = (
        "set by --ep-dispatch-algorithm: static, one copy per source rank (on its GPU, else on its node, "
        "else round-robin); dynamic, evenly; lp, minimizing the busiest GPU per batch"
    )
    contexts: ClassVar[Mapping[str, str]] = {
        "dcp": "SGLang has it for latents, and for grouped queries with its Triton and FlashInfer backends "
        "(TRTLLM MHA: open pull request #32795)",
        "pcp": "SGLang has it on NVIDIA GPUs, not together with decode context parallelism",
    }
    rules = RowRules(
        not_whole=Outcome("refused", "SGLang uses it as a list index and fails"),
        length=Outcome("refused", "SGLang makes one tensor of all rows and fails"),
        high=Outcome("refused", "IndexError when SGLang starts"),
        negative=Outcome("wrong", "SGLang counts from the end, so -1 is the last expert"),
        absent=Outcome(
            "wrong",
            "SGLang does not check; static dispatch divides by zero at the start, dynamic sends its tokens to a "
            "slot of another",
        ),
        divisible=Outcome("refused", "SGLang asserts that slots divide by --ep-size"),
        fewer=Outcome("refused", "--ep-num-redundant-experts would be negative"),
    )

    def write(self, mapping: ExpertMapping, facts: ModelFacts) -> str:
        """See :class:`Engine`."""
        trivial = np.arange(mapping.slots) % mapping.experts
        rows = np.tile(trivial, (facts.layers, 1))
        rows[list(mapping.layer_ids)] = mapping.slot_expert
        lines = ",\n".join(json.dumps(row) for row in rows.tolist())
        return f'{{"{KEY}": [\n{lines}\n]}}\n'

    def read(self, path: Path, facts: ModelFacts, ranks: int, findings: list[Finding]) -> Rows:
        """See :class:`Engine`."""
        if path.suffix not in (".json", ".pt"):
            text = "does not end in .json or .pt: SGLang takes the path for JSON text"
            findings.append(Finding("name", text, "refused"))
        data = _torch(path) if path.suffix == ".pt" else read_json(path)
        if not isinstance(data, dict):
            text = f'expected one object with the key "{KEY}" alone; SGLang fails on anything else'
            raise NoRowsError("the whole file", text)
        findings += _other_keys(data)
        rows = _rows(data[KEY], facts)
        moe = set(facts.moe_layers)
        places = [f"layer {layer}{'' if layer in moe else ' (dense)'}" for layer in range(facts.layers)]
        return Rows(rows, places, facts.moe_layers)

    def around(self, facts: ModelFacts, ranks: int, *, read: bool) -> tuple[Finding, ...]:
        """See :class:`Engine`."""
        if not read:
            return ()
        text = "set it to slots minus experts; the default of SGLang is 0"
        notes = [Finding("--ep-num-redundant-experts", text, "note")]
        if ranks == 1:
            notes.append(Finding("--ep-size", "1: a single GPU has nothing to place", "note"))
        return tuple(notes)

    def flags(self, launch: Launch) -> list[str]:
        """See :class:`Engine`."""
        ranks, start = launch.ep, f"python3 -m {launch.module or 'sglang.launch_server'}"
        if launch.stages > 1:
            start = f"SGLANG_PP_LAYER_PARTITION={','.join(map(str, launch.cut))} {start}"
        lines = [f"{start} --model-path {launch.model}", f"--tp-size {ranks} --ep-size {ranks}"]
        if launch.attention_dp > 1:
            lines.append(f"--attn-dp-size {launch.attention_dp}")
        if launch.dcp > 1:
            lines.append(f"--dcp-size {launch.dcp}")
        if launch.pcp > 1:
            strategy = "interleave" if launch.architecture == "DeepseekV32ForCausalLM" else "zigzag"
            lines.append(f"--enable-prefill-cp --cp-strategy {strategy} --attn-cp-size {launch.pcp}")
        if launch.stages > 1:
            lines.append(f"--pp-size {launch.stages}")
        if launch.nodes > 1 and not launch.module:
            where = f"--node-rank {launch.rank} --dist-init-addr {launch.address}:{PORT + launch.offset}"
            lines.append(f"--nnodes {launch.nodes} {where}")
        if launch.role != "both":
            lines.append(f"--disaggregation-mode {launch.role} --disaggregation-transfer-backend nixl")
        return [
            *lines,
            "--moe-a2a-backend deepep",
            f"--ep-num-redundant-experts {launch.redundant}",
            f"--init-expert-location {launch.file}",
            f"--ep-dispatch-algorithm {_DISPATCH.get(launch.split, 'static')}",
        ]

    def warnings(self, launch: Launch) -> list[str]:
        """See :class:`Engine`."""
        notes = []
        if launch.split not in self.splits:
            notes.append(
                f"the plan was made for split {launch.split}, SGLang takes the nearest copy here; make the "
                "plan with rackplan plan --split source"
            )
        if launch.split == "source" and launch.ep % max(1, launch.nodes // launch.stages):
            notes.append(
                "static dispatch assumes EP size / nodes GPUs per node, which does not divide evenly here"
            )
        if launch.split == "lp" and launch.model_type not in _LP_MODELS:
            notes.append(
                "SGLang allows --ep-dispatch-algorithm lp only for the DeepSeek-V2/V3 family, and "
                f"{launch.model} may not belong to it; for dynamic, use rackplan plan --split even"
            )
        return notes


def _rows(rows: object, facts: ModelFacts) -> list[object]:
    """Return what may be a table of layers and slots."""
    if not isinstance(rows, list) or not rows:
        raise NoRowsError(KEY, "expected a list with one row of expert ids for each layer")
    for place, row in enumerate(rows):
        if not isinstance(row, list):
            raise NoRowsError(KEY, f"row {place} is not a list: expected one row of expert ids per layer")
    if any(isinstance(value, list) for value in rows[0]):
        raise NoRowsError(KEY, "three or more axes, but SGLang asserts that there are only layers and slots")
    if len(rows) == facts.layers:
        return rows
    hint = "is it for another model?"
    if len(rows) == len(facts.moe_layers):
        hint = "only for the MoE layers? Rows are looked up by absolute layer id, so every layer gets the wrong row"
    elif len(rows) < facts.layers:
        hint = "SGLang looks rows up by absolute layer id, and has none for the last layers"
    text = f"{len(rows)} rows, {facts.name} has {facts.layers} layers, dense ones too: {hint}"
    raise NoRowsError(KEY, text, "wrong")


def _torch(path: Path) -> object:
    """Return what a ``.pt`` holds, its map as lists; nothing in it is run."""
    from cost.experts.traces.torch_file import load_torch_file

    require_file(path)
    data = load_torch_file(path)
    if not isinstance(data, dict) or not isinstance(data.get(KEY), np.ndarray):
        return data
    table = data[KEY]
    if table.size > MOST_CELLS:
        raise InputError(f"{path}: {KEY} {list(table.shape)} is too large for a placement.")
    return {**data, KEY: table.tolist()}


def _other_keys(data: dict[object, object]) -> list[Finding]:
    """Return what is wrong with the keys of a file that has the one that counts."""
    if KEY not in data and COUNT in data:
        text = "a load recording, not a plan: SGLang would run its own EPLB on it"
        raise NoRowsError(COUNT, f"{text}; plan with rackplan plan --loads FILE", "wrong")
    if KEY not in data:
        raise NoRowsError("keys", f"neither {KEY} nor {COUNT}: SGLang fails with NotImplementedError")
    extra = next((str(key)[:40] for key in data if key != KEY), None)
    text = f"{extra!r} is present in addition to {KEY}; SGLang passes on every key and fails with TypeError"
    return [] if extra is None else [Finding("keys", text, "refused")]


ENGINE = Sglang()
