"""One line of Python does what the command does, and says what it made in a line."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rackplan
from helpers import Run
from pages import run_block
from placement.plan import Plan
from rackplan.report.results import of
from topology.base.errors import LONGEST

MODEL, CLUSTER = "qwen3-30b-a3b", "hgx-h100@16"
PUBLISHED = Path(rackplan.__file__).parents[1] / "cost" / "validation" / "data" / "published.csv"


@pytest.fixture(scope="module")
def plan() -> Plan:
    return rackplan.plan(MODEL, CLUSTER, time_limit_s=0, context=2048, redundant=16)


def test_a_notebook_shows_page_and_drawing(plan: Plan, tmp_path: Path) -> None:
    page, drawing = plan._repr_html_(), plan._repr_svg_()
    assert page is not None
    assert "output tok/s/GPU" in page
    assert "<script" not in page
    assert drawing is not None
    assert "<svg" in drawing
    assert plan.deployment.model._repr_html_() is None
    assert "<svg" in rackplan.draw(plan, tmp_path / "plan.svg").read_text()
    with pytest.raises(rackplan.InputError, match="there is no frame"):
        plan.deployment.to_frame()


def test_the_simplest_layout_within_the_tolerance_is_taken() -> None:
    best, simple = (
        rackplan.plan("llama-3.1-8b", "hgx-h100", phase="decode", tolerance=share) for share in (0, "30%")
    )
    assert (best.layout.tp, simple.layout.tp) == (2, 1)
    assert 0.7 * best.score.tok_s_per_gpu <= simple.score.tok_s_per_gpu < best.score.tok_s_per_gpu


def test_rows_of_a_plan_are_its_slots(plan: Plan) -> None:
    rows, experts = plan.to_frame(), plan.experts[0]
    assert experts is not None
    assert len(rows["slot"]) == experts.layers * experts.slots
    row = (rows["layer"] == plan.deployment.model.moe_layers[3]) & (rows["slot"] == 5)
    assert rows["expert"][row].tolist() == [experts.slot_expert[3, 5]]
    assert rows["gpu"][row].tolist() == [plan.deployment.cluster.gpus[int(experts.slot_gpu[5])].id]


@pytest.mark.parametrize(
    ("make", "columns"),
    [
        (lambda plan: rackplan.replan(plan, loads="zipf:0.3", max_moves=9), "layer expert gpu source bytes"),
        (lambda _: rackplan.sweep(MODEL, CLUSTER, context=2048), "ep tp batch step_s tok_s_per_gpu"),
        (
            lambda _: rackplan.compare(["hgx-h100", "hgx-h200"], MODEL),
            "cluster gpus tok_s_per_gpu usd_per_hour power_w",
        ),
        (lambda _: rackplan.size(MODEL, CLUSTER, gpus=16), "gpus domains tok_s usd_per_hour power_w reason"),
        (rackplan.what_if, "lever change gain"),
        (lambda _: rackplan.validate(PUBLISHED), "id quantity measured predicted error"),
        (lambda _: rackplan.make_loads(MODEL), "scenario moe_layer expert tokens"),
    ],
    ids=lambda value: value.split()[0] if isinstance(value, str) else "",
)
def test_a_result_has_rows_and_a_picture(
    plan: Plan, make: Callable[[Plan], Any], columns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rackplan.report.size.SPEEDS", 2)
    result = make(plan)
    frame, figure = result.to_frame(), result.plot()
    assert len(frame) > 0
    assert set(columns.split()) <= set(frame.columns)
    assert len(figure.data) + len(figure.layout.images) > 0
    assert figure.layout.height >= 100


def test_the_module_lists_its_api_alone() -> None:
    names = dir(rackplan)
    assert names == sorted(rackplan.__all__)
    assert all(getattr(rackplan, name) is not None for name in names)
    assert [name for name in names if name.startswith("_")] == ["__version__"]


FUNCTIONS = [name for name, module in rackplan._HOME.items() if module == "rackplan.library"]


@pytest.mark.wide
@pytest.mark.parametrize("name", FUNCTIONS)
def test_examples_of_the_help_are_true(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_block(f">>> import rackplan\n\n{inspect.getdoc(getattr(rackplan, name))}", name)


def test_arrays_are_loads_as_files_are(tmp_path: Path) -> None:
    tokens = np.random.default_rng(1).integers(1, 900, (2, 48, 128))
    np.save(tmp_path / "two.npy", tokens)
    given, read = (rackplan.make_loads(MODEL, loads) for loads in (tokens, tmp_path / "two.npy"))
    assert np.array_equal(given.tokens, read.tokens)
    assert given.names == ("loads#0", "loads#1")
    assert rackplan.make_loads(MODEL, [tokens[0], "uniform"]).synthetic
    with pytest.raises(rackplan.InputError, match=r"loads.*\[48, 128\]"):
        rackplan.make_loads(MODEL, tokens[:, :, :100])


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"contxt": 1}, "no keyword `contxt`; did you mean context"),
        ({"context": "many"}, "`context` many: expected a whole number of tokens"),
        ({"cluster": {"domains": 3}}, "cluster"),
        ({"prices": ["h100"]}, "`prices` .*expected a mapping of GPUs to figures"),
        ({"settings": {"h100.hbm": "2x"}}, "`settings` h100.hbm=2x: .*did you mean hbm_bytes"),
        ({"loads": [[1.0, 2.0], [3.0]]}, "`loads`: its rows have different lengths"),
        ({"model": None}, "`model` None: expected a name"),
    ],
    ids=lambda value: "" if isinstance(value, dict) else value[:28],
)
def test_what_is_given_is_checked(asked: dict[str, Any], says: str) -> None:
    with pytest.raises(rackplan.InputError, match=says) as raised:
        rackplan.plan(**{"model": MODEL, "cluster": CLUSTER, "phase": "decode", **asked})
    assert "--" not in str(raised.value)


def test_numbers_of_numpy_and_contents_of_files_are_taken() -> None:
    config = dict(rackplan.resolve_model(MODEL).config)
    cluster = {"name": "two", "domains": [{"part": "hgx-h100", "count": np.int64(2)}]}
    asked: dict[str, Any] = {"context": np.int64(2048), "batch": 8.0, "prices": {"h100": np.float32(2)}}
    given = rackplan.make_deployment(config, cluster, **asked)
    named = rackplan.make_deployment(MODEL, "hgx-h100@16", context=2048, batch=8, prices={"h100": 2})
    assert given.workload == named.workload
    assert given.prices == named.prices
    assert len(given.cluster.gpus) == 16
    assert given.model.layers == named.model.layers


def test_pools_are_those_of_the_command(run: Run) -> None:
    settings = {"gpu.hbm_bytes_per_s": "1.5x"}
    pools = rackplan.sweep(MODEL, CLUSTER, isl=2048, osl=256, tpot_ms=40, prefix_hit=0.25, settings=settings)
    printed = run(
        "sweep", "--model", MODEL, "--cluster", CLUSTER, "--isl", 2048, "--osl", 256, "--tpot-ms", 40,
        "--set", "gpu.hbm_bytes_per_s=1.5x", "--prefix-hit", 0.25, "--json",
    ).data  # fmt: skip
    assert pools.best is not None
    assert printed["requests_per_s"] == pools.best.requests_per_s
    assert repr(pools).startswith(f"<Pools {MODEL} on {CLUSTER}, requests of 2,048 + 256 tokens: ")
    assert len(repr(pools)) <= LONGEST
    shown = of(pools)
    assert shown is not None
    assert shown.row == {key: printed[key] for key in shown.row}
    with pytest.raises(rackplan.InfeasibleError, match="HBM capacity binds"):
        rackplan.sweep("deepseek-v3", "hgx-h100@8")


def test_a_replay_of_arrays_is_that_of_the_command(run: Run, tmp_path: Path) -> None:
    windows = np.random.default_rng(3).poisson(900, (4, 48, 128)) + 1
    np.save(tmp_path / "day.npy", windows)
    asked: dict[str, Any] = {"policies": ["static", "vllm"]}
    heard: list[rackplan.Progress] = []
    whole = rackplan.replay(model=MODEL, cluster=CLUSTER, loads=windows, **asked, on_progress=heard.append)
    words = ["--policy", "static", "--policy", "vllm"]
    printed = run(
        "replay", "--model", MODEL, "--cluster", CLUSTER, "--loads", "day.npy", *words, "--json"
    ).data
    assert [run.mean for run in whole.result.runs] == [row["balancedness"] for row in printed["policies"]]
    ended = rackplan.replay(
        whole.plan, loads=windows, **asked, on_progress=heard.append,
        cancel=lambda: "window 2" in heard[-1].stage,
    )  # fmt: skip
    assert ended.result.interrupted
    assert ended.result.windows < 4
    with pytest.raises(rackplan.CancelledError):
        rackplan.replay(whole.plan, loads=windows, **asked, cancel=lambda: True)
    with pytest.raises(rackplan.InputError, match=r"`cluster` hgx-h100: the plan is for hgx-h100@16"):
        rackplan.replay(whole.plan, loads=windows, cluster="hgx-h100")
    with pytest.raises(rackplan.InputError, match="one window"):
        rackplan.replay(whole.plan, loads=windows[:1])
