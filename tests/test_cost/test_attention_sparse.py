"""The what-if of sparse attention: reads and flop by hand, capacity untouched, through deployment and score."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cost.attention import AsIfSparse, CompressedAttention, GatedDelta, GroupedQuery, IndexedLatent, Latent
from cost.calibration.correction import PHYSICS
from cost.inputs.deployment import Deployment
from cost.inputs.workload import Workload
from cost.layouts import sweep
from cost.resolve import resolve_model
from topology import resolve_cluster

FULL = GroupedQuery(hidden=4096, heads=32, kv_heads=8, head_dim=128, value_dim=128)
WINDOW = replace(FULL, window=128)
MLA = Latent(hidden=7168, heads=128, q_rank=1536, kv_rank=512, nope=128, rope=64, value_dim=128)
DSA = IndexedLatent(**vars(MLA), index_heads=64, index_dim=128, top_k=2048)
DELTA = GatedDelta(hidden=2048, key_heads=16, key_dim=128, value_heads=32, value_dim=128, kernel=4)
CSA = CompressedAttention(
    hidden=7168, heads=128, head_dim=512, q_rank=1536, o_groups=16, o_rank=1024, window=128, rate=4,
    index_heads=64, index_dim=128, top_k=1024,
)  # fmt: skip
ALL = (FULL, WINDOW, MLA, DSA, DELTA, CSA)


def mean_of_steps(inner: object, reach: object, prompt: int) -> float:
    """Mean over a prompt's tokens of what one costs after ``reach(t)`` others, from whole prompts, in small steps."""
    steps = np.linspace(0, prompt, 20_001)
    seen = reach((steps[1:] + steps[:-1]) / 2)  # type: ignore[operator]
    costs = [
        (u + 0.01) * inner.prefill_flop(u + 0.01) - (u - 0.01) * inner.prefill_flop(u - 0.01)  # type: ignore[attr-defined]
        for u in seen.tolist()
    ]
    return float(np.mean(costs) / 0.02)


def test_full_attention_reads_the_square_root_or_the_limit() -> None:
    token = FULL.cache_bytes(1, 2)
    root, capped = AsIfSparse(FULL, None), AsIfSparse(FULL, 2048)
    assert root.read_bytes(10_000, 2) == pytest.approx(100 * token)
    assert root.decode_flop(10_000) == pytest.approx(FULL.decode_flop(100))
    assert capped.read_bytes(10_000, 2) == 2048 * token
    assert capped.read_bytes(1_000, 2) == FULL.read_bytes(1_000, 2)
    # a prompt's token t sees sqrt(t), two thirds of the last on average; or t, then 2,048
    assert root.prefill_flop(10_000) == pytest.approx(FULL.decode_flop(100) * 2 / 3)
    seen = (2048 * 1024 + (10_000 - 2048) * 2048) / 10_000
    assert capped.prefill_flop(10_000) == pytest.approx(FULL.decode_flop(1) * seen)
    assert capped.prefill_flop(1_000) == pytest.approx(FULL.prefill_flop(1_000))


@pytest.mark.parametrize("inner", ALL, ids=lambda kind: kind.kind)
@pytest.mark.parametrize("limit", [None, 100, 3000])
def test_prompts_cost_the_mean_of_their_tokens(inner: GroupedQuery, limit: int | None) -> None:
    sparse = AsIfSparse(inner, limit)
    for prompt in (64, 9_000):
        wanted = mean_of_steps(inner, lambda t: np.minimum(t, limit) if limit else np.sqrt(t), prompt)
        assert sparse.prefill_flop(prompt) == pytest.approx(wanted, rel=5e-3)


@pytest.mark.parametrize("inner", ALL, ids=lambda kind: kind.kind)
@pytest.mark.parametrize("limit", [None, 100, 3000])
def test_capacity_and_weights_stay_and_nothing_costs_more(inner: GroupedQuery, limit: int | None) -> None:
    sparse = AsIfSparse(inner, limit)
    context = np.array([1.0, 50.0, 4096.0, 1e6])
    assert np.all(np.asarray(sparse.cache_bytes(context, 2)) == np.asarray(inner.cache_bytes(context, 2)))
    for name in ("kind", "heads", "modules", "matmul_params", "other_params"):
        assert getattr(sparse, name) == getattr(inner, name)
    assert [sparse.kv_shards(tp) for tp in (1, 8)] == [inner.kv_shards(tp) for tp in (1, 8)]
    read, own = (np.broadcast_to(kind.read_bytes(context, 2), 4) for kind in (sparse, inner))
    assert np.all(read <= own)
    for method in ("decode_flop", "prefill_flop"):
        arrays = np.broadcast_to(getattr(sparse, method)(context), 4)
        assert np.all(arrays <= np.broadcast_to(getattr(inner, method)(context), 4) * (1 + 1e-9))
        assert arrays.tolist() == pytest.approx([float(getattr(sparse, method)(c)) for c in context.tolist()])
    assert float(sparse.prefill_flop(0)) == 0


def test_as_many_sequences_fit_and_a_step_is_shorter() -> None:
    cluster, model = resolve_cluster("hgx-h100"), resolve_model("llama-3.1-8b")
    seconds: list[dict[tuple[float, float], tuple[float, float, float]]] = []
    for rule in ("", "2048"):
        swept = sweep(Deployment(cluster, model, Workload(65_536, sparse_attention=rule), correction=PHYSICS))
        # of one stage: layers are cut so that stages take equally long, which is elsewhere with faster reads
        rows = swept.rows(np.flatnonzero(swept.stages == 1))
        times = zip(rows.max_batch, rows.step_s, rows.lower_step_s, strict=True)
        seconds.append(dict(zip(zip(rows.tp, rows.batch, strict=True), times, strict=True)))
    # at every batch that both have: more are priced near the frontier, which is elsewhere
    shared = set(seconds[0]) & set(seconds[1])
    assert len(shared) > 20
    for key in shared:
        (max_batch, slow, slow_bound), (other_max_batch, fast, fast_bound) = (row[key] for row in seconds)
        assert (other_max_batch, fast < slow, fast_bound < slow_bound) == (max_batch, True, True)
