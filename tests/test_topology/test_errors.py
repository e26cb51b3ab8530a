"""Errors as values: what is wrong, by which input, and how each face calls it."""

from __future__ import annotations

import pickle

import pytest

from rackplan.requests import flag_of
from topology.base.errors import InfeasibleError, InputError, RackplanError, input_name


def test_a_message_names_the_input_as_each_face_does() -> None:
    error = InputError(
        f"does not divide the 8 GPUs; give {input_name('ep')} too.", field="tp", value=3, hint="See --help."
    )
    assert str(error) == "`tp` 3: does not divide the 8 GPUs; give `ep` too. See --help."
    assert error.text(flag_of) == "--tp 3: does not divide the 8 GPUs; give --ep too. See --help."
    assert error.problem == "`tp` 3: does not divide the 8 GPUs; give `ep` too."
    assert error.inputs == ("tp", "ep")


@pytest.mark.parametrize("value", [0, None, "", "a\nb"])
def test_a_value_is_shown_without_steering_the_terminal(value: object) -> None:
    text = str(InputError("wrong.", field="batch", value=value))
    assert text.startswith("`batch`")
    assert "\n" not in text


@pytest.mark.parametrize("kind", [InputError, InfeasibleError, RackplanError])
def test_errors_cross_processes_whole(kind: type[RackplanError]) -> None:
    error = pickle.loads(pickle.dumps(kind("too long.", field="context", value=9, hint="Shorten it.")))  # noqa: S301
    assert (type(error), error.field, error.value, error.hint) == (kind, "context", 9, "Shorten it.")
    assert error.text(flag_of) == "--context 9: too long. Shorten it."
