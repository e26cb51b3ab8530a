"""Files of others to one cluster: read each, merge, take the rest from named parts, and write it down."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from topology.base.errors import InputError, printable
from topology.build import raw_cluster_spec
from topology.cluster import ClusterSpec
from topology.importers.assemble import (
    Assembled,
    assemble_fabric,
    assemble_graph,
    assemble_node,
)
from topology.importers.found import FabricFound, Found, GraphFound, NodeFound
from topology.importers.homogeneous import Short, short_form, unswitched
from topology.importers.hostlist import expand_hosts
from topology.importers.merge import merge_found
from topology.importers.parts import ImportOptions, Parts
from topology.importers.registry import read_found
from topology.importers.source import read_source
from topology.plausible import check_raw_links


@dataclass(frozen=True)
class Imported:
    """An imported cluster.

    ``spec`` is in the regular form of domains and a fabric where everything found is regular, else a raw graph.
    ``domains`` gives the hosts of each scale-up domain, ``hosts`` those of a regular form in its order, ``taken``
    what came from named parts or options, ``anomalies`` what is unlike its siblings; ``rates_unusual`` is set where
    rates are not those that the catalog knows for such parts.
    """

    spec: ClusterSpec
    files: tuple[Found, ...]
    domains: dict[str, list[str]]
    hosts: tuple[str, ...]
    taken: tuple[str, ...]
    anomalies: tuple[str, ...]
    rates_unusual: bool = False


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
    found = [_read(path, options) for path in paths]
    infiniband = any(one.infiniband for one in found if isinstance(one, FabricFound))
    parts = Parts(options, _sm(found), infiniband=infiniband)
    parts.anomalies += [line for one in found for line in one.anomalies]
    name = _hosts_and_path(paths[0])[1].stem or "imported"
    place = " and ".join(one.place for one in found)
    assembled, short = _assemble(name, found, parts, place)
    spec, hosts = short or (raw_cluster_spec(name, assembled.raw, (), place), [])
    if unusual := _unusual_rates(assembled):
        parts.anomalies.append(unusual)
    return Imported(
        spec=spec,
        files=tuple(found),
        domains=assembled.domains,
        hosts=tuple(hosts),
        taken=_lines(parts.taken),
        anomalies=_lines(parts.anomalies),
        rates_unusual=bool(unusual),
    )


def _lines(texts: Iterable[str]) -> tuple[str, ...]:
    """Return lines that name what files hold, without control characters."""
    return tuple(printable(text) for text in texts)


def _assemble(name: str, found: Sequence[Found], parts: Parts, place: str) -> tuple[Assembled, Short | None]:
    """Return the raw graph, and its short form where it is homogeneous but for a few faults."""
    fabric, nodes = merge_found(found, parts)
    if isinstance(found[0], GraphFound):
        assembled = assemble_graph(found[0], parts)
    elif fabric is None:
        assembled = assemble_node(next(one for one in found if isinstance(one, NodeFound)), parts)
    else:
        assembled = assemble_fabric(fabric, nodes, parts)
        if not fabric.switches:
            return assembled, unswitched(name, fabric, assembled.raw, parts)
    return assembled, short_form(name, assembled.raw, parts, place)


def _hosts_and_path(text: str) -> tuple[str | None, Path]:
    """Return the hosts that the user names for a file, if so, and its path."""
    named, equals, path = text.partition("=")
    return (named, Path(path)) if equals and not Path(text).exists() else (None, Path(text))


def _read(text: str, options: ImportOptions) -> Found:
    """Read one file, with the hosts it is of where the user names them."""
    named, path = _hosts_and_path(text)
    hosts = () if named is None else tuple(expand_hosts(named, text))
    found = read_found(read_source(path), options.kind)
    if not hosts:
        return found
    if not isinstance(found, NodeFound):
        raise InputError(f"{text}: a {found.kind} file is not of single hosts; give it without HOSTS=.")
    return replace(found, hosts=hosts)


def _sm(found: Sequence[Found]) -> str:
    """Return the compute capability that the dumps state."""
    stated = {one.sm: one for one in found if isinstance(one, NodeFound) and one.sm}
    if len(stated) > 1:
        a, b = list(stated.values())[:2]
        raise InputError(
            f"{a.place} says compute capability {a.sm}, {b.place} {b.sm}: nodes of two generations."
        )
    return next(iter(stated), "")


def _unusual_rates(assembled: Assembled) -> str:
    """Return what the catalog finds unusual about the rates, nothing where they are plausible."""
    try:
        check_raw_links(assembled.raw, "rates")
    except InputError as error:
        return f"{str(error).split(' If it is meant')[0]} Kept as the file has it."
    return ""
