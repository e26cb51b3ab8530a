"""Start logs of engines beside what is predicted."""

from collections import defaultdict
from pathlib import Path
from statistics import median

import pytest

from cost.memory.engines import engine_memory, forward_gib, seen_gib, usual_step
from cost.resolve import resolve_model
from cost.validation.memory import memory_validation
from cost.validation.statistics import signed_error
from topology.base.errors import InputError

LOGS = Path(__file__).parents[3] / "shared/data/engine_start_logs.csv"

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
def found(tmp_path: Path):
    path = tmp_path / "logs.csv"
    path.write_text(HEADER + "\n".join(ROWS) + "\n", encoding="utf-8")
    validated = memory_validation(path)
    return {(p.id, p.quantity): (p, q) for p, q in zip(validated.points, validated.predictions, strict=True)}


def test_weights_room_and_tokens_are_near_what_engines_printed(found):
    for (_, quantity), (point, predicted) in found.items():
        if predicted.value is not None:
            near = 0.02 if quantity == "weights_gib" else 0.2
            assert predicted.value == pytest.approx(point.measured, rel=near)
            assert predicted.low <= point.measured <= predicted.high


def test_what_is_not_known_is_said(found):
    assert "such-model" in found["5", "kv_mem_gib"][1].reason
    assert "mlc" in found["6", "kv_mem_gib"][1].reason
    assert ("7", "kv_mem_gib") not in found, "an engine that does not start has no room"


def test_an_engine_has_the_form_of_its_version():
    old, new = engine_memory("vllm", "0.8.5"), engine_memory("vllm", "0.30.0")
    assert old.utilisation.value < new.utilisation.value
    assert engine_memory("vllm", month="2025-06") == old
    assert engine_memory("vllm") == new
    assert engine_memory("mlc") is None


def test_more_of_anything_leaves_less_room():
    form = engine_memory("vllm", "0.20")
    taken = form.taken_gib(vocab=129_280, sequences=256, several=True, rocm=False)
    assert taken[1] <= taken[0] <= taken[2]
    room = form.room_gib(80, 50, taken[0])
    assert form.room_gib(80, 51, taken[0]) == pytest.approx(room - 1)
    assert form.room_gib(80, 50, taken[0], 0.8) < room
    more = form.taken_gib(vocab=129_280, sequences=512, several=True, rocm=False)
    assert more[0] > taken[0]


def test_several_gpus_graphs_and_experts_take_more():
    form = engine_memory("vllm", "0.20")
    asked = {"vocab": 150_000, "sequences": 64, "rocm": False}
    least, *_ = form.taken_gib(**asked, several=False, experts=True)
    eager, *_ = form.taken_gib(**asked, several=True, experts=True, graphs=False)
    dense, *_ = form.taken_gib(**asked, several=True)
    whole, low, high, uses = form.taken_gib(**asked, several=True, experts=True)
    assert least < eager < dense < whole
    assert low < whole < high
    assert sum(uses.values()) == pytest.approx(whole)
    assert form.taken_gib(**asked, several=True, experts=True, forward=10.0)[0] > whole + 5


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


@pytest.mark.parametrize(
    ("month", "total", "asked", "usual"),
    [
        ("2025-02", 24.2, {"tp": 1}, 0.88),
        ("2025-03", 23.0, {"tp": 4}, 0.85),
        ("2026-08", 79.9, {"tp": 1}, 0.836),
        ("", 140.4, {"tp": 8}, 0.897),
        ("", 179.0, {"tp": 8}, 0.852),
        ("", 140.4, {"tp": 8, "ranks": 8, "drafts": True}, 0.754),
    ],
)
def test_the_default_part_of_memory_is_that_of_the_engine(month, total, asked, usual):
    assert engine_memory("sglang", month=month).usual_utilisation(total, **asked) == pytest.approx(
        usual, abs=0.002
    )


def test_an_a100_is_small_and_the_driver_keeps_a_part():
    assert usual_step(79.3, "a100-sxm") < usual_step(79.2, "h100-sxm")
    assert seen_gib(143771 / 1024) == pytest.approx(139.81, abs=0.05)
    assert seen_gib(183359 / 1024) == pytest.approx(178.35, abs=0.05)


def test_a_version_that_is_none_leaves_the_month():
    assert engine_memory("vllm", "nightly", "2025-06") == engine_memory("vllm", month="2025-06")


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
    found = {(p.id, p.quantity): (p, q) for p, q in zip(validated.points, validated.predictions, strict=True)}
    for row in ("1", "2"):
        point, predicted = found[row, "kv_mem_gib"]
        assert predicted.value == pytest.approx(point.measured, rel=0.1)
        assert "as the log has them" in predicted.reason
        assert found[row, "weights_gib"][1].value is None
    assert "shares with the GPU" in found["3", "kv_mem_gib"][1].reason


@pytest.mark.skipif(not LOGS.is_file(), reason="no start logs here")
def test_public_start_logs_are_near_what_is_predicted():
    """Each source counts once: of several logs of a source, its median."""
    validated = memory_validation(LOGS)
    errors, inside = defaultdict(lambda: defaultdict(list)), defaultdict(list)
    for point, predicted in zip(validated.points, validated.predictions, strict=True):
        error = signed_error(point, predicted)
        if error is not None:
            errors[point.quantity][point.source.split(",")[0]].append(error)
            inside[point.quantity].append(predicted.low <= point.measured <= predicted.high)
    for quantity, most, near in (("kv_mem_gib", 0.06, 0.75), ("weights_gib", 0.02, 0.75)):
        each = [median(one) for one in errors[quantity].values()]
        assert median(map(abs, each)) <= most
        assert abs(median(each)) <= 0.03
        assert sum(abs(one) <= 0.1 for one in each) >= near * len(each)
        assert sum(inside[quantity]) >= 0.8 * len(inside[quantity])
    assert sum(map(len, errors["kv_mem_gib"].values())) >= 30


def test_what_is_no_start_log_is_refused(tmp_path: Path):
    path = tmp_path / "logs.csv"
    path.write_text("engine,colour\nvllm,red\n", encoding="utf-8")
    with pytest.raises(InputError, match="colour"):
        memory_validation(path)
