"""``amd-smi topology``, text or ``--json``, and ``rocm-smi --showtopo``: the GPUs of one host, all joined by xGMI.

So are those of an MI300X, MI325X or MI355X host; how many links join two of them is the catalog's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import combinations

from topology.base.reading import Fields, shown
from topology.importers.found import Format, NodeFound
from topology.importers.source import Source

_TITLE = re.compile(r"\s*=*\s*(?:LINK TYPE TABLE|Link Type between two GPUs)\s*:?\s*=*\s*", re.IGNORECASE)
_OTHER = re.compile(r"\s*=*\s*(?:[A-Z ]+ TABLE|[A-Za-z ]{1,40} between two GPUs)\s*:?\s*=*\s*", re.IGNORECASE)
_GPU = re.compile(r"GPU\d{1,4}|[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]", re.IGNORECASE)
_MOST_GPUS = 64
Pairs = dict[tuple[int, int], str]


def looks_like_amd_smi(text: str) -> bool:
    """Whether a text has a table of ``amd-smi topology`` or ``rocm-smi --showtopo``."""
    return any(_OTHER.fullmatch(line) for line in text.split("\n") if len(line) < 200)


def is_amd_smi_json(data: object) -> bool:
    """Whether data are the JSON of ``amd-smi topology``."""
    rows = data.get("gpu_data") if isinstance(data, dict) else data
    first = rows[0] if isinstance(rows, list) and rows else None
    return isinstance(first, dict) and "gpu" in first and isinstance(first.get("links"), list)


def read_amd_smi(source: Source) -> NodeFound:
    """Return the inside of the host that the table is of.

    Raises
    ------
    InputError
        If there is no table of link types, it is cut, or two of the GPUs are not joined by xGMI.
    """
    names, types = _json(source) if source.text.lstrip().startswith(("{", "[")) else _text(source)
    for a, b in combinations(range(len(names)), 2):
        if types.get((a, b)) != "XGMI" or types.get((b, a)) != "XGMI":
            raise source.error(
                None,
                f"{names[a]} and {names[b]} are joined over {shown(types.get((a, b)))}, not XGMI as in an MI3xx "
                "host; give such a host as a CSV of links.",
            )
    gpus = tuple(f"GPU{i}" for i in range(len(names)))
    return NodeFound(
        gpus=gpus,
        chips=(),
        links=tuple((a, b, 1) for a, b in combinations(gpus, 2)),
        hidden=False,
        beyond=False,
        link_kind="xgmi",
        nics=(),
        sockets=("0",) * len(gpus),
    )


def _text(source: Source) -> tuple[list[str], Pairs]:
    """Read the table of link types of a text."""
    lines = iter(enumerate(source.lines, 1))
    start = next((number for number, line in lines if _TITLE.fullmatch(line)), None)
    if start is None:
        raise source.error(None, "has no table of link types: run `amd-smi topology` without options.")
    number, columns = next(_words(lines), (start, []))
    if not columns or not all(_GPU.fullmatch(word) for word in columns):
        raise source.error(number, "must name the GPUs of the table's columns.")
    _check_names(source, columns)
    types: Pairs = {}
    for a, name in enumerate(columns):
        number, cells = next(_words(lines), (number, []))
        if cells[:1] != [name] or len(cells) != len(columns) + 1:
            raise source.error(
                number, f"must be the row of {name}, with {len(columns)} cells; is the file cut?"
            )
        types.update({(a, b): cell for b, cell in enumerate(cells[1:])})
    return columns, types


def _words(lines: Iterator[tuple[int, str]]) -> Iterator[tuple[int, list[str]]]:
    return ((number, line.split()) for number, line in lines if line.strip())


def _json(source: Source) -> tuple[list[str], Pairs]:
    """Read the JSON, one row a GPU with its links to all."""
    data = source.data
    rows = Fields({"gpu_data": data} if isinstance(data, list) else data, source.name).subs("gpu_data")
    place = {row.count("gpu", least=0): number for number, row in enumerate(rows)}
    names = [row.name("bdf") if row.has("bdf") else row.name("gpu") for row in rows]
    _check_names(source, names)
    types: Pairs = {}
    for a, row in enumerate(rows):
        for link in row.subs("links"):
            b = place.get(link.count("gpu", least=0))
            if b is not None and link.has("link_type"):
                types[a, b] = link.name("link_type")
    return names, types


def _check_names(source: Source, names: list[str]) -> None:
    if len(set(names)) != len(names) or len(names) > _MOST_GPUS:
        raise source.error(None, f"must name at most {_MOST_GPUS} GPUs, each once.")


FORMAT = Format("amd-smi", read_amd_smi, in_text=looks_like_amd_smi, in_data=is_amd_smi_json)
