"""A CSV of links, ``a,b,count,rate``: one row for each two nodes that are cabled to each other.

``count`` (1 where it is left out) are parallel links, ``rate`` is that of one of them per direction. Names say what
nodes are. ``HOST.gN`` is a GPU of a host (``d0.n3.g1`` of ``d0.n3``). Behind the name of such a host, or the part of
it before a dot (``d0``), ``.sN`` is a scale-up switch chip, ``.nicN`` a NIC, ``.pcieN`` a PCIe switch and
``.socketN`` a CPU. Any other name is a scale-out switch: a leaf where GPUs or NICs are cabled to it, then a spine,
then a core.
"""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from itertools import accumulate

from networkx.utils import UnionFind

from topology.base.figures import Figure
from topology.base.names import natural
from topology.base.reading import shown
from topology.base.schema import figure_of
from topology.base.units import plural
from topology.base.values import MOST
from topology.build import GPUS
from topology.graph import SCALE_UP_KINDS
from topology.importers.found import Format, GraphFound, levels_above, switch_kind
from topology.importers.source import Source

_NEEDED = ("a", "b", "rate")
_COLUMNS = ("a", "b", "count", "rate")
_GPU = re.compile(r"(.+)\.g\d{1,9}")
_DEVICES = {"s": "switch", "nic": "nic", "pcie": "pcie", "socket": "host"}
_DEVICE = re.compile(rf"({'|'.join(_DEVICES)})\d{{0,9}}")


def _header(text: str) -> list[str]:
    return [cell.strip() for cell in text.lstrip().partition("\n")[0].split(",")]


def looks_like_links_csv(text: str) -> bool:
    """Whether the first line of a text names the columns."""
    return set(_NEEDED) <= set(_header(text))


def parse_links_csv(source: Source) -> GraphFound:
    """Return the nodes and links."""
    links: dict[tuple[str, str], tuple[int, Figure]] = {}
    for number, row in _rows(source):
        where = source.at(number)
        a, b = row["a"], row["b"]
        if a == b:
            raise source.error(number, f"joins {shown(a)} to itself.")
        if (a, b) in links or (b, a) in links:
            raise source.error(number, f"duplicate link of {shown(a)} and {shown(b)}; add up their `count`.")
        count = row.get("count") or "1"
        if not re.fullmatch(r"[0-9]{1,9}", count) or not 1 <= int(count) <= MOST:
            raise source.error(number, f"count {shown(count)}: must be a whole number from 1.")
        links[a, b] = int(count), figure_of(row["rate"], "byte/s", f"{where}, column rate", source.name)
    nodes = _nodes(source, links)
    return GraphFound(nodes=nodes, links=tuple((a, b, *link) for (a, b), link in links.items()))


def _rows(source: Source) -> list[tuple[int, dict[str, str]]]:
    """Return the cells of each row that is not blank, with its line."""
    try:
        lines = list(csv.reader(source.lines, strict=True))
    except csv.Error as error:
        raise source.error(None, f"is not CSV ({error}).") from None
    header, rows = [cell.strip() for cell in lines[0]], []
    unknown = [name for name in header if name not in _COLUMNS]
    if unknown or len(set(header)) < len(header) or not set(_NEEDED) <= set(header):
        raise source.error(
            1, f"must name the columns {','.join(_COLUMNS)} (count may be left out), each once."
        )
    for number, cells in enumerate(lines[1:], 2):
        if not any(cell.strip() for cell in cells):
            continue
        row = dict(zip(header, (cell.strip() for cell in cells), strict=False))
        if len(cells) != len(header) or not all(row[name] for name in _NEEDED):
            raise source.error(
                number, f"needs a cell for each of {', '.join(header)}; is the file truncated?"
            )
        rows.append((number, row))
    if not rows:
        raise source.error(None, "has no links.")
    return rows


def _nodes(
    source: Source, links: dict[tuple[str, str], tuple[int, Figure]]
) -> tuple[tuple[str, str, str | None, str | None], ...]:
    """Return the nodes that links join: GPUs and devices by their names, switches by their distance from them."""
    names = sorted({end for ends in links for end in ends}, key=natural)
    host_of = {name: match[1] for name in names if (match := _GPU.fullmatch(name))}
    if not 0 < len(host_of) <= GPUS:
        raise source.error(None, f"{plural(len(host_of), 'GPU')} (HOST.gN); 1 to {GPUS:,} are imported.")
    hosts = set(host_of.values())
    inside = {begin for host in hosts for begin in accumulate(host.split("."), "{}.{}".format)}
    kinds = dict.fromkeys(host_of, "gpu")
    for name in names:
        begin, _, end = name.rpartition(".")
        if name not in kinds and begin in inside:
            if (match := _DEVICE.fullmatch(end)) is None:
                known = ", ".join(f"{begin}.{one}N" for one in ("g", *_DEVICES))
                raise source.error(None, f"{shown(name)}: unknown part; parts of a host are named {known}.")
            kinds[name] = _DEVICES[match[1]]
    joined: dict[str, set[str]] = defaultdict(set)
    domains: UnionFind[str] = UnionFind(kinds)
    for a, b in links:
        joined[a].add(b)
        joined[b].add(a)
        if {kinds.get(a), kinds.get(b)} <= set(SCALE_UP_KINDS):
            domains.union(a, b)
    first: dict[str, str] = {}
    for gpu, host in host_of.items():
        domains.union(gpu, first.setdefault(host, gpu))
    labels: dict[str, str] = {}
    for gpu, host in host_of.items():
        labels.setdefault(domains[gpu], host)
    levels = levels_above(
        (name for name in names if name not in kinds and joined[name] & kinds.keys()), _out(joined, kinds)
    )
    nodes = []
    for name in names:
        kind = kinds.get(name)
        if kind is None and name not in levels:
            raise source.error(None, f"switch {shown(name)}: no GPU is reachable from it.")
        begin = name.rpartition(".")[0]
        nodes.append(
            (
                name,
                kind or switch_kind(levels[name]),
                labels.get(domains[name]) if kind in SCALE_UP_KINDS else None,
                begin if kind and begin in hosts else None,
            )
        )
    return tuple(nodes)


def _out(joined: dict[str, set[str]], kinds: dict[str, str]) -> dict[str, set[str]]:
    """Return the switches that each switch is joined to."""
    return {name: own - kinds.keys() for name, own in joined.items() if name not in kinds}


FORMAT = Format("links-csv", parse_links_csv, in_text=looks_like_links_csv)
