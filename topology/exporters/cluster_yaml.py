"""A cluster specification as a cluster YAML that is read back as the same cluster.

Figures of the catalog are written as names, so that they keep their origin; rates of a user or an imported file
are written out.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from topology.base.errors import InputError
from topology.base.figures import Figure
from topology.base.schema import plain
from topology.base.units import parse_quantity
from topology.catalog import (
    cluster_names,
    fabric_names,
    find_scale_out,
    gpu_names,
    load_domain,
    load_fabric,
    load_gpu,
    stand_in_latency,
)
from topology.cluster import ClusterSpec
from topology.fabrics.fabric import CabledFabric
from topology.spec import FabricSpec, RawTopology
from topology.structures.domain import DomainSpec
from topology.structures.torus import TorusDomain

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./+-]*(?: [A-Za-z0-9_./+-]+)*")
_SPECIAL = ("y", "n", "yes", "no", "true", "false", "on", "off", "null", "none", "inf", "nan")
_COMMENT_WIDTH = 108


def cluster_to_yaml(spec: ClusterSpec, comments: Sequence[str] = (), *, rates_unusual: bool = False) -> str:
    """Return ``spec`` as the text of a cluster YAML.

    Parameters
    ----------
    spec:
        Domains and a fabric, or a raw graph.
    comments:
        Lines for the top of the file.
    rates_unusual:
        Write ``rate_checked: true``: rates that the catalog finds unlikely are meant.

    Raises
    ------
    InputError
        If it has a figure that a cluster YAML cannot say.
    """
    lines = []
    for comment in comments:
        lines += textwrap.wrap(
            " ".join(comment.split()),
            _COMMENT_WIDTH,
            initial_indent="# ",
            subsequent_indent="#    ",
            break_long_words=False,
            break_on_hyphens=False,
        ) or ["#"]
    lines.append(f"name: {_flow(spec.name)}")
    checked: dict[str, object] = {"rate_checked": True} if rates_unusual else {}
    if checked and spec.raw is not None:
        lines.append("rate_checked: true")
    if gpus := _own_gpus(spec):
        lines += ["gpus:", *(f"  {_flow(name)}: {_flow(figures)}" for name, figures in gpus.items())]
    if spec.raw is not None:
        lines += _raw(spec.raw)
    else:
        lines += [*_domains(spec.domains, checked), *_fabric(spec, checked)]
    if spec.faults:
        rows = [plain(fault) for fault in spec.faults]
        for row in rows:
            # what is said of a link without a factor is that it is down, of one that ends elsewhere that it works
            if row["factor"] == ("cabled_to" in row):
                del row["factor"]
        lines += _rows("broken", rows)
    return "\n".join(lines) + "\n"


def _own_gpus(spec: ClusterSpec) -> dict[str, dict[str, Figure]]:
    """Return figures of GPUs that are not the catalog's."""
    changed = {}
    for gpu in {domain.gpu.name: domain.gpu for domain in spec.domains}.values():
        known = load_gpu(gpu.name).figures if gpu.name in gpu_names() else {}
        changed[gpu.name] = {key: figure for key, figure in gpu.figures.items() if known.get(key) != figure}
    return {name: figures for name, figures in changed.items() if figures}


def _raw(raw: RawTopology) -> list[str]:
    """Return nodes and links."""
    kinds = {node.id: node.kind for node in raw.nodes}
    keys = ("id", "kind", "domain", "node", "rack", "rail", "gpu")
    nodes = [
        {k: v.name if k == "gpu" else v for k in keys if (v := getattr(node, k)) is not None}
        for node in raw.nodes
    ]
    links = []
    for link in raw.links:
        count = {"count": link.count} if link.count > 1 else {}
        up = {kinds[end] for end in link.between} <= {"gpu", "switch"}
        links.append({"between": link.between, **count, **_link(link.fabric, scale_up=up)})
    return [*_rows("nodes", nodes), *(_rows("links", links) if links else ["links: []"])]


def _link(fabric: FabricSpec, *, scale_up: bool) -> dict[str, object]:
    """Return what a link says of its fabric: the catalog's name, and what differs from it."""
    row: dict[str, object] = {"fabric": fabric.name}
    known = load_fabric(fabric.name) if fabric.name in fabric_names() else None
    if known is None or fabric.link_bytes_per_s != known.link_bytes_per_s:
        row["rate"] = fabric.link_bytes_per_s
    latency = stand_in_latency(scale_up=scale_up) if known is None else known.latency_s
    return row | _latency(fabric, latency)


def _latency(fabric: FabricSpec, usual: Figure) -> dict[str, object]:
    return {} if fabric.latency_s.value == usual.value else {"latency": fabric.latency_s}


def _domains(domains: Sequence[DomainSpec], checked: dict[str, object]) -> list[str]:
    """Return domains, equal ones in a row once with their count; ``checked`` goes with rates written out."""
    rows = []
    for row, run in groupby(row if "part" in row else row | checked for row in map(_domain, domains)):
        count = len(list(run))
        rows.append({**row, "count": count} if count > 1 else row)
    return _rows("domains", rows)


def _domain(domain: DomainSpec) -> dict[str, Any]:
    """Return the fields of one domain: its part, else everything."""
    if domain.part in cluster_names():
        full = load_domain(domain.part)
        row: dict[str, Any] = {"part": domain.part}
        if isinstance(domain, TorusDomain) and isinstance(full, TorusDomain) and domain.shape != full.shape:
            row["shape"] = domain.shape
        elif domain.gpus != full.gpus:
            row["gpus"] = domain.gpus
        return row
    row = {"gpu": domain.gpu.name, "structure": domain.structure}
    row |= {key: getattr(domain, name) for key, name in domain.keys.items()}
    rates = [fabric.link_bytes_per_s for fabric in domain.fabrics[1:]]
    row |= {"link": rates or domain.fabric.link_bytes_per_s, "link_kind": domain.fabric.kind}
    row |= _latency(domain.fabric, stand_in_latency(scale_up=True))
    return row if domain.nodes_per_rack is None else row | {"nodes_per_rack": domain.nodes_per_rack}


def _fabric(spec: ClusterSpec, checked: dict[str, object]) -> list[str]:
    """Return the fabric, nothing where it is that of the one part."""
    out = spec.scale_out
    parts = {domain.part for domain in spec.domains}
    designs = {find_scale_out(part) if part in cluster_names() else None for part in parts}
    if out is None or designs == {out}:
        return []
    row: dict[str, object] = {"kind": out.kind, "nic": out.fabric.link_bytes_per_s}
    if out.nic_links_per_gpu > 1:
        row["nics_per_gpu"] = out.nic_links_per_gpu
    if out.planes > 1:
        row["planes"] = out.planes
    if not isinstance(out, CabledFabric):
        raise InputError(f"a fabric of kind {out.kind} cannot be written as a cluster YAML.")
    row |= out.keys() | _latency(out.fabric, stand_in_latency(scale_up=False)) | checked
    return [f"fabric: {_flow(row)}"]


def _rows(key: str, rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return a list of rows, one line each."""
    return [f"{key}:", *(f"  - {_flow(row)}" for row in rows)]


def _flow(value: object) -> str:
    """Return a value as YAML in one line; a text is plain where it is read back as one, else in quotes."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {_flow(item)}' for key, item in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_flow, value))}]"
    if isinstance(value, Figure):
        return _quantity(value)
    if isinstance(value, str):
        plain_text = _PLAIN.fullmatch(value) and value.lower() not in _SPECIAL
        return value if plain_text else json.dumps(value, ensure_ascii=True)
    return f"{value:.12g}" if isinstance(value, float) else str(value).lower()


def _quantity(figure: Figure) -> str:
    """Return a figure as a quantity that reads back as the same number."""
    if figure.text:
        try:
            if parse_quantity(figure.text, figure.unit, "figure") == figure.value:
                return figure.text
        except InputError:
            pass
    unit = {"byte/s": "B/s", "byte": "B"}.get(figure.unit, figure.unit)
    value = figure.value
    for prefix, factor in (("T", 1e12), ("G", 1e9), ("M", 1e6)) if unit != "s" else ():
        digits = f"{value / factor:.12g}"
        if value >= factor and "e" not in digits and float(digits) * factor == value:
            return f"{digits} {prefix}{unit}"
    return f"{value!r} {unit}"
