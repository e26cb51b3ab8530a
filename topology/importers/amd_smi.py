"""``amd-smi topology``, text or ``--json``, and ``rocm-smi --showtopo``: the GPUs of one host, all joined by xGMI.

So are those of an MI300X, MI325X or MI355X host. Where the driver reports bandwidths (``NUMA BW TABLE``, MB/s from
that of one link to that of all links between two GPUs), they give the rate and number of links.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import combinations
from typing import Annotated

from pydantic import BaseModel, Field

from topology.base.figures import Evidence, Figure
from topology.base.reading import shown
from topology.base.schema import CountOrZero, Name, validated
from topology.importers.found import Format, NodeFound, commonest
from topology.importers.gpu_names import GpuName, product
from topology.importers.source import Source

_TITLE = re.compile(r"\s*=*\s*(?:LINK TYPE TABLE|Link Type between two GPUs)\s*:?\s*=*\s*", re.IGNORECASE)
_BANDWIDTHS = re.compile(r"\s*NUMA BW TABLE\s*:?\s*", re.IGNORECASE)
_OTHER = re.compile(r"\s*=*\s*(?:[A-Z ]+ TABLE|[A-Za-z ]{1,40} between two GPUs)\s*:?\s*=*\s*", re.IGNORECASE)
_GPU = re.compile(r"GPU\d{1,4}|[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]", re.IGNORECASE)
_PRODUCT = re.compile(r"\b(?:MARKET_NAME|Card Series)\s*:\s*(\S.*)", re.IGNORECASE)
_RANGE = re.compile(r"([1-9]\d{0,8})-([1-9]\d{0,8})")
_MOST_GPUS = 64
Pairs = dict[tuple[int, int], str]


class _Link(BaseModel):
    gpu: CountOrZero
    link_type: Name | None = None
    bandwidth: Name | None = None


class _Gpu(BaseModel):
    gpu: CountOrZero
    bdf: Name | None = None
    links: Annotated[list[_Link], Field(min_length=1)]


class _Dump(BaseModel):
    gpu_data: Annotated[list[_Gpu], Field(min_length=1)]


def looks_like_amd_smi(text: str) -> bool:
    """Whether a text has a table of ``amd-smi topology`` or ``rocm-smi --showtopo``."""
    return any(_OTHER.fullmatch(line) for line in text.split("\n") if len(line) < 200)


def is_amd_smi_json(data: object) -> bool:
    """Whether data are the JSON of ``amd-smi topology``."""
    rows = data.get("gpu_data") if isinstance(data, dict) else data
    first = rows[0] if isinstance(rows, list) and rows else None
    return isinstance(first, dict) and "gpu" in first and isinstance(first.get("links"), list)


def parse_amd_smi(source: Source) -> NodeFound:
    """Return the inside of the host that the table is of."""
    if source.text.lstrip().startswith(("{", "[")):
        names, types, ranges = _json(source)
    else:
        names, types = _table(source, _TITLE)
        ranges = dict[tuple[int, int], str]()
        if any(_BANDWIDTHS.fullmatch(line) for line in source.lines):
            _, ranges = _table(source, _BANDWIDTHS)
    for a, b in combinations(range(len(names)), 2):
        if types.get((a, b)) != "XGMI" or types.get((b, a)) != "XGMI":
            raise source.error(
                None,
                f"{names[a]} and {names[b]} are joined over {shown(types.get((a, b)))}, not XGMI as in an MI3xx "
                "host; describe such a host as a CSV of links.",
            )
    rate, counts, reading = _bandwidths(source, ranges)
    gpus = tuple(f"GPU{i}" for i in range(len(names)))
    products = [product(match[1], "AMD") for match in map(_PRODUCT.search, source.lines) if match]
    return NodeFound(
        gpus=gpus,
        chips=(),
        links=tuple((gpus[a], gpus[b], counts.get((a, b), 1)) for a, b in combinations(range(len(gpus)), 2)),
        hidden=False,
        beyond=False,
        link_kind="xgmi",
        link_rate=rate,
        nics=(),
        sockets=("0",) * len(gpus),
        gpu_names=(GpuName("AMD's tool", "AMD"), *products),
        readings=(reading,),
    )


def _bandwidths(source: Source, ranges: Pairs) -> tuple[Figure | None, dict[tuple[int, int], int], str]:
    """Return the rate of one link, the number of links between two GPUs, and how they were read."""
    found = {pair: match for pair, cell in ranges.items() if (match := _RANGE.fullmatch(cell))}
    one = commonest(int(match[1]) for match in found.values())
    if one is None:
        return None, {}, f"{source.name}: no bandwidths given, so links and rates are from the catalog."
    figure = Figure(one * 1e6, "byte/s", Evidence.MEASURED, source.name, f"{one / 1e3:g} GB/s")
    counts = {pair: max(1, round(int(match[2]) / int(match[1]))) for pair, match in found.items()}
    most = commonest(counts.values())
    return figure, counts, f"{source.name}: {figure.text} a link each way, {most} between two GPUs."


def _table(source: Source, title: re.Pattern[str]) -> tuple[list[str], Pairs]:
    """Read the table below a title."""
    lines = iter(enumerate(source.lines, 1))
    start = next((number for number, line in lines if title.fullmatch(line)), None)
    if start is None:
        raise source.error(None, "has no table of link types; run `amd-smi topology` without options.")
    number, columns = next(_words(lines), (start, []))
    if not columns or not all(_GPU.fullmatch(word) for word in columns):
        raise source.error(number, "must name the GPUs of the table's columns.")
    _check_names(source, columns)
    cells: Pairs = {}
    for a, name in enumerate(columns):
        number, words = next(_words(lines), (number, []))
        if words[:1] != [name] or len(words) != len(columns) + 1:
            raise source.error(
                number, f"must be the row of {name}, with {len(columns)} cells; is the file truncated?"
            )
        cells.update({(a, b): cell for b, cell in enumerate(words[1:])})
    return columns, cells


def _words(lines: Iterator[tuple[int, str]]) -> Iterator[tuple[int, list[str]]]:
    return ((number, line.split()) for number, line in lines if line.strip())


def _json(source: Source) -> tuple[list[str], Pairs, Pairs]:
    """Read the JSON, one row a GPU with its links to all: GPUs, and types and bandwidths of links."""
    data = {"gpu_data": source.data} if isinstance(source.data, list) else source.data
    rows = validated(_Dump, data, source.name).gpu_data
    place = {row.gpu: number for number, row in enumerate(rows)}
    names = [row.bdf or str(row.gpu) for row in rows]
    _check_names(source, names)
    types, ranges = Pairs(), Pairs()
    for a, row in enumerate(rows):
        for link in row.links:
            b = place.get(link.gpu)
            if b is not None and link.link_type is not None:
                types[a, b] = link.link_type
            if b is not None and link.bandwidth is not None:
                ranges[a, b] = link.bandwidth
    return names, types, ranges


def _check_names(source: Source, names: list[str]) -> None:
    if len(set(names)) != len(names) or len(names) > _MOST_GPUS:
        raise source.error(None, f"must name at most {_MOST_GPUS} GPUs, each once.")


FORMAT = Format("amd-smi", parse_amd_smi, in_text=looks_like_amd_smi, in_data=is_amd_smi_json)
