"""Quantities at the edge: the four traps, and what is refused."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topology.base.errors import InputError
from topology.base.units import (
    added,
    format_quantity,
    parse_length,
    parse_quantity,
    plain_number,
    read_number,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12", 12),
        (" 1,234,567.5 ", 1234567.5),
        ("-.5e3", -500),
        ("1.", 1),
        *(
            (text, None)
            for text in ("", ",", "1,5", "12,34", "1_000", "\uff12", "nan", "inf", "0x10", "1 2", ".")
        ),
    ],
)
def test_numbers_without_a_unit(text: str, value: float | None) -> None:
    assert plain_number(text) == value


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("4.8 TB/s", "byte/s", 4.8e12),
        ("400 Gb/s", "byte/s", 50e9),
        ("80 GiB", "byte", 80 * 2**30),
        ("80 GB", "byte", 80e9),
        ("1979 TFLOP/s", "flop/s", 1979e12),
        ("0.5 µs", "s", 0.5e-6),
        ("10.5 USD/h", "USD/h", 10.5),
        ("1.36 t", "kg", 1360.0),
        ("132 kW", "W", 132e3),
    ],
)
def test_reads_what_people_write(text: str, unit: str, value: float) -> None:
    assert parse_quantity(text, unit, "here") == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize(
    ("text", "unit", "words"),
    [
        ("1.8 TB/s bidirectional", "byte/s", "per direction"),
        ("900 GB/s bi-directional", "byte/s", "per direction"),
        ("3958 TFLOP/s sparse", "flop/s", "dense"),
        ("80 GB", "byte/s", ""),
        (700, "W", ""),
        ("", "W", ""),
        ("1e999 W", "W", ""),
        ("0 W", "W", ""),
        (["80 GB"], "byte", ""),
    ],
)
def test_refuses_with_the_place(text: object, unit: str, words: str) -> None:
    with pytest.raises(InputError, match=f"my-file: hbm.*{words}") as caught:
        parse_quantity(text, unit, "my-file: hbm")
    assert "\n" not in str(caught.value)


@settings(deadline=None, max_examples=60)
@given(
    st.floats(min_value=1e-8, max_value=1e17),
    st.sampled_from(["byte/s", "byte", "flop/s", "W", "s", "USD/h"]),
)
def test_what_is_written_reads_back(value: float, unit: str) -> None:
    text = format_quantity(value, unit, digits=6)
    if value < 1e-2 and unit != "s":
        return  # no prefix below one for bytes, watts, ...: the text keeps only six decimals
    assert math.isclose(parse_quantity(text, unit, text), value, rel_tol=1e-4), text


def test_sums_round_after_each_addition_on_every_python() -> None:
    assert added([0.1] * 10) == 0.9999999999999999  # math.fsum, and sum() since 3.12, say 1.0
    assert added([]) == 0.0
    assert added([1, 2]) == 3.0


def test_a_number_is_read_with_what_it_is_of() -> None:
    assert read_number("500 GB/s") == (5e11, "byte/s")
    assert read_number("2x") == read_number("2 X") == (2.0, "x")
    assert read_number("9e11") == (9e11, "")
    assert read_number("+10%") == (10.0, "%")
    assert [read_number(text) for text in ("gb200", "8 foo", "", "2x4", "x")] == [None] * 5


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("8192", 8192), ("8k", 8192), ("8.5k", 8704), ("1m", 2**20), ("8,192", 8192), ("0", 0)],
)
def test_lengths_have_binary_prefixes(text: str, tokens: int) -> None:
    assert parse_length(text, "--isl") == tokens


@pytest.mark.parametrize(
    "text", ["8kb", "k", "-1k", "8k tokens", "", "8.3k", "1.5", "nan", "1e400", "9" * 5000, "8kk", "8g"]
)
def test_what_is_no_length_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"--isl: .* is not a length; write a whole number of tokens"):
        parse_length(text, "--isl")
