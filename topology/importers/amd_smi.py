"""``amd-smi topology``, text or ``--json``, and ``rocm-smi --showtopo``: GPUs of one host, joined by xGMI or PCIe.

Those of an MI300X, MI325X or MI355X host are all joined by xGMI. Where the driver reports bandwidths (``NUMA BW
TABLE``, MB/s from that of one link to that of all links between two GPUs), they give rate and number of links.
The type XGMI says that a path runs over xGMI, not that it is one link: a weight is 15 a hop (the hops of rocm-smi
are always 1), and a link that is disabled carries nothing. Over PCIe, two hops stay within a NUMA node, three do
not (https://github.com/ROCm/rocm-systems/pull/7372).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from itertools import combinations
from math import ceil

from topology.base.figures import Evidence, Figure
from topology.base.reading import shown
from topology.base.units import plural
from topology.base.values import require_name, require_whole
from topology.importers.found import Format, NodeFound, commonest, listed
from topology.importers.gpu_names import GpuName, product
from topology.importers.pcie import sockets
from topology.importers.source import Source, entries, first_row, unwrapped

_TITLE = re.compile(r"=*+\s*+([A-Z][A-Z ]*?) (?:TABLE|between two GPUs)\s*+:?\s*+=*+", re.IGNORECASE)
_TABLES = {"link type": "link_type", "weight": "weight", "access": "link_status", "numa bw": "bandwidth"}
_TABLES["hops"] = "num_hops"
"""What titles of tables name, as the JSON calls it."""
_GPU = re.compile(r"GPU\d{1,4}|[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]", re.IGNORECASE)
_PRODUCT = re.compile(r"\b(?:MARKET_NAME|Card Series)\s*:\s*(\S.*)", re.IGNORECASE)
_NUMA = re.compile(r"^GPU[ \[]?(\d{1,4})\]?\s*: \(Topology\) Numa Node: (\d{1,4})\s*$", re.MULTILINE)
_RANGE = re.compile(r"([1-9]\d{0,8})-([1-9]\d{0,8})")
_MAX_GPUS = 64
_MAX_PEERS = 7
"""Links of the GPU with most: an Instinct MI300X or MI350X has seven to others (AMD's data sheets)."""
_WEIGHT_OF_A_HOP = 15
"""https://github.com/ROCm/rocm-systems/issues/5763 and https://github.com/open-mpi/hwloc/issues/775"""
_HOPS_IN_NODE = ("1", "2")
_Pair = tuple[int, int]
_Tables = defaultdict[str, dict[_Pair, str]]
"""By the keys of the JSON: what the table says of each pair of GPUs, by position, as written."""


def looks_like_amd_smi(text: str) -> bool:
    """Whether a text has a table of ``amd-smi topology`` or ``rocm-smi --showtopo``."""
    return any(_TITLE.fullmatch(line.strip()) for line in text.split("\n"))


def is_amd_smi_json(data: object) -> bool:
    """Whether data are the JSON of ``amd-smi topology``, which some versions wrap in an object."""
    row = first_row(data)
    return "gpu" in row and isinstance(row.get("links"), list)


def parse_amd_smi(source: Source) -> NodeFound:
    """Return the inside of the host that the tables are of."""
    names, tables = _json(source) if source.text.lstrip().startswith(("{", "[")) else _text(source)
    if len(set(names)) != len(names) or len(names) > _MAX_GPUS:
        raise source.error(None, f"must name at most {_MAX_GPUS} GPUs, each once.")
    gpus, types = [f"GPU{i}" for i in range(len(names))], tables["link_type"]
    xgmi, pcie = list[_Pair](), list[_Pair]()
    for a, b in combinations(range(len(names)), 2):
        kinds = types.get((a, b)), types.get((b, a))
        if kinds[0] != kinds[1] or kinds[0] not in ("XGMI", "PCIE"):
            over = " and ".join(map(shown, dict.fromkeys(kinds)))
            raise source.error(None, f"{names[a]} and {names[b]}: link type {over}, not XGMI or PCIE.")
        (xgmi if kinds[0] == "XGMI" else pcie).append((a, b))
    _check_whole(source, names, xgmi)
    disabled = [pair for pair in xgmi if "DISABLED" in map(str.upper, _cells(tables, "link_status", pair))]
    apart = _apart(tables, [pair for pair in xgmi if pair not in disabled])
    links = [pair for pair in xgmi if pair not in disabled and pair not in apart]
    if disabled and not links:
        raise source.error(None, "every link between two GPUs is disabled: no GPU reaches another over xGMI.")
    for a, b in disabled:
        source.note(None, f"the link between {gpus[a]} and {gpus[b]} is disabled: left out.")
    rate, counts = _bandwidths(source, tables, xgmi)
    if apart:
        pairs = listed((f"{gpus[a]}-{gpus[b]} ({why})" for (a, b), why in apart.items()), 4)
        source.readings.append(f"{source.name}: no link of their own: {pairs}.")
    at: tuple[str, ...] = ("0",) * len(gpus)
    if pcie:
        at, how = _sockets(source, tables, len(names), xgmi)
        over = plural(len(pcie), "pair")
        source.readings.append(f"{source.name}: {over} of GPUs joined over PCIe alone; {how}.")
    products = [product(match[1], "AMD") for match in map(_PRODUCT.search, source.lines) if match]
    return NodeFound(
        gpus=tuple(gpus),
        chips=(),
        links=tuple((gpus[a], gpus[b], counts.get((a, b), 1)) for a, b in links),
        down=tuple((gpus[a], gpus[b], counts.get((a, b), 1)) for a, b in disabled),
        link_kind="pcie" if pcie and not xgmi else "xgmi",
        link_rate=rate,
        sockets=at,
        gpu_names=(GpuName("AMD's tool", "AMD"), *products),
    )


def _cells(tables: _Tables, key: str, pair: _Pair) -> list[str]:
    """Return what a table says of a pair, both ways."""
    return [cell for ends in (pair, pair[::-1]) if (cell := tables[key].get(ends)) is not None]


def _numbers(tables: _Tables, key: str, pair: _Pair) -> list[int]:
    return [int(cell) for cell in _cells(tables, key, pair) if cell.isdecimal() and len(cell) < 100]


def _check_whole(source: Source, names: list[str], xgmi: list[_Pair]) -> None:
    """Refuse partitions of GPUs, which the tools list as devices of their own."""
    slots = [name.rpartition(".")[0] for name in names if "." in name]
    peers = Counter(gpu for pair in xgmi for gpu in pair)
    if len(set(slots)) < len(slots) or max(peers.values(), default=0) > _MAX_PEERS:
        raise source.error(
            None,
            f"{len(names)} devices, several of one PCI device or joined over xGMI to more than {_MAX_PEERS} others: "
            "they are partitions (CPX, DPX or QPX mode), not whole GPUs. Run the tool where the GPUs are whole (SPX "
            "mode), or give a cluster file of the host's GPUs.",
        )


def _apart(tables: _Tables, pairs: list[_Pair]) -> dict[_Pair, str]:
    """Return the pairs without a link of their own, with why."""
    apart: dict[_Pair, str] = {}
    for pair in pairs:
        weights = _numbers(tables, "weight", pair)
        steps = [ceil(weight / _WEIGHT_OF_A_HOP) for weight in weights]
        hops = max([*_numbers(tables, "num_hops", pair), *steps], default=1)
        if hops > 1:
            apart[pair] = f"{hops} hops" + (f", weight {max(weights)}" if weights else "")
    return apart


def _bandwidths(source: Source, tables: _Tables, xgmi: list[_Pair]) -> tuple[Figure | None, dict[_Pair, int]]:
    """Return the rate of one link, and the number of links between two GPUs."""
    ranges = {pair: match for pair in xgmi if (match := _RANGE.fullmatch(tables["bandwidth"].get(pair, "")))}
    rate = commonest(int(match[1]) for match in ranges.values())
    counts = {pair: max(1, round(int(match[2]) / int(match[1]))) for pair, match in ranges.items()}
    figure, reading = None, "no bandwidths given, so links and rates are from the catalog"
    if rate is not None:
        figure = Figure(rate * 1e6, "byte/s", Evidence.MEASURED, source.name, f"{rate / 1e3:g} GB/s")
        reading = f"{figure.text} a link each way, {commonest(counts.values())} between two GPUs"
    source.readings += [f"{source.name}: {reading}."] if xgmi else []
    return figure, counts


def _sockets(source: Source, tables: _Tables, gpus: int, xgmi: list[_Pair]) -> tuple[tuple[str, ...], str]:
    """Return the socket of each GPU: its NUMA node, else told from hops; and how they were read.

    GPUs joined by xGMI are on one socket where they reach all others alike.
    """
    nodes = {int(gpu): node for gpu, node in _NUMA.findall(source.text)}
    if nodes.keys() == set(range(gpus)):
        return tuple(nodes[gpu] for gpu in range(gpus)), "NUMA nodes read as sockets"
    if not tables["num_hops"]:
        return ("0",) * gpus, "no NUMA nodes or hops given, so they are taken to be on one socket"
    near = {pair for pair, hops in tables["num_hops"].items() if hops in _HOPS_IN_NODE}

    def same(a: int, b: int) -> bool:
        peers = set(range(gpus)) - {a, b}
        alike = (a, b) not in xgmi or all(((a, peer) in near) == ((b, peer) in near) for peer in peers)
        return (a, b) in near and alike

    return sockets(range(gpus), same), "three hops read as between two sockets"


def _text(source: Source) -> tuple[list[str], _Tables]:
    """Read the tables of the text, the first of each kind."""
    tables, names = _Tables(dict), list[str]()
    rows = iter([(number, line) for number, line in enumerate(source.lines, 1) if line.strip()])
    for start, line in rows:
        title = _TITLE.fullmatch(line.strip())
        key = _TABLES.get(title[1].strip().lower()) if title else None
        if key is None or key in tables:
            continue
        number, header = next(rows, (start, ""))
        columns = header.split()
        if not columns or not all(map(_GPU.fullmatch, columns)) or (names and columns != names):
            raise source.error(number, "must name the GPUs of the table's columns, those of all tables.")
        names = columns
        for a, name in enumerate(columns):
            number, row = next(rows, (number, ""))
            head, *cells = row.split() or [""]
            if head != name or len(cells) != len(columns):
                problem = f"must be the row of {name}, with {len(columns)} cells; is the file truncated?"
                raise source.error(number, problem)
            tables[key].update({(a, b): cell for b, cell in enumerate(cells)})
    if "link_type" not in tables:
        raise source.error(None, "has no table of link types; run `amd-smi topology` without options.")
    return names, tables


def _json(source: Source) -> tuple[list[str], _Tables]:
    """Read the JSON, one row a GPU with its links to all."""
    rows = entries(unwrapped(source.data), source.name)
    place = {require_whole(row.get("gpu"), f"{at}: gpu", 0): number for number, (at, row) in enumerate(rows)}
    tables = _Tables(dict)
    for a, (at, row) in enumerate(rows):
        for where, link in entries(row.get("links"), f"{at}: links"):
            b = place.get(require_whole(link.get("gpu"), f"{where}: gpu", 0))
            for key in _TABLES.values():
                if b is not None and link.get(key) is not None:
                    tables[key][a, b] = require_name(link[key], f"{where}: {key}")
    names = [row.get("bdf") if row.get("bdf") is not None else row["gpu"] for _, row in rows]
    return [require_name(name, f"{at}: bdf") for name, (at, _) in zip(names, rows, strict=True)], tables


FORMAT = Format("amd-smi", parse_amd_smi, in_text=looks_like_amd_smi, in_data=is_amd_smi_json)
