"""Cells of a CSV of measurements: strictly read, in whichever spelling publications have."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from topology.errors import InputError
from topology.reading import Fields, nearest, read_text, shown

_LONGEST_FILE_BYTES = 256_000_000
_LARGEST = 1e15
_SMALLEST = 1e-15
"""Of a measured figure: errors are divided by it."""


class Row(Fields):
    """The cells of one row; blank cells and ``-`` are absent, figures are read from their text."""

    most = 1_000_000_000

    def __init__(self, cells: Mapping[str, str], where: str) -> None:
        texts = {column: cell.strip() for column, cell in cells.items()}
        given = {column: text for column, text in texts.items() if text not in ("", "-", "\N{EN DASH}")}
        super().__init__(given, where)

    def at(self, key: str) -> str:
        """Return the place of a cell, for messages."""
        return f"{self.where}, column {key}"

    def need(self, key: str) -> str:
        """Return the text of a cell that must not be blank."""
        if key not in self:
            self.fail(key, "it is blank; every row needs it.")
        return str(self.data[key])

    def figure_of(self, key: str) -> object:
        """Return the number that a cell spells; its text where it spells none."""
        text = self.need(key)
        try:
            value = float(text.replace(",", ""))
        except ValueError:
            return text
        return int(value) if value.is_integer() else value

    def text(self, key: str, default: str | None = "") -> str:
        """Return the text of a cell, of several lines too; by default "" where it is blank."""
        return self.need(key) if default is None or key in self else default

    def number(
        self,
        key: str,
        default: float | None = 0.0,
        *,
        least: float | None = 0.0,
        most: float = _LARGEST,
    ) -> float:
        """Return a number from 0 to ``most``, by default 0 where the cell is blank."""
        return super().number(key, default, least=least, most=most)

    def figure(self, key: str) -> float:
        """Return a measured figure, 0 where the cell is blank or says so."""
        value = self.number(key)
        if 0 < value < _SMALLEST:
            self.fail(key, f"{self.text(key)!r} is too small for a measurement; the least is {_SMALLEST:g}.")
        return value

    def count(self, key: str, default: int | None = 0, *, least: int = 0, most: int | None = None) -> int:
        """Return a whole number, by default 0 where the cell is blank."""
        return super().count(key, default, least=least, most=most)

    def positive(self, key: str) -> float:
        """Return a number above 0 that must be there."""
        self.number(key, None, least=None)
        return self.figure(key)

    def named(self, key: str, names: Mapping[str, str], default: str = "") -> str:
        """Return the name that the cell spells (:func:`spellings`), ``default`` where it is blank."""
        return self.known(
            key, lambda text: names.get(_plain(text).replace("-", "_")), sorted(set(names.values())), default
        )

    def flag(self, key: str, default: bool | None = False) -> bool:
        """Return what a yes-or-no cell says, blank being no."""
        if key not in self:
            return bool(default)
        word = self.text(key).lower()
        if word not in _YES and word not in _NO:
            self.must_be(key, "yes or no")
        return word in _YES

    def known(self, key: str, read: Callable[[str], str | None], names: Iterable[str], default: str) -> str:
        """Return what ``read`` makes of the cell, ``default`` where it is blank."""
        text = self.text(key)
        if not text:
            return default
        found = read(text)
        if found is None:
            self.fail(key, f"unknown value {shown(text)}; {nearest(text, names)}")
        return found


@dataclass(frozen=True)
class Table:
    """A CSV file: the names of its columns, and its cells."""

    path: str | Path
    header: tuple[str, ...]
    cells: Sequence[Sequence[str]]

    @classmethod
    def read(cls, path: str | Path) -> Table:
        """Read a CSV file.

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
        return cls(path, tuple(cell.strip() for cell in table[0]), table[1:])

    def rows(self, needed: Sequence[str] = ()) -> Iterator[Row]:
        """Yield the rows that are not empty, numbered as a spreadsheet numbers them (the header is row 1).

        Raises
        ------
        InputError
            If a ``needed`` column is missing, or a row has more or fewer cells than the header.
        """
        for name in needed:
            if name not in self.header:
                raise InputError(
                    f"{self.path}: the column {name} is missing; such a file has {', '.join(needed)}."
                )
        for number, cells in enumerate(self.cells, start=2):
            if not any(cell.strip() for cell in cells):
                continue
            where = f"{self.path}: row {number}"
            if len(cells) != len(self.header):
                raise InputError(
                    f"{where}: {len(cells)} cells, but the header names {len(self.header)} columns; "
                    "quote cells that hold commas."
                )
            yield Row(dict(zip(self.header, cells, strict=True)), where)


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
    gpus = int(count) if re.fullmatch(r"\s*[0-9]{1,9}\s*", count) else 0
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
_NO = frozenset({"no", "n", "false", "f", "0", "off", "none", "sbo"})
