"""Files of others to one cluster: read each, merge, take the rest from named parts, and write it down."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from topology.errors import InputError
from topology.importers.assemble import assemble_fabric, assemble_node, assemble_whole
from topology.importers.detect import read_found
from topology.importers.found import FabricFound, NodeFound, WholeFound
from topology.importers.hostlist import expand_hosts
from topology.importers.merge import merge_found
from topology.importers.parts import Parts
from topology.importers.regular import regular_spec
from topology.importers.source import read_source
from topology.plausible import check_raw_links
from topology.raw import raw_cluster_spec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topology.importers.assemble import Assembled
    from topology.importers.found import Found
    from topology.importers.options import ImportOptions
    from topology.spec import ClusterSpec

__all__ = ["FileRead", "Imported", "import_files"]


@dataclass(frozen=True)
class FileRead:
    """One file: its name, kind, and what was counted in it."""

    name: str
    kind: str
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Imported:
    """An imported cluster.

    ``spec`` is in the regular form of domains and a fabric where everything found is regular, else a raw graph.
    ``domains`` gives the hosts of each scale-up domain, ``taken`` what came from named parts or options,
    ``anomalies`` what is unlike its siblings; ``rates_unusual`` is set where rates are not those that the catalog
    knows for such parts.
    """

    spec: ClusterSpec
    files: tuple[FileRead, ...]
    domains: dict[str, list[str]]
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
    parts = Parts(options, _sm(found), infiniband=any(one.kind == "ibnetdiscover" for one in found))
    name = options.name or _default_name(paths)
    fabric, nodes, unlike = merge_found(found)
    if isinstance(found[0], WholeFound):
        assembled = assemble_whole(found[0], parts)
    elif fabric is not None:
        assembled = assemble_fabric(fabric, nodes, parts)
    else:
        node = next(one for one in found if isinstance(one, NodeFound))
        assembled = assemble_node(node, parts)
    anomalies = [line for one in found for line in one.anomalies] + unlike + assembled.anomalies
    spec = regular_spec(name, fabric, nodes, assembled, parts, regular=not anomalies) if fabric else None
    unusual = _unusual_rates(assembled)
    if spec is None:
        spec = raw_cluster_spec(name, assembled.raw, (), " and ".join(one.place for one in found))
    return Imported(
        spec=spec,
        files=tuple(FileRead(one.place, one.kind, one.notes) for one in found),
        domains=assembled.domains,
        taken=(*parts.taken, *assembled.notes),
        anomalies=tuple([*anomalies, *([unusual] if unusual else [])]),
        rates_unusual=bool(unusual),
    )


def _read(text: str, options: ImportOptions) -> Found:
    """Read one file, with the hosts it is of where the user names them."""
    hosts: tuple[str, ...] = ()
    path = Path(text)
    if "=" in text and not path.exists():
        named, _, rest = text.partition("=")
        hosts, path = tuple(expand_hosts(named, f"{text}")), Path(rest)
    found = read_found(read_source(path), options.kind, options.topology)
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
        raise InputError(f"{a.place} says compute capability {a.sm}, {b.place} {b.sm}: nodes of two generations.")
    return next(iter(stated), "")


def _default_name(paths: Sequence[str]) -> str:
    """Name a cluster after the first file."""
    first = Path(paths[0].partition("=")[2] if "=" in paths[0] and not Path(paths[0]).exists() else paths[0])
    return first.stem or "imported"


def _unusual_rates(assembled: Assembled) -> str:
    """Return what the catalog finds unusual about the rates, nothing where they are plausible."""
    try:
        check_raw_links(assembled.raw, "rates")
    except InputError as error:
        return f"{str(error).split(' If it is meant')[0]} Kept as the file has it."
    return ""
