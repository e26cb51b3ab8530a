"""The kind of a file, by its content alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from topology.errors import InputError
from topology.importers.data import load_data
from topology.importers.found import Found
from topology.importers.ibnetdiscover import looks_like_ibnetdiscover, read_ibnetdiscover
from topology.importers.infragraph import looks_like_infragraph, read_infragraph
from topology.importers.nccl_xml import read_nccl_xml
from topology.importers.netq import looks_like_netq, read_netq
from topology.importers.simai import looks_like_simai, read_simai
from topology.importers.slurm import (
    looks_like_slurm_conf,
    looks_like_slurm_yaml,
    read_slurm_conf,
    read_slurm_yaml,
)
from topology.importers.source import Source
from topology.importers.topo_m import looks_like_topo_m, read_topo_m
from topology.importers.topograph import looks_like_topograph, read_topograph

KINDS = (
    "topo-m",
    "nccl-xml",
    "slurm-conf",
    "slurm-yaml",
    "topograph",
    "ibnetdiscover",
    "infragraph",
    "netq",
    "simai",
)
_READERS: Mapping[str, Callable[[Source], Found]] = {
    "topo-m": read_topo_m,
    "nccl-xml": read_nccl_xml,
    "slurm-conf": read_slurm_conf,
    "topograph": read_topograph,
    "ibnetdiscover": read_ibnetdiscover,
    "infragraph": read_infragraph,
    "netq": read_netq,
    "simai": read_simai,
}
_REFUSED = (
    (
        re.compile(r"<\s*interserver_route"),
        "a FlagCX inter-server route (pairs of NICs): give the fabric's own file",
    ),
    (
        re.compile(r"^\s*npus_count\s*:", re.MULTILINE),
        "an ASTRA-sim network (dimensions, no nodes or links): write it as a cluster YAML",
    ),
    (
        re.compile(r"^\s*(domains|nodes)\s*:", re.MULTILINE),
        "a cluster YAML already, or none that is known: use it as it is",
    ),
)


def kind_of(source: Source) -> str:
    """Return the kind of a file.

    Raises
    ------
    InputError
        If it is none that is read; the message says what it is, where that can be told.
    """
    text = source.text
    start = text.lstrip()
    if start.startswith("<") and "<interserver_route" not in text[:2000]:
        return "nccl-xml"
    for kind, looks in (
        ("topo-m", looks_like_topo_m),
        ("ibnetdiscover", looks_like_ibnetdiscover),
        ("slurm-conf", looks_like_slurm_conf),
        ("simai", looks_like_simai),
    ):
        if looks(text):
            return kind
    for pattern, what in _REFUSED[:2]:
        if pattern.search(text):
            raise source.error(None, f"is {what}.")
    if start.startswith(("{", "[")) or re.search(r"^\s*(-\s+)?[\w\"']+\s*:", text, re.MULTILINE):
        kind_found = _data_kind(source)
        if kind_found is not None:
            return kind_found
    for pattern, what in _REFUSED[2:]:
        if pattern.search(text):
            raise source.error(None, f"is {what}.")
    if re.search(r"\bGPU\d+\b", text):
        raise source.error(
            None, "looks like `nvidia-smi topo -m`, but header or rows are missing; is it cut?"
        )
    raise source.error(None, f"is none of the kinds that are read ({', '.join(KINDS)}); is it whole?")


def _data_kind(source: Source) -> str | None:
    """Return the kind of a YAML or JSON file, None where it is none that is known."""
    value = load_data(source).value
    for kind, looks in (
        ("netq", looks_like_netq),
        ("slurm-yaml", looks_like_slurm_yaml),
        ("topograph", looks_like_topograph),
        ("infragraph", looks_like_infragraph),
    ):
        if looks(value):
            return kind
    return None


def read_found(source: Source, kind: str | None, topology: str | None) -> Found:
    """Read a file of the given kind, or of the one that its content shows.

    Raises
    ------
    InputError
        If the kind is not known, or the file is not of it.
    """
    if kind is not None and kind not in KINDS:
        raise InputError(f"--from {kind}: not one of {', '.join(KINDS)}.")
    found = kind or kind_of(source)
    if found == "slurm-yaml":
        return read_slurm_yaml(source, topology)
    return _READERS[found](source)
