"""Routed experts in the answers of servers: vLLM's and SGLang's JSON, a document or a line for each request."""

from __future__ import annotations

import base64
import binascii
import io
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cost.experts.traces.counts import Wanted
from cost.experts.traces.routing import RoutedTokens
from cost.experts.traces.text_files import MAX_BYTES, numbers, parse_document, parse_lines
from topology.base.errors import InputError, input_name, one_line
from topology.base.npy import load_npy
from topology.base.units import plural

KEY = "routed_experts"
_PROMPT = "prompt_routed_experts"
_NPY = b"\x93NUMPY"
_INTEGER = re.compile(r"u?int(8|16|32|64)|[<>|][iu][1248]")
"""Names of NumPy's integer types, which are little-endian where they do not say."""


def read_answers(path: Path, model: Wanted | None) -> RoutedTokens:
    """Open what servers returned for requests: a JSON document of an answer or a list of them, or a line for each.

    Read are ``routed_experts`` of each choice and ``prompt_routed_experts`` of an answer, ``[tokens, layers, k]``:
    nested lists (vLLM 0.21), the base64 of an ``.npy`` (vLLM from 0.22), ``{"data", "shape", "dtype"}`` with base64
    (Dynamo, prime-rl), or the base64 of bare int32 (SGLang, under ``meta_info`` or ``sgl_ext``: its shape is known
    from the model alone).
    """
    name = str(path)
    shapes = [array.shape for _, array in _arrays(path, model)]
    if not shapes:
        raise InputError(
            f"{name}: no {KEY!r} in its answers; serve with --enable-return-routed-experts (SGLang: ask with "
            "return_routed_experts too)."
        )
    rows, k = shapes[0][1:]

    def pieces() -> Iterator[NDArray[Any]]:
        for where, array in _arrays(path, model):
            if array.shape[1:] != (rows, k):
                raise InputError(f"{name}, {where}: {list(array.shape)}, and [tokens, {rows}, {k}] before.")
            yield array

    notes = (f"{plural(len(shapes), 'array')} of routed experts in its answers",)
    return RoutedTokens(
        name, "routed experts in answers", sum(shape[0] for shape in shapes), rows, k, pieces, notes=notes
    )


def _arrays(path: Path, model: Wanted | None) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield the place and the array of everything routed in a file that has some tokens."""
    for where, answer in _answers(path):
        for inner, value in _values(answer):
            if value is None:
                continue
            at = f"{where}{inner}"
            array = _decoded(f"{path}, {at}", value, model)
            if array.shape[0]:
                yield at, array


def _answers(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield the place and the value of each answer."""
    if path.suffix.lower() == ".json" and not _has_lines(path):
        document = parse_document(path, "a line for each answer (.jsonl), or an .npy")
        answers = document if isinstance(document, list) else [document]
        yield from ((f"answer {i}, " if len(answers) > 1 else "", value) for i, value in enumerate(answers))
        return
    yield from ((f"{line}, ", answer) for line, answer in parse_lines(path))


def _has_lines(path: Path) -> bool:
    """Whether a ``.json`` holds an object on its first line and more lines after it."""
    with path.open("rb") as file:
        return file.readline(MAX_BYTES + 1).rstrip().endswith(b"}") and bool(file.read(1))


def _values(answer: Any) -> Iterator[tuple[str, Any]]:
    """Yield every value that holds routed experts in one answer, with its place."""
    if not isinstance(answer, dict):
        return
    for key in (_PROMPT, KEY):
        if key in answer:
            yield key, answer[key]
    for key in ("meta_info", "sgl_ext"):
        inner = answer.get(key)
        if isinstance(inner, dict) and KEY in inner:
            yield f"{key}.{KEY}", inner[KEY]
    for key in ("choices", "outputs"):
        parts = answer.get(key)
        for i, part in enumerate(parts if isinstance(parts, list) else []):
            yield from ((f"{key}[{i}].{where}", value) for where, value in _values(part))


def _decoded(where: str, value: Any, model: Wanted | None) -> NDArray[Any]:
    """Return ``[tokens, layers, k]`` whole numbers."""
    if isinstance(value, str):
        raw = _bytes(where, value)
        array = load_npy(io.BytesIO(raw), where) if raw.startswith(_NPY) else _bare(where, raw, model)
    elif isinstance(value, dict):
        array = _shaped(where, value)
    else:
        array = numbers(where, KEY, value)
        if not array.size:
            return np.zeros((0, 1, 1), dtype=np.int64)
    if array.ndim != 3 or array.dtype.kind not in "iu":
        raise InputError(f"{where}: {array.dtype} {list(array.shape)}, not integers [tokens, layers, k].")
    return array


def _bytes(where: str, text: object) -> bytes:
    try:
        return base64.b64decode(str(text), validate=True)
    except (binascii.Error, ValueError) as error:
        raise InputError(f"{where}: not base64 ({one_line(error)}).") from error


def _bare(where: str, raw: bytes, model: Wanted | None) -> NDArray[Any]:
    """Return SGLang's flat int32 in the shape of the model."""
    if model is None or not model.top_k:
        raise InputError(
            f"{where}: ids without a shape, as SGLang returns them; give the model ({input_name('model')})."
        )
    for layers in (model.layers, len(model.moe_layers)):
        if len(raw) % (4 * layers * model.top_k) == 0:
            return np.frombuffer(raw, dtype="<i4").reshape(-1, layers, model.top_k)
    raise InputError(
        f"{where}: {len(raw):,} bytes are no int32 [tokens, {model.layers}, {model.top_k}]; is it from "
        "another model?"
    )


def _shaped(where: str, value: dict[str, Any]) -> NDArray[Any]:
    shape, dtype = value.get("shape"), value.get("dtype")
    if not isinstance(shape, list) or len(shape) != 3 or any(type(n) is not int or n < 0 for n in shape):
        raise InputError(f"{where}: its shape is {str(shape)[:40]}, not [tokens, layers, k].")
    raw = _bytes(where, value.get("data"))
    size = math.prod(shape)
    if dtype is None and size and len(raw) // size in {1, 2, 4, 8}:
        dtype = f"uint{8 * (len(raw) // size)}" if len(raw) == size else f"int{8 * (len(raw) // size)}"
    if _INTEGER.fullmatch(str(dtype)) is None:
        raise InputError(f"{where}: its dtype is {str(dtype)[:40]}, not an integer type.")
    number_type = np.dtype(str(dtype))
    number_type = number_type if str(dtype)[0] == ">" else number_type.newbyteorder("<")
    if len(raw) != size * number_type.itemsize:
        raise InputError(f"{where}: {len(raw):,} bytes for {shape} of {dtype}; the file is truncated.")
    if not size:  # beside a length of 0 another may be larger than an array can have
        return np.zeros((0, 1, 1), dtype=number_type)
    return np.frombuffer(raw, dtype=number_type).reshape(shape)
