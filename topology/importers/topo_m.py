"""``nvidia-smi topo -m``: the matrix of how GPUs and NICs of one host reach each other.

Pasted text is read as it comes: tabs or spaces, cells run together, terminal codes, no trailing columns. Rows
or columns that are missing, or a matrix that contradicts itself, are errors.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import combinations, permutations

from networkx.utils import UnionFind

from topology.base.reading import shown
from topology.importers.found import Format, NicFound, NodeFound
from topology.importers.gpu_names import GpuName, product
from topology.importers.pcie import OTHER_SOCKET, SAME_SOCKET, nearest
from topology.importers.source import Source

_CELL = r"(?:X|NV\d{1,3}|PIX|PXB|PHB|NODE|SYS|SOC)"
_CELLS = re.compile(rf"{_CELL}+")
_NAME = re.compile(r"(?:GPU|NIC)\d{1,4}|mlx\d+_\d+|[A-Za-z][\w.:-]*")
_NUMBERED = re.compile(r"(?:GPU|NIC)\d{1,4}")
_GLUED = re.compile(r"(?:(?:GPU|NIC)\d{1,4}){2,}")
_ROW_NAME = re.compile(r"\s*((?:GPU|NIC)\d{1,4}|mlx\d+_\d+)")
_ROW = re.compile(rf"^[^\S\n]*+GPU0\s*+{_CELL}", re.MULTILINE)
_TRAILING = re.compile(r"CPU Affinity|NUMA Affinity|GPU NUMA ID", re.IGNORECASE)
_LEGEND = re.compile(r"\s*+(NIC\d+):\s*+(\S++)\s*+$")
_LOST_ESCAPES = re.compile(r"(?:\^\[|␛|\\(?:e|x1b|033))?\[[0-9;]{0,8}m")
"""Terminal codes without escape characters, from pasted text."""
_PRODUCT = re.compile(r"^\s*GPU \d{1,4}: (NVIDIA [^(]+?) \(UUID", re.MULTILINE)
"""A line of ``nvidia-smi -L``, often pasted together with the matrix."""
_LEAST_SWITCHED = 6
"""More links than this to each of several peers is a switch: no GPU has so many for a mesh of three or more."""
_DISTANCES = {
    "PIX": 0,
    "PXB": 1,
    "PHB": SAME_SOCKET,
    "NODE": SAME_SOCKET + 1,
    "SYS": OTHER_SOCKET,
    "SOC": OTHER_SOCKET,
}


def looks_like_topo_m(text: str) -> bool:
    """Whether a text has the header and a row of ``topo -m``."""
    plain = _LOST_ESCAPES.sub("", text)
    return _header_line(plain.split("\n")) is not None and _ROW.search(plain) is not None


def parse_topo_m(source: Source) -> NodeFound:
    """Return the inside of the host that the matrix is of."""
    source = replace(source, text=_LOST_ESCAPES.sub("", source.text))
    matrix = _matrix(source)
    gpus = tuple(name for name in matrix.columns if name.startswith("GPU"))
    nics = tuple(name for name in matrix.columns if not name.startswith("GPU"))
    links = _links(matrix, gpus)
    hidden = any(b not in gpus for _, b, _ in links)
    switches, sockets = _switches(matrix), _sockets(matrix, gpus)
    near = nearest([[_DISTANCES[matrix.cells[gpu, nic]] for gpu in gpus] for nic in nics])
    found = []
    for nic, own in zip(nics, near, strict=True):
        at = [s for gpu, s in zip(gpus, sockets, strict=True) if matrix.same_socket(gpu, nic)]
        name = matrix.names.get(nic, nic)
        found.append(NicFound(name, own, switches=switches[nic], socket=(*at, "")[0]))
    return NodeFound(
        gpus=gpus,
        chips=("switch",) if hidden else (),
        links=links,
        hidden=hidden,
        beyond=False,
        link_kind="nvlink" if links else "pcie",
        nics=tuple(found),
        sockets=sockets,
        switches=tuple(switches[gpu] for gpu in gpus),
        gpu_names=(
            GpuName("NVIDIA's nvidia-smi", "NVIDIA"),
            *(product(name, "NVIDIA") for name in dict.fromkeys(_PRODUCT.findall(source.text))),
        ),
    )


@dataclass(frozen=True)
class _Matrix:
    """Columns in order, cells by pair, the line of each row, affinities, and NIC names of the legend."""

    columns: tuple[str, ...]
    cells: Mapping[tuple[str, str], str]
    lines: Mapping[str, int]
    affinity: Mapping[str, str]
    names: Mapping[str, str]

    def same_socket(self, a: str, b: str) -> bool:
        return _DISTANCES.get(self.cells[a, b], OTHER_SOCKET) < OTHER_SOCKET


def _header_line(lines: list[str]) -> int | None:
    """Return the index of the header: names of GPUs, and no cell among them."""
    for i, line in enumerate(lines):
        names = _TRAILING.sub(" ", line).split()
        if names and re.match(r"GPU\d", names[0]) and not any(map(_CELLS.fullmatch, names)):
            return i
    return None


def _columns(source: Source, header: int) -> tuple[str, ...]:
    """Return the columns of the matrix, names that run together taken apart."""
    columns: list[str] = []
    for word in _TRAILING.sub(" ", source.lines[header]).split():
        columns += _NUMBERED.findall(word) if _GLUED.fullmatch(word) else [word]
    for name, count in Counter(columns).items():
        if not _NAME.fullmatch(name):
            raise source.error(header + 1, f"column name {shown(name)} is not one of `topo -m`.")
        if count > 1:
            raise source.error(header + 1, f"duplicate column {name}.")
    return tuple(columns)


def _matrix(source: Source) -> _Matrix:
    """Read header, rows and legend."""
    header = _header_line(source.lines)
    if header is None:
        raise source.error(None, "has no header line with GPU0 of `nvidia-smi topo -m`.")
    columns = _columns(source, header)
    cells: dict[tuple[str, str], str] = {}
    rows: dict[str, int] = {}
    affinity: dict[str, str] = {}
    names: dict[str, str] = {}
    for number, line in enumerate(source.lines[header + 1 :], header + 2):
        legend = _LEGEND.match(line)
        name = legend[1] if legend else _row_name(line, columns)
        if name is None:
            continue
        if name not in columns:
            what = "legend" if legend else "row"
            raise source.error(number, f"{what} {name} is not a column of line {header + 1}.")
        if legend:
            names[name] = legend[2]
            continue
        if name in rows:
            raise source.error(number, f"duplicate row {name} (first in line {rows[name]}).")
        rows[name] = number
        found, affinity[name] = _row(source, number, line, name, len(columns))
        cells.update({(name, column): cell for column, cell in zip(columns, found, strict=True)})
    matrix = _Matrix(columns, cells, rows, affinity, names)
    _check(source, matrix, header + 1)
    return matrix


def _row_name(line: str, columns: tuple[str, ...]) -> str | None:
    """Return the name a row begins with; None for other lines."""
    if match := _ROW_NAME.match(line):
        rest = line[match.end() :]
        return match[1] if re.match(rf"\s*{_CELL}", rest) or not rest.strip() else None
    first = line.split(None, 1)
    return first[0] if len(first) == 2 and first[0] in columns and _CELLS.match(first[1]) else None


def _row(source: Source, number: int, line: str, name: str, count: int) -> tuple[list[str], str]:
    """Return the cells of a row, and what follows them (affinities)."""
    rest, cells = line.strip()[len(name) :], list[str]()
    while len(cells) < count and (match := re.match(rf"\s*({_CELL}+)(?=\s|$)", rest)):
        cells += re.findall(_CELL, match[1])
        rest = rest[match.end() :]
    if len(cells) != count:
        after = f", then {shown(rest.split()[0])}" if rest.strip() and len(cells) < count else ""
        problem = (
            f"row {name} has {len(cells)} of the {count} cells that the header names{after}; is it truncated?"
        )
        raise source.error(number, problem)
    return cells, rest


def _check(source: Source, matrix: _Matrix, header: int) -> None:
    """Every column has its row, X is on the diagonal alone, and cells are equal both ways."""
    missing = [name for name in matrix.columns if name not in matrix.lines]
    if missing:
        last = max(matrix.lines.values(), default=header)
        names = missing[0] if len(missing) == 1 else f"{missing[0]} to {missing[-1]}"
        problem = f"the last row; line {header} also names {names}, without rows; the text is truncated."
        raise source.error(last, problem)
    for (a, b), cell in matrix.cells.items():
        line, place = matrix.lines[a], f"row {a}, column {b} is {cell}"
        if (cell == "X") != (a == b):
            raise source.error(line, f"{place}; X is only allowed on the diagonal.")
        if cell == "NV0":
            raise source.error(line, f"{place}: no links at all.")
        if cell != matrix.cells[b, a]:
            other = f"row {b}, column {a} (line {matrix.lines[b]}) is {matrix.cells[b, a]}"
            raise source.error(line, f"{place}, but {other}.")


def _links(matrix: _Matrix, gpus: tuple[str, ...]) -> tuple[tuple[str, str, int], ...]:
    """Return links to one switch chip, or direct ones, as NV cells have them."""
    cells = {pair: matrix.cells[pair] for pair in permutations(gpus, 2)}
    nv = {pair: int(cell[2:]) for pair, cell in cells.items() if cell.startswith("NV")}
    most = {gpu: max((nv.get((gpu, other), 0) for other in gpus), default=0) for gpu in gpus}
    joined = [gpu for gpu in gpus if most[gpu]]
    switched = (
        len(joined) > 2
        and max(most.values()) >= _LEAST_SWITCHED
        and all(nv.get((a, b)) == min(most[a], most[b]) for a, b in permutations(joined, 2))
    )
    if switched:
        return tuple((gpu, "switch", most[gpu]) for gpu in joined)
    return tuple((a, b, nv[a, b]) for a, b in combinations(gpus, 2) if (a, b) in nv)


def _switches(matrix: _Matrix) -> dict[str, tuple[str, ...]]:
    """Return the PCIe switches above each GPU and NIC: one of all that PXB or PIX joins, in it one of each PIX group.

    Groups without a GPU are the ports of one card.
    """
    found: dict[str, tuple[str, ...]] = dict.fromkeys(matrix.columns, ())
    known: dict[frozenset[str], str] = {}
    for cells in (("PIX", "PXB"), ("PIX",)):
        joined: UnionFind[str] = UnionFind(matrix.columns)
        for pair in combinations(matrix.columns, 2):
            if matrix.cells[pair] in cells:
                joined.union(*pair)
        for group in sorted(joined.to_sets(), key=lambda some: min(map(matrix.columns.index, some))):
            if len(group) > 1 and frozenset(group) not in known and any(n.startswith("GPU") for n in group):
                name = known[frozenset(group)] = f"pcie{len(known)}"
                found.update({member: (*found[member], name) for member in group})
    return found


def _sockets(matrix: _Matrix, gpus: tuple[str, ...]) -> tuple[str, ...]:
    """Return the socket of each GPU: those that meet below the link between NUMA nodes share one.

    Cells between GPUs joined by NVLink say nothing of sockets; their affinity does. So it does where all other cells
    are SYS.
    """
    joined: UnionFind[str] = UnionFind()
    cells = {cell for pair in combinations(gpus, 2) if not (cell := matrix.cells[pair]).startswith("NV")}
    told = cells != {"SYS"}  # virtual machines show SYS for all pairs
    for a, b in combinations(gpus, 2):
        same_affinity = matrix.affinity[a].split()[:1] == matrix.affinity[b].split()[:1] not in ([], ["N/A"])
        if matrix.same_socket(a, b) or (same_affinity and not (told and matrix.cells[a, b] == "SYS")):
            joined.union(a, b)
    order = {root: str(i) for i, root in enumerate(dict.fromkeys(joined[gpu] for gpu in gpus))}
    return tuple(order[joined[gpu]] for gpu in gpus)


FORMAT = Format("topo-m", parse_topo_m, in_text=looks_like_topo_m)
