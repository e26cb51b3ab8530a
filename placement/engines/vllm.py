"""vLLM: no released version loads a plan; the form in which an open pull request would.

Offline EPLB (https://github.com/vllm-project/vllm/pull/41141, April 2026): JSON lines, read from its description and
its tests (``tests/distributed/test_eplb_state.py``). vLLM 0.33.0 (wheel) has no such option. Of the open proposals it
alone is for every model, with copies of experts and a recording: #34811 has one rank for an expert, #49572 the rows,
#53022 DeepSeek-V4. MoE layers count from 0. How several hosts are started is read from the wheel too
(``engine/arg_utils.py``, ``envs.py``): with data parallelism each host serves its own groups (hybrid load balancing,
as ``--data-parallel-start-rank`` implies); one group over several hosts has the others headless.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from placement.engines.engine import Engine, Launch
from placement.engines.findings import Finding, NoRowsError, Outcome, RowRules, Rows
from placement.engines.mapping import ExpertMapping, ModelFacts
from placement.engines.strict_text import read_json_lines
from topology.base.errors import called

RECORD = "eplb_initial_mapping"
ROWS = "initial_global_assignments"
RPC_PORT = 13345
_TRANSFER = {"kv_connector": "NixlConnector", "kv_role": "kv_both"}
_UNRELEASED = (
    "no released vLLM loads a plan (0.33.0 has no option); this is the format of open pull request #41141"
)


def serve_lines(launch: Launch, *flags: str) -> list[str]:
    """Return the lines that start ``vllm serve`` with ``flags``, or the module that serves in its place."""
    start = f"python3 -m {launch.module} --model" if launch.module else "vllm serve"
    if launch.stages > 1:
        start = f"VLLM_PP_LAYER_PARTITION={','.join(map(str, launch.cut))} {start}"
    lines = [
        f"{start} {launch.model} {' '.join(('--enable-expert-parallel', *flags))}",
        f"--tensor-parallel-size {launch.tp // launch.pcp}",
    ]
    if launch.dcp > 1:
        lines.append(f"--decode-context-parallel-size {launch.dcp}")
    if launch.pcp > 1:
        lines.append(f"--prefill-context-parallel-size {launch.pcp}")
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
                f"it has {launch.stages} pipeline stages on {launch.nodes} hosts, but vLLM numbers all "
                "stages of a data-parallel group consecutively, so its ranks differ from the plan's; make "
                "the plan with rackplan plan "
                f"{called('stages')} 1"
            )
        if launch.gpus_per_node % launch.tp:
            return (
                f"its attention groups of {launch.tp} GPUs do not fit hosts with {launch.gpus_per_node} "
                f"each; make the plan with a {called('tp')} that divides them"
            )
        return ""

    def answers_everywhere(self, launch: Launch) -> bool:
        """See :class:`Engine`."""
        return launch.nodes == 1 or self.serves_everywhere(launch)

    def serves_everywhere(self, launch: Launch) -> bool:
        """See :class:`Engine`: each host serves its own data-parallel groups."""
        return launch.attention_dp > 1 and launch.stages == 1


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
    headless = f"$([ {launch.rank} = 0 ] || echo --headless)"
    return [f"--nnodes {launch.nodes} --node-rank {launch.rank} --master-addr {launch.address} {headless}"]


class Vllm(ServedByVllm):
    """vLLM with an open pull request."""

    name = "vllm"
    title = "vLLM with pull request #41141"
    version = "#41141 (open, April 2026); released 0.33.0 loads no plan"
    released = False
    framework = "vllm"
    split_words = "evenly over the copies of an expert"
    contexts: ClassVar[Mapping[str, str]] = {
        "dcp": "vLLM has it for latents (#23734) and grouped queries (#24864, #25438)",
        "pcp": "vLLM has it for latents (#46570), and with several attention groups in open pull request #57075",
    }
    rules = RowRules(
        not_whole=Outcome("refused", "expert ids are whole numbers"),
        length=Outcome("refused", "every layer must have num_slots ids"),
        high=Outcome("refused", "ids beyond the experts index past the table"),
        negative=Outcome("wrong", "a negative id counts from the end"),
        absent=Outcome("wrong", "no copy, so its tokens are lost"),
        divisible=Outcome("refused", "EPLB needs the same number of slots on every rank"),
        fewer=Outcome("refused", "num_redundant_experts would be negative"),
    )

    def write(self, mapping: ExpertMapping, facts: ModelFacts) -> str:
        """See :class:`Engine`."""
        record = {
            "record_type": RECORD,
            "version": 1,
            "num_redundant_experts": mapping.redundant,
            "num_slots": mapping.slots,
            ROWS: {str(row): ids for row, ids in enumerate(mapping.slot_expert.tolist())},
        }
        return json.dumps(record) + "\n"

    def read(self, path: Path, facts: ModelFacts, ranks: int, findings: list[Finding]) -> Rows:
        """See :class:`Engine`."""
        record = _record(path)
        rows = record.get(ROWS)
        if not isinstance(rows, dict):
            raise NoRowsError(ROWS, "absent, or not a mapping by MoE layer")
        ordered = _ordered(rows, facts)
        findings += _sizes(record, ordered, facts)
        return Rows(ordered, [f"layer {layer} (MoE layer {i})" for i, layer in enumerate(facts.moe_layers)])

    def around(self, facts: ModelFacts, ranks: int, *, read: bool) -> tuple[Finding, ...]:
        """See :class:`Engine`."""
        return (Finding("vLLM", _UNRELEASED, "note"),)

    def flags(self, launch: Launch) -> list[str]:
        """See :class:`Engine`."""
        config = {
            "num_redundant_experts": launch.redundant,
            "initial_mapping_path": launch.file,
            "disable_online_rebalancing": True,
        }
        return [
            "# NOT RELEASED: a vLLM with pull request #41141 applied",
            *serve_lines(launch, "--enable-eplb"),
            json_flag("--eplb-config", config),
        ]

    def warnings(self, launch: Launch) -> list[str]:
        """See :class:`Engine`."""
        later = "0.33.0 runs a plan from its first re-plan on, with RACKPLAN_BALANCER=1 and RACKPLAN_PLAN=plan.json"
        return [f"NOT RELEASED: {_UNRELEASED}", later, *super().warnings(launch)]


def _record(path: Path) -> dict[str, object]:
    """Return the one mapping record of a file."""
    records: list[dict[str, object]] = []
    types: list[str] = []
    for number, value in read_json_lines(path):
        if not isinstance(value, dict):
            raise NoRowsError(f"line {number}", "expected one JSON object a line")
        if value.get("record_type") == RECORD:
            records.append(value)
        else:
            types.append(str(value.get("record_type"))[:40])
    if not records and "eplb_load_stats" in types:
        raise NoRowsError("records", "a load recording, not a plan; pass it with --loads")
    if not records:
        raise NoRowsError("records", f'none has "record_type": "{RECORD}"')
    if len(records) > 1:
        raise NoRowsError("records", f"{len(records)} of {RECORD}, expected one")
    version = records[0].get("version")
    if type(version) is not int or version != 1:
        raise NoRowsError("version", "expected 1")
    return records[0]


def _ordered(rows: dict[str, object], facts: ModelFacts) -> list[object]:
    """Return the rows of all MoE layers."""
    expected = [str(index) for index in range(len(facts.moe_layers))]
    strange = next((key for key in rows if key not in set(expected)), None)
    absent = next((key for key in expected if key not in rows), None)
    if strange is not None:
        text = f"{facts.name} has MoE layers 0 to {len(expected) - 1}, counted from 0"
        raise NoRowsError(f"{ROWS}, layer {strange[:24]}", text)
    if absent is not None:
        raise NoRowsError(f"{ROWS}, layer {absent}", f"absent; {facts.name} has {len(expected)} MoE layers")
    return [rows[key] for key in expected]


def _sizes(record: dict[str, object], rows: list[object], facts: ModelFacts) -> list[Finding]:
    """The two counts of the record against its rows."""
    row = rows[0]
    if not isinstance(row, list):
        return []
    findings = []
    for key, expected in (("num_slots", len(row)), ("num_redundant_experts", len(row) - facts.experts)):
        stored = record.get(key)
        if type(stored) is not int or stored != expected:
            text = f"{str(stored)[:24]}, but the rows have {expected}: ValueError at the start"
            findings.append(Finding(key, text, "refused"))
    return findings


ENGINE = Vllm()
