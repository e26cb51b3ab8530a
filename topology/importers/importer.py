"""Files of others to one cluster: parse each, complete them, and build the specification."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from topology.base.errors import InputError, printable
from topology.importers.build import build
from topology.importers.complete import complete
from topology.importers.formats import parse
from topology.importers.found import Found, NodeFound
from topology.importers.hostlist import expand_hosts
from topology.importers.options import ImportOptions
from topology.importers.source import read_source
from topology.spec import ClusterSpec


@dataclass(frozen=True)
class Imported:
    """An imported cluster.

    ``spec`` is in the regular form of domains and a fabric where everything found is regular, else a raw graph.
    ``domains`` gives the hosts of each scale-up domain, ``hosts`` those of a regular form in its order,
    ``assumptions`` what came from named parts, options or a rule, ``anomalies`` what differs from its siblings;
    ``rates_unusual`` is set where rates are not those that the catalog knows for such parts.
    """

    spec: ClusterSpec
    files: tuple[Found, ...]
    domains: dict[str, list[str]]
    hosts: tuple[str, ...]
    assumptions: tuple[str, ...]
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
    found = [_parse(path, options.kind) for path in paths]
    completed, assumptions = complete(found, options)
    built = build(completed)
    return Imported(
        spec=built.spec,
        files=tuple(found),
        domains=completed.domains,
        hosts=built.hosts,
        assumptions=tuple(map(printable, assumptions)),
        anomalies=tuple(map(printable, (*completed.anomalies, *built.anomalies))),
        rates_unusual=built.rates_unusual,
    )


def _parse(text: str, kind: str | None) -> Found:
    """Parse one file, with the hosts it is of where the user names them."""
    hosts, equals, path = text.partition("=")
    if not equals or Path(text).exists():
        return parse(read_source(Path(text)), kind)
    names = tuple(expand_hosts(hosts, text))
    found = parse(read_source(Path(path)), kind)
    if not isinstance(found, NodeFound):
        raise InputError(f"{text}: a {found.kind} file is not of single hosts; give it without HOSTS=.")
    return replace(found, hosts=names)
