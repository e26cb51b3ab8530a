"""Files of other tools to one cluster: parse each, complete them, and build the specification.

The kind of a file shows in its content alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from topology.base.errors import InputError, printable
from topology.importers import amd_smi, ibnetdiscover, links_csv, nccl_xml, slurm, topo_m, topograph
from topology.importers.answers import ImportOptions
from topology.importers.complete import Imported, complete
from topology.importers.found import Found, NodeFound
from topology.importers.hostlist import expand_hosts
from topology.importers.source import Source, read_source

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
KINDS = tuple(form.kind for form in FORMATS)
_UNREADABLE = {
    r"^[^\S\n]*+(domains|nodes)\s*+:": "is already a cluster YAML, or an unknown one; use it directly.",
    r"\bGPU\d+\b": "looks like `nvidia-smi topo -m`, but header or rows are missing; is it truncated?",
}
"""How to recognize unsupported files, and what to do instead."""
_KEY = re.compile(r"^[^\S\n]*+(-[^\S\n]++)?[\w\"']++[^\S\n]*+:", re.MULTILINE)


def kind_of(source: Source) -> str:
    """Return the kind of a file.

    Raises
    ------
    InputError
        If no importer reads it; the message says what it is, where that can be told.
    """
    text = source.text
    kinds = [form.kind for form in FORMATS if form.in_text(text)]
    if not kinds and (text.lstrip().startswith(("{", "[")) or _KEY.search(text)):
        kinds = [form.kind for form in FORMATS if form.in_data(source.data)]
    if kinds:
        return kinds[0]
    for pattern, problem in _UNREADABLE.items():
        if re.search(pattern, text, re.MULTILINE):
            raise source.error(None, problem)
    raise source.error(None, f"is none of the supported kinds ({', '.join(KINDS)}); is it complete?")


def parse(source: Source, kind: str | None = None) -> Found:
    """Return what a file of the given kind holds, or of the one that its content shows.

    Raises
    ------
    InputError
        If the kind is not known, or the file is not of it.
    """
    if kind is not None and kind not in KINDS:
        raise InputError(f"not one of {', '.join(KINDS)}.", field="kind", value=kind)
    kind = kind or kind_of(source)
    parsed, anomalies = FORMATS[KINDS.index(kind)].parse(source), tuple(map(printable, source.anomalies))
    readings = tuple(source.readings)
    return replace(parsed, place=source.name, kind=kind, anomalies=anomalies, readings=readings)


def import_files(paths: Sequence[str], options: ImportOptions) -> Imported:
    """Return the cluster that files of others describe.

    Parameters
    ----------
    paths:
        Paths, or ``HOSTS=PATH`` where a dump of a node is of certain hosts.
    options:
        What the files do not say.

    Raises
    ------
    InputError
        If a file cannot be read, files contradict each other, or something is missing: then by its option's name.
    """
    return complete([_parse_path(path, options.kind) for path in paths], options)


def _parse_path(text: str, kind: str | None) -> Found:
    """Parse one file, with the hosts it is of where the user names them."""
    hosts, equals, path = text.partition("=")
    if not equals or Path(text).exists():
        return parse(read_source(Path(text)), kind)
    names = tuple(expand_hosts(hosts, text))
    parsed = parse(read_source(Path(path)), kind)
    if not isinstance(parsed, NodeFound):
        problem = f"a {parsed.kind} file does not describe single hosts; give it without HOSTS=."
        raise InputError(f"{text}: {problem}")
    return replace(parsed, hosts=names)
