"""Loads: every form of file is read and every broken one refused in one line; scenarios, generators, windows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cost.experts.loads import ExpertLoads, is_generator, read_loads, routed_loads, synthetic_loads
from cost.experts.traces.counts import Wanted
from cost.experts.traces.open import open_counts
from cost.experts.traces.routing import RoutingTrace
from cost.experts.traces.windows import collect_windows
from topology.base.errors import InputError

MOE = (1, 2)  # of a model of three layers, the first one dense, with four experts
GOOD = np.arange(1, 9).reshape(2, 4)
WHOLE = np.concatenate([np.zeros((1, 4), dtype=int), GOOD])


def read(*paths: Path | str, top_k: int | None = None, **options: Any) -> ExpertLoads:
    return read_loads([str(path) for path in paths], Wanted(MOE, 3, 4, top_k), seed=0, **options)


def save(folder: Path, values: Any, name: str = "x.npy") -> Path:
    path = folder / name
    if name.endswith(".npz"):
        np.savez(path, **values)
    elif name.endswith(".npy"):
        np.save(path, values, allow_pickle=True)
    elif name.endswith(".json"):
        path.write_text(json.dumps(values))
    else:
        path.write_text(values)
    return path


def cells(table: np.ndarray, layers: list[int], scenario: str = "a", skip: int = -1) -> str:
    rows = [
        f"{scenario},{layer},{expert},{tokens}"
        for layer, row in zip(layers, table.tolist(), strict=True)
        for expert, tokens in enumerate(row)
    ]
    return "\n".join(["scenario,layer,expert,tokens", *(row for i, row in enumerate(rows) if i != skip)])


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("x.npy", GOOD.astype(">i8")),
        ("x.npy", np.asfortranarray(GOOD)),
        ("x.npy", WHOLE),
        ("x.npz", {"loads": GOOD, "other": np.ones(3)}),
        ("x.json", {"logical_count": GOOD.tolist(), "rank": 0}),
        ("x.json", {"logical_count": [WHOLE.tolist(), (0 * WHOLE).tolist()]}),  # an unused step
        ("x.csv", cells(WHOLE, [0, 1, 2])),
        ("x.csv", "\ufeff" + cells(GOOD, [0, 1])),  # ordinals
    ],
)
def test_every_form_gives_the_same_loads(tmp_path: Path, name: str, values: Any) -> None:
    path = save(tmp_path, values, name.lower())
    if name != name.lower():
        path = path.rename(tmp_path / name)
    loads = read(path)
    assert loads.tokens.tolist() == [GOOD.tolist()]
    assert loads.tokens.dtype == np.float64
    assert not loads.synthetic
    assert loads.names == (name,)


def at(value: float, layer: int = 1, expert: int = 2) -> np.ndarray:
    table = GOOD.astype(float)
    table[layer, expert] = value
    return table


@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        ("x.npy", at(np.nan), "expert 2"),
        ("x.npy", GOOD * np.array([[1], [0]]), "layer 2"),
        ("x.npy", np.empty((0, 2, 4)), "scenario"),
        ("x.npy", GOOD > 3, "bool"),
        ("x.npy", GOOD.astype(object), ".npy"),
        ("x.npy", WHOLE + 1, "layer 0 of the model is dense"),
        ("x.npz", {"load": GOOD}, "loads"),
        ("x.npy", GOOD.T, "shape"),
        ("x.json", {"counts": 1}, "logical_count"),
        ("x.csv", cells(GOOD, [1, 2]).replace("tokens", "tokens,tokens"), "tokens"),
        ("x.npz", {"loads": GOOD.astype(object)}, ".npz"),
        ("x.json", {"logical_count": [[1, 2], [3]]}, "x.json"),
        ("x.json", {"logical_count": [[10**30] * 4] * 2}, "x.json"),
        ("x.csv", cells(GOOD, [1, 7]), "7"),
        ("x.csv", cells(GOOD, [1, 2]).replace("a,1,3,4", "a,1,3,nan"), "row 5"),
        ("x.csv", cells(GOOD, [1, 2]).replace("a,1,3,4", "a,1,3,4,000"), "row 5"),
        ("x.csv", "layer,expert\n1,2", "scenario"),
        ("x.txt", "1 2", ".txt"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line(
    tmp_path: Path, name: str, values: Any, words: str
) -> None:
    path = save(tmp_path, values, name)
    with pytest.raises(InputError) as caught:
        read(path)
    assert str(path) in str(caught.value)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_expert_with_more_tokens_than_a_router_gives_it(tmp_path: Path) -> None:
    """Each token chooses two of the four experts: no expert has more than half of a layer's choices."""
    half = np.array([[5, 5, 0, 0], [1, 2, 3, 6]])
    assert (read(save(tmp_path, half), top_k=2).tokens == half).all()
    over = np.stack([half, half])
    over[1, 1, 3] += 1
    with pytest.raises(InputError, match=r"scenario 1, layer 2, expert 3 has 53.8% .*more than 1/2 = 50.0%"):
        read(save(tmp_path, over), "uniform", top_k=2)
    assert (read(save(tmp_path, over), top_k=1).tokens == over).all()


def test_paths_that_hold_no_loads(tmp_path: Path) -> None:
    (tmp_path / "folder.npy").mkdir()
    for path, words in (
        (tmp_path / "none.npy", "there is no such file"),
        (tmp_path / "folder.npy", "not a regular file"),
        (tmp_path / ("x" * 300 + ".npy"), "cannot be read"),
        ("a\0b.npy", "no such file"),
        ("loads", "suffix is absent"),
        (save(tmp_path, steps(5) * 0, "zero.npy"), "no tokens in its 5 windows"),
    ):
        with pytest.raises(InputError, match=words):
            read(path)
    with pytest.raises(InputError, match="no expert loads given"):
        read()
    with pytest.raises(InputError, match="no MoE layers"):
        read_loads(["uniform"], Wanted((), 3, 4), seed=0)
    with pytest.raises(InputError, match="sum over its windows is too large"):
        read(save(tmp_path, np.full((3, 2, 4), 1e308)), windows=1)
    with (tmp_path / "x.csv").open("wb") as file:
        file.truncate(2**40)  # a hole, of one line
    with pytest.raises(InputError, match="1,099,511,627,776 bytes are too large for one document"):
        read(tmp_path / "x.csv")
    uneven = np.stack([WHOLE, WHOLE])
    assert "x.npy: row 2 has 2.6x the tokens of row 1" in "".join(read(save(tmp_path, uneven)).notes)


# --- loads as they count


def draw(text: str, seed: int = 0, number: int = 0) -> np.ndarray:
    return synthetic_loads(text, layers=40, experts=64, seed=seed, draw=number)


def test_each_layer_of_each_scenario_counts_the_same() -> None:
    loads = ExpertLoads(np.array([[[1.0, 3.0]], [[30.0, 10.0]]]), ("a", "b"), synthetic=False)
    assert loads.normalised.tolist() == [[[0.5, 1.5]], [[1.5, 0.5]]]
    assert loads.mean.tolist() == [[1.0, 1.0]]
    large = ExpertLoads(np.full((1, 1, 4), 1e308), ("a",), synthetic=False)
    assert large.normalised.tolist() == [[[1.0, 1.0, 1.0, 1.0]]]


def test_lognormal_has_the_spread_it_is_given() -> None:
    assert np.log(draw("lognormal:0.63")).std(axis=1).mean() == pytest.approx(0.63, rel=0.03)
    assert (draw("lognormal:0") == 1000).all()
    assert (draw("zipf:1", seed=3) == draw("zipf:1", seed=3)).all()
    assert not (draw("zipf:1", seed=3) == draw("zipf:1", seed=4)).all()
    assert not (draw("lognormal:1", number=0) == draw("lognormal:1", number=1)).all()
    with pytest.raises(InputError, match="seed -1"):
        draw("uniform", seed=-1)
    for text in (
        "lognormal:nan",
        "lognormal:-1",
        "lognormal",
        "lognormal:1e9",
        "zipf:inf",
        "zipf:x",
        "uniform:1",
    ):
        assert is_generator(text)
        with pytest.raises(InputError, match=text.partition(":")[0]):
            draw(text)


def test_zipf_is_a_power_of_the_rank() -> None:
    loads = np.sort(draw("zipf:1.2"), axis=1)[:, ::-1]
    assert loads[:, 0] / loads[:, 9] == pytest.approx(10**1.2)
    assert len({int(row.argmax()) for row in draw("zipf:1.2")}) > 5  # not the same expert in every layer


def test_traces_are_divided_in_the_order_of_their_tokens() -> None:
    """The last quarter judges; loads that the trace implies are those of each part, measured ones stay."""
    choices = np.random.default_rng(0).permuted(np.tile(np.arange(4), (2, 400, 1)), axis=2)[:, :, :2]
    counts = np.array([np.bincount(layer.ravel(), minlength=4) for layer in choices])
    trace = RoutingTrace(choices.astype(np.int16), counts, 400, "t")
    loads = routed_loads([trace]).divided()
    assert loads.held_out is not None
    assert loads.judged is loads.held_out
    for part, kept in ((loads, choices[:, :300]), (loads.held_out, choices[:, 300:])):
        assert (part.routing[0].choices == kept).all()
        assert (part.tokens[0] == [np.bincount(layer.ravel(), minlength=4) for layer in kept]).all()
    second = loads.rows([1]).sampled(10)
    assert second.held_out is not None
    assert (second.held_out.routing[0].choices == choices[1:, 300::10]).all()
    assert loads.untraced.judged.routing == ()
    measured = ExpertLoads(np.ones((1, 2, 4)), ("m",), synthetic=False)
    apart = routed_loads([trace], measured).divided()
    assert apart.held_out is not None
    assert (apart.tokens == 1).all()
    assert (apart.held_out.tokens == 1).all()
    assert measured.divided() is measured
    short = routed_loads([trace.part(0, 100)]).divided()
    assert (short.routing, short.held_out) == ((), None)
    assert "100 tokens are too few" in short.notes[-1]


# --- windows


def steps(count: int, seed: int = 0) -> np.ndarray:
    values = np.random.default_rng(seed).integers(1, 100, (count, 3, 4))
    values[:, 0] = 0
    return values


@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(used=st.lists(st.booleans(), min_size=1, max_size=90).filter(any), most=st.integers(1, 40))
def test_runs_are_even_and_nothing_is_lost(tmp_path: Path, used: list[bool], most: int) -> None:
    values = steps(len(used)) * np.array(used)[:, None, None]
    path = save(tmp_path, values)
    windows = collect_windows(open_counts(str(path)), most)
    kept = values[used]
    assert windows.kept == len(kept)
    assert len(windows.tokens) == min(most, len(kept)) == len(windows.names)
    assert windows.tokens.sum() == values.sum()
    # by definition: window i of k goes to run floor(i r / k)
    expected = np.zeros_like(windows.tokens)
    sizes = [0] * len(expected)
    for i, window in enumerate(kept):
        expected[i * len(expected) // len(kept)] += window
        sizes[i * len(expected) // len(kept)] += 1
    assert (windows.tokens == expected).all()
    assert max(sizes) - min(sizes) <= 1


def test_scenarios_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(tmp_path, steps(50))
    assert len(read(path, windows=10**9).tokens) == 50
    monkeypatch.setattr("cost.experts.traces.windows.MAX_CELLS", 12 * 20)
    with pytest.raises(
        InputError, match=r"50 scenarios of \[3, 4\] are 600 numbers.*give `windows` 20 or fewer"
    ):
        read(path, windows=10**9)
    assert len(read(path, windows=20).tokens) == 20
    with pytest.raises(InputError, match="`windows` 0: expected 1 or more"):
        read(path, windows=0)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("kind", ["npy", "npz", "compressed"])
def test_pieces_give_what_the_whole_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: str, kind: str
) -> None:
    values = np.asarray(steps(50), order=order)  # type: ignore[call-overload]
    path = save(tmp_path, values)
    if kind != "npy":
        path = tmp_path / "x.npz"
        (np.savez if kind == "npz" else np.savez_compressed)(path, loads=values)
    whole = read(path)
    monkeypatch.setattr("cost.experts.traces.counts.PIECE_BYTES", 300)
    calls: list[float] = []
    pieces = read(path, on_progress=lambda _, fraction: calls.append(fraction))
    assert (pieces.tokens == whole.tokens).all()
    assert len(calls) > 10
    assert calls == sorted(calls)
    assert calls[-1] == 1
    values[37, 2, 1] = -1
    np.savez(tmp_path / "bad.npz", loads=values)
    with pytest.raises(InputError, match="scenario 37, row 2, expert 1: -1"):
        read(tmp_path / "bad.npz")
