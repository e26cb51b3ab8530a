"""Memory of layouts and engines: many layouts as one stage, and start logs beside what is predicted."""

from collections import defaultdict
from pathlib import Path
from statistics import median

import numpy as np
import pytest

from cost.attention.linear import Recurrent
from cost.inputs.deployment import Deployment
from cost.inputs.layout import StageSpec
from cost.inputs.workload import StepShape, Workload
from cost.memory.batches import most_that_fit
from cost.memory.engines import engine_memory, forward_gib, seen_gib, usual_step
from cost.memory.stages import batch_room, even_memory, replica_max_batch, replica_memory
from cost.resolve import resolve_model
from cost.validation.memory import memory_validation
from cost.validation.statistics import signed_error
from topology import resolve_cluster
from topology.base.errors import InputError

CASES = [
    ("deepseek-v3", "gb200-nvl72", 1, 288),
    ("deepseek-v3", "hgx-h100@64", 8, 256),
    ("mixtral-8x7b", "hgx-h100", 8, 16),
    ("llama-3.1-8b", "hgx-h100@16", 1, 0),
    ("qwen3-8b", "hgx-h100", 4, 0),
]


def both(case, workload):
    """The memory of a layout over all GPUs as one stage, and as a shape among many."""
    name, cluster, tp, slots = case
    where = Deployment(resolve_cluster(cluster), resolve_model(name), workload)
    gpus = len(where.cluster.gpus)
    stage = StageSpec(tuple(range(gpus)), range(len(where.model.layers)))
    (memory,) = replica_memory(where, [stage], tp=tp, slots=[slots])
    shape = StepShape(
        tp=float(tp),
        attention_dp=gpus / tp,
        ep=float(gpus),
        slots=float(slots),
        context=float(workload.context),
        prompt_length=float(workload.context),
        domain_gpus=float(where.smallest_part(stage)),
    )
    return where, memory, shape


@pytest.mark.parametrize(
    "workload", [Workload(), Workload(draft_tokens=2), Workload(phase="prefill")], ids=str
)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_one_stage_has_the_bytes_of_its_memory(case, workload):
    where, memory, shape = both(case, workload)
    held, per_sequence = even_memory(where.model, workload, shape)
    assert float(held) == pytest.approx(memory.weights + memory.buffers)
    assert float(per_sequence) == pytest.approx(memory.kv_per_batch)
    tp, room = case[2], batch_room((held, per_sequence), memory.budget.usable, memory.budget.part)
    assert room == pytest.approx(memory.room)
    assert most_that_fit(np.minimum(room, memory.most), tp) == replica_max_batch([memory], tp)


@pytest.mark.parametrize(
    ("name", "weights", "tp", "ep", "drafts", "gib"),
    [
        ("gpt-oss-120b", None, 1, 1, 0, 65.97),  # vLLM issue 23278
        ("glm-5.1", "experts=nvfp4", 8, 1, 0, 55.67),  # local-inference-lab/rtx6kpro, logs of May 2026
        ("glm-5.1", "experts=nvfp4", 8, 1, 1, 56.62),
        ("minimax-m2.5", None, 4, 1, 0, 53.75),
        ("qwen3-8b", None, 1, 1, 0, 15.27),
    ],
)
def test_weights_are_those_that_engines_report(name, weights, tp, ep, drafts, gib):
    shape = StepShape(tp=float(tp), ep=float(ep), moe_tp=tp / ep, domain_gpus=float(tp))
    workload = Workload(draft_tokens=drafts)
    weight_bytes, _ = even_memory(resolve_model(name, weights=weights), workload, shape.under(workload, 1.0))
    assert float(weight_bytes) / 2**30 == pytest.approx(gib, rel=0.01)


def test_states_of_linear_attention_have_a_part_of_the_room_of_their_own():
    """SGLang: five states of a request in 0.9 / 1.9 of the room, the cache of the other layers in the rest."""
    model = resolve_model("qwen3.5-27b")
    for context in (1_000.0, 100_000.0):
        shape = StepShape(context=context)
        _, shared = even_memory(model, Workload(), shape)
        states = sum(
            layer.attention.state_bytes for layer in model.layers if isinstance(layer.attention, Recurrent)
        )
        assert 0 < states < shared
        _, apart = even_memory(model, Workload(states=5.0), shape)
        assert apart == pytest.approx(max(1.9 * (shared - states), 1.9 / 0.9 * 5 * states))
    dense = resolve_model("qwen3-8b")
    assert even_memory(dense, Workload(states=5.0), shape) == even_memory(dense, Workload(), shape)


START_LOGS = Path(__file__).parents[3] / "shared/data/engine_start_logs.csv"

HEADER = (
    "source,engine,engine_version,model,weights_format,kv_dtype,gpu,tp,mem_fraction,max_num_seqs,spec_decode,"
)
HEADER += "weights_gib,kv_mem_gib,kv_tokens\n"
ROWS = [
    "PR 1,vllm,0.30.0,Qwen/Qwen3-8B,bf16,bf16,H100,1,0.9,,0,15.27,53,385000",
    "log,vllm,0.20.2rc1,lukealonso/GLM-5.1-NVFP4-MTP,experts nvfp4,fp8,RTX PRO 6000,8,.865,64,1,56.62,18.51,319232",
    "issue,sglang,,Qwen/Qwen3-235B-A22B-FP8,fp8,,H100,4,0.93,,0,,16.46,367404",
    "log,TensorRT-LLM,,Qwen/Qwen3-8B,,,H100,1,,32,,15.31,,",
    "log,vllm,,no/such-model,,,H100,1,,,,,20,",
    "log,mlc,,Qwen/Qwen3-8B,,,H100,1,,,,,20,",
    "issue,vllm,0.10,openai/gpt-oss-120b,mxfp4,,H100,1,,,,65.9651,-2.14,",
]


@pytest.fixture
def logged(tmp_path: Path):
    path = tmp_path / "logs.csv"
    path.write_text(HEADER + "\n".join(ROWS) + "\n", encoding="utf-8")
    validated = memory_validation(path)
    return {(p.id, p.quantity): (p, q) for p, q in zip(validated.points, validated.predictions, strict=True)}


def test_weights_room_and_tokens_are_near_what_engines_printed(logged):
    for (_, quantity), (point, predicted) in logged.items():
        if predicted.value is not None:
            near = 0.02 if quantity == "weights_gib" else 0.2
            assert predicted.value == pytest.approx(point.measured, rel=near)
            assert predicted.low <= point.measured <= predicted.high


def test_what_is_not_known_is_said(logged):
    assert "such-model" in logged["5", "kv_mem_gib"][1].reason
    assert "mlc" in logged["6", "kv_mem_gib"][1].reason
    assert ("7", "kv_mem_gib") not in logged, "an engine that does not start has no room"


def test_several_gpus_graphs_and_experts_take_more():
    old, form = engine_memory("vllm", "0.8.5"), engine_memory("vllm", "0.20")
    assert old.utilisation.value < engine_memory("vllm").utilisation.value
    assert engine_memory("vllm", "nightly", "2025-06") == engine_memory("vllm", month="2025-06") == old
    assert usual_step(79.3, "a100-sxm") < usual_step(79.2, "h100-sxm")
    assert seen_gib(143771 / 1024) == pytest.approx(139.81, abs=0.05)
    asked = {"vocab": 150_000, "sequences": 64, "rocm": False}
    least, *_ = form.taken_gib(**asked, several=False, experts=True)
    eager, *_ = form.taken_gib(**asked, several=True, experts=True, graphs=False)
    dense, *_ = form.taken_gib(**asked, several=True)
    whole, low, high, uses = form.taken_gib(**asked, several=True, experts=True)
    assert (
        least
        < eager
        < dense
        < whole
        < form.taken_gib(**asked | {"sequences": 512}, several=True, experts=True)[0]
    )
    room = form.room_gib(80, 50, whole)
    assert form.room_gib(80, 51, whole) == pytest.approx(room - 1)
    assert form.room_gib(80, 50, whole, 0.8) < room
    assert low < whole < high
    assert sum(uses.values()) == pytest.approx(whole)
    assert form.taken_gib(**asked, several=True, experts=True, forward=10.0)[0] > whole + 5


def test_the_default_part_of_memory_is_that_of_the_engine() -> None:
    for month, total, asked, usual in (
        ("2025-02", 24.2, {"tp": 1}, 0.88),
        ("2025-03", 23.0, {"tp": 4}, 0.85),
        ("2026-08", 79.9, {"tp": 1}, 0.836),
        ("", 179.0, {"tp": 8}, 0.852),
        ("", 140.4, {"tp": 8, "ranks": 8, "drafts": True}, 0.754),
    ):
        utilisation = engine_memory("sglang", month=month).usual_utilisation(total, **asked)
        assert utilisation == pytest.approx(usual, abs=0.002)


def test_activations_are_those_that_a_profiling_run_printed():
    model = resolve_model("llama-3.1-8b")
    assert forward_gib(model, 20_000) == pytest.approx(2.07, abs=0.02)
    assert forward_gib(model, 29_000) == pytest.approx(2.99, abs=0.02)
    assert forward_gib(model, 20_000, tp=2.0) < forward_gib(model, 20_000)
    experts = resolve_model("deepseek-v3")
    assert forward_gib(experts, 8192, tp=8.0, moe_tp=8.0) > forward_gib(model, 8192, tp=8.0)
    experts = resolve_model("qwen3-235b-a22b")
    more = forward_gib(experts, 131_072) - forward_gib(experts, 65_536)
    assert more == pytest.approx(2.0 * 65_536 * 3 * 4096 / 2**30), "experts take their tokens in parts"


def test_weights_as_printed_serve_a_model_that_is_not_known(tmp_path: Path):
    header = (
        "engine,engine_version,n_gpus,hbm_gib,free_before_gib,mem_fraction,arch,weights_gib,kv_mem_gib,note\n"
    )
    rows = [
        "vllm,0.8.5,1,79.25,,0.9,dense,15,55,",
        "sglang,0.5.4,1,,78.48,,moe,29.15,35.98,",
        "trtllm,,1,119.7,,0.9,moe,63.52,5.95,unified memory",
    ]
    path = tmp_path / "logs.csv"
    path.write_text(header + "\n".join(rows) + "\n", encoding="utf-8")
    validated = memory_validation(path)
    logged = {
        (p.id, p.quantity): (p, q) for p, q in zip(validated.points, validated.predictions, strict=True)
    }
    for row in ("1", "2"):
        point, predicted = logged[row, "kv_mem_gib"]
        assert predicted.value == pytest.approx(point.measured, rel=0.1)
        assert "as the log has them" in predicted.reason
        assert logged[row, "weights_gib"][1].value is None
    assert "shares with the GPU" in logged["3", "kv_mem_gib"][1].reason
    path.write_text("engine,colour\nvllm,red\n", encoding="utf-8")
    with pytest.raises(InputError, match="colour"):
        memory_validation(path)


@pytest.mark.skipif(not START_LOGS.is_file(), reason="no start logs here")
def test_public_start_logs_are_near_what_is_predicted():
    """Each source counts once: of several logs of a source, its median."""
    validated = memory_validation(START_LOGS)
    errors, inside = defaultdict(lambda: defaultdict(list)), defaultdict(list)
    for point, predicted in zip(validated.points, validated.predictions, strict=True):
        error = signed_error(point, predicted)
        if error is not None:
            errors[point.quantity][point.source.split(",")[0]].append(error)
            inside[point.quantity].append(predicted.low <= point.measured <= predicted.high)
    for quantity, limit, near in (("kv_mem_gib", 0.06, 0.75), ("weights_gib", 0.02, 0.75)):
        medians = [median(of_source) for of_source in errors[quantity].values()]
        assert median(map(abs, medians)) <= limit
        assert abs(median(medians)) <= 0.03
        assert sum(abs(error) <= 0.1 for error in medians) >= near * len(medians)
        assert sum(inside[quantity]) >= 0.8 * len(inside[quantity])
    assert sum(map(len, errors["kv_mem_gib"].values())) >= 30
