"""The kinds of files that are read, and the kind of a file by its content alone."""

from __future__ import annotations

import re
from dataclasses import replace

from topology.base.errors import InputError, printable
from topology.importers import (
    amd_smi,
    ibnetdiscover,
    links_csv,
    nccl_xml,
    slurm,
    topo_m,
    topograph,
)
from topology.importers.found import Found
from topology.importers.source import Source

FORMATS = (
    topo_m.FORMAT,
    nccl_xml.FORMAT,
    slurm.CONF_FORMAT,
    slurm.YAML_FORMAT,
    topograph.FORMAT,
    ibnetdiscover.FORMAT,
    amd_smi.FORMAT,
    links_csv.FORMAT,
)
KINDS = tuple(one.kind for one in FORMATS)
_UNREADABLE = {
    r"^[^\S\n]*+(domains|nodes)\s*+:": "is a cluster YAML already, or none that is known: use it as it is.",
    r"\bGPU\d+\b": "looks like `nvidia-smi topo -m`, but header or rows are missing; is it cut?",
}
"""What shows a file that is not read, and what to do instead."""
_KEY = re.compile(r"^[^\S\n]*+(-[^\S\n]++)?[\w\"']++[^\S\n]*+:", re.MULTILINE)


def kind_of(source: Source) -> str:
    """Return the kind of a file.

    Raises
    ------
    InputError
        If no importer reads it; the message says what it is, where that can be told.
    """
    text = source.text
    for one in FORMATS:
        if one.in_text is not None and one.in_text(text):
            return one.kind
    start = text.lstrip()
    if start.startswith(("{", "[")) or (_KEY.search(text) and not start.startswith("<")):
        for one in FORMATS:
            if one.in_data is not None and one.in_data(source.data):
                return one.kind
    for pattern, what in _UNREADABLE.items():
        if re.search(pattern, text, re.MULTILINE):
            raise source.error(None, what)
    raise source.error(None, f"is none of the kinds that are read ({', '.join(KINDS)}); is it whole?")


def parse(source: Source, kind: str | None = None) -> Found:
    """Return what a file of the given kind holds, or of the one that its content shows.

    Raises
    ------
    InputError
        If the kind is not known, or the file is not of it.
    """
    if kind is not None and kind not in KINDS:
        raise InputError(f"`kind` {kind}: not one of {', '.join(KINDS)}.")
    kind = kind or kind_of(source)
    found = FORMATS[KINDS.index(kind)].parse(source)
    return replace(found, place=source.name, kind=kind, anomalies=tuple(map(printable, source.anomalies)))
