"""TensorRT-LLM: ``moe_config.load_balancer``, a YAML file with three keys, layers by absolute id.

Read from NVIDIA/TensorRT-LLM: ``llmapi/llm_args.py`` (MoeLoadBalancerConfig, extra keys forbidden),
``_torch/moe/fused_moe/moe_load_balancer.py`` at 1f41a4c7d33b (when the section is used, and for which architectures:
DeepSeek-V4 since #13595) and ``fused_moe/interface.py`` of the main branch of 2026 (each layer's experts, all
present).
"""

from __future__ import annotations

import json
from pathlib import Path, PurePath

import yaml

from placement.engines.engine import Engine, Launch
from placement.engines.findings import BAD, Finding, NoRowsError, Outcome, RowRules, Rows, and_more, whole_of
from placement.engines.mapping import ExpertMapping, ModelFacts
from placement.engines.strict_text import read_yaml

SLOTS, ROWS, UPDATES = "num_slots", "initial_global_assignments", "layer_updates_per_iter"
_BALANCED = (
    "DeepseekV3ForCausalLM",
    "DeepseekV32ForCausalLM",
    "DeepseekV4ForCausalLM",
    "GlmMoeDsaForCausalLM",
    "GptOssForCausalLM",
    "KimiK25ForConditionalGeneration",
    "MixtralForCausalLM",
    "Llama4ForConditionalGeneration",
    "NemotronHForCausalLM",
    "Qwen2MoeForCausalLM",
    "Qwen3MoeForCausalLM",
    "Qwen3_5MoeForCausalLM",
    "Qwen3VLMoeForConditionalGeneration",
    "Qwen3_5MoeForConditionalGeneration",
    "Qwen4ExpForCausalLM",
    "Qwen4ExpForConditionalGeneration",
)
"""``moe_model_arch_list``; the last two by the test of the model that came with them."""


class Trtllm(Engine):
    """TensorRT-LLM."""

    name = "trtllm"
    title = "TensorRT-LLM"
    version = "main of 2026 (moe_load_balancer.py at 1f41a4c7d33b, llm_args.py)"
    suffixes = (".yaml", ".yml")
    framework = "trtllm"
    ranks_are_tasks = True
    split_words = "evenly, since its router uses the copies of an expert round-robin"
    rules = RowRules(
        not_whole=Outcome("refused", "its configuration wants whole numbers"),
        length=Outcome("refused", "ValueError: the length of each layer must be num_slots"),
        high=Outcome("refused", "the MoE layer asserts that the ids are those of its experts"),
        negative=Outcome("refused", "the MoE layer asserts that the ids are those of its experts"),
        absent=Outcome("refused", "the MoE layer asserts that every expert is there"),
        divisible=Outcome("refused", "ValueError: num_slots must be divisible by the EP size"),
        fewer=Outcome("refused", "the MoE layer asserts num_slots >= experts"),
        converts=True,
    )

    def write(self, mapping: ExpertMapping, facts: ModelFacts) -> str:
        """See :class:`Engine`."""
        rows = zip(mapping.layer_ids, mapping.slot_expert.tolist(), strict=True)
        lines = "".join(f"  {layer}: {json.dumps(row)}\n" for layer, row in rows)
        return f"{SLOTS}: {mapping.slots}\n{ROWS}:\n{lines}{UPDATES}: 0\n"

    def read(self, path: Path, facts: ModelFacts, ranks: int, findings: list[Finding]) -> Rows:
        """See :class:`Engine`."""
        data = read_yaml(path)
        if not isinstance(data, dict):
            raise NoRowsError("the whole file", f"expected the keys {SLOTS}, {ROWS} and {UPDATES}")
        findings += [*_unknown_keys(data), *_updates(data)]
        rows = data.get(ROWS)
        if rows is None:
            text = "absent, so TensorRT-LLM uses its default map"
            raise NoRowsError(ROWS, text, "wrong")
        if not isinstance(rows, dict) or not rows:
            raise NoRowsError(ROWS, "expected expert ids by absolute layer id")
        findings += [*_layers(rows, facts), *_slots(data.get(SLOTS), rows)]
        if any(finding.kind in BAD for finding in findings):
            raise NoRowsError
        return Rows(
            [rows[layer] for layer in facts.moe_layers], [f"layer {layer}" for layer in facts.moe_layers]
        )

    def around(self, facts: ModelFacts, ranks: int, *, read: bool) -> tuple[Finding, ...]:
        """Return what makes TensorRT-LLM silently ignore the file."""
        findings = [
            Finding(
                "enable_attention_dp",
                "must be true, moe_expert_parallel_size above 1 and the file under "
                "moe_config.load_balancer; otherwise TensorRT-LLM silently ignores it",
                "note",
            )
        ]
        if ranks == 1:
            findings.append(Finding("EP size", "1: TensorRT-LLM silently ignores the file", "wrong"))
        if facts.architecture not in _BALANCED:
            text = (
                f"{facts.architecture or 'unknown'}: not among the architectures that TensorRT-LLM balances "
                f"({', '.join(_BALANCED)}); it silently ignores the file unless your version supports the "
                "architecture"
            )
            findings.append(Finding("architecture", text, "note" if not facts.architecture else "wrong"))
        return tuple(findings)

    def flags(self, launch: Launch) -> list[str]:
        """See :class:`Engine`."""
        options = _options(launch)
        start = f"trtllm-serve {launch.model} --extra_llm_api_options {options}"
        settings: dict[str, object] = {
            "moe_config": {"backend": "WIDEEP", "load_balancer": launch.file},
            "enable_attention_dp": True,
            "tensor_parallel_size": launch.ep,
            "moe_expert_parallel_size": launch.ep,
        }
        if launch.stages > 1:
            settings |= {"pipeline_parallel_size": launch.stages, "pp_partition": list(launch.cut)}
        if launch.role != "both":
            settings["cache_transceiver_config"] = {"backend": "DEFAULT"}
        text = yaml.safe_dump(settings, sort_keys=False, allow_unicode=True, width=10**6)
        return [f"# {options}, for: {start}   ({launch.world} ranks)", *text.splitlines()]

    def command(self, launch: Launch) -> list[str]:
        """See :class:`Engine`; on several hosts as a task of MPI."""
        options = str(PurePath(launch.file).with_name(_options(launch)))
        if launch.module:
            lines = [
                f"python3 -m {launch.module} --model-path {launch.model}",
                f"--extra-engine-args {options}",
            ]
            return [*lines, *[f"--disaggregation-mode {launch.role}"] * (launch.role != "both")]
        start = "trtllm-llmapi-launch trtllm-serve" if launch.nodes > 1 else "trtllm-serve"
        return [f"{start} {launch.model}", f"--extra_llm_api_options {options}"]

    def files(self, launch: Launch) -> dict[str, str]:
        """See :class:`Engine`."""
        return {_options(launch): "\n".join(self.flags(launch)[1:]) + "\n"}

    def cannot_spread(self, launch: Launch) -> str:
        """See :class:`Engine`."""
        if launch.nodes == 1:
            return ""
        return f"its {launch.world} ranks are MPI tasks; use --launch slurm, mpi or dynamo"

    def warnings(self, launch: Launch) -> list[str]:
        """See :class:`Engine`."""
        notes = super().warnings(launch)
        if launch.tp > 1:
            notes.append(
                f"the plan runs attention with TP {launch.tp}; TensorRT-LLM's attention DP has one group "
                "per GPU; make the plan with rackplan plan --tp 1"
            )
        if launch.architecture not in _BALANCED:
            notes.append(
                f"{launch.model} may not be of an architecture that TensorRT-LLM balances "
                f"({', '.join(_BALANCED)}), so it may silently ignore the file"
            )
        return notes


def _options(launch: Launch) -> str:
    """Name of the file that has what the command line does not say."""
    return "options.yaml" if launch.role == "both" else f"{launch.role}-options.yaml"


def _unknown_keys(data: dict[object, object]) -> list[Finding]:
    unknown = [str(key)[:40] for key in data if key not in (SLOTS, ROWS, UPDATES)]
    if not unknown:
        return []
    text = f"{unknown[0]!r} is not one of {SLOTS}, {ROWS}, {UPDATES}: TensorRT-LLM forbids other keys"
    return [Finding("keys", text, "refused")]


def _updates(data: dict[object, object]) -> list[Finding]:
    updates = data.get(UPDATES, 0)
    if type(updates) is not int or updates < 0:
        return [Finding(UPDATES, "expected 0, or layers to move per iteration", "refused")]
    if updates:
        text = f"{updates}: TensorRT-LLM starts from the plan and then moves experts"
        return [Finding(UPDATES, text, "note")]
    return []


def _layers(rows: dict[object, object], facts: ModelFacts) -> list[Finding]:
    """Layers that are absent, and those that the model has not."""
    read = {whole_of(key) for key in rows}
    absent = [layer for layer in facts.moe_layers if layer not in read]
    strange = [key for key in rows if type(key) is not int or key not in set(facts.moe_layers)]
    findings = []
    if strange:
        rest = and_more(len(strange))
        text = (
            f"{facts.name} has no such MoE layer{rest}; the engine ignores it; is the plan for another model?"
        )
        if type(strange[0]) is not int and whole_of(strange[0]) in facts.moe_layers:
            text = f"not a whole number{rest}, and is read as {whole_of(strange[0])}"
        findings.append(Finding(f"layer {str(strange[0])[:24]}", text, "wrong"))
    if absent:
        counted = set(rows) == set(range(len(facts.moe_layers)))
        hint = "; keys are absolute layer ids, these count MoE layers from 0" if counted else ""
        text = f"absent{and_more(len(absent))}: KeyError when the layer is built{hint}"
        findings.append(Finding(f"layer {absent[0]}", text, "refused"))
    return findings


def _slots(slots: object, rows: dict[object, object]) -> list[Finding]:
    if type(slots) is not int and (number := whole_of(slots)) is not None:
        return [Finding(SLOTS, f"{str(slots)[:24]} is not a whole number, and is read as {number}", "wrong")]
    if type(slots) is not int:
        return [Finding(SLOTS, "absent or not a whole number: ValueError at the start", "refused")]
    for layer, row in rows.items():
        if isinstance(row, list) and len(row) != slots:
            text = f"{len(row)} slots, {SLOTS} says {str(slots)[:24]}: ValueError at the start"
            return [Finding(f"layer {str(layer)[:24]}", text, "refused")]
    return []


ENGINE = Trtllm()
