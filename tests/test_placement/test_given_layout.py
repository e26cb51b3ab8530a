"""A layout of given widths: what is left out is the usual, and what cannot be is refused by its name."""

from __future__ import annotations

import pytest

from cost.inputs.deployment import Deployment
from cost.inputs.workload import Workload
from cost.resolve import resolve_model
from placement.layouts.given import given_layout
from topology import resolve_cluster
from topology.base.errors import InfeasibleError, InputError

MIXTRAL = Deployment(resolve_cluster("hgx-h100@16"), resolve_model("mixtral-8x7b"), Workload())


def test_what_is_left_out_is_the_whole_cluster_in_one_stage() -> None:
    layout = given_layout(MIXTRAL).layout
    assert (layout.ep, layout.tp, layout.stages, len(layout.replicas)) == (16, 1, 1, 1)
    layout = given_layout(MIXTRAL, 4, 2, 2).layout
    assert (layout.ep, layout.tp, layout.stages, len(layout.replicas)) == (4, 2, 2, 2)


@pytest.mark.parametrize(
    ("widths", "words"),
    [
        ((None, None, 33), "expected 1 to 32 stages"),
        ((32, None, None), "has no 1 groups of 32 GPUs"),
        ((8, 3, None), "possible widths are"),
    ],
)
def test_what_cannot_be_is_refused(widths: tuple[int | None, ...], words: str) -> None:
    with pytest.raises(InputError, match=words):
        given_layout(MIXTRAL, *widths)


def test_copies_that_do_not_divide_and_batches_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InputError, match="cannot divide"):
        given_layout(MIXTRAL, 8, redundant=100)
    with pytest.raises(InfeasibleError, match="largest batch that fits"):
        given_layout(MIXTRAL.with_batch(10**6), 8)
