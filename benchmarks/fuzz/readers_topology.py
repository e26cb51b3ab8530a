"""Readers of what describes machines: cluster files, other tools' dumps, hostlists, settings, traffic."""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import seeds_files
import seeds_topology as seeds
from reader import Reader, Seed, texts

_READING = ("topology.reading:read_text", "topology.reading:parse_yaml")
_SOURCE = ("topology.importers.source:read_source",)
_DATA = ("topology.reading:parse_json", "topology.reading:parse_yaml")


def _cluster(path: Path) -> None:
    from topology.exporters import cluster_to_yaml
    from topology.resolve import resolve_cluster

    cluster = resolve_cluster(str(path))
    if len(cluster.gpus) <= 512:
        cluster_to_yaml(cluster.spec, [])


def _import(path: Path) -> None:
    from topology.build import build_cluster
    from topology.exporters import cluster_to_yaml
    from topology.importers import ImportOptions, import_files

    amd = b"XGMI" in path.read_bytes()[:4000]
    told: dict[str, Any] = {
        "gpu": "mi300x" if amd else "hgx-h100",
        "pcie": "32 GB/s",
        "socket_link": "40 GB/s",
        "uplink": "400 Gb/s",
    }
    if path.suffix == ".csv":  # cables alone have no rates
        told["nic"] = "400 Gb/s"
    found = import_files([str(path)], ImportOptions(**told))
    if found.spec.gpus <= 512:
        cluster_to_yaml(found.spec, [])
        build_cluster(found.spec)


def _lines(path: Path) -> list[str]:
    return path.read_bytes().decode("utf-8", "replace").split("\n")


def _settings(path: Path) -> None:
    from topology.settings import parse_setting, with_figures_where

    found = [parse_setting(line) for line in _lines(path)]
    with_figures_where([_small()], found)


@cache
def _small() -> Any:
    from topology.resolve import resolve_cluster

    return resolve_cluster("gb200-nvl72@72")


def _hostlists(path: Path) -> None:
    from topology.importers.hostlist import compress_hosts, expand_hosts

    for line in _lines(path):
        compress_hosts(expand_hosts(line, "hosts"))


def _names(path: Path) -> None:
    """Names and figures as they are typed: clusters, models, formats, quantities, generators, speeds, prices."""
    from cost.dispatch import require_policy
    from cost.dtypes import dtype
    from cost.loads import read_loads
    from cost.resolve import resolve_model
    from rackplan import options
    from topology.errors import RackplanError
    from topology.resolve import resolve_cluster
    from topology.routes import pattern_traffic
    from topology.units import parse_quantity

    text = _lines(path)[0]
    book = partial(options.Money(price=[text], power=[text]).book, _small())
    for read in (
        resolve_cluster,
        resolve_model,
        dtype,
        require_policy,
        options.speeds,
        options.name_and_share,
        options.tokens_per_s,
        lambda given: options.limit_s(given, "--tpot-ms"),
        lambda given: options.amount(given, "--bytes"),
        lambda given: parse_quantity(given, "byte/s", "link"),
        lambda given: pattern_traffic(given, 8, 1e6, None, 0),
        lambda given: read_loads([given], moe_layers=(0,), layers=1, experts=4, seed=0),
        lambda _: book(),
    ):
        try:
            read(text)
        except RackplanError:
            continue


def _traffic(path: Path) -> None:
    from topology.routes import read_traffic

    read_traffic(path, 8)


def _imported(name: str, seeds: list[Seed], enters: tuple[str, ...] = (), share: int = 10) -> Reader:
    return Reader(
        f"import-{name}",
        lambda: seeds,
        _import,
        (*_SOURCE, "topology.importers.importer:_read", *enters),
        share,
    )


_XML = ("topology.reading:parse_xml",)
READERS = (
    Reader(
        "cluster-yaml",
        lambda: texts("c.yaml", "yaml", *seeds.CLUSTERS),
        _cluster,
        (*_READING, "topology.reading:load_yaml", "topology.cluster_file:read_cluster_file"),
        5,
    ),
    _imported("topo-m", texts("t.txt", "text", seeds.TOPO_M)),
    _imported(
        "amd-smi",
        [*texts("a.txt", "text", seeds.AMD_TEXT, seeds.ROCM), *texts("a.json", "json", seeds.AMD_JSON)],
        _DATA[:1],
    ),
    _imported(
        "lstopo", texts("l.xml", "xml", seeds.LSTOPO), (*_XML, "topology.importers.lstopo:read_lstopo")
    ),
    _imported(
        "nccl-xml", texts("n.xml", "xml", seeds.NCCL), (*_XML, "topology.importers.nccl_xml:read_nccl_xml")
    ),
    _imported("slurm-conf", texts("topology.conf", "text", *seeds.SLURM)),
    _imported("slurm-yaml", texts("topology.yaml", "yaml", *seeds.SLURM_YAML), _DATA[1:]),
    _imported("topograph", texts("m.yaml", "yaml", *seeds.TOPOGRAPH), _DATA[1:]),
    _imported("ibnetdiscover", texts("ib.out", "text", seeds.IB)),
    _imported("infragraph", texts("i.yaml", "yaml", seeds.INFRA, seeds.CONNECTIONS), _DATA[1:]),
    _imported("netq", texts("q.json", "json", seeds.NETQ), _DATA[:1]),
    _imported(
        "netbox",
        [*texts("b.json", "json", seeds.NETBOX), *texts("b.csv", "csv", seeds.NETBOX_CSV)],
        (*_DATA[:1], "topology.importers.netbox:_csv_rows"),
    ),
    _imported("simai", texts("s.txt", "text", seeds.SIMAI)),
    Reader("settings", lambda: texts("s.txt", "text", *seeds.SETTINGS), _settings, (), 10),
    Reader("hostlists", lambda: texts("h.txt", "text", *seeds.HOSTLISTS), _hostlists, (), 20),
    Reader(
        "typed-words",
        lambda: texts(
            "w.txt",
            "text",
            "gb200-nvl72@72",
            "mixtral-8x7b",
            "bf16",
            "25,50",
            "200M",
            "450 GB/s",
            "zipf:1.2",
            "gb200=3.1",
            "rank-tp2",
            "shift:3",
        ),
        _names,
        (),
        5,
    ),
    Reader(
        "traffic-npy",
        lambda: texts("t.npy", "npy", seeds_files.npy(np.ones((8, 8)))),
        _traffic,
        ("topology.routes.traffic:read_traffic",),
        20,
    ),
)
