"""YAML, JSON and arrays of other people: what is refused, in which words, and how each face says them."""

from __future__ import annotations

import io
import math
import pickle
import tracemalloc
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from rackplan.requests import flag_of
from topology.base.errors import InfeasibleError, InputError, RackplanError, input_name
from topology.base.npy import load_npy
from topology.base.reading import load_yaml, parse_json, parse_yaml
from topology.base.schema import Count, Flag, Kind, Name, Positive, Spec, Text, keyword_spec, validated


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"a": 1, "b": 2, "c": {}, "b": 3, "a": 4}', "x: a: duplicate key; keep one of them."),
        ("[NaN]", "x: 0: NaN is not a JSON number."),
        ("[1e999]", "x: 0: infinite or too large for a number."),
        ("[" + "9" * 5000 + "]", "not valid JSON (Exceeds the limit"),
        ('{\n"a": 1,,}', "x: line 2: column 8: not valid JSON"),
        ("", "(is the file truncated?)"),
    ],
)
def test_json_that_is_refused(text: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_json(text, "x")
    assert words in str(caught.value)


def test_json_that_is_read() -> None:
    assert parse_json('{"a": 1, "b": {"a": [2.5, null, "x"]}}', "x") == {"a": 1, "b": {"a": [2.5, None, "x"]}}
    assert parse_json("[Infinity, 1e999]", "x", infinite=True) == [math.inf, math.inf]
    with pytest.raises(InputError, match="NaN"):
        parse_json("[NaN]", "x", infinite=True)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: 1\nb: {c: 1, c: 2}", "x: line 2: duplicate key 'c'."),
        ("a: !!python/object:os.system x", "YAML tag"),
        ("a: 1\nb: [07, 08]", "x: line 2: YAML reads 07 as octal; quote it if it is a name"),
        ("a: 1:30", "YAML reads 1:30 in base 60"),
        ("[" * 100, "is nested more than 64 levels deep"),
        ("a: 1\n---\nb: 2", "not valid YAML"),
    ],
)
def test_yaml_that_is_refused(text: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_yaml(text, "x")
    assert words in str(caught.value)


def test_yaml_that_is_as_it_looks() -> None:
    text = "[0, 10, 0x10, 1_000, 08, '07', \"1:30\", a:1, 0.5, '<<', 192.168.0.1:80]"
    assert parse_yaml(text, "x") == [0, 10, 16, 1000, "08", "07", "1:30", "a:1", 0.5, "<<", "192.168.0.1:80"]


def test_files_that_cannot_be_read(tmp_path: Any) -> None:
    with pytest.raises(InputError, match=r"^x: cannot read it \(No such file"):
        load_yaml(tmp_path / "none.yaml", "x")
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match=r"^x: is not UTF-8 text"):
        load_yaml(tmp_path / "bytes.yaml", "x")


VALUES: list[tuple[Any, object, str]] = [
    (Text, 3, "x: 3 must be text."),
    (Name, "a\x1b[2Jb", "must be text without control characters."),
    (tuple[Name, ...], ["a", "b\n."], "must be text without control characters."),
    (tuple[Text, ...], 1, "x: 1 must be a list."),
    (Count, 0, "x: 0 must be a whole number from 1 to 1000000."),
    (Count, True, "x: True must be a whole number"),
    (Positive, 0, "x: 0 must be a number greater than zero."),
    (Positive, 10**400, "must be a number greater than zero."),
    (Positive, "5GB", "must be a number greater than zero, without a unit."),
    (Flag, 1, "x: 1 must be true or false."),
    (dict[str, int], [1], "x: [1] must be a mapping of keys to values."),
    (Kind, "mesured", "x: 'mesured' is not a kind of evidence; did you mean measured"),
]


@pytest.mark.parametrize(("kind", "value", "words"), VALUES)
def test_a_value_of_the_wrong_type(kind: Any, value: object, words: str) -> None:
    with pytest.raises(InputError) as caught:
        validated(kind, value, "x")
    assert words in str(caught.value)
    assert len(str(caught.value)) < 200


@keyword_spec
class Host(Spec):
    gpus_per_node: Count
    kind: Literal["a", "b"] = "a"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"gpus_per_nod": 4}, "x: unknown key `gpus_per_nod`; did you mean gpus_per_node?"),
        ({"kind": "a"}, "x: needs the key `gpus_per_node`."),
        ({"gpus_per_node": None}, "x: needs the key `gpus_per_node`."),
        ({"gpus_per_node": "4"}, "x: gpus_per_node: '4' must be a whole number from 1 to 1000000."),
        ({"gpus_per_node": 4, "kind": "c"}, "x: kind: 'c' must be 'a' or 'b'."),
        ([4], "x: [4] must be a mapping of keys to values."),
    ],
)
def test_keys_that_are_wrong(data: object, words: str) -> None:
    with pytest.raises(InputError) as caught:
        validated(Host, data, "x")
    assert str(caught.value) == words


ARRAY = np.arange(24.0).reshape(2, 3, 4)


def with_header(text: str, data: bytes = bytes(8)) -> bytes:
    header = text.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + data


@pytest.mark.parametrize("values", [ARRAY, ARRAY.T, ARRAY.astype(">i4"), ARRAY[:0], np.array(3)])
def test_what_was_saved_is_read(tmp_path: Path, values: np.ndarray) -> None:
    np.save(tmp_path / "x.npy", values)
    for read in (
        load_npy(tmp_path / "x.npy", "x"),
        load_npy(io.BytesIO((tmp_path / "x.npy").read_bytes()), "x"),
    ):
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
