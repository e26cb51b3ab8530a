"""``amd-smi topology``, text or ``--json``, and ``rocm-smi --showtopo``: the GPUs of one host, all joined by xGMI.

So are those of an MI300X, MI325X or MI355X host. Where the driver reports bandwidths (``NUMA BW TABLE``, MB/s from
that of one link to that of all links between two GPUs), they give the rate and number of links. The type XGMI says
that a path runs over xGMI, not that it is one link: a weight is 15 a hop (the hops of rocm-smi are always 1), and a
link that is disabled carries nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from math import ceil
from typing import Annotated

from pydantic import BaseModel, Field

from topology.base.figures import Evidence, Figure
from topology.base.reading import shown
from topology.base.schema import CountOrZero, Name, validated
from topology.importers.found import Format, NodeFound, commonest, listed
from topology.importers.gpu_names import GpuName, product
from topology.importers.source import Source

_TITLE = re.compile(r"\s*=*\s*(?:LINK TYPE TABLE|Link Type between two GPUs)\s*:?\s*=*\s*", re.IGNORECASE)
_WEIGHTS = re.compile(r"\s*=*\s*(?:WEIGHT TABLE|Weight between two GPUs)\s*:?\s*=*\s*", re.IGNORECASE)
_STATUS = re.compile(r"\s*ACCESS TABLE\s*:?\s*", re.IGNORECASE)
_BANDWIDTHS = re.compile(r"\s*NUMA BW TABLE\s*:?\s*", re.IGNORECASE)
_OTHER = re.compile(r"\s*=*\s*(?:[A-Z ]+ TABLE|[A-Za-z ]{1,40} between two GPUs)\s*:?\s*=*\s*", re.IGNORECASE)
_GPU = re.compile(r"GPU\d{1,4}|[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]", re.IGNORECASE)
_PRODUCT = re.compile(r"\b(?:MARKET_NAME|Card Series)\s*:\s*(\S.*)", re.IGNORECASE)
_RANGE = re.compile(r"([1-9]\d{0,8})-([1-9]\d{0,8})")
_FUNCTION = re.compile(r"(.*:[0-9a-f]{2}:[0-9a-f]{2})\.[0-9a-f]", re.IGNORECASE)
_MOST_GPUS = 64
_MOST_PEERS = 7
"""Links of the GPU with most: an Instinct MI300X or MI350X has seven to others (AMD's data sheets)."""
_WEIGHT_OF_A_HOP = 15
"""https://github.com/ROCm/rocm-systems/issues/5763 and https://github.com/open-mpi/hwloc/issues/775"""
Pairs = dict[tuple[int, int], str]


@dataclass(frozen=True)
class _Tables:
    """What the tables of a host say of its devices, ``names``, and of each pair of them, as written."""

    names: list[str]
    types: Pairs
    bandwidths: Pairs
    weights: Pairs
    hops: Pairs
    status: Pairs


class _Link(BaseModel):
    gpu: CountOrZero
    link_type: Name | None = None
    link_status: Name | None = None
    weight: CountOrZero | Name | None = None
    num_hops: CountOrZero | Name | None = None
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
    tables = _json(source) if source.text.lstrip().startswith(("{", "[")) else _text(source)
    names, types = tables.names, tables.types
    for a, b in combinations(range(len(names)), 2):
        if types.get((a, b)) != "XGMI" or types.get((b, a)) != "XGMI":
            raise source.error(
                None,
                f"{names[a]} and {names[b]} are joined over {shown(types.get((a, b)))}, not XGMI as in an MI3xx "
                "host; describe such a host as a CSV of links.",
            )
    _check_whole(source, names)
    indirect, disabled = _apart(tables)
    links = [pair for pair in combinations(range(len(names)), 2) if pair not in {*indirect, *disabled}]
    if not links and disabled:
        raise source.error(None, "every link between two GPUs is disabled: no GPU reaches another over xGMI.")
    rate, counts, reading = _bandwidths(source, tables.bandwidths)
    gpus = tuple(f"GPU{i}" for i in range(len(names)))
    products = [product(match[1], "AMD") for match in map(_PRODUCT.search, source.lines) if match]
    source.anomalies += [
        f"{source.name}: the link between {gpus[a]} and {gpus[b]} is disabled: left out." for a, b in disabled
    ]
    if indirect:
        pairs = listed((f"{gpus[a]}-{gpus[b]} ({why})" for (a, b), why in indirect.items()), 4)
        reading += f" No link of their own: {pairs}."
    return NodeFound(
        gpus=gpus,
        chips=(),
        links=tuple((gpus[a], gpus[b], counts.get((a, b), 1)) for a, b in links),
        down=tuple((gpus[a], gpus[b], counts.get((a, b), 1)) for a, b in disabled),
        hidden=False,
        beyond=False,
        link_kind="xgmi",
        link_rate=rate,
        nics=(),
        sockets=("0",) * len(gpus),
        gpu_names=(GpuName("AMD's tool", "AMD"), *products),
        readings=(reading,),
    )


def _check_whole(source: Source, names: list[str]) -> None:
    """Refuse partitions of GPUs, which the tools list as devices of their own."""
    slots = [match[1] for match in map(_FUNCTION.fullmatch, names) if match]
    parts = len(set(slots)) < len(slots)
    if parts or len(names) > _MOST_PEERS + 1:
        why = (
            "several of one PCI device"
            if parts
            else f"and no GPU has links to more than {_MOST_PEERS} others"
        )
        raise source.error(
            None,
            f"lists {len(names)} devices that are all joined over xGMI, {why}: they are partitions (CPX, DPX or QPX "
            "mode), not whole GPUs. Run the tool where the GPUs are whole (SPX mode), or give a cluster file of the "
            "host's GPUs.",
        )


def _apart(tables: _Tables) -> tuple[Pairs, list[tuple[int, int]]]:
    """Return the pairs without a link of their own, with why, and those whose link is disabled."""
    indirect, disabled = Pairs(), list[tuple[int, int]]()
    for pair in combinations(range(len(tables.names)), 2):
        both = pair, pair[::-1]
        weights = [
            int(text) for text in map(tables.weights.get, both) if text is not None and text.isdecimal()
        ]
        steps = [int(text) for text in map(tables.hops.get, both) if text is not None and text.isdecimal()]
        hops = max([*steps, *(ceil(weight / _WEIGHT_OF_A_HOP) for weight in weights), 1])
        if any((tables.status.get(one) or "").upper() == "DISABLED" for one in both):
            disabled.append(pair)
        elif hops > 1:
            indirect[pair] = f"{hops} hops" + (f", weight {max(weights)}" if weights else "")
    return indirect, disabled


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


def _text(source: Source) -> _Tables:
    """Read the tables of the text."""
    names, types = _table(source, _TITLE)
    bandwidths, weights, status = (
        _table(source, title)[1] if any(map(title.fullmatch, source.lines)) else Pairs()
        for title in (_BANDWIDTHS, _WEIGHTS, _STATUS)
    )
    return _Tables(names, types, bandwidths, weights, Pairs(), status)


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


def _json(source: Source) -> _Tables:
    """Read the JSON, one row a GPU with its links to all."""
    data = {"gpu_data": source.data} if isinstance(source.data, list) else source.data
    rows = validated(_Dump, data, source.name).gpu_data
    place = {row.gpu: number for number, row in enumerate(rows)}
    names = [row.bdf or str(row.gpu) for row in rows]
    _check_names(source, names)
    cells = [
        ((a, place[link.gpu]), link) for a, row in enumerate(rows) for link in row.links if link.gpu in place
    ]

    def column(key: str) -> Pairs:
        return {pair: str(value) for pair, link in cells if (value := getattr(link, key)) is not None}

    return _Tables(names, *map(column, ("link_type", "bandwidth", "weight", "num_hops", "link_status")))


def _check_names(source: Source, names: list[str]) -> None:
    if len(set(names)) != len(names) or len(names) > _MOST_GPUS:
        raise source.error(None, f"must name at most {_MOST_GPUS} GPUs, each once.")


FORMAT = Format("amd-smi", parse_amd_smi, in_text=looks_like_amd_smi, in_data=is_amd_smi_json)
