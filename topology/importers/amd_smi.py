"""``amd-smi topology``, text or ``--json``, and ``rocm-smi --showtopo``: how the GPUs of one host reach each other.

AMD's driver gives every pair of GPUs that reach each other over xGMI one hop, whether directly or through others:
the weight tells them apart (15 a step). The bandwidth of a pair goes from that of its narrowest link to that of all
its links, so their ratio is how many join direct neighbours (MI250X: 1, 2 or 4).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations

from networkx.utils import UnionFind

from topology.importers.found import Format, NodeFound, commonest
from topology.importers.source import Source
from topology.reading import Fields, shown
from topology.units import plural

_TITLES = {
    r"ACCESS TABLE": "access",
    r"WEIGHT TABLE|Weight between two GPUs": "weight",
    r"HOPS TABLE|Hops between two GPUs": "hops",
    r"LINK TYPE TABLE|Link Type between two GPUs": "type",
    r"NUMA BW TABLE|Bandwidth between two GPUs": "bandwidth",
}
_TITLE = re.compile(
    r"\s*+=*+\s*+([A-Za-z][A-Za-z -]{,60}?(?: TABLE(?=:)| between two GPUs))\s*+:?\s*+=*+\s*+"
)
_GPU = re.compile(r"GPU\d{1,4}|[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]", re.IGNORECASE)
_NUMA = re.compile(r"\s*GPU\[(\d{1,4})\]\s*:\s*\(Topology\) Numa Node:\s*(\d{1,4})\s*")
_KEYS = {
    "link_status": "access",
    "weight": "weight",
    "num_hops": "hops",
    "link_type": "type",
    "bandwidth": "bandwidth",
}
_TYPES = ("XGMI", "PCIE", "N/A", "UNKNOWN")
_WITHIN_SOCKET = 2
"""Hops between two GPUs of one socket over PCIe: up to it and down."""
_MOST_GPUS = 512
Pair = tuple[int, int]


@dataclass
class _Matrix:
    """GPUs as the file calls them, and what each of its tables says of each two, by their positions."""

    names: list[str]
    cells: dict[str, dict[Pair, str]] = field(default_factory=dict)
    numa: dict[int, str] = field(default_factory=dict)

    def number(self, table: str, pair: Pair) -> int | None:
        """Return a whole number of a table, None where it has none."""
        text = self.cells.get(table, {}).get(pair, "")
        return int(text) if re.fullmatch(r"\d{1,9}", text) else None


def looks_like_amd_smi(text: str) -> bool:
    """Whether a text has a table of ``amd-smi topology`` or ``rocm-smi --showtopo``."""
    return any(_table(line) for line in text.split("\n"))


def is_amd_smi_json(data: object) -> bool:
    """Whether data are the JSON of ``amd-smi topology``."""
    rows = data.get("gpu_data") if isinstance(data, dict) else data
    first = rows[0] if isinstance(rows, list) and rows else None
    return isinstance(first, dict) and "gpu" in first and isinstance(first.get("links"), list)


def read_amd_smi(source: Source) -> NodeFound:
    """Return the inside of the host that the tables are of.

    Raises
    ------
    InputError
        If a table is cut or contradicts itself, or there is none of link types.
    """
    matrix = _json(source) if source.text.lstrip().startswith(("{", "[")) else _text(source)
    _check(source, matrix)
    pairs = list(combinations(range(len(matrix.names)), 2))
    xgmi = [pair for pair in pairs if matrix.cells["type"][pair] == "XGMI"]
    direct = _direct(matrix, xgmi)
    counts = {pair: _links(matrix, pair) for pair in direct}
    _tell(source, matrix, xgmi, direct, counts)
    gpus = tuple(f"GPU{i}" for i in range(len(matrix.names)))
    return NodeFound(
        gpus=gpus,
        chips=(),
        links=tuple((gpus[a], gpus[b], count) for (a, b), count in counts.items()),
        hidden=False,
        beyond=False,
        link_kind="xgmi" if counts else "pcie",
        nics=(),
        sockets=_sockets(matrix, pairs),
    )


def _table(line: str) -> str | None:
    """Return which table a line is the title of."""
    match = _TITLE.fullmatch(line)
    if match is None:
        return None
    return next((name for words, name in _TITLES.items() if re.fullmatch(words, match[1], re.IGNORECASE)), "")


def _text(source: Source) -> _Matrix:
    """Read the tables of a text."""
    matrix: _Matrix | None = None
    numa: dict[int, str] = {}
    table: str | None = None
    columns: list[str] = []
    rows: set[str] = set()
    start = 0

    def close() -> None:
        if table and len(rows) != len(columns):
            missing = next((name for name in columns if name not in rows), "all")
            raise source.error(start, f"the table has no row of {missing}; is the file cut?")

    for number, line in enumerate(source.lines, 1):
        if (title := _table(line)) is not None:
            close()
            table, columns, rows, start = title, [], set(), number
        elif match := _NUMA.fullmatch(line):
            numa[int(match[1])] = match[2]
        elif table and line.strip():
            words = line.split()
            if not columns:
                if not all(_GPU.fullmatch(word) for word in words):
                    raise source.error(
                        number, f"must name the GPUs of the table's columns, not {shown(line.strip())}."
                    )
                columns = words
                _check_names(source, number, columns, matrix)
                matrix = matrix or _Matrix(columns)
            elif _GPU.fullmatch(words[0]) and matrix is not None:
                _add_row(source, number, table, words, columns, rows, matrix)
            else:
                close()
                table = None
    close()
    if matrix is None:
        raise source.error(None, "has no table of GPUs.")
    matrix.numa = numa
    return matrix


def _check_names(source: Source, number: int, columns: list[str], matrix: _Matrix | None) -> None:
    if len(set(columns)) != len(columns) or len(columns) > _MOST_GPUS:
        raise source.error(
            number, "names a GPU twice." if len(columns) <= _MOST_GPUS else "has too many GPUs."
        )
    if matrix is not None and columns != matrix.names:
        raise source.error(number, "has other GPUs than the table before.")


def _add_row(
    source: Source,
    number: int,
    table: str,
    words: list[str],
    columns: list[str],
    rows: set[str],
    matrix: _Matrix,
) -> None:
    """Read one row of a table."""
    name, cells = words[0], words[1:]
    if name not in columns or name in rows:
        raise source.error(
            number, f"{name} is {'there twice' if name in rows else 'no column of the table'}."
        )
    if len(cells) != len(columns):
        raise source.error(number, f"{name} has {len(cells)} cells for {len(columns)} GPUs; is the file cut?")
    rows.add(name)
    a = columns.index(name)
    matrix.cells.setdefault(table, {}).update({(a, b): cell for b, cell in enumerate(cells)})


def _json(source: Source) -> _Matrix:
    """Read the JSON, one row a GPU with its links to all."""
    data = source.data
    holder = Fields({"gpus": data}, source.name) if isinstance(data, list) else source.fields()
    rows = holder.subs("gpus" if isinstance(data, list) else "gpu_data")
    if len(rows) > _MOST_GPUS:
        raise source.error(None, "has too many GPUs.")
    place = {row.count("gpu", least=0): number for number, row in enumerate(rows)}
    if len(place) != len(rows):
        raise source.error(None, "names a GPU twice.")
    matrix = _Matrix([row.name("bdf") if row.has("bdf") else row.name("gpu") for row in rows])
    for a, row in enumerate(rows):
        for key in ("numa_node", "numa"):
            if row.has(key):
                matrix.numa[a] = row.name(key)
        links = row.subs("links")
        if len(links) != len(rows):
            raise source.error(None, f"{row.where} has {len(links)} links for {len(rows)} GPUs; is it cut?")
        for link in links:
            number = link.count("gpu", least=0)
            if number not in place:
                raise source.error(None, f"{link.where}: gpu {number} is not among the GPUs.")
            for key, table in _KEYS.items():
                if link.has(key):
                    matrix.cells.setdefault(table, {})[a, place[number]] = link.name(key)
    return matrix


def _check(source: Source, matrix: _Matrix) -> None:
    """Refuse what is not whole, or says one thing there and another back."""
    types = matrix.cells.get("type")
    if types is None:
        raise source.error(
            None,
            "has no table of link types: run `amd-smi topology` without options, which prints it.",
        )
    for a, b in combinations(range(len(matrix.names)), 2):
        for table in ("type", "weight", "hops"):
            cells = matrix.cells.get(table)
            if cells is None:
                continue
            one, back = cells.get((a, b)), cells.get((b, a))
            if one is None or one != back:
                raise source.error(
                    None,
                    f"{table} table: {matrix.names[a]} to {matrix.names[b]} is {shown(one)}, and back {shown(back)}.",
                )
        if types[a, b] not in _TYPES:
            raise source.error(
                None,
                f"link type {shown(types[a, b])} of {matrix.names[a]} and {matrix.names[b]} is not "
                f"{', '.join(_TYPES)}.",
            )


def _direct(matrix: _Matrix, xgmi: list[Pair]) -> list[Pair]:
    """Return the pairs whose xGMI leads through no other GPU.

    Those of the least weight; without weights those with a bandwidth, which the driver has for direct neighbours
    alone; without either all of one hop.
    """
    weights = {pair: number for pair in xgmi if (number := matrix.number("weight", pair)) is not None}
    if not weights and "bandwidth" in matrix.cells:
        return [pair for pair in xgmi if _bandwidth(matrix, pair)]
    steps = weights or {pair: matrix.number("hops", pair) or 1 for pair in xgmi}
    # weights are 13 or 15 a step; halfway to the next step is still this one
    step = max(1, min(steps.values(), default=1))
    return [pair for pair in xgmi if steps.get(pair, 0) < 1.5 * step]


def _bandwidth(matrix: _Matrix, pair: Pair) -> tuple[int, int] | None:
    """Return the least and the greatest MB/s of a pair."""
    match = re.fullmatch(r"(\d{1,9})-(\d{1,9})", matrix.cells.get("bandwidth", {}).get(pair, ""))
    return (int(match[1]), int(match[2])) if match and int(match[1]) > 0 else None


def _links(matrix: _Matrix, pair: Pair) -> int:
    """Return how many links join two direct neighbours."""
    rate = _bandwidth(matrix, pair)
    return rate[1] // rate[0] if rate and rate[1] % rate[0] == 0 else 1


def _tell(
    source: Source, matrix: _Matrix, xgmi: list[Pair], direct: list[Pair], counts: Mapping[Pair, int]
) -> None:
    """Note what was counted, and what is unlike its siblings."""
    total = len(matrix.names) * (len(matrix.names) - 1) // 2
    source.notes.append(
        f"{plural(len(matrix.names), 'GPU')}; of {plural(total, 'pair')} {len(direct)} are joined by xGMI directly, "
        f"{len(xgmi) - len(direct)} through others, {total - len(xgmi)} over PCIe."
    )
    if rates := sorted({rate for pair in direct if (rate := _bandwidth(matrix, pair))}):
        words = ", ".join(
            f"{low / 1000:g}" + (f" to {high / 1000:g}" if high != low else "") for low, high in rates
        )
        source.notes.append(
            f"The driver's own bandwidth of direct neighbours ({words} GB/s) says how many links they have; the rate "
            "of a link is that of the GPU's."
        )
    usual = commonest(matrix.cells["type"][pair] for pair in combinations(range(len(matrix.names)), 2))
    odd = [pair for pair in combinations(range(len(matrix.names)), 2) if matrix.cells["type"][pair] != usual]
    if xgmi and usual == "XGMI":
        source.anomalies += [
            f"{source.name}: {matrix.names[a]} and {matrix.names[b]} are joined over "
            f"{matrix.cells['type'][a, b]}, most pairs over XGMI."
            for a, b in odd[:_MOST_GPUS]
        ]
    ends = Counter(end for pair, count in counts.items() for end in pair for _ in range(count))
    most = commonest(ends.values())
    source.anomalies += [
        f"{source.name}: {name} has {ends[number]} xGMI links, most GPUs {most}."
        for number, name in enumerate(matrix.names)
        if counts and not odd and ends[number] != most and len(set(ends.values())) == 2
    ]
    shut = [pair for pair in direct if matrix.cells.get("access", {}).get(pair) == "DISABLED"]
    source.anomalies += [
        f"{source.name}: access from {matrix.names[a]} to {matrix.names[b]} is disabled." for a, b in shut
    ]


def _sockets(matrix: _Matrix, pairs: list[Pair]) -> tuple[str, ...]:
    """Return the socket of each GPU: its NUMA node if told, else one for all that two hops of PCIe or xGMI join."""
    count = len(matrix.names)
    if matrix.numa.keys() == set(range(count)):
        return tuple(matrix.numa[i] for i in range(count))
    joined: UnionFind[int] = UnionFind(range(count))
    for pair in pairs:
        hops = matrix.number("hops", pair)
        if hops is None or hops <= _WITHIN_SOCKET:
            joined.union(*pair)
    return tuple(str(joined[i]) for i in range(count))


FORMAT = Format("amd-smi", read_amd_smi, in_text=looks_like_amd_smi, in_data=is_amd_smi_json)
