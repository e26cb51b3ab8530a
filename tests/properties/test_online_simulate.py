"""A replay by hand, and what holds of every replay: nobody sees the future, who does not move pays nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement.online.policies import Ours, entries
from placement.online.policy import Group
from placement.online.recommend import recommend
from placement.online.simulate import Entry, Moves, Setting, Step, replay
from topology.base.errors import InputError


@dataclass(frozen=True)
class Priced:
    """A step takes .1 s and a second for each token of the busiest GPU; a copy is 10 bytes and moves in .5 s."""

    group: Group
    even_s: float = 0.1

    def step(self, window, placed):
        assignment = self.group.problem(window).assignment(placed[0])
        load = assignment.gpu_load(window)
        return Step(0.1 + float(load.max() - load.mean()), 0.025, load.mean(axis=1) / load.max(axis=1))

    def moves(self, old, new):
        moved = int(self.group.task(old[0]).moves(new[0]).sum())
        return Moves(moved, 10.0 * moved, 0.5 * moved)


def group_of(layers=1, gpus=2, each=2, experts=4):
    row = np.arange(gpus * each, dtype=np.int32) % experts
    return Group(
        np.full(gpus, each), experts, np.tile(row, (layers, 1)), np.zeros(gpus, int), np.zeros(gpus, int)
    )


def setting_of(group, steps=10):
    return Setting((group,), Priced(group), group.start.size, steps, tokens_per_step=100.0)


WINDOWS = np.array([[[4, 3, 2, 1]], [[4, 3, 2, 1]], [[1, 3, 4, 2]]], dtype=float)


def named(*names, windows=3, **more):
    shape = {"steps_per_window": 3000, "windows": windows, "planned": True}
    chosen = entries(names, **{**shape, **more})
    return list({each.name: replace(each, interval=min(1, each.interval)) for each in chosen}.values())


def test_two_gpus_and_three_windows_by_hand():
    """GPU 0 holds experts 0, 1 and GPU 1 holds 2, 3.

    EPLB puts 0 and 3, 1 and 2 together after window 0 (expert 3 comes to GPU 0, 1 to GPU 1): even on window 1. On
    window 2 those pairs weigh 3 and 7; after window 1 it plans the same again.
    """
    group = group_of()
    static, vllm = replay(WINDOWS, named("static", "vllm"), setting_of(group)).runs
    assert static.by_window.tolist() == pytest.approx([5 / 7, 5 / 6])
    assert static.step_s.tolist() == pytest.approx([0.1 + 2, 0.1 + 1])
    assert static.imbalance_s == pytest.approx(30)
    assert (static.copies_moved, static.bytes_moved, static.moves_s) == (0, 0, 0)
    assert vllm.by_window.tolist() == pytest.approx([1.0, 5 / 7])
    assert [each.moves.copies for each in vllm.replans] == [2, 0]
    assert vllm.copies_moved == pytest.approx((2 / 4 + 0) / 2)
    assert vllm.bytes_moved == 20
    assert vllm.imbalance_s == pytest.approx(20)
    assert vllm.moves_s == pytest.approx(
        0.25
    )  # 1 s on links that steps use a quarter of the time, .025 of .1 s
    assert vllm.seconds == pytest.approx(10 * 0.1 + 10 * 2.1 + 0.25)
    assert static.tokens_gained(vllm) == pytest.approx(2000 * (22.25 / 32 - 1))
    assert recommend([static, vllm]).best is vllm
    sglang = replay(WINDOWS, named("sglang"), setting_of(group)).runs[0]
    assert sglang.moves_s == pytest.approx(1.0), "steps wait for the moves of an engine that blocks"


def loads(draw, windows, layers, experts):
    seed = draw(st.integers(0, 2**20))
    rng = np.random.default_rng(seed)
    return rng.poisson(100 * rng.lognormal(0, 1, (windows, layers, experts))) + 1.0


ALL = ("static", "vllm", "sglang", "rackplan", "rackplan:none", "rackplan-linear")


@settings(max_examples=8)
@given(st.data(), st.sampled_from(ALL))
def test_no_policy_sees_the_future(data, name):
    """What comes in the last window changes no placement, and nothing that was scored before it."""
    windows = loads(data.draw, 4, 2, 8)
    other = windows.copy()
    other[-1] = windows[-1][:, ::-1] * 3 + 1
    setting = setting_of(group_of(layers=2, gpus=3, each=4, experts=8))
    for one, two in zip(
        *(replay(each, named(name, windows=4), setting).runs for each in (windows, other)), strict=True
    ):
        assert (one.balancedness[:-1] == two.balancedness[:-1]).all()
        assert [each.moves for each in one.replans] == [each.moves for each in two.replans]


@settings(max_examples=8)
@given(st.data(), st.sampled_from([0.0, 0.1, 0.25]))
def test_ours_keeps_its_budget_after_the_first_window(data, budget):
    windows = loads(data.draw, 5, 2, 8)
    group = group_of(layers=2, gpus=3, each=4, experts=8)
    entry = Entry("ours", lambda each: Ours(each, budget, steps=10))
    run = replay(windows, [entry], setting_of(group)).runs[0]
    assert all(each.moves.copies <= budget * group.start.size for each in run.replans[1:])


@pytest.mark.parametrize(
    ("windows", "words"),
    [
        (WINDOWS[:1], "one window"),
        (WINDOWS[:, :, :3], r"\[windows, 1, 4\]"),
        (WINDOWS * [[[1]], [[0]], [[1]]], "window 1, row 0: no tokens"),
    ],
)
def test_windows_that_cannot_be_replayed(windows, words):
    with pytest.raises(InputError, match=words):
        replay(windows, named("static"), setting_of(group_of()))


@pytest.mark.parametrize("answer", [[[0, 1, 2, 2]], [[0, 1, 2, 4]], [[0, 1, 2]]])
def test_an_illegal_answer_names_its_policy(answer):
    class Wrong:
        def observe(self, window):
            pass

        def place(self, _):
            return np.array(answer, dtype=np.int32)

    with pytest.raises(InputError, match="policy wrong"):
        replay(WINDOWS, [Entry("wrong", lambda _: Wrong())], setting_of(group_of()))


def test_ctrl_c_keeps_the_windows_that_everybody_was_scored_on():
    def come(window, of, name):
        if (window, name) == (2, "vllm"):
            raise KeyboardInterrupt

    chosen = replay(WINDOWS, named("static", "vllm"), setting_of(group_of()), on_progress=come)
    assert (chosen.interrupted, chosen.windows, chosen.given) == (True, 2, 3)
    assert [len(run.step_s) for run in chosen.runs] == [1, 1]
    assert [len(run.replans) for run in chosen.runs] == [0, 1]
