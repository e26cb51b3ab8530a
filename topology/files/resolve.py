"""Resolve user input to a cluster: a catalog name, ``name@GPUS``, or a cluster YAML."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path

from topology.base.errors import InputError
from topology.base.reading import shown
from topology.base.values import plain
from topology.build import MAX_GPUS, build_cluster
from topology.catalog import find_scale_out, load_domain, load_scale_out
from topology.catalog.shapes import load_shapes, shape_of, shaped
from topology.catalog.spelled import counted, system_called, systems_meant, taken_as
from topology.cluster import Cluster, ClusterSpec
from topology.fabrics.fabric import ScaleOutSpec
from topology.structures.domain import DomainSpec, part_sizes
from topology.structures.torus import TorusDomain

_SUFFIXES = (".yaml", ".yml")


def resolve_cluster(cluster: str | Path | Mapping[str, object] | Cluster) -> Cluster:
    """Return the cluster that is named or described.

    Parameters
    ----------
    cluster:
        A catalog name in any spelling (one domain; ``2 x GB200 NVL72`` two, ``16xH100`` 16 GPUs), ``name@GPUS``
        (domains filled in order, the last may be partial: whole nodes, or 1, 2, 4... GPUs of one), for a torus
        ``name@4x4x8`` (its shape), the path of a cluster YAML, or its content. A cluster is
        returned as it is.

    Raises
    ------
    InputError
        If there is no such name, count or file, or it is none of these; the message offers the nearest that work.
    """
    if isinstance(cluster, Cluster):
        return cluster
    if isinstance(cluster, Mapping):
        return cluster_from(cluster)
    if not isinstance(cluster, str | Path):
        raise InputError(
            "expected a name, a YAML file, the content of one, or a Cluster.",
            field="cluster",
            value=shown(cluster),
        )
    text = str(cluster)
    if text.lower().endswith(_SUFFIXES):
        from topology.files.cluster_file import read_cluster_file

        path = Path(text)
        if not path.is_file():
            raise InputError(f'cluster file "{text}" does not exist or is not a file.')
        return build_cluster(read_cluster_file(path))
    text = cluster_called(text)
    name, at, count = text.partition("@")
    if not at:
        return build_cluster(ClusterSpec(text, (load_domain(name),), find_scale_out(name)))
    return build_cluster(_sized(text, load_domain(name), count))


def cluster_from(content: Mapping[str, object], name: str = "cluster") -> Cluster:
    """Return the cluster that a mapping describes, with the keys of a cluster YAML: GPUs of your own too.

    Raises
    ------
    InputError
        If it has unknown keys, or describes what cannot be built.
    """
    from topology.files.cluster_file import read_cluster

    return build_cluster(read_cluster(plain(dict(content)), name, name))


def cluster_called(text: str) -> str:
    """Return ``text`` as the catalog writes it; a file as it is.

    ``GB200 NVL72@144`` is ``gb200-nvl72@144``, as ``2 x GB200 NVL72`` is; ``16xH100`` is ``hgx-h100@16``.

    Raises
    ------
    InputError
        If it is no file and names no system of the catalog, or several.
    """
    if text.lower().endswith(_SUFFIXES):
        return text
    typed, at, count = text.partition("@")
    if not at and not systems_meant(typed) and (parts := counted(typed)) is not None:
        name, sizes, of_gpus = parts
        domain = load_domain(name)
        if isinstance(domain, TorusDomain) and of_gpus and len(sizes) > 1:
            return f"{name}@{'x'.join(map(str, sizes))}"
        gpus = math.prod(sizes) * (1 if of_gpus else domain.gpus)
        return name if gpus == domain.gpus else f"{name}@{gpus}"
    name = system_called(typed, "A cluster file must end in .yaml.")
    return f"{name}{at}{count.strip()}"


def cluster_remark(text: str) -> str:
    """Return what a name of a cluster was taken as; empty where it is a name or title of the catalog, or a file.

    Raises
    ------
    InputError
        As :func:`cluster_called`.
    """
    called = cluster_called(text)
    name = called.partition("@")[0]
    if called == text or not taken_as(text.partition("@")[0], name):
        return ""
    domain = load_domain(name)
    return f'cluster "{text}" is interpreted as {called} (domains of {domain.gpus} GPUs {domain.gpu.name})'


def parse_shape(text: str) -> tuple[int, ...] | None:
    """Return the shape that a text such as ``4x4x8`` names, None where it is not one."""
    sizes = text.split("x")
    if len(sizes) < 2 or not all(size.isascii() and size.isdigit() and len(size) < 7 for size in sizes):
        return None
    shape = tuple(int(size) for size in sizes)
    return shape if min(shape) > 0 else None


def _sized(text: str, domain: DomainSpec, count: str) -> ClusterSpec:
    """Return ``name@count`` of a catalog's domain: full domains, then a partial one of whole nodes or part of one.

    A torus takes a shape instead (``name@4x4x8``: one torus); of one that is made in a single shape, a count of GPUs
    is several.
    """
    name, where = domain.part, f'cluster "{text}"'
    counted = re.fullmatch(r"[0-9]{1,9}", count) is not None
    torus = isinstance(domain, TorusDomain)
    if torus and (shape := parse_shape(count)) is not None:
        return ClusterSpec(text, (shaped(domain, shape, where),), find_scale_out(name))
    if isinstance(domain, TorusDomain) and (load_shapes(name) is not None or not counted):
        searchable = counted and 0 < int(count) < 100_000
        fit = shape_of(domain, int(count)) if searchable and load_shapes(name) is not None else None
        example = f"{name}@{'x'.join(str(size) for size in fit or domain.shape)}"
        raise InputError(
            f"{where}: {name} is a torus, so give its shape after @, like {example}; several tori need a "
            f"cluster YAML, like {{part: {name}, shape: {list(domain.shape)}, count: 2}}."
        )
    if not counted or (int(count) == 0 and not torus):
        raise InputError(f"{where}: expected a number of GPUs after @, like {name}@{domain.gpus}.")
    gpus = int(count)
    if gpus > MAX_GPUS:
        raise InputError(f"{where}: at most {MAX_GPUS:,} GPUs are supported.")
    if torus and (gpus == 0 or gpus % domain.gpus):
        raise InputError(
            f"{where}: {name} is available in whole tori of {domain.gpus} GPUs; use a multiple of {domain.gpus}."
        )
    if gpus not in (sizes := part_sizes(gpus, domain.gpus_per_node)):
        raise InputError(
            f"{where}: {gpus} GPUs do not fill whole nodes of {domain.gpus_per_node}, nor are they a power of two of "
            f"one; the nearest are {' or '.join(f'{name}@{size}' for size in sizes)}."
        )
    scale_out = load_scale_out(name) if gpus > domain.gpus else find_scale_out(name)
    return fill_domains(text, domain, scale_out, gpus)


def fill_domains(name: str, domain: DomainSpec, scale_out: ScaleOutSpec | None, gpus: int) -> ClusterSpec:
    """Return a cluster of ``gpus`` GPUs: domains filled in order, the last may be partial.

    Raises
    ------
    InputError
        If a torus would be partial, or the rest is neither whole nodes nor a power of two of one.
    """
    full, partial = divmod(gpus, domain.gpus)
    if partial and domain.whole:
        raise InputError(f"{name}: {gpus} GPUs do not fill whole tori of {domain.gpus}.")
    domains = (domain,) * full + ((domain.cut(partial),) if partial else ())
    return ClusterSpec(name, domains, scale_out)
