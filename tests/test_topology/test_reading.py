"""YAML, JSON, arrays and quantities of other people: what is refused, and how each face says it."""

from __future__ import annotations

import io
import math
import pickle
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rackplan.requests import flag_of
from topology.base.errors import InfeasibleError, InputError, RackplanError, input_name
from topology.base.npy import load_npy
from topology.base.reading import load_yaml, parse_json, parse_yaml
from topology.base.schema import Count, Flag, Kind, Name, Positive, Spec, Text, keyword_spec, validated
from topology.base.units import (
    added,
    format_quantity,
    parse_length,
    parse_quantity,
    plain_number,
    read_number,
)


@pytest.mark.parametrize(
    ("parse", "text", "words"),
    [
        (parse_json, '{"a": 1, "b": 2, "c": {}, "b": 3, "a": 4}', "x: a: duplicate key; keep one of them."),
        (parse_json, "[1e999]", "x: 0: infinite or too large for a number."),
        (parse_json, '{\n"a": 1,,}', "x: line 2: column 8: not valid JSON"),
        (parse_json, "", "(is the file truncated?)"),
        (parse_yaml, "a: 1\nb: {c: 1, c: 2}", "x: line 2: duplicate key 'c'."),
        (parse_yaml, "a: !!python/object:os.system x", "YAML tag"),
        (parse_yaml, "a: 1\nb: [07, 08]", "x: line 2: YAML reads 07 as octal; quote it if it is a name"),
        (parse_yaml, "[" * 100, "is nested more than 64 levels deep"),
    ],
)
def test_text_that_is_refused(parse: Callable[[str, str], object], text: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        parse(text, "x")
    assert words in str(caught.value)


def test_text_that_is_as_it_looks() -> None:
    assert parse_json('{"a": 1, "b": {"a": [2.5, null, "x"]}}', "x") == {"a": 1, "b": {"a": [2.5, None, "x"]}}
    assert parse_json("[Infinity, 1e999]", "x", infinite=True) == [math.inf, math.inf]
    with pytest.raises(InputError, match="NaN"):
        parse_json("[NaN]", "x", infinite=True)
    text = "[0, 10, 0x10, 1_000, 08, '07', \"1:30\", a:1, 0.5, '<<', 192.168.0.1:80]"
    assert parse_yaml(text, "x") == [0, 10, 16, 1000, "08", "07", "1:30", "a:1", 0.5, "<<", "192.168.0.1:80"]


def test_files_that_cannot_be_read(tmp_path: Any) -> None:
    with pytest.raises(InputError, match=r"^x: cannot read it \(No such file"):
        load_yaml(tmp_path / "none.yaml", "x")
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match=r"^x: is not UTF-8 text"):
        load_yaml(tmp_path / "bytes.yaml", "x")


@keyword_spec
class Host(Spec):
    gpus_per_node: Count
    kind: Literal["a", "b"] = "a"


@pytest.mark.parametrize(
    ("kind", "value", "words"),
    [
        (Text, 3, "x: 3 must be text."),
        (Name, "a\x1b[2Jb", "must be text without control characters."),
        (tuple[Text, ...], 1, "x: 1 must be a list."),
        (Count, 0, "x: 0 must be a whole number from 1 to 1000000."),
        (Positive, 0, "x: 0 must be a number greater than zero."),
        (Positive, 10**400, "must be a number greater than zero."),
        (Flag, 1, "x: 1 must be true or false."),
        (dict[str, int], [1], "x: [1] must be a mapping of keys to values."),
        (Kind, "mesured", "x: 'mesured' is not a kind of evidence; did you mean measured"),
        (Host, {"gpus_per_nod": 4}, "x: unknown key `gpus_per_nod`; did you mean gpus_per_node?"),
        (Host, {"kind": "a"}, "x: needs the key `gpus_per_node`."),
        (Host, {"gpus_per_node": 4, "kind": "c"}, "x: kind: 'c' must be 'a' or 'b'."),
    ],
)
def test_a_value_or_key_that_is_wrong(kind: Any, value: object, words: str) -> None:
    with pytest.raises(InputError) as caught:
        validated(kind, value, "x")
    assert words in str(caught.value)
    assert len(str(caught.value)) < 200


ARRAY = np.arange(24.0).reshape(2, 3, 4)


def with_header(text: str, data: bytes = bytes(8)) -> bytes:
    header = text.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + data


@pytest.mark.parametrize("values", [ARRAY, ARRAY.T, ARRAY.astype(">i4"), ARRAY[:0], np.array(3)])
def test_what_was_saved_is_read(tmp_path: Path, values: np.ndarray) -> None:
    np.save(tmp_path / "x.npy", values)
    for file in (tmp_path / "x.npy", io.BytesIO((tmp_path / "x.npy").read_bytes())):
        read = load_npy(file, "x")
        np.testing.assert_array_equal(read, values)
        assert read.dtype == values.dtype


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"PK\3\4 and so on",
        with_header("{'descr': '<i8', 'fortran_order': False, 'shape': (134217728,)}"),
        with_header("{'descr': '<i8', 'fortran_order': False, 'shape': (10000000000000000000000, 2)}"),
        with_header("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}"),
        with_header("{'descr': open('ran', 'w'), 'fortran_order': False, 'shape': (1,)}"),
        with_header("{'descr': '<i8', 'fortran_order': False}"),
        with_header("[" * 9000),
    ],
)
def test_what_is_no_whole_array_is_refused_in_one_line(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x.npy").write_bytes(data)
    for file in (tmp_path / "x.npy", io.BytesIO(data)):
        tracemalloc.start()
        with pytest.raises(InputError) as caught:
            load_npy(file, "x.npy")
        assert tracemalloc.get_traced_memory()[1] < 2**24
        tracemalloc.stop()
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", [InputError, InfeasibleError, RackplanError])
def test_errors_name_the_input_as_each_face_does_and_cross_processes_whole(kind: type[RackplanError]) -> None:
    words = f"does not divide the 8 GPUs; give {input_name('ep')} too."
    error = pickle.loads(pickle.dumps(kind(words, field="tp", value=3, hint="See --help.")))  # noqa: S301
    assert type(error) is kind
    assert str(error) == "`tp` 3: does not divide the 8 GPUs; give `ep` too. See --help."
    assert error.text(flag_of) == "--tp 3: does not divide the 8 GPUs; give --ep too. See --help."
    assert error.problem == "`tp` 3: does not divide the 8 GPUs; give `ep` too."
    assert error.inputs == ("tp", "ep")
    for value in (0, None, "", "a\nb"):
        text = str(kind("wrong.", field="batch", value=value))
        assert text.startswith("`batch`")
        assert "\n" not in text


# Quantities as people write them


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("4.8 TB/s", "byte/s", 4.8e12),
        ("400 Gb/s", "byte/s", 50e9),
        ("80 GiB", "byte", 80 * 2**30),
        ("1979 TFLOP/s", "flop/s", 1979e12),
        ("0.5 µs", "s", 0.5e-6),
        ("1.36 t", "kg", 1360.0),
        ("1.8 TB/s bidirectional", "byte/s", "per direction"),
        ("3958 TFLOP/s sparse", "flop/s", "dense"),
        ("80 GB", "byte/s", ""),
        ("1,5 W", "W", ""),
        (700, "W", ""),
        ("0 W", "W", ""),
        (["80 GB"], "byte", ""),
    ],
)
def test_quantities(text: object, unit: str, value: float | str) -> None:
    if not isinstance(value, str):
        assert parse_quantity(text, unit, "here") == pytest.approx(value, rel=1e-12)
        return
    with pytest.raises(InputError, match=f"my-file: hbm.*{value}") as caught:
        parse_quantity(text, unit, "my-file: hbm")
    assert "\n" not in str(caught.value)


@settings(deadline=None, max_examples=60)
@given(st.floats(1e-2, 1e17), st.sampled_from(["byte/s", "byte", "flop/s", "W", "s", "USD/h"]))
def test_what_is_written_reads_back(value: float, unit: str) -> None:
    text = format_quantity(value, unit, digits=6)
    assert math.isclose(parse_quantity(text, unit, text), value, rel_tol=1e-4), text


def test_sums_round_after_each_addition_on_every_python() -> None:
    assert added([0.1] * 10) == 0.9999999999999999  # math.fsum, and sum() since 3.12, say 1.0
    assert added([]) == 0.0


def test_a_number_is_read_with_what_it_is_of() -> None:
    assert read_number("500 GB/s") == (5e11, "byte/s")
    assert read_number("2x") == read_number("2 X") == (2.0, "x")
    assert read_number("9e11") == (9e11, "")
    assert read_number("+10%") == (10.0, "%")
    assert not any(read_number(text) for text in ("gb200", "8 foo", "", "2x4", "x", "1,5", "nan", "0x10"))


def test_numbers_without_a_unit() -> None:
    assert [plain_number(text) for text in (" 1,234,567.5 ", "-.5e3", "1.")] == [1234567.5, -500, 1]
    wrong = ("", ",", "1,5", "12,34", "1_000", "\uff12", "nan", "inf", "0x10", "1 2", ".")
    assert [plain_number(text) for text in wrong] == [None] * 11


def test_lengths_have_binary_prefixes() -> None:
    lengths = {"8192": 8192, "8k": 8192, "8.5k": 8704, "1m": 2**20, "8,192": 8192, "0": 0}
    assert {text: parse_length(text, "--isl") for text in lengths} == lengths
    for text in ("8kb", "-1k", "8k tokens", "", "8.3k", "1.5", "nan", "1e400", "9" * 5000, "8kk", "8g"):
        with pytest.raises(InputError, match=r"--isl: .* is not a length; write a whole number of tokens"):
            parse_length(text, "--isl")
