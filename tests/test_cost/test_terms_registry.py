"""The registry of terms: what a step is made of is declared there, once."""

from cost.inputs.deployment import Deployment
from cost.inputs.workload import Workload
from cost.layouts import sweep
from cost.resolve import resolve_model
from cost.terms.registry import TERMS
from topology import resolve_cluster


def test_every_part_of_a_step_is_declared():
    cluster, model = resolve_cluster("hgx-h100@16"), resolve_model("deepseek-v2-lite")
    found = sweep(Deployment(cluster, model, Workload(draft_tokens=1, accept_length=1.5)))
    assert len(found.terms_s) > 8
    assert set(found.terms_s) <= set(TERMS)
