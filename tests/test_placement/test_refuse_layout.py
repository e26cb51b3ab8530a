"""Widths and options that cannot be: the rule that they break, and the nearest that fit."""

from __future__ import annotations

from typing import Any

import pytest

from cost.config.build import model_from_config
from cost.inputs.deployment import Deployment
from cost.inputs.workload import Workload
from cost.resolve import resolve_model
from placement.layouts.fitting import fitted_layouts
from placement.layouts.refuse import refuse_layout
from placement.options import PlanOptions
from topology import resolve_cluster
from topology.base.errors import InfeasibleError, InputError

CONFIG = resolve_model("qwen3-8b").config
TWENTY_HEADS = model_from_config(
    {**CONFIG, "num_attention_heads": 20, "num_key_value_heads": 4}, name="twenty heads"
)


@pytest.mark.parametrize(
    ("model", "cluster", "widths", "words"),
    [
        ("twenty heads", "hgx-h200", {"tp": 8}, "20 query heads do not divide by 8"),
        ("twenty heads", "hgx-h200", {"tp": 5}, "TP 5 is not offered: plans have powers of two up to 64"),
        ("gpt-oss-20b", "hgx-h100", {"ep": 3}, "groups of 3 GPUs do not divide nodes of 8"),
        ("qwen3-30b-a3b", "hgx-h200@16", {"ep": 6}, "groups of 6 GPUs do not divide nodes of 8"),
        ("qwen3-30b-a3b", "hgx-h100", {"ep": 2, "tp": 8}, "which a sweep prices and plans do not offer"),
        ("qwen3-30b-a3b", "hgx-h100@16", {"ep": 1, "tp": 16}, "experts are cut within a scale-up domain"),
        ("qwen3-30b-a3b", "hgx-h100@32", {"ep": 32, "tp": 16}, "offered where it is as wide as the stage"),
        ("qwen3-30b-a3b", "hgx-h100", {"ep": 16}, "that takes 16 GPUs, and it has 8"),
        ("qwen3-30b-a3b", "hgx-h100@16", {"ep": 4, "stages": 17}, "at most 16 stages are offered"),
        ("llama-3.1-405b", "hgx-h100@16", {"tp": 8, "stages": 1}, "HBM capacity binds: it needs"),
    ],
)
def test_the_rule_that_binds_is_named(model: str, cluster: str, widths: dict[str, int], words: str) -> None:
    known = TWENTY_HEADS if model == TWENTY_HEADS.name else resolve_model(model)
    deployment = Deployment(resolve_cluster(cluster), known, Workload())
    layouts = fitted_layouts(deployment, None)
    with pytest.raises(InfeasibleError) as refused:
        refuse_layout(deployment, PlanOptions(**widths), layouts)  # type: ignore[arg-type]
    said = str(refused.value)
    assert words in said
    assert "What fits: " in said
    fits = {(fit.layout.ep, fit.layout.tp, fit.layout.stages) for fit in layouts}
    for spelled in said.partition("What fits: ")[2].rstrip(".").split("; "):
        words_of = spelled.replace("`", "").split()
        named = dict(zip(words_of[::2], map(int, words_of[1::2]), strict=True))
        assert any(
            (named.get("ep", ep), named["tp"], named["stages"]) == (ep, tp, stages) for ep, tp, stages in fits
        )


def test_a_batch_that_the_widths_cannot_have_is_no_want_of_memory() -> None:
    deployment = Deployment(resolve_cluster("hgx-h100"), resolve_model("qwen3-8b"), Workload(batch=0.125))
    layouts = fitted_layouts(deployment, None)
    assert {fit.layout.tp for fit in layouts} == {8}
    with pytest.raises(
        InfeasibleError, match=r"`batch` 0\.125 is no whole number of sequences of a group of 4"
    ):
        refuse_layout(deployment, PlanOptions(tp=4), layouts)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"redundant": -1}, "`redundant` -1"),
        ({"tpot_s": 0.0}, "`tpot_ms`: expected a number above 0"),
        ({"time_limit_s": -1.0}, "`time_limit_s`: expected 0 or more seconds, not -1"),
        ({"seed": -1}, "`seed` -1"),
        ({"ep": 1, "tp": 8, "redundant": 8}, "with `ep` 1 no expert has copies"),
        ({"ep": 1, "tp": 8, "redundant": "auto"}, "with `ep` 1 no expert has copies"),
        ({"ep": 1, "tp": 8, "spread": "node"}, "with `ep` 1 no expert has copies"),
    ],
)
def test_each_bad_option_is_named(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words) as refusal:
        PlanOptions(**options)
    assert "\n" not in str(refusal.value)
