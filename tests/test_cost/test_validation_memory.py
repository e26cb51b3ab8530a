"""Start logs of engines beside what is predicted."""

from pathlib import Path

import pytest

from cost.memory.engines import engine_memory
from cost.validation.memory import memory_validation
from topology.base.errors import InputError

HEADER = (
    "source,engine,engine_version,model,weights_format,kv_dtype,gpu,tp,mem_fraction,max_num_seqs,spec_decode,"
)
HEADER += "weights_gib,kv_mem_gib,kv_tokens\n"
ROWS = [
    "PR 1,vllm,0.30.0,Qwen/Qwen3-8B,bf16,bf16,H100,1,0.9,,0,15.27,53,385000",
    "log,vllm,0.20.2rc1,lukealonso/GLM-5.1-NVFP4-MTP,experts nvfp4,fp8,RTX PRO 6000,8,.865,64,1,56.62,18.51,319232",
    "issue,sglang,,Qwen/Qwen3-235B-A22B-FP8,fp8,,H100,4,0.93,,0,,16.46,367404",
    "log,TensorRT-LLM,,Qwen/Qwen3-8B,,,H100,1,,32,,15.31,,",
    "log,vllm,,no/such-model,,,H100,1,,,,10,20,",
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


def test_what_is_no_start_log_is_refused(tmp_path: Path):
    path = tmp_path / "logs.csv"
    path.write_text("engine,colour\nvllm,red\n", encoding="utf-8")
    with pytest.raises(InputError, match="colour"):
        memory_validation(path)
