"""Routing traces: the same choices out of every form, refusals, and how far choices are from independent."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable
from math import exp, factorial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cost.experts.loads import read_loads
from cost.experts.traces.counts import Wanted
from cost.experts.traces.open import is_routing, open_counts, read_routing
from cost.experts.traces.routing import RoutedTokens, RoutingTrace, collect_routing, evenly_spaced
from cost.experts.traces.statistics import coactivation
from topology.base.errors import InputError

TOKENS, LAYERS, EXPERTS, K = 40, 3, 6, 2
WANTED = Wanted((1, 2), LAYERS, EXPERTS, K)
RNG = np.random.default_rng(0)
CHOICES = np.array([[RNG.permutation(EXPERTS)[:K] for _ in range(2)] for _ in range(TOKENS)], dtype=np.int16)
"""Of the two MoE layers, ``[tokens, layers, k]``."""
ZERO = np.zeros((TOKENS, 1, K), np.int16)
# slots of each layer, copies of 0 and 3; the first layer is dense
SLOTS = np.array([[0, 1, 2, 3, 4, 5, 0, 3], [3, 5, 4, 2, 1, 0, 3, 0], [0, 0, 3, 3, 1, 2, 5, 4]])


def read(path: Path, wanted: Wanted | None = WANTED) -> RoutingTrace:
    return read_routing([str(path)], wanted)[0]


def same(trace: RoutingTrace) -> bool:
    counts = [np.bincount(layer.ravel(), minlength=EXPERTS) for layer in np.moveaxis(CHOICES, 1, 0)]
    return bool((trace.choices == np.moveaxis(CHOICES, 1, 0)).all() and (trace.counts == counts).all())


def saved(path: Path, values: np.ndarray) -> Path:
    np.save(path, values)
    return path


def in_dynamo(values: np.ndarray) -> dict[str, Any]:
    data = base64.b64encode(values.tobytes("C")).decode()
    return {"data": data, "shape": list(values.shape), "dtype": values.dtype.str}


def in_base64(values: np.ndarray) -> str:
    file = io.BytesIO()
    np.save(file, values)
    return base64.b64encode(file.getvalue()).decode()


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize(
    "kind", ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "g", "?", "c8", "S1"]
)
def test_every_type_is_read_or_refused(tmp_path: Path, kind: str, order: str) -> None:
    """Whole numbers of any width and order of bytes are ids, and counts as floats are; whatever else is refused."""
    ids, counts = np.asfortranarray(CHOICES.astype(order + kind)), np.arange(1, 13).reshape(2, 6)
    (tmp_path / "a.json").write_text(json.dumps({"choices": [{"routed_experts": in_base64(ids)}]}))
    (tmp_path / "b.json").write_text(json.dumps({"choices": [{"routed_experts": in_dynamo(ids)}]}))
    np.savez(tmp_path / "a.npz", routed_experts=ids)
    saved(tmp_path / "a.npy", ids)
    for name in ("a.npy", "a.npz", "a.json", "b.json"):
        if kind[0] in "iu":
            assert same(read(tmp_path / name))
            assert is_routing(str(tmp_path / name))
        else:
            with pytest.raises(InputError):
                read(tmp_path / name)
    load = str(saved(tmp_path / "load.npy", counts.astype(order + kind)))
    if kind[0] in "iufg":
        tokens = read_loads([load], WANTED, seed=0).tokens
        assert (tokens[0] == counts).all()
    else:
        with pytest.raises(InputError, match="not numbers"):
            open_counts(load, WANTED)


def test_one_layer_stands_for_all_and_says_so(tmp_path: Path) -> None:
    path = saved(tmp_path / "one.npy", CHOICES[:, 0])
    trace = read(path)
    assert trace.repeated
    assert (trace.choices == CHOICES[:, 0]).all()
    assert trace.notes[0].startswith("only one layer of choices, used for all 2 MoE layers")
    assert not read(path, Wanted((1,), 2, EXPERTS, K)).notes
    assert read(path, None).choices.shape == (1, TOKENS, K)
    for dense in (ZERO, ZERO - 1):
        trace = read(saved(tmp_path / "all.npy", np.concatenate([dense, CHOICES], axis=1)))
        assert same(trace)
        assert "1 row of dense layers, all zero, dropped" in trace.notes


@pytest.mark.parametrize(
    "make",
    [
        lambda part: {"choices": [{"routed_experts": in_base64(part)}]},
        lambda part: {"prompt_routed_experts": part.tolist(), "choices": [{"routed_experts": None}]},
        lambda part: {"choices": [{"routed_experts": in_dynamo(part)}]},
    ],
    ids=["vLLM 0.22", "vLLM 0.21", "Dynamo"],
)
def test_answers_of_servers(tmp_path: Path, make: Callable[[np.ndarray], Any]) -> None:
    answers = [make(np.ascontiguousarray(part)) for part in (CHOICES[:15], CHOICES[15:])]
    (tmp_path / "all.json").write_text(json.dumps(answers, indent=1))
    (tmp_path / "all.jsonl").write_text("\n".join(map(json.dumps, answers)))
    (tmp_path / "lines.json").write_text("\n".join(map(json.dumps, answers)))
    for name in ("all.json", "all.jsonl", "lines.json"):
        assert is_routing(str(tmp_path / name))
        assert same(read(tmp_path / name)), name
    bare = np.concatenate([ZERO, CHOICES], axis=1).astype("<i4")
    sglang = tmp_path / "sglang.json"
    sglang.write_text(json.dumps({"meta_info": {"routed_experts": base64.b64encode(bare).decode()}}))
    assert same(read(sglang))
    with pytest.raises(InputError, match="ids without a shape"):
        read(sglang, None)


def test_per_token_recordings_are_mapped_and_ordered_by_pass(
    tmp_path: Path, torch_save: Callable[..., Path]
) -> None:
    whole = np.concatenate([ZERO - 1, CHOICES], axis=1)
    # of the copies that an expert has, any
    slots = np.full(whole.shape, -1, np.int32)
    for (token, row, choice), expert in np.ndenumerate(whole):
        if expert >= 0:
            copies = np.flatnonzero(SLOTS[row] == expert)
            slots[token, row, choice] = copies[token % len(copies)]
    parts = {(0, 0): slice(0, 9), (0, 1): slice(9, 20), (1, 0): slice(20, 20), (1, 1): slice(20, TOKENS)}
    for rank in (0, 1):
        records = [
            {"forward_pass_id": p, "rank": rank, "topk_ids_of_layer": np.moveaxis(slots[part], 1, 0).copy()}
            for (p, of), part in parts.items()
            if of == rank
        ]
        data = {"records": records, "last_physical_to_logical_map": SLOTS}
        torch_save(tmp_path / f"expert_distribution_recorder_17.{rank}_{rank}.pt", data)
    for path in (tmp_path, tmp_path / "expert_distribution_recorder_17.0_0.pt"):
        assert same(read(path))
    torch_save(tmp_path / "tensor.pt", CHOICES.astype(np.int32))
    assert same(read(tmp_path / "tensor.pt"))


def test_a_file_that_grows_shrinks_or_turns_while_it_is_read() -> None:
    for pieces, words in (
        ([CHOICES, CHOICES[:1]], "changed while"),
        ([CHOICES[:, :1]], "changed while"),
        ([CHOICES[1:]], "39 of 40 tokens are present"),
    ):
        source = RoutedTokens("f", "trace", TOKENS, 2, K, lambda pieces=pieces: iter(pieces))
        with pytest.raises(InputError, match=words):
            collect_routing(source)


def test_counts_are_no_trace(tmp_path: Path, torch_save: Callable[..., Path]) -> None:
    record = {"forward_pass_id": 0, "rank": 0, "global_physical_count": np.ones((3, 8), np.int32)}
    data = {"records": [record], "last_physical_to_logical_map": SLOTS}
    path = torch_save(tmp_path / "expert_distribution_recorder_1.5_0.pt", data)
    with pytest.raises(InputError, match="recorder-mode per_token"):
        read(path)
    counts = RNG.integers(500, 1500, (32, 8))
    assert not is_routing(str(saved(tmp_path / "loads.npy", counts)))
    assert is_routing(str(saved(tmp_path / "trace.npy", CHOICES)))


def test_many_tokens_are_sampled_evenly_and_counted_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cost.experts.traces.counts.PIECE_BYTES", 7 * 2 * K * 8)  # pieces of seven tokens
    monkeypatch.setattr("cost.experts.traces.routing.MAX_TOKENS", 9)
    trace = read(saved(tmp_path / "a.npy", CHOICES))
    assert (trace.choices == np.moveaxis(CHOICES[evenly_spaced(TOKENS, 9)], 1, 0)).all()
    assert (trace.tokens, trace.kept, trace.counts.sum()) == (TOKENS, 9, CHOICES.size)
    assert "9 of 40 tokens kept, evenly spaced; counts are of all" in trace.notes
    assert (trace.part(2, 5).counts.sum(), trace.part(2, 5).tokens) == (3 * 2 * K, 3)


def test_tokens_that_were_not_recorded_are_left_out(tmp_path: Path) -> None:
    values = CHOICES.copy()
    values[3], values[5], values[7, 1] = 0, -1, 0
    trace = read(saved(tmp_path / "a.npy", values))
    assert trace.tokens == trace.kept == TOKENS - 2
    assert (trace.choices[1, 5] == -1).all()  # the seventh but the two
    assert "2 of 40 tokens without any choice, left out" in trace.notes
    assert any(note.startswith("3 times all choices of a token in a layer are 0") for note in trace.notes)


def changed(index: Any, value: int, dtype: Any = np.int16) -> np.ndarray:
    values = CHOICES.astype(dtype)
    values[index] = value
    return values


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (changed((7, 1, 0), 6), "token 7, layer row 1: expert 6, but the model has experts 0..5"),
        (changed((7, 1, 0), -2), "token 7, layer row 1: expert -2"),
        (changed((7, 1), 3), "token 7, layer row 1: expert 3 twice; a token uses an expert only once"),
        (CHOICES.astype(float), "holds float64"),
        (
            CHOICES[..., :1],
            "1 choice of a token; the model routes each token to 2 of 6 experts in 2 MoE layers",
        ),
        (CHOICES[:0], "without any token choices"),
        (CHOICES[0, 0], "is \\[tokens, layers, k\\], or \\[tokens, k\\]"),
        (np.full_like(CHOICES, -1), "no choice of an expert in its 40 tokens"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, values: np.ndarray, message: str) -> None:
    path = tmp_path / "a.npy"
    np.save(path, values, allow_pickle=True)
    with pytest.raises(InputError, match=message) as caught:
        read(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.txt", "1 2", "this one's suffix is .txt"),
        ("a.json", "{}", "no 'routed_experts' in its answers"),
        ("a.json", '{"routed_experts": "!"}', "not base64"),
        ("a.json", '{"routed_experts": [[[1, 2]], [[3]]]}', "rows of unequal length"),
        ("a.json", '{"routed_experts": {"data": "AAAA", "shape": [1, 2, 2], "dtype": "int16"}}', "truncated"),
        (
            "a.json",
            '{"routed_experts": {"data": "AAAA", "shape": [1, 2, 2], "dtype": "object"}}',
            "its dtype",
        ),
    ],
)
def test_broken_files_are_refused(tmp_path: Path, name: str, text: str, message: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read(path)


DRAWN, CHOSEN = 4000, 4


def test_what_chance_gives_is_the_mean_distance_of_poisson_counts() -> None:
    """Tokens of two of three experts, 6, 3 and 1 of each pair: every pair of pairs is counted in both orders."""
    table = np.repeat([[0, 1], [0, 2], [1, 2]], [6, 3, 1], axis=0)
    counts = np.array([np.bincount(table.ravel())])
    statistics = coactivation(RoutingTrace(table[None].astype(np.int16), counts, 10, "t")).within
    # experts are in 9, 7 and 4 pairs; as many pairs as there are, in proportion to the products
    products = np.array([9 * 7, 9 * 4, 7 * 4])
    means = products * 10 / products.sum()
    assert statistics.dependent_share == pytest.approx(np.abs(means - [6, 3, 1]).sum() / 20)
    chance = [
        sum(abs(times - mean) * exp(-mean) * mean**times / factorial(times) for times in range(80))
        for mean in means
    ]
    assert statistics.by_chance_share == pytest.approx(sum(chance) / 20)
