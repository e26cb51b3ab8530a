"""What is asked of the model: limits of a workload."""

import re

import pytest

from cost.workload import LONGEST_CONTEXT, Workload
from topology.errors import InputError


def test_defaults_are_the_contract():
    workload = Workload()
    assert (workload.context, workload.batch, workload.kv_dtype, workload.phase) == (
        4096,
        0,
        "bf16",
        "decode",
    )


def test_with_batch_changes_nothing_else():
    workload = Workload(context=17, kv_dtype="fp8")
    assert workload.with_batch(3) == Workload(17, 3, "fp8")
    assert workload.batch == 0


@pytest.mark.parametrize("context", [1, LONGEST_CONTEXT])
def test_ends_of_the_range_are_accepted(context):
    assert Workload(context=context).context == context


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"context": 0}, "--context 0"),
        ({"context": -5}, "--context -5"),
        ({"context": LONGEST_CONTEXT + 1}, "--context 1000000001"),
        ({"context": 10**400}, "--context 1000"),
        ({"context": 4096.0}, "--context 4096.0"),
        ({"context": float("nan")}, "--context nan"),
        ({"context": True}, "--context True"),
        ({"batch": -1}, "--batch -1"),
        ({"batch": 10**9 + 1}, "--batch 1000000001"),
        ({"batch": 10**400}, "--batch 1000"),
        ({"batch": float("inf")}, "--batch inf"),
        ({"phase": "prefill"}, "--phase prefill"),
    ],
)
def test_bad_values_are_named_in_one_line(given, said):
    with pytest.raises(InputError, match="^" + re.escape(said)) as error:
        Workload(**given)
    assert "\n" not in str(error.value)


def test_with_batch_is_checked_too():
    with pytest.raises(InputError, match="--batch -1: expected a whole number from 0"):
        Workload().with_batch(-1)
