"""Memory of many layouts at once: the same bytes as the memory of one stage."""

import numpy as np
import pytest

from cost.attention.linear import Recurrent
from cost.inputs.deployment import Deployment
from cost.inputs.layout import StageSpec
from cost.inputs.workload import StepShape, Workload
from cost.memory.batches import most_that_fit
from cost.memory.stages import batch_room, even_memory, replica_max_batch, replica_memory
from cost.resolve import resolve_model
from topology import resolve_cluster

CASES = [
    ("deepseek-v3", "gb200-nvl72", 1, 288),
    ("deepseek-v3", "hgx-h100@64", 1, 288),
    ("deepseek-v3", "hgx-h100@64", 8, 256),
    ("mixtral-8x7b", "hgx-h100", 8, 16),
    ("llama-3.1-8b", "hgx-h100", 8, 0),
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
    held, each = even_memory(where.model, workload, shape)
    assert float(held) == pytest.approx(memory.weights + memory.buffers)
    assert float(each) == pytest.approx(memory.kv_per_batch)
    tp, room = case[2], batch_room((held, each), memory.budget.usable, memory.budget.part)
    assert room == pytest.approx(memory.room)
    assert most_that_fit(np.minimum(room, memory.most), tp) == replica_max_batch([memory], tp)


def test_weights_alone_may_be_too_many():
    where, memory, shape = both(("deepseek-v3", "hgx-h100", 1, 256), Workload())
    found = even_memory(where.model, where.workload, shape)
    assert found[0] > memory.budget.usable
    assert most_that_fit(batch_room(found, memory.budget.usable), 1) == 0
    assert batch_room(found, memory.budget.usable) < 0


@pytest.mark.parametrize(
    ("name", "weights", "tp", "ep", "drafts", "gib"),
    [
        ("gpt-oss-120b", None, 1, 1, 0, 65.97),  # vLLM issue 23278
        (
            "glm-5.1",
            "experts=nvfp4",
            8,
            1,
            0,
            55.67,
        ),  # local-inference-lab/rtx6kpro, startup logs of May 2026
        ("glm-5.1", "experts=nvfp4", 8, 1, 1, 56.62),
        ("minimax-m2.5", None, 4, 1, 0, 53.75),
        ("qwen3-8b", None, 1, 1, 0, 15.27),
    ],
)
def test_weights_are_those_that_engines_report(name, weights, tp, ep, drafts, gib):
    shape = StepShape(tp=float(tp), ep=float(ep), moe_tp=tp / ep, domain_gpus=float(tp))
    workload = Workload(draft_tokens=drafts)
    found, _ = even_memory(resolve_model(name, weights=weights), workload, shape.under(workload, 1.0))
    assert float(found) / 2**30 == pytest.approx(gib, rel=0.01)


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
