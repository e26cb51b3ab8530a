"""Plan files: what is written reads back, and every broken one is refused in one line that names the place."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from helpers import changed
from placement.plan import Plan
from placement.plans.findings import CurveLayout, RedundancyCurve, RedundancyPoint
from placement.plans.reading import read_plan
from placement.plans.writing import plan_to_dict, plan_to_json
from test_placement.builders import deployed, loads_for, quick
from topology.base.errors import InputError

Change = Callable[[Any], Any]


@cache
def four_layers() -> Plan:
    """Two replicas on 16 GPUs, one stage each."""
    deployment = deployed("mixtral-8x7b", "hgx-h100@16", 4, batch=3)
    return quick(deployment, loads_for(deployment.model, "zipf:1", "uniform"), ep=8, tp=1, stages=1)


@cache
def everything() -> Plan:
    """Four layers on two nodes of four GPUs, everything asked for."""
    deployment = deployed("mixtral-8x7b", "gb200-nvl72@8", 4, batch=3)
    loads = loads_for(deployment.model, "zipf:1", "uniform")
    asked = {"redundant": 4, "spread": "node", "objective": "worst", "split": "source"}
    few = RedundancyPoint(0, 1, 0.5, 3, 90, 100.0, 0.02, 2e9)
    more = replace(few, redundant=8, slots_per_gpu=2, tok_s_per_gpu=140.0)
    curve = RedundancyCurve(layout=CurveLayout(8, 1, 1), points=(few, more))
    return replace(quick(deployment, loads, ep=8, tp=1, stages=1, **asked), redundancy=curve)


@cache
def text_of(made: Callable[[], Plan]) -> str:
    return plan_to_json(plan_to_dict(made(), command="rackplan plan", sha256={"a": "b"}))


def fresh(made: Callable[[], Plan] = four_layers) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text_of(made))
    del found["pools"]  # there is one, which the root describes
    return found


def read(data: object, folder: Path) -> Plan:
    path = folder / "plan.json"
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return read_plan(path)


def refusal(data: object, folder: Path) -> str:
    with pytest.raises(InputError) as refused:
        read(data, folder)
    text = str(refused.value)
    assert text.startswith(str(folder / "plan.json"))
    assert "\n" not in text
    return text


@pytest.mark.parametrize(
    ("where", "value", "words"),
    [
        (("score", "step_s"), 1e-9, "score.step_s 1e-09 (computed 0.0"),
        (("score", "totals", "tok_s_per_gpu"), 10**400, "score.totals.tok_s_per_gpu 1000"),
        (("score", "traffic"), "x", ""),  # what is not of the score says nothing
        (("proof", "gap"), 0.5, "proof.gap 0.5 (computed "),
    ],
)
def test_figures_in_the_file_are_not_believed(
    where: tuple[str, ...], value: object, words: str, tmp_path: Path
) -> None:
    """The score is computed again from the assignment, and what the file says else is named."""
    again = read(changed(fresh(), *where, to=value), tmp_path)
    assert again.score.step_s == four_layers().score.step_s
    assert again.layout == four_layers().layout
    assert again.proof.objective == pytest.approx(four_layers().proof.objective)
    assert words in again.differences
    assert bool(words) == bool(again.differences)


@pytest.mark.parametrize("key", ["stages", "ep", "attention_dp", "replicas", "batch_per_gpu", "gpus_used"])
def test_a_layout_that_contradicts_the_rest_is_refused(key: str, tmp_path: Path) -> None:
    """Whoever edits one place alone hears of the other; a layout that says less is read."""
    data = fresh()
    said = refusal(changed(data, "layout", key, to=4096), tmp_path)
    assert f"layout: {key}: 4096, but" in said
    assert f" {fresh()['layout'][key]:g}; make them agree" in said
    assert read(changed(data, "layout", key), tmp_path).layout == four_layers().layout


KEYS = [
    ("schema_version",),
    ("stages", 1, "gpus"),
    ("experts", "layers"),
    ("experts", "layers", "3"),
    ("proof", "bound"),
    ("inputs", "model", "config", "hidden_size"),
    ("inputs", "workload", "batch"),
    ("inputs", "loads", "tokens"),
]


OF_ANOTHER_KIND = [None, "text", [[]], {"a": 1}, -1, 1.5, math.nan, math.inf]


@pytest.mark.parametrize("path", KEYS, ids=str)
def test_every_needed_key_is_missed(path: tuple[str | int, ...], tmp_path: Path) -> None:
    assert str(path[-1]) in refusal(changed(fresh(), *path), tmp_path)


@pytest.mark.parametrize("value", OF_ANOTHER_KIND, ids=repr)
@pytest.mark.parametrize("path", [path for path in KEYS if path[-1] != "bound"], ids=str)
def test_no_key_takes_a_value_of_another_kind(
    path: tuple[str | int, ...], value: object, tmp_path: Path
) -> None:
    refusal(changed(fresh(), *path, to=value), tmp_path)


def everywhere(path: tuple[str | int, ...], value: object) -> Change:
    """The same change in both replicas' stages."""
    return lambda data: changed(changed(data, "stages", 0, *path, to=value), "stages", 1, *path, to=value)


def one(*path: str | int, to: object) -> Change:
    return lambda data: changed(data, *path, to=to)


def twice_on_a_gpu(data: dict[str, Any]) -> Any:
    half = [[0, 0], [1, 2], [3, 4], [5, 6], [7, 0], [1, 2], [3, 4], [5, 6]]
    return changed(data, "experts", "layers", to={str(layer): half + half for layer in range(4)})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (one("schema_version", to=2), "by an older rackplan (schema 2; this one reads 3); create"),
        (one("stages", 1, "gpus", 0, to="d9.n0.g0"), "stages[1]: gpus: 'd9.n0.g0' is not a GPU"),
        (twice_on_a_gpu, "holds expert 0 more than once"),
        (one("limit_s", to=-1), "limit_s"),
        (one("stages", 1, "last_layer", to=2), "replicas differ"),
        (everywhere(("last_layer",), 10**30), "do not hold layers 0 to 3"),
        (one("experts", "layers", "1", 0, to=[7]), "experts: layers: 1: expert 6 has no copy"),
        (
            one("experts", "layers", "1", 0, to=[10**30]),
            f"experts: layers: 1: expert {10**30} does not exist",
        ),
        (one("experts", "layers", "4", to=[[]] * 16), "has no such layer with experts"),
        (one("inputs", "workload", "batch", to=10**8), "HBM capacity binds"),
        (one("inputs", "loads", "names", to=["a"]), "inputs: loads: names: 1 names for 2 scenarios"),
        (one("inputs", "loads", "tokens", 0, 1, to=[0.0] * 8), "a layer has no tokens at all"),
    ],
)
def test_broken_plans_are_refused_by_place(change: Change, words: str, tmp_path: Path) -> None:
    assert words in refusal(change(fresh()), tmp_path)


@pytest.mark.parametrize("text", ["[]", "3", "\ufeff{}"], ids=["list", "number", "byte order mark"])
def test_what_is_no_plan_at_all(text: str, tmp_path: Path) -> None:
    refusal(text, tmp_path)


@pytest.mark.wide
def test_everything_reads_back(tmp_path: Path) -> None:
    plan = everything()
    assert plan.scenarios is not None
    assert plan.failures is not None
    assert plan.redundancy is not None
    data = fresh(everything)
    again = read(data, tmp_path)
    assert again.scenarios == plan.scenarios
    assert again.failures == plan.failures
    assert again.redundancy == plan.redundancy
    assert (again.split, again.spread, again.objective) == ("source", "node", "worst")
    assert (data["redundancy"]["chosen"], data["redundancy"]["knee"]) == (8, 8)
    assert again.score.step_s == pytest.approx(plan.score.step_s, rel=1e-12)
    assert again.balancedness == plan.balancedness
    assert plan_to_dict(again)["failures"] == data["failures"]
    assert "worst scenario, split source" in " ".join(data["proof"]["of"].replace(",", ", ").split())


def test_the_split_is_what_is_scored(tmp_path: Path) -> None:
    data = fresh(everything)
    source = read(data, tmp_path).balancedness
    data["request"]["split"] = "lp"
    best = read(data, tmp_path).balancedness
    assert all(best[layer] >= source[layer] - 1e-6 for layer in source)
    assert best != source


BREAKS: list[tuple[tuple[str | int, ...], object, str]] = [
    (("request", "spread"), "pod", "request: spread: 'pod' must be"),
    (("scenarios", "rows", 0, "name"), "other", "scenarios: rows: of other"),
    (("failures", "layers", 0, "layer"), 9, "failures: layers[0]: layer"),
    (("failures", "experts"), [], "failures: experts: it lists 0"),
    (("redundancy", "points", 0, "redundant"), 10_000, "redundancy: points"),
]


@pytest.mark.parametrize(("where", "value", "words"), BREAKS, ids=[words for _, _, words in BREAKS])
def test_broken_findings_are_refused_by_place(
    where: tuple[str | int, ...], value: object, words: str, tmp_path: Path
) -> None:
    assert words in refusal(changed(fresh(everything), *where, to=value), tmp_path)
