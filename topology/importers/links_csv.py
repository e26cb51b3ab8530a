"""A CSV of links, ``a,b,count,rate``: one row for each two nodes that are cabled to each other.

``count`` (1 where it is left out) are parallel links, ``rate`` is that of one of them per direction. Names say what
nodes are. ``HOST.gN`` is a GPU of a host (``d0.n3.g1`` of ``d0.n3``). Behind the name of such a host, or the part of
it before a dot (``d0``), ``.sN`` is a scale-up switch chip, ``.nicN`` a NIC, ``.pcieN`` a PCIe switch and
``.socketN`` a CPU. Any other name is a scale-out switch: a leaf where GPUs or NICs are cabled to it, then a spine,
then a core.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

import networkx as nx

from topology.base.figures import Figure
from topology.base.names import natural
from topology.base.reading import shown
from topology.base.schema import figure_of
from topology.base.table import Table
from topology.base.units import plural
from topology.build import MAX_GPUS
from topology.graph import SCALE_UP_KINDS
from topology.importers.found import Format, GraphFound, groups_of, levels_above, switch_kind
from topology.importers.source import Source

_NEEDED = ("a", "b", "rate")
_COLUMNS = ("a", "b", "count", "rate")
_GPU = re.compile(r"(.+)\.g\d{1,9}")
_DEVICES = {"s": "switch", "nic": "nic", "pcie": "pcie", "socket": "host"}
_DEVICE = re.compile(rf"({'|'.join(_DEVICES)})\d{{0,9}}")


def looks_like_links_csv(text: str) -> bool:
    """Whether the first line of a text names the columns."""
    header = text.lstrip().partition("\n")[0].split(",")
    return set(_NEEDED) <= {cell.strip() for cell in header}


def parse_links_csv(source: Source) -> GraphFound:
    """Return the nodes and links."""
    links: dict[tuple[str, str], tuple[int, Figure]] = {}
    if not looks_like_links_csv(source.text):
        raise source.error(1, f"must name the columns {','.join(_COLUMNS)}, each once (count if any).")
    for row in Table.of_text(source.text, source.name).of_columns(_COLUMNS).rows(_NEEDED):
        a, b = row.need("a"), row.need("b")
        if a == b:
            row.fail("b", f"joins {shown(a)} to itself.")
        if (a, b) in links or (b, a) in links:
            row.fail("b", f"duplicate link of {shown(a)} and {shown(b)}; add up their `count`.")
        rate = figure_of(row.need("rate"), "byte/s", row.at("rate"), source.name)
        links[a, b] = row.count("count", 1, least=1), rate
    if not links:
        raise source.error(None, "has no links.")
    graph: nx.Graph[str] = nx.Graph(list(links))
    return GraphFound(
        nodes=tuple(_nodes(source, graph)), links=tuple((a, b, *link) for (a, b), link in links.items())
    )


def _nodes(source: Source, graph: nx.Graph[str]) -> Iterator[tuple[str, str, str | None, str | None]]:
    """Yield the nodes that links join: GPUs and devices by their names, switches by their distance from them."""
    names = sorted(graph, key=natural)
    host_of = {name: match[1] for name in names if (match := _GPU.fullmatch(name))}
    if not 0 < len(host_of) <= MAX_GPUS:
        raise source.error(None, f"{plural(len(host_of), 'GPU')} (HOST.gN); 1 to {MAX_GPUS:,} are imported.")
    hosts = dict.fromkeys(host_of.values())
    inside = {begin for host in hosts for begin in accumulate(host.split("."), "{}.{}".format)}
    kinds = dict.fromkeys(host_of, "gpu")
    for name in names:
        begin, _, end = name.rpartition(".")
        if name not in kinds and begin in inside:
            if (match := _DEVICE.fullmatch(end)) is None:
                known = ", ".join(f"{begin}.{part}N" for part in ("g", *_DEVICES))
                raise source.error(None, f"{shown(name)}: unknown part; parts of a host are named {known}.")
            kinds[name] = _DEVICES[match[1]]
    scale_up = [name for name in kinds if kinds[name] in SCALE_UP_KINDS]  # GPUs first
    joins: list[Any] = [*graph.subgraph(scale_up).edges, *((gpu, (host,)) for gpu, host in host_of.items())]
    domains = {name: host_of.get(group[0]) for group in groups_of(scale_up, joins) for name in group}
    switches = graph.subgraph(name for name in names if name not in kinds)
    levels = levels_above([name for name in switches if kinds.keys() & graph[name]], switches)
    for name in names:
        kind, begin = kinds.get(name), name.rpartition(".")[0]
        if kind is None and name not in levels:
            raise source.error(None, f"switch {shown(name)}: no GPU is reachable from it.")
        yield (
            name,
            kind or switch_kind(levels[name]),
            domains.get(name),
            begin if kind and begin in hosts else None,
        )


FORMAT = Format("links-csv", parse_links_csv, in_text=looks_like_links_csv)
