"""What must fit in HBM: weights, cache and buffers by hand, DeepSeek-V3 on a rack, whole sequences."""

import pytest

from cost.inputs.deployment import Deployment
from cost.inputs.layout import StageSpec
from cost.inputs.workload import Workload
from cost.memory.budget import Budget, Ranks
from cost.memory.sizes import (
    DISPATCH_BYTES,
    DISPATCH_TOKENS,
)
from cost.memory.stages import StageMemory, replica_max_batch, replica_memory
from cost.resolve import resolve_model
from topology import resolve_cluster
from topology.base.errors import InputError


def one_stage(where, *, tp=1, slots=None):
    stage = StageSpec(tuple(range(len(where.cluster.gpus))), range(len(where.model.layers)))
    moe = where.model.moe
    slots = [slots or (moe.experts if moe else 0)]
    return replica_memory(where, [stage], tp=tp, slots=slots)[0]


def test_one_stage_by_hand(toy):
    # 1 dense and 2 MoE layers on 4 GPUs of one domain, 8 slots: 2 each; embedding and head 64,000, last norm 64
    memory = one_stage(toy.deployment(toy.cluster(4)))
    layers = 12_288 * 3 + 128 * 3 + 20_000 + 2 * (2 * 3_000 + 1_000 + 512)
    assert memory.weights == 2 * (layers + 64_000 + 64_000 + 64)
    assert memory.kv_per_batch == 3 * 100 * 2 * 32 * 2
    assert memory.buffers == 0
    assert memory.budget.capacity == 1e9
    assert memory.usable == pytest.approx(0.9e9)
    where, stage = toy.deployment(toy.cluster(4)), StageSpec((0, 1, 2, 3), range(3))
    (fullest,) = replica_memory(where, [stage], tp=1, slots=[8], most=[5])
    assert fullest.weights - memory.weights == 2 * 2 * 3 * 3_000  # two layers, three slots more


def test_buffers_across_domains_grow_with_slots(toy):
    # a BF16 vector for each slot of the group and each token of a dispatch, to send and to receive, twice
    for slots in (8, 16):
        memory = one_stage(toy.deployment(toy.cluster(2, 2)), slots=slots)
        assert memory.buffers == 4 * slots * 128 * DISPATCH_TOKENS
        assert memory.pool == pytest.approx(0.9e9 - memory.weights - memory.buffers)
    prompts = toy.deployment(toy.cluster(2, 2), phase="prefill")
    assert one_stage(prompts).buffers == DISPATCH_BYTES
    assert one_stage(toy.deployment(toy.cluster(2, 2), toy.model(moe=0))).buffers == 0


def test_stages_divide_weights_and_not_the_cache(toy):
    where = toy.deployment(toy.cluster(4), toy.model(dense=0, moe=4))
    whole = one_stage(where)
    stages = [StageSpec((0, 1), range(2)), StageSpec((2, 3), range(2, 4))]
    first, last = replica_memory(where, stages, tp=1, slots=[8, 8])
    assert first.kv_per_batch == last.kv_per_batch == whole.kv_per_batch
    per_layer = 2 * (12_288 + 128 + 1_000 + 512)
    # half of the layers, twice the experts of each on a GPU; embedding first, head and norm last
    assert first.weights == 2 * per_layer + 2 * 2 * 4 * 3_000 + 2 * 64_000
    assert last.weights == first.weights + 2 * 64
    assert max(first.weights, last.weights) < whole.weights
    # 6 GPUs serve 6 sequences a batch: 3 for each of two GPUs, 1.5 for each of four
    where = toy.deployment(toy.cluster(2, 4), toy.model(dense=0, moe=2))
    stages = [StageSpec((0, 1), range(1)), StageSpec((2, 3, 4, 5), range(1, 2))]
    unequal = replica_memory(where, stages, tp=1, slots=[8, 8])
    assert [stage.kv_per_batch for stage in unequal] == pytest.approx([3 * 100 * 128, 1.5 * 100 * 128])


def stage_memory(weights, each, *, part=1.0, most=1e9):
    """A GPU of 1,000 bytes of which an engine keeps 100, and gives ``part`` of the rest to the cache."""
    taken = {"workspace": 30.0, "graphs": 20.0, "buffers": 10.0}
    budget = Budget("toy", 0.9, False, 1000.0, 900.0, part, taken, 50.0, 22.0)
    return StageMemory(weights, weights / 2, 0.0, each, budget, most, off=120.0)


def test_nothing_but_whole_sequences_fits():
    memory = stage_memory(100.0, 40.0)
    assert replica_max_batch([memory], 1) == 20  # (900 - 100) / 40
    assert memory.used(20) == memory.usable == memory.filled(20) == 900
    assert replica_max_batch([stage_memory(861.0, 40.0)], 1) == 0
    assert replica_max_batch([stage_memory(5000.0, 40.0)], 1) == 0
    assert replica_max_batch([memory, stage_memory(0.0, 100.0)], 1) == 9
    # 20.0 and 21.5 sequences per GPU: the GPUs of a group hold whole ones together
    assert replica_max_batch([memory], 8) == 20
    assert replica_max_batch([stage_memory(40.0, 40.0)], 8) == 21.5
    assert replica_max_batch([stage_memory(895.0, 40.0)], 8) == 0.125
    assert replica_max_batch([stage_memory(896.0, 40.0)], 8) == 0
    told = stage_memory(100.0, 40.0, most=7.5)
    assert [replica_max_batch([told], group) for group in (1, 2)] == [7, 7.5]


def test_uses_add_up_to_the_capacity_and_an_engine_may_give_a_part_of_the_rest_to_the_cache():
    memory = stage_memory(100.0, 40.0, part=0.5)
    assert memory.pool == 400
    assert memory.room == 10
    assert memory.usable == memory.used(10) == 500
    assert memory.filled(10) == memory.budget.usable == 900
    uses = memory.breakdown(4)
    assert sum(uses.values()) == 1000
    assert (uses["kv_cache"], uses["free"], uses["graphs"]) == (160, 240, 20)


def test_the_tightest_engine_counts_and_utilisation_and_sequences_are_the_users_to_give():
    cluster, model = resolve_cluster("hgx-h100"), resolve_model("deepseek-v3")
    gpu = cluster.spec.domains[0].gpu

    def budget(engine="", **options):
        return Deployment(cluster, model, Workload(), engine=engine, **options).budget_on(gpu, Ranks(1, 1, 8))

    pools = [budget(engine).pool(gpu.hbm_bytes / 2) for engine in ("", "vllm", "sglang", "trtllm")]
    assert pools[0] == min(pools[1:])
    usual = budget("vllm").usable
    assert budget("vllm", mem_util=0.95).usable - usual == pytest.approx(0.03 * gpu.hbm_bytes, rel=0.01)
    assert budget("vllm", max_seqs=64).usable > usual  # fewer logits
    with pytest.raises(InputError, match="mem_util"):
        Deployment(cluster, model, Workload(), mem_util=1.5)
