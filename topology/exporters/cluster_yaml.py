"""A cluster specification as a cluster YAML that is read back as the same cluster.

Figures of the catalog are written as names, so that they keep their origin; rates of a user or an imported file
are written out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from itertools import groupby

from topology.catalog import (
    cluster_names,
    fabric_names,
    find_scale_out,
    gpu_names,
    load_domain,
    load_fabric,
    load_gpu,
    load_scale_out,
)
from topology.errors import InputError
from topology.figures import Figure
from topology.spec import (
    ClusterSpec,
    DomainSpec,
    FabricSpec,
    Fault,
    RawNode,
    RawTopology,
    ScaleOutSpec,
)
from topology.units import parse_quantity

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./+-]*(?: [A-Za-z0-9_./+-]+)*")
_SPECIAL = ("y", "n", "yes", "no", "true", "false", "on", "off", "null", "none", "inf", "nan")
_STAND_IN = "hgx-h100"
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
    lines = [line for comment in comments for line in _comment(comment)]
    lines.append(f"name: {_text(spec.name)}")
    if rates_unusual and spec.raw is not None:
        lines.append("rate_checked: true")
    lines += _own_gpus(spec)
    if spec.raw is not None:
        lines += _raw(spec.raw)
    else:
        lines += _domains(spec.domains)
        lines += _scale_out(spec)
    lines += _faults(spec.faults)
    return "\n".join(lines) + "\n"


def _comment(text: str) -> Iterator[str]:
    """Yield a comment, broken where it is too wide."""
    line = "#"
    for word in text.split():
        if len(line) + 1 + len(word) > _COMMENT_WIDTH and line.strip("# "):
            yield line
            line = "#   "
        line += f" {word}"
    yield line


def _own_gpus(spec: ClusterSpec) -> list[str]:
    """Return figures of GPUs that are not the catalog's."""
    lines = []
    for gpu in {domain.gpu.name: domain.gpu for domain in spec.domains}.values():
        known = load_gpu(gpu.name).figures if gpu.name in gpu_names() else {}
        own = {key: figure for key, figure in gpu.figures.items() if known.get(key) != figure}
        if own:
            figures = ", ".join(f"{key}: {_quantity(figure)}" for key, figure in own.items())
            lines.append(f"  {_text(gpu.name)}: {{{figures}}}")
    return ["gpus:", *lines] if lines else []


def _raw(raw: RawTopology) -> list[str]:
    """Return nodes and links."""
    kinds = {node.id: node.kind for node in raw.nodes}
    lines = ["nodes:", *(_row(_node(node)) for node in raw.nodes), "links:" if raw.links else "links: []"]
    for link in raw.links:
        up = {kinds[end] for end in link.between} <= {"gpu", "switch"}
        count = {"count": str(link.count)} if link.count > 1 else {}
        ends = ", ".join(_text(end) for end in link.between)
        lines.append(_row({"between": f"[{ends}]", **count, **_link(link.fabric, scale_up=up)}))
    return lines


def _node(node: RawNode) -> dict[str, str]:
    """Return the fields of one node."""
    fields: dict[str, str] = {"id": _text(node.id), "kind": node.kind}
    for key, value in (("domain", node.domain), ("node", node.node), ("rack", node.rack)):
        if value is not None:
            fields[key] = _text(value)
    if node.rail is not None:
        fields["rail"] = str(node.rail)
    if node.gpu is not None:
        fields["gpu"] = _text(node.gpu.name)
    return fields


def _link(fabric: FabricSpec, *, scale_up: bool) -> dict[str, str]:
    """Return what a link says of its fabric: the catalog's name, and what differs from it."""
    fields = {"fabric": _text(fabric.name)}
    if fabric.name in fabric_names():
        known = load_fabric(fabric.name)
        latency = known.latency_s
        if fabric.link_bytes_per_s != known.link_bytes_per_s:
            fields["rate"] = _quantity(fabric.link_bytes_per_s)
    else:
        latency = _stand_in_latency(scale_up=scale_up)
        fields["rate"] = _quantity(fabric.link_bytes_per_s)
    if fabric.latency_s.value != latency.value:
        fields["latency"] = _quantity(fabric.latency_s)
    return fields


def _stand_in_latency(*, scale_up: bool) -> Figure:
    return (load_domain(_STAND_IN) if scale_up else load_scale_out(_STAND_IN)).fabric.latency_s


def _domains(domains: Sequence[DomainSpec]) -> list[str]:
    """Return domains, equal ones in a row once with their count."""
    lines = ["domains:"]
    for _, run in groupby(domains, key=lambda domain: _row(_domain(domain))):
        members = list(run)
        count = {"count": str(len(members))} if len(members) > 1 else {}
        lines.append(_row({**_domain(members[0]), **count}))
    return lines


def _domain(domain: DomainSpec) -> dict[str, str]:
    """Return the fields of one domain: its part, else everything."""
    if domain.part in cluster_names():
        full = load_domain(domain.part)
        fields = {"part": domain.part}
        if domain.structure == "torus" and domain.shape != full.shape:
            fields["shape"] = _list(domain.shape)
        elif domain.gpus != full.gpus:
            fields["gpus"] = str(domain.gpus)
        return fields
    fields = {"gpu": _text(domain.gpu.name), "structure": domain.structure}
    if domain.structure == "torus":
        fields["shape"] = _list(domain.shape)
        fields["wrap"] = f"[{', '.join(str(wrap).lower() for wrap in domain.wrap)}]"
        fields["node_shape"] = _list(domain.node_shape)
        fields["links_per_neighbour"] = str(domain.links_per_neighbour)
        rates = [_quantity(fabric.link_bytes_per_s) for fabric in domain.dimension_fabrics]
        fields["link"] = f"[{', '.join(rates)}]" if rates else _quantity(domain.fabric.link_bytes_per_s)
    else:
        fields["gpus"], fields["gpus_per_node"] = str(domain.gpus), str(domain.gpus_per_node)
        if domain.structure == "mesh":
            fields["links_per_peer"] = str(domain.links_per_neighbour)
        else:
            fields["links_per_switch"] = _list(domain.links_per_switch)
        if domain.structure == "two-tier":
            fields["upper_switches"] = str(domain.upper_switches)
        fields["link"] = _quantity(domain.fabric.link_bytes_per_s)
    fields["link_kind"] = _text(domain.fabric.kind)
    if domain.fabric.latency_s.value != _stand_in_latency(scale_up=True).value:
        fields["latency"] = _quantity(domain.fabric.latency_s)
    fields["nodes_per_rack"] = str(domain.nodes_per_rack)
    return fields


def _scale_out(spec: ClusterSpec) -> list[str]:
    """Return the fabric, nothing where it is that of the one part."""
    out = spec.scale_out
    parts = {domain.part for domain in spec.domains}
    designs = {find_scale_out(part) if part in cluster_names() else None for part in parts}
    if out is None or designs == {out}:
        return []
    fields = {"kind": out.kind, "nic": _quantity(out.fabric.link_bytes_per_s)}
    if out.nic_links_per_gpu > 1:
        fields["nics_per_gpu"] = str(out.nic_links_per_gpu)
    fields.update(_switches(out))
    if out.fabric.latency_s.value != _stand_in_latency(scale_up=False).value:
        fields["latency"] = _quantity(out.fabric.latency_s)
    return [f"fabric: {{{', '.join(f'{key}: {value}' for key, value in fields.items())}}}"]


def _switches(out: ScaleOutSpec) -> dict[str, str]:
    """Return how the switches of a fabric are cabled."""
    over = f"{out.oversubscription:.12g}"
    if out.kind == "rail":
        return {"oversubscription": over, "nodes_per_pod": str(out.nodes_per_pod), "spines": str(out.spines)}
    if out.kind == "leaf-spine":
        return {
            "oversubscription": over,
            "nodes_per_leaf": str(out.nodes_per_leaf),
            "spines": str(out.spines),
        }
    if out.kind == "fat-tree":
        cores = {"cores": str(out.cores * out.spines)} if out.cores else {}
        return {
            "oversubscription": f"[{over}, {out.core_oversubscription:.12g}]",
            "nodes_per_leaf": str(out.nodes_per_leaf),
            "leaves_per_pod": str(out.leaves_per_pod),
            "spines": str(out.spines),
            **cores,
        }
    if out.kind == "dragonfly":
        return {
            "oversubscription": over,
            "nodes_per_router": str(out.nodes_per_leaf),
            "routers_per_group": str(out.leaves_per_pod),
            "local_links": str(out.local_links),
        }
    raise InputError(f"a fabric of the kind {out.kind} cannot be written as a cluster YAML.")


def _faults(faults: Sequence[Fault]) -> list[str]:
    """Return what is broken or degraded."""
    lines = ["broken:"] if faults else []
    for fault in faults:
        factor = {"factor": f"{fault.factor:.12g}"} if fault.factor else {}
        if fault.link is None:
            lines.append(_row({"gpu": _text(fault.gpu or ""), **factor}))
            continue
        ends = f"[{', '.join(_text(end) for end in fault.link)}]"
        lines.append(_row({"link": ends, **factor}))
    return lines


def _row(fields: dict[str, str]) -> str:
    return f"  - {{{', '.join(f'{key}: {value}' for key, value in fields.items())}}}"


def _list(numbers: Sequence[int]) -> str:
    return f"[{', '.join(str(number) for number in numbers)}]"


def _text(text: str) -> str:
    """Return a text as YAML reads it back: plain where that is safe, else in quotes."""
    if _PLAIN.fullmatch(text) and text.lower() not in _SPECIAL:
        return text
    return json.dumps(text, ensure_ascii=True)


def _quantity(figure: Figure) -> str:
    """Return a figure as a quantity that reads back as the same number."""
    unit = {"byte/s": "B/s", "byte": "B", "flop/s": "flop/s", "s": "s", "W": "W", "USD/h": "USD/h"}[
        figure.unit
    ]
    if figure.text:
        try:
            same = parse_quantity(figure.text, figure.unit, "figure") == figure.value
        except InputError:
            same = False
        if same:
            return figure.text
    value = figure.value
    for prefix, factor in (("T", 1e12), ("G", 1e9), ("M", 1e6)) if unit != "s" else ():
        if (
            value >= factor
            and f"{value / factor:.12g}".find("e") < 0
            and float(f"{value / factor:.12g}") * factor == value
        ):
            return f"{value / factor:.12g} {prefix}{unit}"
    return f"{value!r} {unit}"
