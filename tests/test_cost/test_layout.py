"""The words of a layout: widths, GPUs in use, and the line that summaries print; replicas made when asked for."""


def test_one_stage(toy):
    layout = toy.layout([(range(72), range(61))])
    assert (layout.stages, layout.ep, layout.attention_dp, layout.gpus_used) == (1, 72, 72, 72)
    assert layout.describe(moe=True) == "EP 72, attention DP 72, TP 1, 1 stage, 1 replica"
    assert layout.describe(moe=False) == "attention DP 72, TP 1, 1 stage, 1 replica"


def test_replicas_stages_and_tensor_parallelism(toy):
    layout = toy.layout(
        [(range(4), range(2)), (range(4, 8), range(2, 5))],
        [(range(8, 12), range(2)), (range(12, 16), range(2, 5))],
        tp=2,
    )
    assert (layout.stages, layout.ep, layout.attention_dp, layout.gpus_used) == (2, 4, 2, 16)
    assert layout.describe(moe=True) == "EP 4, attention DP 2, TP 2, 2 stages, 2 replicas"


def test_unequal_stages_are_named_by_the_largest(toy):
    layout = toy.layout([(range(2), range(1)), (range(2, 8), range(1, 3))])
    assert (layout.ep, layout.attention_dp, layout.gpus_used) == (6, 6, 8)


def test_simpler_is_less_tensor_parallelism_then_wider_groups(toy):
    wide = toy.layout([(range(4), range(2))])
    replicas = toy.layout([(range(2), range(2))], [(range(2, 4), range(2))])
    staged = toy.layout([(range(2), range(1)), (range(2, 4), range(1, 2))])
    tensor = toy.layout([(range(4), range(2))], tp=2)
    ordered = sorted([tensor, staged, replicas, wide], key=lambda layout: layout.simplicity)
    assert ordered == [wide, replicas, staged, tensor]
