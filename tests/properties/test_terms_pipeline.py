"""Bytes between GPUs: vectors of the decode kernels' all-to-all, hops."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost.experts.assignment import Assignment
from cost.experts.loads import ExpertLoads
from cost.experts.tokens.reach import expert_use
from cost.experts.tokens.volumes import placed_vectors
from cost.terms.alltoall_kernel import vector_bytes


@pytest.mark.parametrize(
    ("weights", "dispatch"),
    [
        ("fp8", 7_392),  # 7,168 values and 56 scales of 4 bytes
        ("fp8-row", 7_392),
        ("mxfp8", 7_392),  # 8 bits and a scale for 32
        ("int4-g32", 7_392),
        ("nvfp4", 7_392),
        ("mxfp4", 7_392),
        ("bf16", 14_336),
        ("fp16", 14_336),
        ("nvfp4*0.3+bf16*0.7", 14_336),
    ],
)
def test_bytes_of_a_hidden_vector(weights, dispatch):
    assert vector_bytes(7168, weights) == (dispatch, 14_336)


def pairs_by_hand(share, domain, tokens, top_k):
    """Pairs between every two GPUs, then the busiest port of each fabric: sent or received."""
    gpus = len(domain)
    pairs = np.array([[tokens * top_k * share[b] * (a != b) for b in range(gpus)] for a in range(gpus)])
    same = domain[:, None] == domain[None, :]
    busiest = []
    for mask in (same, ~same):
        part = pairs * mask
        busiest.append(max(part.sum(axis=0).max(), part.sum(axis=1).max()))
    return busiest


@settings(deadline=None, max_examples=20)
@given(data=st.data())
def test_pairs_across_domains_match_a_full_traffic_matrix(data):
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=2, max_size=4))
    domain = np.repeat(np.arange(len(sizes)) + 5, sizes)
    experts = data.draw(st.integers(len(domain), 20))
    load = np.array(data.draw(st.lists(st.floats(0.1, 50), min_size=experts, max_size=experts)))
    row = np.array([[*range(experts), *range(len(domain))]], dtype=np.int32)
    slot_gpu = np.sort(np.arange(row.shape[1]) % len(domain)).astype(np.int32)
    assignment = Assignment(row, slot_gpu, experts, len(domain))
    use = expert_use(assignment, ExpertLoads(load[None, None], ("a",), synthetic=False), top_k=2)
    volume = placed_vectors("per-copy", use, tokens=7, domain=domain).busiest
    up, out = pairs_by_hand(use.share[0, 0], domain, 7, 2)
    assert volume.up[0, 0] == pytest.approx(up, abs=1e-9)
    assert volume.out[0, 0] == pytest.approx(out)


def test_busiest_port_inside_a_domain_by_enumeration():
    # Experts of equal load, GPUs holding 3, 2 and 1 of 6, top 2: every pair of experts is as likely as another.
    owner = np.array([0, 0, 0, 1, 1, 2], dtype=np.int32)
    assignment = Assignment(np.arange(6, dtype=np.int32)[None], owner, experts=6, gpus=3)
    use = expert_use(assignment, ExpertLoads(np.ones((1, 1, 6)), ("a",), synthetic=False), top_k=2)
    reached = np.zeros(3)
    choices = list(itertools.combinations(range(6), 2))
    for choice in choices:
        reached[list({int(owner[expert]) for expert in choice})] += 1 / math.comb(6, 2)
    sent = [5 * (reached.sum() - reached[gpu]) for gpu in range(3)]
    received = [5 * 2 * reached[gpu] for gpu in range(3)]
    volume = placed_vectors("per-rank", use, tokens=5, domain=np.zeros(3, dtype=np.int64)).busiest
    assert volume.up[0, 0] == pytest.approx(max(*sent, *received))
