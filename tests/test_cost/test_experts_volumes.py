"""Vectors between GPUs by kernel family: formulas, and the busiest GPU of a real placement."""

import itertools

import numpy as np
import pytest

from cost.experts.tokens.reach import ExpertUse, Routing, balanced_use
from cost.experts.tokens.volumes import FAMILIES, alltoall_volumes, placed_vectors, require_family
from topology.base.errors import InputError

V3 = Routing(256, 8)


def test_low_latency_sends_one_copy_for_each_expert():
    volumes = alltoall_volumes("per-copy", V3, tokens=128, ep=32, domain_gpus=8)
    assert volumes.out == pytest.approx(128 * 8 * 24 / 32)
    assert volumes.up == pytest.approx(128 * 8 * 7 / 32)
    assert volumes.received == 128 * 8


def test_one_copy_a_gpu_inside_a_domain():
    volumes = alltoall_volumes("per-rank", V3, tokens=1, ep=64, domain_gpus=72)
    assert volumes.up == pytest.approx(7.56, abs=0.005)
    assert volumes.out == 0


def test_one_copy_a_node_then_forwarded():
    # 4 nodes: 3.61 distinct ones, three in four of them others; 7.27 distinct GPUs, seven in eight behind NVLink
    volumes = alltoall_volumes("per-node", V3, tokens=10, ep=32, domain_gpus=8)
    assert volumes.out == pytest.approx(10 * 3.614 * 3 / 4, rel=1e-3)
    assert volumes.up == pytest.approx(10 * 7.27 * 7 / 8, rel=1e-3)


def test_all_gather_brings_every_token_once_a_domain():
    volumes = alltoall_volumes("all-gather", V3, tokens=10, ep=16, domain_gpus=8)
    assert volumes.out == pytest.approx(80 / 8)  # eight others' tokens, shared by eight GPUs
    assert volumes.up == pytest.approx(7 * 10 + 80 * 7 / 8)
    assert alltoall_volumes("all-gather", V3, tokens=10, ep=8, domain_gpus=8).up == 70


def test_one_gpu_sends_nothing_and_one_domain_forwards_nothing():
    for family in FAMILIES:
        alone = alltoall_volumes(family, V3, tokens=5, ep=1, domain_gpus=8)
        assert alone.up == alone.out == 0
    direct = alltoall_volumes("per-rank", V3, tokens=5, ep=8, domain_gpus=8)
    assert alltoall_volumes("per-node", V3, tokens=5, ep=8, domain_gpus=8).up == direct.up


def test_unknown_family_names_the_known_ones():
    with pytest.raises(InputError, match="per-node, per-copy, per-rank, all-gather"):
        require_family("ring")
    with pytest.raises(InputError, match="at least 1"):
        alltoall_volumes("per-copy", V3, tokens=1, ep=0, domain_gpus=8)


def made_use(share, experts, top_k):
    share = np.asarray(share, dtype=float)
    slot_gpu = np.arange(share.shape[-1], dtype=np.int32)
    return ExpertUse(share, share, slot_gpu, experts, top_k)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("limit", [(0, 0), (8, 4)])
@pytest.mark.parametrize("ep", [8, 16, 64])
def test_a_balanced_placement_sends_what_even_routing_does(family, limit, ep):
    use = balanced_use(1, np.full(ep, 256 // ep), 256, 8)
    placed = placed_vectors(family, use, tokens=6, domain=np.arange(ep) // 8, limit=limit).busiest
    even = alltoall_volumes(family, Routing(256, 8, *limit), tokens=6, ep=ep, domain_gpus=8)
    for field in ("up", "out", "received"):
        assert getattr(placed, field) == pytest.approx(np.full((1, 1), getattr(even, field))), field


OWNER = np.array([0, 0, 0, 1, 2, 2, 3, 4])  # 8 equal experts on 5 GPUs in domains of 3 and 2
DOMAIN = np.array([0, 0, 0, 1, 1])


def counted(family, top_k):
    """Move every possible token of every GPU, and count the busiest port of each fabric."""
    gpus = len(DOMAIN)
    sent, received = np.zeros((2, gpus)), np.zeros((2, gpus))
    ends = np.zeros(gpus)

    def move(source, target, amount):
        if source != target:
            fabric = int(DOMAIN[source] != DOMAIN[target])
            sent[fabric, source] += amount
            received[fabric, target] += amount

    choices = list(itertools.combinations(range(len(OWNER)), top_k))
    for source in range(gpus):
        for choice in choices:
            weight = 1 / len(choices)
            targets = OWNER[list(choice)] if family == "per-copy" else np.unique(OWNER[list(choice)])
            np.add.at(ends, targets, weight)
            for domain in np.unique(DOMAIN[targets]):
                inside = targets[DOMAIN[targets] == domain]
                rails = np.flatnonzero(domain == DOMAIN)
                if family != "per-node" or domain == DOMAIN[source]:
                    for target in inside:
                        move(source, target, weight)
                    continue
                for rail in rails:  # the sender's rails share the GPUs of a domain of another size
                    move(source, rail, weight / len(rails))
                    for target in inside:
                        move(rail, target, weight / len(rails))
    busiest = np.maximum(sent.max(axis=1), received.max(axis=1))
    return busiest[0], busiest[1], ends.max()


@pytest.mark.parametrize("family", ["per-copy", "per-rank", "per-node"])
@pytest.mark.parametrize("top_k", [1, 2, 3])
def test_busiest_port_of_an_uneven_placement_by_moving_every_token(family, top_k):
    use = made_use(np.bincount(OWNER)[None, None] / len(OWNER), len(OWNER), top_k)
    volumes = placed_vectors(family, use, tokens=1, domain=DOMAIN).busiest
    up, out, received = counted(family, top_k)
    # several tokens of a sender on one port add up: the busiest forwarder both forwards and sends its own
    assert volumes.out[0, 0] == pytest.approx(out)
    assert volumes.up[0, 0] == pytest.approx(up)
    assert volumes.received[0, 0] == pytest.approx(received)
