"""Cells of a CSV of measurements: strictly read, in whichever spelling publications have."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NoReturn

from topology.errors import InputError
from topology.reading import nearest, read_text

_LONGEST_FILE_BYTES = 256_000_000
_LARGEST = 1e15
_SMALLEST = 1e-15
"""Of a measured figure: errors are divided by it."""


class Row:
    """The cells of one row; blank cells and ``-`` mean "not given"."""

    def __init__(self, cells: Mapping[str, str], where: str) -> None:
        self._cells = cells
        self.where = where

    def fail(self, column: str, problem: str) -> NoReturn:
        """Raise the error of this cell."""
        raise InputError(f"{self.where}, column {column}: {problem}")

    def text(self, column: str) -> str:
        """Return the text of a cell, "" where it is blank."""
        found = self._cells.get(column, "").strip()
        return "" if found in ("-", "\N{EN DASH}") else found

    def need(self, column: str) -> str:
        """Return the text of a cell that must not be blank."""
        found = self.text(column)
        if not found:
            self.fail(column, "it is blank; every row needs it.")
        return found

    def number(self, column: str, default: float = 0.0, *, most: float = _LARGEST) -> float:
        """Return a finite number from 0 to ``most``, ``default`` where the cell is blank."""
        text = self.text(column)
        if not text:
            return default
        try:
            value = float(text.replace(",", ""))
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or not 0 <= value <= most:
            limit = f"from 0 to {most:g}" if most < _LARGEST else "of 0 or more"
            self.fail(column, f"{text!r} must be a number {limit}, without a unit.")
        return value

    def figure(self, column: str) -> float:
        """Return a measured figure, 0 where the cell is blank or says so."""
        value = self.number(column)
        if 0 < value < _SMALLEST:
            self.fail(
                column, f"{self.text(column)!r} is too small for a measurement; the least is {_SMALLEST:g}."
            )
        return value

    def count(self, column: str, default: int = 0) -> int:
        """Return a whole number of 0 or more, ``default`` where the cell is blank."""
        value = self.number(column, float(default))
        if value != int(value):
            self.fail(column, f"{self.text(column)!r} must be a whole number.")
        return int(value)

    def positive(self, column: str) -> float:
        """Return a number above 0 that must be there."""
        self.need(column)
        value = self.figure(column)
        if value <= 0:
            self.fail(column, f"{self.text(column)!r} must be a number above 0, without a unit.")
        return value

    def named(self, column: str, names: Mapping[str, str], default: str = "") -> str:
        """Return the name that the cell spells (:func:`spellings`), ``default`` where it is blank."""
        return self.known(
            column,
            lambda text: names.get(_plain(text).replace("-", "_")),
            sorted(set(names.values())),
            default,
        )

    def flag(self, column: str) -> bool:
        """Return what a yes-or-no cell says, blank being no."""
        key = self.text(column).lower()
        if key not in _YES and key not in _NO:
            self.fail(column, f"{self.text(column)!r} must be yes or no.")
        return key in _YES

    def known(
        self, column: str, read: Callable[[str], str | None], names: Iterable[str], default: str
    ) -> str:
        """Return what ``read`` makes of the cell, ``default`` where it is blank."""
        text = self.text(column)
        if not text:
            return default
        found = read(text)
        if found is None:
            self.fail(column, f"unknown value {text!r}; {nearest(text, names)}")
        return found


def table_of(path: str | Path) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows of a CSV file; rows without any text are dropped.

    Raises
    ------
    InputError
        If it cannot be read, is not UTF-8 text, or has no header.
    """
    where = str(path)
    try:
        text = read_text(Path(path), where, most_bytes=_LONGEST_FILE_BYTES)
        table = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    except csv.Error as error:
        raise InputError(f"{where}: not a CSV file ({error}).") from None
    if not table or not any(cell.strip() for cell in table[0]):
        raise InputError(f"{where}: has no header line with the names of the columns.")
    return [cell.strip() for cell in table[0]], table[1:]


def rows_of(path: str | Path, header: Sequence[str], table: Sequence[Sequence[str]]) -> Iterator[Row]:
    """Yield the rows that are not empty, numbered as a spreadsheet numbers them (the header is row 1)."""
    for number, cells in enumerate(table, start=2):
        if not any(cell.strip() for cell in cells):
            continue
        where = f"{path}: row {number}"
        if len(cells) != len(header):
            raise InputError(
                f"{where}: {len(cells)} cells, but the header names {len(header)} columns; "
                "quote cells that hold commas."
            )
        yield Row(dict(zip(header, cells, strict=True)), where)


# How publications write models, chips, formats and yes or no, and what the catalog calls them.


def spellings(names: Mapping[str, str]) -> dict[str, str]:
    """Return the name of each spelling, from names and their other spellings (with spaces between)."""
    return {word: name for name, words in names.items() for word in (name, *words.split())}


_FORMATS = spellings(
    {
        "fp8": "fp8-block block-fp8 w8a8-fp8 e4m3",
        "nvfp4": "fp4 nv-fp4",
        "mxfp4": "",
        "mxfp8": "",
        "bf16": "bfloat16",
        "fp16": "float16",
        "fp32": "",
        "int8": "w8a8",
        "int4": "int4-wo w4a16 awq gptq",
    }
)
# Precisions at the end of a model's name tell the weights; the rest only what the weights were tuned for.
_PRECISION_SUFFIX = re.compile(
    r"-(nvfp4|mxfp4|mxfp8|fp4|fp8|bf16|awq|gptq|int4|int8|w4a16|w8a8)(-dynamic|-v\d+)?$"
)
_PLAIN_SUFFIX = re.compile(
    r"-(instruct|chat|base|hf|it|thinking|exp|terminus|block|preview|v0\.\d|\d{4}|\d+(\.\d+)?t|\d+e)$"
)
_MODEL_ALIASES = {
    "deepseek": "deepseek-v3",
    "deepseek-671b": "deepseek-v3",
    "deepseek-v3-671b": "deepseek-v3",
    "deepseek-r1-671b": "deepseek-r1",
    "deepseek-v3/r1": "deepseek-v3",
    "deepseek-v3-r1": "deepseek-v3",
    "deepseek-r1/v3": "deepseek-r1",
    "deepseek-r1-v3": "deepseek-r1",
    "dsv3": "deepseek-v3",
    "dsr1": "deepseek-r1",
    "dsv4-pro": "deepseek-v4-pro",
    "deepseek-v4": "deepseek-v4-pro",
    "gpt-oss": "gpt-oss-120b",
    "kimi": "kimi-k2",
}
_CHIP_CLUSTERS = spellings(
    {
        **{f"hgx-{chip}": chip for chip in ("h100", "h800", "h20", "h200", "b200", "b300")},
        "gb200-nvl72": "gb200",
        "gb300-nvl72": "gb300",
        "vr-nvl72": "rubin vr200",
        "mi300x": "",
        "mi325x": "",
        "mi355x": "",
        "helios-72": "mi455x",
        "cm384": "ascend-910c 910c cloudmatrix cloudmatrix384 cloudmatrix-384",
        "trn2-ultra": "trainium2 trn2",
        "tpu-v5p": "",
        "tpu-v6e": "",
        "tpu-v7": "",
    }
)
_CHIP_SUFFIX = re.compile(r"-(sxm\d?|nvl\d+(x\d+)?|hgx|dgx|\d+gb?|oam|pod|die|npu)$")
_CHIP_PREFIX = re.compile(r"^(nvidia|amd|huawei|google|hgx|dgx|geforce)-")


def _plain(text: str) -> str:
    """Lower case, words joined by single hyphens, remarks in brackets dropped."""
    text = re.sub(r"\([^)]*\)", " ", text.lower())
    return re.sub(r"[\s_]+", "-", text.strip()).strip("-")


@lru_cache(maxsize=512)
def model_name(text: str) -> tuple[str, str]:
    """Return the catalog name that ``text`` means, and the format of the weights that it names ("" for none).

    ``deepseek-ai/DeepSeek-R1`` is ``deepseek-r1``; ``nvidia/DeepSeek-R1-NVFP4`` is ``deepseek-r1`` with weights
    in ``nvfp4``. The path of a ``config.json``, and a name that the catalog does not know, come back as given.
    """
    from cost.resolve import model_names

    stripped = text.strip()
    if stripped.lower().endswith(".json"):
        return stripped, ""
    known = model_names()
    candidate, weights = _plain(stripped), ""
    if "/" in candidate and candidate not in _MODEL_ALIASES:
        candidate = _after_owner(candidate)
    while candidate:
        candidate = candidate.removeprefix("meta-") if candidate.startswith("meta-llama") else candidate
        if candidate in known:
            return candidate, weights
        if candidate in _MODEL_ALIASES:
            return _MODEL_ALIASES[candidate], weights
        precision = _PRECISION_SUFFIX.search(candidate)
        shorter = (precision or _PLAIN_SUFFIX.search(candidate)) and _shorten(candidate)
        if not shorter:
            break
        if precision:
            weights = _FORMATS[precision.group(1)]
        candidate = shorter
    return stripped, ""


def _after_owner(candidate: str) -> str:
    """Drop the owner of ``owner/model``; a second model after a slash (``deepseek-v3/r1``) is none."""
    owner, _, rest = candidate.partition("/")
    return f"{owner}/{rest}" if re.fullmatch(r"[vr]\d+", rest) else rest


def _shorten(candidate: str) -> str:
    shorter = _PRECISION_SUFFIX.sub("", candidate)
    return shorter if shorter != candidate else _PLAIN_SUFFIX.sub("", candidate)


@lru_cache(maxsize=256)
def cluster_name(text: str) -> tuple[str, int]:
    """Return the catalog name of the cluster or chip that ``text`` means, and the count after ``@`` (0 for none).

    ``H800``, ``hgx-h800``, ``h800_sxm`` and ``H800-80G`` are all ``hgx-h800``. The path of a cluster YAML, and a
    name that the catalog does not know, come back as given.
    """
    from topology.catalog import cluster_names

    stripped = text.strip()
    if stripped.lower().endswith((".yaml", ".yml")):
        return stripped, 0
    head, _, count = stripped.partition("@")
    gpus = int(count) if count.strip().isascii() and count.strip().isdigit() else 0
    candidate = _plain(head)
    known = cluster_names()
    while candidate:
        if candidate in known:
            return candidate, gpus
        if candidate in _CHIP_CLUSTERS:
            return _CHIP_CLUSTERS[candidate], gpus
        shorter = _CHIP_SUFFIX.sub("", candidate)
        shorter = shorter if shorter != candidate else _CHIP_PREFIX.sub("", candidate)
        if shorter == candidate:
            break
        candidate = shorter
    return head.strip(), gpus


def dtype_name(text: str) -> str | None:
    """Return the name that :mod:`cost.dtypes` has for a format; None where there is none."""
    from cost.dtypes import DTYPES

    key = _plain(text)
    if key in DTYPES or "*" in key:
        return key
    return _FORMATS.get(key)


_YES = frozenset({"yes", "y", "true", "t", "1", "on", "tbo", "dbo"})
_NO = frozenset({"", "no", "n", "false", "f", "0", "off", "none", "sbo"})
