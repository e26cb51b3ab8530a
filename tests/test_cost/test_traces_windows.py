"""Windows become scenarios: empty ones dropped, many merged into runs of equal numbers, the sums kept."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cost.experts.loads import ExpertLoads, read_loads
from cost.experts.traces.open import open_counts
from cost.experts.traces.windows import collect_windows
from topology.base.errors import InputError

MOE = (1, 2)


def save(folder: Path, values: np.ndarray, name: str = "x.npy") -> str:
    np.save(folder / name, values)
    return str(folder / name)


def read(path: str, windows: int = 32) -> ExpertLoads:
    return read_loads([path], moe_layers=MOE, layers=3, experts=4, seed=0, windows=windows)


def steps(count: int, seed: int = 0) -> np.ndarray:
    values = np.random.default_rng(seed).integers(1, 100, (count, 3, 4))
    values[:, 0] = 0
    return values


@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(used=st.lists(st.booleans(), min_size=1, max_size=90).filter(any), most=st.integers(1, 40))
def test_runs_are_even_and_nothing_is_lost(tmp_path: Path, used: list[bool], most: int) -> None:
    values = steps(len(used)) * np.array(used)[:, None, None]
    path = save(tmp_path, values)
    found = collect_windows(open_counts(path), most)
    kept = values[used]
    assert found.total == len(used)
    assert found.kept == len(kept)
    assert len(found.tokens) == min(most, len(kept)) == len(found.names)
    assert found.tokens.sum() == values.sum()
    # by definition: window i of k goes to run floor(i r / k)
    expected = np.zeros_like(found.tokens)
    sizes = [0] * len(expected)
    for i, window in enumerate(kept):
        expected[i * len(expected) // len(kept)] += window
        sizes[i * len(expected) // len(kept)] += 1
    assert (found.tokens == expected).all()
    assert max(sizes) - min(sizes) <= 1


def test_no_tokens_at_all_and_no_windows(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no tokens in its 5 windows"):
        read(save(tmp_path, steps(5) * 0))
    with pytest.raises(InputError, match="`windows` 0: expected 1 or more"):
        read(save(tmp_path, steps(5)), windows=0)


def test_scenarios_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(tmp_path, steps(50))
    assert len(read(path, windows=10**9).tokens) == 50
    monkeypatch.setattr("cost.experts.traces.windows.MOST_CELLS", 12 * 20)
    with pytest.raises(
        InputError, match=r"50 scenarios of \[3, 4\] are 600 numbers.*give `windows` 20 or fewer"
    ):
        read(path, windows=10**9)
    assert len(read(path, windows=20).tokens) == 20


@pytest.mark.parametrize(
    ("value", "words"), [(-1, "scenario 37, row 2, expert 1: -1.0"), (np.nan, "expert 1: nan")]
)
def test_a_bad_entry_is_found_in_whatever_piece_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: float, words: str
) -> None:
    monkeypatch.setattr("cost.experts.traces.counts.PIECE_BYTES", 500)
    values = steps(60).astype(float)
    values[37, 2, 1] = value
    with pytest.raises(InputError, match=words):
        read(save(tmp_path, values))


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("kind", ["npy", "npz", "compressed"])
def test_pieces_give_what_the_whole_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: str, kind: str
) -> None:
    values = np.asarray(steps(50), order=order)  # type: ignore[call-overload]
    path = save(tmp_path, values)
    if kind != "npy":
        path = str(tmp_path / "x.npz")
        (np.savez if kind == "npz" else np.savez_compressed)(path, loads=values)
    whole = read(path)
    monkeypatch.setattr("cost.experts.traces.counts.PIECE_BYTES", 300)
    calls: list[float] = []
    pieces = read_loads(
        [path],
        moe_layers=MOE,
        layers=3,
        experts=4,
        seed=0,
        on_progress=lambda _, fraction: calls.append(fraction),
    )
    assert (pieces.tokens == whole.tokens).all()
    assert len(calls) > 10
    assert calls == sorted(calls)
    assert calls[-1] == 1


def test_sums_beyond_floats(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="sum over its windows is too large"):
        read(save(tmp_path, np.full((3, 2, 4), 1e308)), windows=1)
