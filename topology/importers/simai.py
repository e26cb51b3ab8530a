"""SimAI's topology text: a line of totals, a line of switches, then one line for each link with its rate."""

from __future__ import annotations

import re
from collections import defaultdict

from topology.figures import Evidence, Figure
from topology.importers.found import Format, WholeFound, WholeLink, levels_above, switch_kind
from topology.importers.source import Source
from topology.reading import shown
from topology.spec import RawNode

_HEAD = re.compile(r"\s*(\d{1,12})\s+(\d{1,12})\s+(\d{1,12})\s+(\d{1,12})\s+(\d{1,12})\s+([A-Za-z]\S*)\s*")
_LINK = re.compile(
    r"\s*(\d{1,12})\s+(\d{1,12})\s+(\d{1,12}(?:\.\d{1,12})?)Gbps\s+(\d+(?:\.\d+)?(?:e-?\d+)?)(ns|us|ms|s)\s+(\S+)\s*"
)
_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
_MOST = 500_000


def looks_like_simai(text: str) -> bool:
    """Whether the first line and a link line have SimAI's form."""
    lines = [line for line in text.split("\n") if line.strip()]
    return len(lines) > 2 and _HEAD.fullmatch(lines[0]) is not None and _LINK.fullmatch(lines[2]) is not None


def read_simai(source: Source) -> WholeFound:
    """Return the whole graph.

    Raises
    ------
    InputError
        If totals do not agree with the lines, or a link ends at a node that is not there.
    """
    rows = [(number, line) for number, line in enumerate(source.lines, 1) if line.strip()]
    head = _HEAD.fullmatch(rows[0][1]) if rows else None
    if head is None:
        raise source.error(
            1, "SimAI's first line is: nodes, GPUs per server, NVSwitches, switches, links, GPU type."
        )
    nodes, per_host, chips, switches, links = (int(head[i]) for i in range(1, 6))
    gpus = nodes - chips - switches
    if nodes > _MOST:
        raise source.error(1, f"{nodes:,} nodes; at most {_MOST:,} are read.")
    if not 0 < gpus <= _MOST or per_host < 1 or gpus % per_host:
        raise source.error(
            1,
            f"{nodes} nodes less {chips + switches} switches are {gpus} GPUs, not whole servers of {per_host}.",
        )
    listed = rows[1][1].split() if len(rows) > 1 else []
    if [item for item in listed if item != ","] != [str(i) for i in range(gpus, nodes)]:
        raise source.error(2, f"must list the switches, {gpus} to {nodes - 1}.")
    if len(rows) - 2 != links:
        raise source.error(
            rows[-1][0], f"{len(rows) - 2} links of the {links} that line 1 announces; is the file cut?"
        )
    kinds = {i: "gpu" if i < gpus else "switch" if i < gpus + chips else "leaf" for i in range(nodes)}
    seen: dict[tuple[int, int], int] = {}
    found = [_link(source, number, line, kinds, seen) for number, line in rows[2:]]
    joined: dict[int, set[int]] = defaultdict(set)
    for pair in seen:
        for end, far in (pair, pair[::-1]):
            joined[end].add(far)
    outer = [i for i, kind in kinds.items() if kind == "leaf"]
    on_hosts = [i for i in outer if any(kinds[far] == "gpu" for far in joined[i])]
    levels = levels_above(on_hosts, {i: joined[i] & set(outer) for i in outer})
    described: list[RawNode] = []
    for i, kind in kinds.items():
        first = i if kind == "gpu" else min(joined[i], default=gpus) if kind == "switch" else gpus
        server = f"server{first // per_host}" if first < gpus else None
        host, rail = (server, i % per_host) if kind == "gpu" else (None, None)
        level = switch_kind(levels.get(i, 1)) if kind == "leaf" else kind
        described.append(RawNode(_name(i, kinds), level, server, host, rail=rail))
    source.notes.append(
        f"{gpus} GPUs ({head[6]}), {per_host} a server, {chips} NVSwitches, {switches} switches, {links} links."
    )
    return WholeFound(tuple(described), tuple(found), head[6])


def _link(
    source: Source, number: int, line: str, kinds: dict[int, str], seen: dict[tuple[int, int], int]
) -> WholeLink:
    """Read one link line."""
    match = _LINK.fullmatch(line)
    if match is None:
        raise source.error(number, f"{shown(line.strip())} is not a link like `0 16 2880Gbps 0.000025ms 0`.")
    a, b = int(match[1]), int(match[2])
    for end in (a, b):
        if end not in kinds:
            raise source.error(number, f"node {end} is not among the {len(kinds)} of line 1.")
    if a == b:
        raise source.error(number, f"joins node {a} to itself.")
    pair = (min(a, b), max(a, b))
    if pair in seen:
        raise source.error(number, f"nodes {a} and {b} are joined in line {seen[pair]} already.")
    seen[pair] = number
    where = f"{source.name}, line {number}"
    rate = Figure(float(match[3]) * 1e9 / 8, "byte/s", Evidence.USER, where, f"{match[3]} Gb/s")
    seconds = float(match[4]) * _SECONDS[match[5]]
    if rate.value <= 0 or seconds <= 0:
        raise source.error(number, "rate and latency must be greater than zero.")
    latency = Figure(seconds, "s", Evidence.USER, where, f"{match[4]} {match[5]}")
    up = "switch" in (kinds[a], kinds[b]) or kinds[a] == kinds[b] == "gpu"
    return WholeLink(
        (_name(a, kinds), _name(b, kinds)), 1, rate, up, "scale-up" if up else "scale-out", latency
    )


def _name(number: int, kinds: dict[int, str]) -> str:
    return f"{'gpu' if kinds[number] == 'gpu' else 'nvswitch' if kinds[number] == 'switch' else 'switch'}{number}"


FORMAT = Format("simai", read_simai, in_text=looks_like_simai)
