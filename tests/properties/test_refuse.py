"""What is said where nothing fits, against brute force over node counts."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from cost.inputs.deployment import Deployment
from cost.inputs.workload import Workload
from cost.memory.batches import batch_of
from cost.resolve import resolve_model
from placement.layouts.fitting import fitted_layouts, fitting_shapes
from placement.layouts.refuse import fastest_step_s, refuse_capacity, smallest_nodes
from topology import resolve_cluster
from topology.base.errors import InfeasibleError


def setting_of(model: str, cluster: str, *, context: int = 4096, batch: int = 0) -> Deployment:
    return Deployment(resolve_cluster(cluster), resolve_model(model), Workload(context=context, batch=batch))


def refusal(deployment: Deployment) -> str:
    with pytest.raises(InfeasibleError) as refused:
        refuse_capacity(deployment, None)
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize(
    ("model", "cluster", "context"),
    [
        ("deepseek-v3", "gb200-nvl72@4", 4096),
        ("kimi-k2", "hgx-h20", 32_768),
    ],
)
def test_smallest_nodes_is_the_first_that_fits(model: str, cluster: str, context: int) -> None:
    deployment = setting_of(model, cluster, context=context)
    nodes = smallest_nodes(deployment, None)
    assert nodes is not None
    name, per_node = cluster.partition("@")[0], deployment.cluster.spec.domains[0].gpus_per_node
    for count in range(1, nodes + 1):
        tried = setting_of(model, f"{name}@{count * per_node}", context=context)
        tried = replace(tried, any_shape=True)
        assert any(fitting_shapes(tried, None, cut_experts=True)) == (count == nodes), count


def test_a_batch_too_large_names_the_largest() -> None:
    deployment = setting_of("mixtral-8x7b", "hgx-h100", batch=10**6)
    text = refusal(deployment)
    assert "`batch` 1,000,000 does not fit on hgx-h100" in text
    named = re.search(r"largest that fits is ([\d,.]+) ", text)
    assert named is not None
    most = float(named[1].replace(",", ""))
    assert fitted_layouts(deployment.with_batch(most), None)
    assert not fitted_layouts(deployment.with_batch(most + 1 / 8), None)


def test_the_fastest_step_is_the_least_of_all_layouts() -> None:
    deployment = setting_of("mixtral-8x7b", "hgx-h100")
    layouts = fitted_layouts(deployment, None)
    assert fastest_step_s(layouts) == min(fit.scorer.at(batch_of(1, fit.layout.tp)).step_s for fit in layouts)
    fixed = fitted_layouts(deployment.with_batch(9), None)
    assert fastest_step_s(fixed) == min(fit.scorer.at(9).step_s for fit in fixed)
    assert fastest_step_s(fixed) > fastest_step_s(layouts)


def test_a_batch_beyond_what_engines_run_names_the_option() -> None:
    deployment = setting_of("qwen3-8b", "hgx-b200", context=128, batch=2000)
    text = refusal(deployment)
    assert text.startswith("`batch` 2,000 is more than engines run at a time: 1,024 sequences")
    assert "`max_seqs` allows more" in text
    assert fitted_layouts(replace(deployment, max_seqs=2048), None)
