"""Figures that a user sets: ``gb200.hbm_bytes_per_s=2x`` changes a GPU, a fabric or a system of a cluster.

A figure that is set is of the kind ``user`` and says what it was before, so everything that rests on it says so too.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NoReturn

from topology.base.errors import InputError, input_name
from topology.base.figures import Evidence, Figure
from topology.base.names import Names
from topology.base.plausible import wrong_figure
from topology.base.reading import nearest
from topology.base.units import format_number, format_quantity, parse_quantity
from topology.build import raw_cluster_spec, rebuilt
from topology.cluster import Cluster, ClusterSpec
from topology.graph import INSIDE_KINDS, SCALE_UP_KINDS
from topology.spec import GPU_FIGURES, LINK_FIGURES, SYSTEM_FIGURES, FabricSpec, GpuSpec, RawLink, RawNode
from topology.structures.domain import DomainSpec
from topology.structures.torus import TorusDomain

SET_BY_USER = "set by the user"
"""Prefix of the source of an overridden figure."""
PEAKS = "flop_per_s"
"""Peaks of a GPU in all formats, which a factor changes together."""
_FIGURES: Mapping[str, Mapping[str, str]] = {
    "gpu": GPU_FIGURES,
    "scale-up": LINK_FIGURES,
    "scale-out": LINK_FIGURES,
    "system": SYSTEM_FIGURES,
}
"""Kinds of parts: GPUs, fabrics inside domains and between them, systems; the first three name all of their kind."""
_MAX_RATIO = 10_000
"""Maximum ratio of an override to the old figure; beyond it the unit prefix is probably wrong."""
_MAX_VALUES: Mapping[str, float] = {
    "byte/s": 1e17,
    "s": 1.0,
    "W": 1e9,
    "1": 1e9,
    "kg": 1e7,
    "m": 1e7,
}
"""Largest value by unit for figures that are not published; those of GPUs are in the table of what is plausible."""
_BILLED: Mapping[str, str] = {
    "usd_per_h": "the catalog's figure is a cloud's list price, which other bases do not use; set yours with "
    f"{input_name('prices')} {{}}=2.50.",
    "power_w": "the catalog's figure is the limit of the chip, without the share of the host; set yours with "
    f"{input_name('powers')} {{}}=1900.",
}
"""Why a factor cannot change what the catalog says of a price or a power."""
_NUMBER = r"(?:[0-9]++(?:\.[0-9]++)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?"
_FACTOR = re.compile(rf"({_NUMBER})\s*+[xX\u00d7]")
_NEARLY_FACTOR = re.compile(r".*[xX\u00d7]|[xX\u00d7]\s*[0-9].*")
_PERCENT = re.compile(rf"([+-]{_NUMBER})\s*+%")
_Part = tuple[str, str]
"""Kind and name of a part."""
_Parts = Mapping[_Part, Mapping[str, Figure]]
"""The figures that each part of a cluster has and that can be set, by kind in the order of ``_FIGURES``."""


def overrides(clusters: Sequence[Cluster], settings: Iterable[str]) -> list[Cluster]:
    """Return clusters, each with those figures of ``settings`` whose part it has; of a view, a view.

    Parameters
    ----------
    clusters:
        One, or several to compare.
    settings:
        ``PART.FIGURE=VALUE``: a part is a GPU, fabric or system by name, or all of a kind (``gpu``, ``scale-up``,
        ``scale-out``); a value is a quantity (``16 TB/s``), a number in the SI unit of the figure (``9e11``), a
        factor (``2x``) or a change (``+10%``).

    Raises
    ------
    InputError
        If a setting is written otherwise, no cluster has its part or the part no such figure, one is set twice, a
        factor is given for an unpublished figure, or a value is not a positive quantity of the figure's unit.
    """
    parsed = [_parsed(text) for text in settings]
    parts = [_parts(cluster.spec) for cluster in clusters]
    for setting in parsed:
        if not any(_named(setting.part, figures) for figures in parts):
            _refuse_part(setting, clusters, parts)
    changed = []
    for cluster, figures in zip(clusters, parts, strict=True):
        matching = [setting for setting in parsed if _named(setting.part, figures)]
        changed.append(
            rebuilt(cluster, _applied(cluster.spec, _changes(matching, figures))) if matching else cluster
        )
    return changed


def figures_of(spec: ClusterSpec) -> Iterator[tuple[str, str, Figure]]:
    """Yield part, name and figure of all that can be set and are there."""
    for (_, part), figures in _parts(spec).items():
        for name, figure in figures.items():
            yield part, name, figure


def figures_set(spec: ClusterSpec) -> list[tuple[str, str, Figure]]:
    """Return part, name and figure of all that a user set, each once."""
    figures: dict[tuple[str, str], Figure] = {}
    for part, name, figure in figures_of(spec):
        if figure.source.startswith(SET_BY_USER):
            figures.setdefault((part, name), figure)
    return [(part, name, figure) for (part, name), figure in figures.items()]


def quantity_text(value: float, unit: str) -> str:
    """Return a value with its unit, a mere number without."""
    return format_number(value) if unit == "1" else format_quantity(value, unit)


@dataclass(frozen=True)
class _Setting:
    """One figure to change: to a ``value`` as written, or by a ``factor`` where that is one."""

    part: str
    figure: str
    value: str
    factor: float | None = None

    def __str__(self) -> str:
        return f"{self.part}.{self.figure}={self.value}"

    def refuse(self, why: str) -> NoReturn:
        """Raise InputError: why it cannot be."""
        raise InputError(why, field="settings", value=self)


def _parsed(text: str) -> _Setting:
    name, equals, value = (part.strip() for part in text.partition("="))
    part, dot, figure = (piece.strip() for piece in name.rpartition("."))
    if not (equals and dot and part and figure and value):
        raise InputError(
            "expected PART.FIGURE=VALUE, like gb200.hbm_bytes_per_s=2x, "
            "nvlink5.link_bytes_per_s=100 GB/s or gpu.hbm_bytes=+10%.",
            field="settings",
            value=text,
        )
    setting = _Setting(part, figure.lower().replace("-", "_"), value)
    factor: float | None = None
    if match := _FACTOR.fullmatch(value):
        factor = float(match[1])
    elif match := _PERCENT.fullmatch(value):
        factor = 1 + float(match[1]) / 100
    elif value.endswith("%"):
        setting.refuse("a change in percent needs a sign: +10% or -10%; write a multiple like 1.1x.")
    elif _NEARLY_FACTOR.fullmatch(value):
        setting.refuse("a factor is a positive number followed by x, without a sign: 2x or 0.5x.")
    if factor is not None and not (math.isfinite(factor) and factor > 0):
        setting.refuse("a factor must be positive and finite.")
    return replace(setting, factor=factor)


def _parts(spec: ClusterSpec) -> _Parts:
    """Return the parts of a cluster by kind and name, the first of each name."""
    parts: dict[str, dict[str, GpuSpec | FabricSpec | DomainSpec]] = {kind: {} for kind in _FIGURES}
    for domain in dict.fromkeys(spec.domains):
        parts["gpu"].setdefault(domain.gpu.name, domain.gpu)
        parts["system"].setdefault(domain.part, domain)
        for fabric in domain.fabrics if spec.raw is None else ():
            parts["scale-up"].setdefault(fabric.name, fabric)
    if spec.raw is not None:
        kinds = {node.id: node.kind for node in spec.raw.nodes}
        for link in spec.raw.links:
            parts[_role(link, kinds)].setdefault(link.fabric.name, link.fabric)
    elif spec.scale_out is not None:
        parts["scale-out"][spec.scale_out.fabric.name] = spec.scale_out.fabric
    return {
        (kind, name): _figures(kind, part) for kind, table in parts.items() for name, part in table.items()
    }


def _figures(kind: str, part: GpuSpec | FabricSpec | DomainSpec) -> dict[str, Figure]:
    """Return the figures of a part that can be set and are there."""
    if isinstance(part, FabricSpec):
        return {key: getattr(part, key) for key in LINK_FIGURES}
    return {key: figure for key, figure in part.figures.items() if key in _FIGURES[kind]}


def _role(link: RawLink, kinds: Mapping[str, str]) -> str:
    """Return whether a link of a raw graph is inside a domain's host or switches, or leaves them."""
    inside = {*SCALE_UP_KINDS, *INSIDE_KINDS}
    return "scale-up" if {kinds[end] for end in link.between} <= inside else "scale-out"


def _named(name: str, parts: Iterable[_Part]) -> list[_Part]:
    """Return the parts that a name means: all of a kind, or one.

    A name is read in any spelling, or as the first words of one part alone (``h100`` for ``h100-sxm``).
    """
    kind = name.lower().replace("_", "-")
    if kind in _FIGURES and kind != "system":
        return [part for part in parts if part[0] == kind]
    meant = Names("part", {part_name: part_name for _, part_name in parts}).meant(name)
    return [part for part in parts if part[1] in meant] if len(meant) == 1 else []


def _refuse_part(setting: _Setting, clusters: Sequence[Cluster], parts: Sequence[_Parts]) -> NoReturn:
    """Raise InputError: no part of any cluster is called so."""
    names = list(dict.fromkeys(cluster.name for cluster in clusters))
    has_no = f"none of {', '.join(names)} has a" if names[1:] else f"{names[0]} has no"
    role = setting.part.lower().replace("_", "-")
    if role in _FIGURES and role != "system":
        setting.refuse(f"{has_no} fabric {'between' if role == 'scale-out' else 'inside'} domains.")
    part_ids = sorted(
        {part for figures in parts for part in figures}, key=lambda part: [*_FIGURES].index(part[0])
    )
    known = [name for _, name in part_ids if name not in ("custom", "raw", "none")]
    kinds = [kind for kind in ("gpu", "scale-up", "scale-out") if any(kind == role for role, _ in part_ids)]
    setting.refuse(f"{has_no} part {setting.part!r}; {nearest(setting.part, [*known, *kinds])}")


def _changes(settings: Sequence[_Setting], parts: _Parts) -> _Parts:
    """Return the new figures by part, each of which is set once."""
    changes: dict[_Part, dict[str, Figure]] = {}
    by: dict[tuple[_Part, str], _Setting] = {}
    for setting in settings:
        for part in _meant(setting, parts):
            figures = parts[part]
            peaks = [key for key in figures if key.endswith(PEAKS)]
            for key in peaks if setting.figure == PEAKS else [setting.figure]:
                earlier = by.setdefault((part, key), setting)
                if earlier is not setting:
                    setting.refuse(f"{part[1]}.{key} is already set by {earlier}; give only one of them.")
                changes.setdefault(part, {})[key] = _changed(setting, part, key, figures.get(key))
    return changes


def _meant(setting: _Setting, parts: _Parts) -> list[_Part]:
    """Return the parts that a setting changes; of several, a factor those alone whose figure it can multiply."""
    named = _named(setting.part, parts)
    kinds = list(dict.fromkeys(kind for kind, _ in named))
    if setting.figure == PEAKS and "gpu" in kinds:
        if setting.factor is None:
            peaks = [key for key in GPU_FIGURES if key.endswith(PEAKS)]
            setting.refuse(f"peaks differ by format, so give a factor, like 2x; or set {', '.join(peaks)}.")
        return [part for part in named if part[0] == "gpu"]
    able = [part for part in named if setting.figure in _FIGURES[part[0]]]
    if not able:
        if setting.figure == "gpus" and "system" in kinds:
            setting.refuse(
                "the size of a domain is not a figure; use name@GPUS, or define a domain in a cluster YAML."
            )
        known = list(dict.fromkeys(key for kind in kinds for key in _FIGURES[kind]))
        known += [PEAKS] * ("gpu" in kinds)
        setting.refuse(f"{setting.part} has no figure {setting.figure!r}; {nearest(setting.figure, known)}")
    if setting.factor is None:
        return able
    figures = {part: parts[part].get(setting.figure) for part in able}
    return [part for part, figure in figures.items() if figure is not None and figure.published] or able


def _changed(setting: _Setting, part: _Part, key: str, old: Figure | None) -> Figure:
    """Return the figure that a setting makes of ``old``, None where there was none."""
    kind, name = part
    unit, known = _FIGURES[kind][key], old is not None and old.published
    if setting.factor is not None:
        if old is None or not known:
            like = "a number" if unit == "1" else "a number with its unit"
            setting.refuse(f"{key} of {name} is not published, so a factor cannot apply; give {like}.")
        if key in _BILLED and old.kind is not Evidence.USER:
            setting.refuse(_BILLED[key].format(name))
        value, source = old.value * setting.factor, f"{SET_BY_USER}: {setting.value} of {_text(old)}"
    else:
        value = _value(setting, unit)
        source = f"{SET_BY_USER} instead of {_text(old)}" if old is not None and known else SET_BY_USER
        if kind == "gpu" and (problem := wrong_figure(key, value)):
            setting.refuse(problem)
    if old is None or not known:
        if kind != "gpu" and not 1e-12 < value <= _MAX_VALUES[unit]:
            setting.refuse("this is not plausible; is a unit prefix wrong?")
    elif not 1 / _MAX_RATIO <= value / old.value <= _MAX_RATIO:
        setting.refuse(
            f"this differs from {_text(old)} by more than {_MAX_RATIO:,}x; is the unit or its prefix wrong?"
        )
    return Figure(value, unit, Evidence.USER, source, quantity_text(value, unit))


def _value(setting: _Setting, unit: str) -> float:
    """Return a value as written: a number in the SI unit, or a quantity."""
    try:
        value = float(setting.value)
    except ValueError:
        if unit == "1":
            setting.refuse("expected a number, or a factor like 2x.")
        return parse_quantity(setting.value, unit, f"{input_name('settings')} {setting}")
    if not (math.isfinite(value) and value > 0):
        setting.refuse("must be positive and finite.")
    return value


def _text(figure: Figure) -> str:
    return figure.text or quantity_text(figure.value, figure.unit)


def _applied(spec: ClusterSpec, changes: _Parts) -> ClusterSpec:
    """Return a cluster with new figures of its parts."""

    @cache
    def gpu(old: GpuSpec) -> GpuSpec:
        new = changes.get(("gpu", old.name))
        return replace(old, figures={**old.figures, **new}) if new else old

    @cache
    def fabric(kind: str, old: FabricSpec) -> FabricSpec:
        new: Any = changes.get((kind, old.name), {})
        return replace(old, **new) if new else old

    @cache
    def domain(old: DomainSpec) -> DomainSpec:
        new: dict[str, Any] = {"gpu": gpu(old.gpu), "fabric": fabric("scale-up", old.fabric)}
        new["figures"] = {**old.figures, **changes.get(("system", old.part), {})}
        if isinstance(old, TorusDomain):
            new["dimension_fabrics"] = tuple(fabric("scale-up", axis) for axis in old.dimension_fabrics)
        updated = replace(old, **new)
        return old if updated == old else updated

    if spec.raw is not None:
        kinds = {node.id: node.kind for node in spec.raw.nodes}

        def node(old: RawNode) -> RawNode:
            return old if old.gpu is None else replace(old, gpu=gpu(old.gpu))

        def link(old: RawLink) -> RawLink:
            return replace(old, fabric=fabric(_role(old, kinds), old.fabric))

        nodes, links = tuple(map(node, spec.raw.nodes)), tuple(map(link, spec.raw.links))
        return raw_cluster_spec(spec.name, replace(spec.raw, nodes=nodes, links=links), spec.faults)
    out = spec.scale_out
    scale_out = None if out is None else replace(out, fabric=fabric("scale-out", out.fabric))
    return replace(spec, domains=tuple(map(domain, spec.domains)), scale_out=scale_out)
