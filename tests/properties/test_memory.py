"""What must fit in HBM: weights, cache and workspace by hand, DeepSeek-V3 on a rack, whole sequences."""

import pytest

from cost.inputs.deployment import Deployment
from cost.inputs.layout import StageSpec
from cost.inputs.workload import StepShape, Workload
from cost.resolve import resolve_model
from cost.step.memory import (
    StageMemory,
    layer_cache_bytes,
    layer_weight_bytes,
    replica_max_batch,
    replica_memory,
    workspace_bytes,
)
from topology import resolve_cluster

FP8 = 1 + 4 / 128**2  # one FP32 scale for each block of 128 x 128


def one_stage(where, *, tp=1, slots=None):
    stage = StageSpec(tuple(range(len(where.cluster.gpus))), range(len(where.model.layers)))
    moe = where.model.moe
    slots = [slots or (moe.experts if moe else 0)]
    return replica_memory(where, [stage], tp=tp, slots=slots)[0]


def test_layer_weights_by_hand(toy):
    size = {part: float(number) for number, part in enumerate(toy.parts, 1)}
    # attention 12,288, norms 128, feed-forward 20,000; experts 3,000 a slot, shared 1,000, router 512
    kept = 8 * 128 + 1 * 9_000 + 5 * 512
    assert layer_weight_bytes(toy.dense, size, tp=1, slots=0) == 3 * 12_288 + 8 * 128 + 4 * 20_000
    assert layer_weight_bytes(toy.moe, size, tp=1, slots=3) == 3 * 12_288 + 2 * 1_000 + kept
    # tensor parallelism cuts attention and shared weights, not norms, router and experts
    assert layer_weight_bytes(toy.moe, size, tp=2, slots=3) == 3 * 6_144 + 2 * 500 + kept


def test_one_stage_by_hand(toy):
    # 1 dense and 2 MoE layers on 4 GPUs of one domain, 8 slots: 2 each; embedding and head 64,000, last norm 64
    memory = one_stage(toy.deployment(toy.cluster(4)))
    layers = 12_288 * 3 + 128 * 3 + 20_000 + 2 * (2 * 3_000 + 1_000 + 512)
    assert memory.weights == 2 * (layers + 64_000 + 64_000 + 64)
    assert memory.kv_per_batch == 3 * 100 * 2 * 32 * 2
    # 4 activations, FP32 logits, and from each of 4 ranks a vector of dispatch and one of combine
    assert memory.workspace_per_batch == 4 * 64 * 2 + 4 * 1000 + 4 * (128 + 128)
    assert memory.capacity == 1e9
    assert memory.usable == 0.9e9


def test_buffers_across_domains_grow_with_slots(toy):
    # a BF16 vector for each slot of the group, to send and to receive, twice
    for slots in (8, 16):
        memory = one_stage(toy.deployment(toy.cluster(2, 2)), slots=slots)
        assert memory.workspace_per_batch == 4 * 64 * 2 + 4 * 1000 + 4 * slots * 128


def test_a_dense_model_and_a_single_gpu_need_no_buffers(toy):
    for where in (
        toy.deployment(toy.cluster(4), toy.model(moe=0)),
        toy.deployment(toy.cluster(toy.domain(1))),
    ):
        assert one_stage(where).workspace_per_batch == 4 * 64 * 2 + 4 * 1000


def test_a_tied_head_is_stored_once(toy):
    cluster = toy.cluster(2, 2)
    apart, tied = (toy.deployment(cluster, toy.model(tied=flag)) for flag in (False, True))
    assert one_stage(apart).weights - one_stage(tied).weights == 2 * 64_000
    stages = [StageSpec((0, 1), range(2)), StageSpec((2, 3), range(2, 3))]
    both = [replica_memory(where, stages, tp=1, slots=[8, 8]) for where in (apart, tied)]
    # over two stages both ends need it
    assert [m.weights for m in both[0]] == [m.weights for m in both[1]]


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


def test_unequal_stages_hold_the_cache_of_all_sequences(toy):
    # 6 GPUs serve 6 sequences a batch: 3 for each of two GPUs, 1.5 for each of four
    where = toy.deployment(toy.cluster(2, 4), toy.model(dense=0, moe=2))
    stages = [StageSpec((0, 1), range(1)), StageSpec((2, 3, 4, 5), range(1, 2))]
    small, large = replica_memory(where, stages, tp=1, slots=[8, 8])
    assert small.kv_per_batch == pytest.approx(3 * 100 * 128)
    assert large.kv_per_batch == pytest.approx(1.5 * 100 * 128)
    assert (small.workspace_per_batch, large.workspace_per_batch) == pytest.approx(
        (1.5 * (512 + 2 * 256), 0.75 * (512 + 4_000 + 4 * 256))
    )


def test_the_fullest_gpu_counts(toy):
    where = toy.deployment(toy.cluster(4))
    stage = StageSpec((0, 1, 2, 3), range(3))
    even = replica_memory(where, [stage], tp=1, slots=[8])[0]
    uneven = replica_memory(where, [stage], tp=1, slots=[8], most=[5])[0]
    assert uneven.weights - even.weights == 2 * 2 * 3 * 3_000  # two layers, three slots more
    nine = replica_memory(where, [stage], tp=1, slots=[9])[0]
    assert nine.weights - even.weights == 2 * 2 * 3_000  # what is left over goes to one GPU


def test_tensor_parallelism_cuts_the_cache_as_far_as_there_are_heads(toy):
    where = toy.deployment(toy.cluster(4))
    # two KV heads: up to two parts, and tp times the sequences in a group
    assert [layer_cache_bytes(toy.moe, where.workload, tp) for tp in (1, 2, 4)] == [
        12_800,
        12_800,
        25_600,
    ]


def test_smallest_capacity_of_a_stage_counts(toy):
    cluster = toy.cluster(toy.domain(2, chip=toy.gpu(hbm=5e9)), toy.domain(2))
    where = toy.deployment(cluster)
    stages = [StageSpec((0, 1), range(1)), StageSpec((2, 3), range(1, 3))]
    assert [m.capacity for m in replica_memory(where, stages, tp=1, slots=[0, 8])] == [5e9, 1e9]
    assert one_stage(where).capacity == 1e9


def test_deepseek_v3_weights_on_a_rack():
    where = Deployment(resolve_cluster("gb200-nvl72"), resolve_model("deepseek-v3"), Workload(4096, 1))
    memory = one_stage(where, slots=288)
    expert, attention, dense = 3 * 7168 * 2048, 187_105_280 + 1536 + 512, 3 * 7168 * 18_432
    eight = (4 * 58 + 58) * expert + 61 * attention + 3 * dense  # four slots and the shared expert
    sixteen = 2 * 129_280 * 7168 + 58 * (256 * 7168 + 256) + (61 * 2 + 1) * 7168
    assert memory.weights == pytest.approx(FP8 * eight + 2 * sixteen)
    assert memory.weights / 1e9 == pytest.approx(29.3, abs=0.05)
    assert memory.capacity == 185 * 2**30


def test_nothing_but_whole_sequences_fits():
    memory = StageMemory(weights=100.0, kv_per_batch=30.0, workspace_per_batch=10.0, capacity=1000.0)
    assert replica_max_batch([memory], 1) == 20  # (900 - 100) / 40
    assert memory.used(20) == memory.usable == 900
    assert replica_max_batch([StageMemory(861.0, 30.0, 10.0, 1000.0)], 1) == 0
    assert replica_max_batch([StageMemory(5000.0, 30.0, 10.0, 1000.0)], 1) == 0
    assert replica_max_batch([memory, StageMemory(0.0, 60.0, 40.0, 1000.0)], 1) == 9
    # 20.0 and 21.5 sequences per GPU: the GPUs of a group hold whole ones together
    assert replica_max_batch([memory], 8) == 20
    assert replica_max_batch([StageMemory(40.0, 30.0, 10.0, 1000.0)], 8) == 21.5
    assert replica_max_batch([StageMemory(895.0, 30.0, 10.0, 1000.0)], 8) == 0.125
    assert replica_max_batch([StageMemory(896.0, 30.0, 10.0, 1000.0)], 8) == 0


def test_all_to_all_buffers_of_latent_moe_hold_the_narrow_vector():
    model = resolve_model("kimi-k3")
    shapes = [StepShape(attention_dp=ranks, slots=16.0, domain_gpus=ranks) for ranks in (1.0, 8.0)]
    alone, many = (workspace_bytes(model, Workload(), shape, moe=True) for shape in shapes)
    # in FP8 with a scale for 128 values to the experts, in BF16 back, one of each for every rank
    assert float(many - alone) == 8 * (3584 * (1 + 4 / 128) + 3584 * 2)
