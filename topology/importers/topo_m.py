"""``nvidia-smi topo -m``: the matrix of how GPUs and NICs of one host reach each other.

Pasted text is read as it comes: tabs or spaces, cells run together, terminal codes, no trailing columns. Rows
or columns that are missing, or a matrix that contradicts itself, are errors.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations, permutations

from topology.base.reading import shown
from topology.importers.found import Format, NicFound, NodeFound, groups_of, listed
from topology.importers.gpu_names import GpuName, product
from topology.importers.pcie import OTHER_SOCKET, SAME_SOCKET, nearest, sockets
from topology.importers.source import Source

_CELL = r"(?:X|NV\d{1,3}|PIX|PXB|PHB|NODE|SYS|SOC)"
_DEVICE = r"(?:GPU|NIC)\d{1,4}"
_NAME = re.compile(rf"{_DEVICE}|[A-Za-z][\w.:-]*")
_ROW = re.compile(rf"\s*+({_DEVICE}|mlx\d+_\d+|\S+(?=\s))\s*+((?:(?:{_CELL})++(?=\s|$)\s*+)++)(.*)")
_HEADER = re.compile(rf"^[^\S\n]*+GPU\d(?!.*[^\S\n](?:{_CELL})++(?:\s|$)).*$", re.MULTILINE)
"""Names of GPUs, and no cell among them."""
_FIRST_ROW = re.compile(rf"^[^\S\n]*+GPU0\s*+{_CELL}", re.MULTILINE)
_TRAILING = re.compile(r"CPU Affinity|NUMA Affinity|GPU NUMA ID", re.IGNORECASE)
_LEGEND = re.compile(r"^[^\S\n]*+(NIC\d+):[^\S\n]*+(\S++)[^\S\n]*+$", re.MULTILINE)
_LOST_ESCAPES = re.compile(r"(?:\^\[|␛|\\(?:e|x1b|033))?\[[0-9;]{0,8}m")
"""Terminal codes without escape characters, from pasted text."""
_PRODUCT = re.compile(r"^[^\S\n]*+GPU \d{1,4}: (NVIDIA [^(\n]+?) \(UUID", re.MULTILINE)
"""A line of ``nvidia-smi -L``, often pasted together with the matrix."""
_MAX_DIRECT_LINKS = 18
"""NVLinks of a GPU on a board without switches: H100 and GH200 in fours, six to each (NVIDIA's data sheets)."""
_MAX_BRIDGE_LINKS = 12
"""NVLinks between two GPUs with bridges, of A100 and H100 NVL (NVIDIA's data sheets)."""
_AMBIGUOUS_LINKS = 6
"""NVLinks between two GPUs from which they may go over switches that the matrix does not show."""
_DISTANCES = {"PIX": 0, "PXB": 1, "PHB": SAME_SOCKET, "NODE": SAME_SOCKET + 1} | dict.fromkeys(
    ("SYS", "SOC"), OTHER_SOCKET
)
_Cells = Mapping[tuple[str, str], str]


def looks_like_topo_m(text: str) -> bool:
    """Whether a text has the header and a row of ``topo -m``."""
    plain = _LOST_ESCAPES.sub("", text)
    return _HEADER.search(plain) is not None and _FIRST_ROW.search(plain) is not None


def parse_topo_m(source: Source) -> NodeFound:
    """Return the inside of the host that the matrix is of."""
    plain = replace(source, text=_LOST_ESCAPES.sub("", source.text))
    cells, affinity = _matrix(plain)
    legend = dict(_LEGEND.findall(plain.text))
    if strange := legend.keys() - affinity.keys():
        raise source.error(None, f"the matrix has no column {listed(sorted(strange))} of the legend.")
    gpus = [name for name in affinity if name.startswith("GPU")]
    nics = [name for name in affinity if not name.startswith("GPU")]
    links = _links(plain, cells, gpus)
    hidden = any(b == "switch" for _, b, _ in links)
    switches, at = _switches(cells, list(affinity)), _sockets(cells, affinity, gpus)
    near = nearest([[_DISTANCES[cells[gpu, nic]] for gpu in gpus] for nic in nics])
    beside = {
        nic: at[i] for i, gpu in reversed([*enumerate(gpus)]) for nic in nics if _same_socket(cells[gpu, nic])
    }
    return NodeFound(
        gpus=tuple(gpus),
        chips=("switch",) if hidden else (),
        links=links,
        hidden=hidden,
        link_kind="nvlink" if links else "pcie",
        nics=tuple(
            NicFound(legend.get(nic, nic), nearby, switches=switches[nic], socket=beside.get(nic, ""))
            for nic, nearby in zip(nics, near, strict=True)
        ),
        sockets=at,
        switches=tuple(switches[gpu] for gpu in gpus),
        gpu_names=(
            GpuName("NVIDIA's nvidia-smi", "NVIDIA"),
            *(product(name, "NVIDIA") for name in dict.fromkeys(_PRODUCT.findall(plain.text))),
        ),
    )


def _same_socket(cell: str) -> bool:
    return _DISTANCES.get(cell, OTHER_SOCKET) < OTHER_SOCKET


def _matrix(source: Source) -> tuple[_Cells, dict[str, str]]:
    """Return the cells by pair, and what follows the cells of each row (affinities)."""
    match = _HEADER.search(source.text)
    if match is None:
        raise source.error(None, "has no header line with GPU0 of `nvidia-smi topo -m`.")
    header = source.line_of(match)
    columns: list[str] = []
    for word in _TRAILING.sub(" ", match[0]).split():  # they may run together
        columns += re.findall(_DEVICE, word) if re.fullmatch(f"(?:{_DEVICE})+", word) else [word]
    for name, count in Counter(columns).items():
        if count > 1 or not _NAME.fullmatch(name):
            raise source.error(header, f"column {shown(name)} is there twice, or no name of `topo -m`.")
    rows = _rows(source, header, columns)
    cells = {(a, b): cell for a in columns for b, cell in zip(columns, rows[a][1], strict=True)}
    for (a, b), cell in cells.items():
        if (cell == "X") != (a == b):
            problem = "; X is only allowed on the diagonal"
        elif cell.startswith("NV") and (cell == "NV0" or not (a.startswith("GPU") and b.startswith("GPU"))):
            problem = "; NVLinks join two GPUs, one or more of them"
        elif cell != cells[b, a]:
            problem = f", but row {b}, column {a} (line {rows[b][0]}) is {cells[b, a]}"
        else:
            continue
        raise source.error(rows[a][0], f"row {a}, column {b} is {cell}{problem}.")
    return cells, {name: rows[name][2] for name in columns}


def _rows(source: Source, header: int, columns: Sequence[str]) -> dict[str, tuple[int, list[str], str]]:
    """Return line, cells and what follows of the row of each column."""
    rows, lines = dict[str, tuple[int, list[str], str]](), dict[str, int]()
    for number, line in enumerate(source.lines[header:], header + 1):
        row = _ROW.match(line)
        if row is None or (row[1] not in columns and not re.fullmatch(_DEVICE, row[1])):
            continue
        name, cells = row[1], re.findall(_CELL, row[2])
        if name not in columns:
            raise source.error(number, f"row {name} is not a column of line {header}.")
        source.once(lines, name, number, f"row {name}")
        if len(cells) != len(columns):
            excess = f", then {shown(row[3].split()[0])}" if row[3] else ""
            problem = f"has {len(cells)} of the {len(columns)} cells that the header names{excess}"
            raise source.error(number, f"row {name} {problem}; is it truncated?")
        rows[name] = number, cells, row[3]
    if missing := [name for name in columns if name not in rows]:
        last_line = max(lines.values(), default=header)
        names = missing[0] if len(missing) == 1 else f"{missing[0]} to {missing[-1]}"
        problem = f"the last row; line {header} also names {names}, without rows; the text is truncated."
        raise source.error(last_line, problem)
    return rows


def _links(source: Source, cells: _Cells, gpus: Sequence[str]) -> tuple[tuple[str, str, int], ...]:
    """Return links to one switch chip, or direct ones, as NV cells have them.

    Cells have the links between two GPUs; over switches those are all that a GPU has, the same ones to each other.
    """
    pairs = {pair: int(cells[pair][2:]) for pair in permutations(gpus, 2) if cells[pair].startswith("NV")}
    direct, bundle = Counter[str](), Counter[str]()
    for (a, _), count in pairs.items():
        direct[a] += count
        bundle |= Counter({a: count})
    total, widest = max(direct.values(), default=0), max(bundle.values(), default=0)
    alike = all(pairs.get((a, b)) == min(bundle[a], bundle[b]) for a, b in permutations(direct, 2))
    switched = total > _MAX_DIRECT_LINKS or (widest > _MAX_BRIDGE_LINKS and alike)
    if switched and not alike:
        problem = "of any without switches, and they are not as many to each other GPU, as over switches"
        more = f"more than the {_MAX_DIRECT_LINKS} {problem}"
        raise source.error(None, f"a GPU has {total} NVLinks in all, {more}.")
    if len(direct) == 2 if switched else widest >= _AMBIGUOUS_LINKS:
        to_switches = "all that each has, to switches that the file does not show"
        reading = f"{widest} NVLinks between two of {len(direct)} GPUs read as "
        source.readings.append(f"{source.name}: {reading}{to_switches if switched else 'direct ones'}.")
    if switched:
        return tuple((gpu, "switch", count) for gpu, count in bundle.items())
    return tuple((a, b, pairs[a, b]) for a, b in combinations(gpus, 2) if (a, b) in pairs)


def _switches(cells: _Cells, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the PCIe switches above each GPU and NIC: one of all that PXB or PIX joins, in it one of each PIX group.

    Groups without a GPU are the ports of one card.
    """
    above: dict[str, tuple[str, ...]] = dict.fromkeys(names, ())
    known: list[list[str]] = []
    for kinds in (("PIX", "PXB"), ("PIX",)):
        for group in groups_of(names, (pair for pair in combinations(names, 2) if cells[pair] in kinds)):
            if len(group) > 1 and group not in known and any(name.startswith("GPU") for name in group):
                above.update({member: (*above[member], f"pcie{len(known)}") for member in group})
                known.append(group)
    return above


def _sockets(cells: _Cells, affinity: Mapping[str, str], gpus: Sequence[str]) -> tuple[str, ...]:
    """Return the socket of each GPU: those that meet below the link between NUMA nodes share one.

    Cells between GPUs joined by NVLink say nothing of sockets; their affinity does. So it does where all other cells
    are SYS.
    """
    pcie = {cell for pair in combinations(gpus, 2) if not (cell := cells[pair]).startswith("NV")}
    physical = pcie != {"SYS"}  # virtual machines show SYS for all pairs

    def same(a: str, b: str) -> bool:
        same_affinity = affinity[a].split()[:1] == affinity[b].split()[:1] not in ([], ["N/A"])
        return _same_socket(cells[a, b]) or (same_affinity and not (physical and cells[a, b] == "SYS"))

    return sockets(gpus, same)


FORMAT = Format("topo-m", parse_topo_m, in_text=looks_like_topo_m)
