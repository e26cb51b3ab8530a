"""One line of Python does what the command does, and says what it made in a line."""

from __future__ import annotations

import ast
import doctest
import inspect
import math
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rackplan
from helpers import OWN_CLUSTER, Run
from pages import run_block
from placement.plan import Plan
from rackplan.report.results import of
from topology.base.errors import LONGEST

MODEL, CLUSTER = "qwen3-30b-a3b", "hgx-h100@16"
PUBLISHED = Path(rackplan.__file__).parents[1] / "cost" / "validation" / "data" / "published.csv"


@pytest.fixture(scope="module")
def plan() -> Plan:
    return rackplan.plan(MODEL, CLUSTER, time_limit_s=0, context=2048, redundant=16)


def test_a_notebook_shows_page_and_drawing(plan: Plan) -> None:
    shown = plan._repr_html_()
    assert shown is not None
    assert "output tok/s/GPU" in shown
    assert "<script" not in shown
    drawing = plan._repr_svg_()
    assert drawing is not None
    assert "<svg" in drawing
    assert plan.deployment.model._repr_html_() is None


def test_a_plan_is_drawn_with_its_load(plan: Plan, tmp_path: Path) -> None:
    assert re.search(r"expert\sload", rackplan.draw(plan, tmp_path / "plan.svg").read_text())


def test_the_simplest_layout_within_the_tolerance_is_taken() -> None:
    best, simple = (
        rackplan.plan("llama-3.1-8b", "hgx-h100", phase="decode", tolerance=share) for share in (0, "30%")
    )
    assert (best.layout.tp, simple.layout.tp) == (2, 1)
    assert 0.7 * best.score.tok_s_per_gpu <= simple.score.tok_s_per_gpu < best.score.tok_s_per_gpu


def test_rows_of_a_plan_are_its_slots(plan: Plan) -> None:
    rows = plan.to_frame()
    experts = plan.experts[0]
    assert experts is not None
    assert len(rows["slot"]) == experts.layers * experts.slots
    one = (rows["layer"] == plan.deployment.model.moe_layers[3]) & (rows["slot"] == 5)
    assert rows["expert"][one].tolist() == [experts.slot_expert[3, 5]]
    assert rows["gpu"][one].tolist() == [plan.deployment.cluster.gpus[int(experts.slot_gpu[5])].id]


@pytest.mark.parametrize(
    ("make", "columns"),
    [
        (lambda plan: plan, "layer slot gpu expert copies"),
        (lambda plan: rackplan.replan(plan, loads="zipf:0.3", max_moves=9), "layer expert gpu source bytes"),
        (
            lambda _: rackplan.sweep(MODEL, CLUSTER, context=2048),
            "ep tp batch step_s tok_s_per_user tok_s_per_gpu",
        ),
        (lambda _: rackplan.sweep(MODEL, CLUSTER), "serving layout requests_per_s tok_s_per_user ttft_s"),
        (
            lambda _: rackplan.compare(["hgx-h100", "hgx-h200"], MODEL),
            "cluster gpus tok_s_per_gpu usd_per_hour power_w",
        ),
        (lambda _: rackplan.size(MODEL, CLUSTER, gpus=16), "gpus domains tok_s usd_per_hour power_w reason"),
        (rackplan.what_if, "lever change gain"),
        (lambda _: rackplan.validate(PUBLISHED), "id quantity measured predicted error"),
        (lambda _: rackplan.make_cluster(CLUSTER), "gpu node domain rack hbm_bytes hbm_bytes_per_s"),
        (lambda _: rackplan.make_loads(MODEL), "scenario moe_layer expert tokens"),
    ],
    ids=lambda one: one.split()[0] if isinstance(one, str) else "",
)
def test_a_result_has_rows_and_a_picture(
    plan: Plan, make: Callable[[Plan], Any], columns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rackplan.report.size.SPEEDS", 2)
    found = make(plan)
    frame, figure = found.to_frame(), found.plot()
    assert len(frame) > 0
    assert set(columns.split()) <= set(frame.columns)
    assert len(figure.data) + len(figure.layout.images) > 0
    assert figure.layout.height >= 100


def test_what_has_no_rows_or_picture_says_so() -> None:
    deployment = rackplan.make_deployment(MODEL, CLUSTER)
    with pytest.raises(rackplan.InputError, match="Deployment: there is no frame"):
        deployment.to_frame()
    with pytest.raises(rackplan.InputError, match="Deployment: there is no chart"):
        deployment.plot()


def test_the_module_lists_its_api_alone() -> None:
    found = dir(rackplan)
    assert found == sorted(rackplan.__all__)
    assert {"plan", "compare", "Plan", "Pools", "StudyResult", "InputError"} <= set(found)
    assert all(getattr(rackplan, name) is not None for name in found)
    assert [name for name in found if name.startswith("_")] == ["__version__"]


FUNCTIONS = [name for name, module in rackplan._HOME.items() if module == "rackplan.library"]


@pytest.mark.parametrize("name", [*FUNCTIONS, "read_plan"])
def test_help_has_every_argument(name: str) -> None:
    function = getattr(rackplan, name)
    text, signature = inspect.getdoc(function) or "", inspect.signature(function)
    assert function.__name__ == name
    listed = text.split("Parameters\n----------\n")[1].split("\n\nReturns\n-------\n")[0]
    blocks = re.findall(r"^(\w+) : .+\n    \S", listed, re.MULTILINE)
    assert blocks == list(signature.parameters)
    assert "--" not in listed
    assert "Raises\n------\nInputError" in text
    calls = [
        ast.parse(one.source, mode="exec").body[-1] for one in doctest.DocTestParser().get_examples(text)
    ]
    found = [
        one
        for call in calls
        for one in ast.walk(call)
        if isinstance(one, ast.Call) and ast.unparse(one.func) == f"rackplan.{name}"
    ]
    assert found or name == "read_plan"
    for one in found:
        signature.bind(*one.args, **{word.arg: word.value for word in one.keywords if word.arg})


@pytest.mark.wide
@pytest.mark.parametrize("name", FUNCTIONS)
def test_examples_of_the_help_are_true(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_block(f">>> import rackplan\n\n{inspect.getdoc(getattr(rackplan, name))}", name)


def test_help_says_type_default_and_meaning() -> None:
    text = inspect.getdoc(rackplan.plan) or ""
    for words in (
        "context : int | str, default: 4096\n    With one phase only: tokens already in each sequence",
        'tpot_ms : float | "none", default: 50\n    Maximum time per output token in ms',
        "tolerance : float | str, default: 0.02 (2%)",
        "prices : Mapping[str, float | str], optional\n",
        "Or a Cluster, or the content of such a file.",
        "cancel : threading.Event | Callable[[], bool], optional",
    ):
        assert words in text
    assert str(inspect.signature(rackplan.plan)).startswith(
        "(model: 'ModelLike | Mapping[str, float] | Sequence[str]', cluster: 'ClusterLike', *, "
    )


def test_arrays_are_loads_as_files_are(tmp_path: Path) -> None:
    tokens = np.random.default_rng(1).integers(1, 900, (2, 48, 128))
    np.save(tmp_path / "two.npy", tokens)
    model = rackplan.resolve_model(MODEL)
    given, read = rackplan.make_loads(model, tokens), rackplan.make_loads(model, tmp_path / "two.npy")
    assert given is not None
    assert read is not None
    assert np.array_equal(given.tokens, read.tokens)
    assert given.names == ("loads#0", "loads#1")
    both = rackplan.make_loads(model, [tokens[0], "uniform"])
    assert both is not None
    assert both.synthetic
    with pytest.raises(rackplan.InputError, match=r"loads.*\[48, 128\]"):
        rackplan.make_loads(model, tokens[:, :, :100])


def test_a_gpu_of_ones_own_serves() -> None:
    found = rackplan.plan(MODEL, OWN_CLUSTER, phase="decode", time_limit_s=0, prices={"mine": 3.5})
    assert found.totals.usd_per_hour == pytest.approx(8 * 3.5)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: rackplan.compare([], MODEL), "name at least one"),
        (lambda: rackplan.make_cluster({"domains": 3}), "cluster"),
        (lambda: rackplan.make_plan(rackplan.make_deployment(MODEL, CLUSTER), None), "rackplan.make_loads"),
        (lambda: rackplan.write_report(rackplan.make_deployment(MODEL, CLUSTER), "x.html"), "no report"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_used_is_said(call: Callable[[], object], says: str) -> None:
    with pytest.raises(rackplan.InputError, match=says):
        call()


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"contxt": 1}, "no keyword `contxt`; did you mean context"),
        ({"context": "many"}, "`context` many: expected a whole number of tokens"),
        ({"tpot_ms": float("nan")}, "`tpot_ms` nan: expected a number above 0"),
        ({"ep": "8"}, "`ep` 8: expected a whole number"),
        ({"redundant": 2.5}, "`redundant` 2.5: expected a number of extra copies, .* or auto"),
        ({"prices": ["h100"]}, "`prices` .*expected a mapping of GPUs to figures"),
        ({"settings": {"h100.hbm": "2x"}}, "`settings` h100.hbm=2x: .*did you mean hbm_bytes"),
        ({"loads": [[1.0, 2.0], [3.0]]}, "`loads`: its rows have different lengths"),
        ({"loads": np.full((48, 128), np.nan)}, "nan is not a token count"),
        ({"model": None}, "`model` None: expected a name"),
    ],
    ids=lambda one: "" if isinstance(one, dict) else one[:28],
)
def test_what_is_given_is_checked(asked: dict[str, Any], says: str) -> None:
    with pytest.raises(rackplan.InputError, match=says) as raised:
        rackplan.plan(**{"model": MODEL, "cluster": CLUSTER, "phase": "decode", **asked})
    assert "\n" not in str(raised.value)
    assert "--" not in str(raised.value)


def test_numbers_of_numpy_and_contents_of_files_are_taken() -> None:
    config = dict(rackplan.resolve_model(MODEL).config)
    cluster = {"name": "two", "domains": [{"part": "hgx-h100", "count": np.int64(2)}]}
    asked: dict[str, Any] = {"context": np.int64(2048), "batch": 8.0, "prices": {"h100": np.float32(2)}}
    found = rackplan.make_deployment(config, cluster, **asked)
    named = rackplan.make_deployment(MODEL, "hgx-h100@16", context=2048, batch=8, prices={"h100": 2})
    assert found.workload == named.workload
    assert found.prices == named.prices
    assert len(found.cluster.gpus) == 16
    assert found.model.layers == named.model.layers


@pytest.mark.wide
def test_a_plan_says_how_far_it_is_and_can_be_cancelled(plan: Plan) -> None:
    heard: list[rackplan.Progress] = []
    cancel = threading.Event()

    def hear(progress: rackplan.Progress) -> None:
        heard.append(progress)
        if progress.stage == "placing experts":
            cancel.set()

    args: dict[str, Any] = {"context": 2048, "redundant": 16, "on_progress": hear}
    found = rackplan.plan(MODEL, CLUSTER, phase="decode", time_limit_s=60, cancel=cancel, **args)
    assert found.interrupted
    assert not rackplan.verify_plan(found)
    assert [found.layout.ep, found.layout.tp] == [plan.layout.ep, plan.layout.tp]
    placed = [one for one in heard if one.total]
    assert placed[-1].objective == pytest.approx(found.proof.objective)
    assert 0 <= placed[-1].gap < 0.05
    assert math.isnan(heard[0].gap)
    with pytest.raises(rackplan.CancelledError):
        rackplan.plan(MODEL, CLUSTER, cancel=lambda: True, context=2048)
    whole: list[rackplan.Progress] = []
    again = rackplan.plan(
        MODEL, CLUSTER, time_limit_s=0, context=2048, redundant=16, on_progress=whole.append
    )
    assert not again.interrupted
    assert again.proof == plan.proof
    assert max(one.total for one in whole) == 48


@pytest.mark.wide
def test_a_replan_that_is_cancelled_is_whole(plan: Plan) -> None:
    heard: list[rackplan.Progress] = []
    found = rackplan.replan(plan, loads="zipf:0.8", on_progress=heard.append, cancel=lambda: bool(heard))
    assert not rackplan.verify_plan(found.plan)
    assert found.plan.interrupted == bool(heard)


def test_pools_are_those_of_the_command(run: Run) -> None:
    settings = {"gpu.hbm_bytes_per_s": "1.5x"}
    found = rackplan.sweep(MODEL, CLUSTER, isl=2048, osl=256, tpot_ms=40, prefix_hit=0.25, settings=settings)
    said = run(
        "sweep", "--model", MODEL, "--cluster", CLUSTER, "--isl", 2048, "--osl", 256, "--tpot-ms", 40,
        "--set", "gpu.hbm_bytes_per_s=1.5x", "--prefix-hit", 0.25, "--json",
    ).data  # fmt: skip
    best = found.best
    assert best is not None
    assert said["requests_per_s"] == best.requests_per_s
    assert repr(found).startswith(f"<Pools {MODEL} on {CLUSTER}, requests of 2,048 + 256 tokens: ")
    assert len(repr(found)) <= LONGEST
    shown = of(found)
    assert shown is not None
    assert shown.row == {key: said[key] for key in shown.row}
    with pytest.raises(rackplan.InfeasibleError, match="HBM capacity binds"):
        rackplan.sweep("deepseek-v3", "hgx-h100@8")
    with pytest.raises(rackplan.InputError, match="`ttft_ms` -1"):
        rackplan.sweep(MODEL, CLUSTER, isl=100, osl=10, ttft_ms=-1)


def test_a_replay_of_arrays_is_that_of_the_command(run: Run, tmp_path: Path) -> None:
    windows = np.random.default_rng(3).poisson(900, (4, 48, 128)) + 1
    np.save(tmp_path / "day.npy", windows)
    asked: dict[str, Any] = {"policies": ["static", "vllm"]}
    heard: list[rackplan.Progress] = []
    found = rackplan.replay(model=MODEL, cluster=CLUSTER, loads=windows, **asked, on_progress=heard.append)
    words = ["--policy", "static", "--policy", "vllm"]
    said = run("replay", "--model", MODEL, "--cluster", CLUSTER, "--loads", "day.npy", *words, "--json").data
    assert [run.mean for run in found.result.runs] == [row["balancedness"] for row in said["policies"]]
    assert repr(found).startswith(
        f"<Replayed {MODEL} on {CLUSTER}, decode, 4 windows: balancedness static 0."
    )
    assert "replaying window 3 of 4: vllm" in heard[-1].stage
    ended = rackplan.replay(
        found.plan, loads=windows, **asked, on_progress=heard.append,
        cancel=lambda: "window 2" in heard[-1].stage,
    )  # fmt: skip
    assert ended.result.interrupted
    assert ended.result.windows < 4
    with pytest.raises(rackplan.CancelledError):
        rackplan.replay(found.plan, loads=windows, **asked, cancel=lambda: True)
    with pytest.raises(rackplan.InputError, match=r"`cluster` is missing"):
        rackplan.replay(model=MODEL, loads=windows)
    with pytest.raises(rackplan.InputError, match=r"`cluster` hgx-h100: the plan is for hgx-h100@16"):
        rackplan.replay(found.plan, loads=windows, cluster="hgx-h100")
    with pytest.raises(rackplan.InputError, match="one window"):
        rackplan.replay(found.plan, loads=windows[:1])
