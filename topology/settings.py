"""Figures that a user sets: ``gb200.hbm_bytes_per_s=2x`` changes a GPU, a fabric or a system of a cluster.

A figure that is set is of the kind ``user`` and says what it was before, so everything that rests on it says so too.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NoReturn, TypeVar

from topology.base.errors import InputError
from topology.base.figures import Evidence, Figure
from topology.base.names import Names
from topology.base.reading import nearest
from topology.base.units import format_number, format_quantity, parse_quantity
from topology.build import raw_cluster_spec, rebuilt
from topology.cluster import Cluster, ClusterSpec
from topology.graph import INSIDE_KINDS, SCALE_UP_KINDS
from topology.spec import GPU_FIGURES, LINK_FIGURES, SYSTEM_FIGURES, FabricSpec, GpuSpec
from topology.structures.domain import DomainSpec
from topology.structures.torus import TorusDomain

SET_BY_USER = "set by the user"
"""How the source of a figure begins that a setting gave."""
ROLES: Mapping[str, str] = {"gpu": "gpu", "scale-up": "up", "scale-out": "out"}
"""Names that fit any cluster, and the kind of part they mean: every GPU, the fabrics inside domains, that between."""
PEAKS = "flop_per_s"
"""The peaks of a GPU in all its formats, which a factor changes together."""

_Part = TypeVar("_Part")
_FIGURES: Mapping[str, Mapping[str, str]] = {
    "gpu": GPU_FIGURES,
    "up": LINK_FIGURES,
    "out": LINK_FIGURES,
    "system": SYSTEM_FIGURES,
}
MOST_TIMES = 10_000
"""How many times more or less than before a figure may be: beyond that a prefix is off."""
_MOST: Mapping[str, float] = {
    "byte": 1e15,
    "byte/s": 1e17,
    "flop/s": 1e20,
    "s": 1.0,
    "W": 1e9,
    "USD/h": 1e5,
    "1": 1e9,
    "kg": 1e7,
    "m": 1e7,
}
"""The largest value by unit of a figure that nobody published."""
_BILLED: Mapping[str, str] = {
    "usd_per_h": "the catalog's figure is a cloud's list price, which other bases do not use; give yours with "
    "`price` {}=2.50.",
    "power_w": "the catalog's figure is the limit of the chip, without its share of the host; give yours with "
    "`power` {}=1900.",
}
"""Why a factor cannot change what the catalog says of a price or a power."""
_NUMBER = r"(?:[0-9]++(?:\.[0-9]++)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?"
_FACTOR = re.compile(rf"({_NUMBER})\s*+[xX\u00d7]")
_NEARLY_FACTOR = re.compile(r".*[xX\u00d7]|[xX\u00d7]\s*[0-9].*")
_PERCENT = re.compile(rf"([+-]{_NUMBER})\s*+%")
_EXAMPLE = "gb200.hbm_bytes_per_s=2x"


@dataclass(frozen=True)
class Setting:
    """One figure to change.

    Attributes
    ----------
    part, figure:
        Name of a GPU, fabric or system, or one of :data:`ROLES`; the figure of it.
    value:
        As written: ``16 TB/s``, ``9e11`` (in the SI unit of the figure), ``2x``, ``+10%``.
    factor:
        What the figure is multiplied by; None where ``value`` takes its place.
    """

    part: str
    figure: str
    value: str
    factor: float | None = None

    def __str__(self) -> str:
        return f"{self.part}.{self.figure}={self.value}"

    def refuse(self, why: str) -> NoReturn:
        """Raise InputError: why it cannot be."""
        raise InputError(f"`set` {self}: {why}")


def scaled(part: str, figure: str, factor: float) -> Setting:
    """Return the setting that multiplies a figure."""
    return Setting(part, figure, f"{factor:g}x", factor)


def parse_setting(text: str) -> Setting:
    """Read ``PART.FIGURE=VALUE``, where VALUE is a quantity, a factor like ``2x`` or a change like ``+10%``.

    Raises
    ------
    InputError
        If it is written otherwise, or a factor is not above zero and finite.
    """
    name, equals, value = (part.strip() for part in text.partition("="))
    part, dot, figure = (piece.strip() for piece in name.rpartition("."))
    if not (equals and dot and part and figure and value):
        raise InputError(
            f"`set` {text}: expected PART.FIGURE=VALUE, like {_EXAMPLE}, nvlink5.link_bytes_per_s=100 GB/s or "
            "gpu.hbm_bytes=+10%."
        )
    setting = Setting(part, figure.lower().replace("-", "_"), value)
    factor: float | None = None
    if found := _FACTOR.fullmatch(value):
        factor = float(found[1])
    elif found := _PERCENT.fullmatch(value):
        factor = 1 + float(found[1]) / 100
    elif value.endswith("%"):
        setting.refuse("a change in percent has its sign: +10% or -10%; a multiple is written like 1.1x.")
    elif _NEARLY_FACTOR.fullmatch(value):
        setting.refuse("a factor is a number above zero and an x, without a sign: 2x or 0.5x.")
    if factor is not None and not (math.isfinite(factor) and factor > 0):
        setting.refuse("nothing would be left; a factor must be above zero and finite.")
    return replace(setting, factor=factor)


def with_figures(spec: ClusterSpec, settings: Sequence[Setting]) -> ClusterSpec:
    """Return a cluster with the figures that ``settings`` give in place of its own.

    Raises
    ------
    InputError
        If the cluster has no such part or the part no such figure, one is set twice, a factor is given for what
        nobody published, or a value is not a positive quantity of the figure's unit.
    """
    if not settings:
        return spec
    parts = _Parts.of(spec)
    changes = _Changes()
    for setting in settings:
        changes.add(setting, parts)
    return changes.applied(spec)


def with_figures_where(clusters: Sequence[Cluster], settings: Sequence[Setting]) -> list[Cluster]:
    """Return several clusters, each with those settings whose part it has.

    Raises
    ------
    InputError
        As :func:`with_figures`, and where no cluster has a part that is set.
    """
    parts = [_Parts.of(cluster.spec) for cluster in clusters]
    for setting in settings:
        if not any(one.named(setting.part) for one in parts):
            parts[0].joined(parts[1:]).refuse(setting)
    found = []
    for cluster, own in zip(clusters, parts, strict=True):
        mine = [setting for setting in settings if own.named(setting.part)]
        found.append(rebuilt(cluster, with_figures(cluster.spec, mine)) if mine else cluster)
    return found


def figures_of(spec: ClusterSpec) -> Iterator[tuple[str, str, Figure]]:
    """Yield part, name and figure of all that can be set and are there."""
    for kind, table in _Parts.of(spec).tables():
        for part, one in table.items():
            for name, figure in _figures(kind, one).items():
                yield part, name, figure


def figures_set(spec: ClusterSpec) -> list[tuple[str, str, Figure]]:
    """Return part, name and figure of all that a user set, each once."""
    found: dict[tuple[str, str], Figure] = {}
    for part, name, figure in figures_of(spec):
        if figure.source.startswith(SET_BY_USER):
            found.setdefault((part, name), figure)
    return [(part, name, figure) for (part, name), figure in found.items()]


def quantity_text(value: float, unit: str) -> str:
    """Return a value with its unit, a mere number without."""
    return format_number(value) if unit == "1" else format_quantity(value, unit)


@dataclass
class _Parts:
    """What of one or more clusters has figures, by name: GPUs, fabrics inside domains and between them, systems."""

    clusters: tuple[str, ...]
    gpu: dict[str, GpuSpec] = field(default_factory=dict)
    up: dict[str, FabricSpec] = field(default_factory=dict)
    out: dict[str, FabricSpec] = field(default_factory=dict)
    system: dict[str, DomainSpec] = field(default_factory=dict)

    @classmethod
    def of(cls, spec: ClusterSpec) -> _Parts:
        found = cls((spec.name,))
        for domain in spec.domains:
            found.gpu.setdefault(domain.gpu.name, domain.gpu)
            found.system.setdefault(domain.part, domain)
            if spec.raw is None:
                for fabric in domain.fabrics:
                    found.up.setdefault(fabric.name, fabric)
        if spec.raw is not None:
            kinds = {node.id: node.kind for node in spec.raw.nodes}
            for link in spec.raw.links:
                getattr(found, _role(link.between, kinds)).setdefault(link.fabric.name, link.fabric)
        elif spec.scale_out is not None:
            found.out[spec.scale_out.fabric.name] = spec.scale_out.fabric
        return found

    def tables(self) -> Iterator[tuple[str, Mapping[str, GpuSpec | FabricSpec | DomainSpec]]]:
        yield "gpu", self.gpu
        yield "up", self.up
        yield "out", self.out
        yield "system", self.system

    def joined(self, others: Sequence[_Parts]) -> _Parts:
        """Return the parts of several clusters together."""
        every = (self, *others)
        found = _Parts(tuple(dict.fromkeys(name for one in every for name in one.clusters)))
        for one in every:
            for kind, table in one.tables():
                getattr(found, kind).update(table)
        return found

    def named(self, name: str) -> list[tuple[str, str]]:
        """Return the parts that a name means, each as its kind and its own name.

        A name is read in any spelling, or as the first words of one part alone (``h100`` for ``h100-sxm``).
        """
        wanted = name.lower().replace("_", "-")
        if wanted in ROLES:
            return [(kind, own) for kind, table in self.tables() if kind == ROLES[wanted] for own in table]
        every = [(kind, own) for kind, table in self.tables() for own in table]
        meant = Names("part", {own: own for _, own in every}).meant(name)
        return [one for one in every if one[1] in meant] if len(meant) == 1 else []

    def refuse(self, setting: Setting) -> NoReturn:
        """Raise InputError: no part is called so."""
        own = list(dict.fromkeys(name for _, table in self.tables() for name in table if table))
        roles = [role for role, kind in ROLES.items() if dict(self.tables())[kind]]
        known = [*(name for name in own if name not in ("custom", "raw", "none")), *roles]
        whole, *more = self.clusters
        has_no = f"none of {', '.join(self.clusters)} has a" if more else f"{whole} has no"
        if (wanted := setting.part.lower().replace("_", "-")) in ROLES:
            where = "between" if wanted == "scale-out" else "inside"
            setting.refuse(f"{has_no} fabric {where} domains.")
        setting.refuse(f"{has_no} part {setting.part!r}; {nearest(setting.part, known)}")


def _role(between: Iterable[str], kinds: Mapping[str, str]) -> str:
    """Return whether a link of a raw graph is inside a domain's host or switches (``up``), or leaves them."""
    inside = {*SCALE_UP_KINDS, *INSIDE_KINDS}
    return "up" if {kinds[end] for end in between} <= inside else "out"


def _figures(kind: str, part: GpuSpec | FabricSpec | DomainSpec) -> dict[str, Figure]:
    """Return the figures of a part that can be set and are there."""
    if isinstance(part, FabricSpec):
        return {key: getattr(part, key) for key in _FIGURES[kind]}
    return {key: figure for key, figure in part.figures.items() if key in _FIGURES[kind]}


class _Changes:
    """Settings by the figure that each changes."""

    def __init__(self) -> None:
        self._by: dict[tuple[str, str], dict[str, Setting]] = {}

    def add(self, setting: Setting, parts: _Parts) -> None:
        """Take a setting of a cluster with these parts, whose figure exists and is not set already."""
        named = parts.named(setting.part)
        if not named:
            parts.refuse(setting)
        kinds = dict.fromkeys(kind for kind, _ in named)
        able = [kind for kind in kinds if setting.figure in _FIGURES[kind] or self._peaks(kind, setting)]
        if not able:
            known = list(dict.fromkeys(key for kind in kinds for key in _FIGURES[kind]))
            known += [PEAKS] * ("gpu" in kinds)
            if setting.figure == "gpus" and "system" in kinds:
                setting.refuse(
                    "the size of a domain is no figure; name@GPUS, or a domain of your own in a cluster YAML."
                )
            setting.refuse(
                f"{setting.part} has no figure {setting.figure!r}; {nearest(setting.figure, known)}"
            )
        for kind, name in self._meant(setting, [one for one in named if one[0] in able], parts):
            own = _figures(kind, getattr(parts, kind)[name])
            peaks = [key for key in own if key.endswith(PEAKS)]
            for key in peaks if self._peaks(kind, setting) else [setting.figure]:
                before = self._by.setdefault((kind, name), {}).setdefault(key, setting)
                if before is not setting:
                    setting.refuse(f"{name}.{key} is set already, by {before}; give one of them.")
                _changed(setting, name, key, _FIGURES[kind][key], own.get(key))  # refused here, once

    @staticmethod
    def _meant(setting: Setting, named: Sequence[tuple[str, str]], parts: _Parts) -> list[tuple[str, str]]:
        """Return those of several parts whose figure a factor can multiply; all where none has it."""
        if setting.factor is None or setting.figure == PEAKS:
            return list(named)
        own = {one: _figures(one[0], getattr(parts, one[0])[one[1]]).get(setting.figure) for one in named}
        return [one for one, figure in own.items() if figure is not None and figure.published] or list(named)

    @staticmethod
    def _peaks(kind: str, setting: Setting) -> bool:
        """Whether a setting is of all peaks of a GPU; only a factor can be."""
        if kind != "gpu" or setting.figure != PEAKS:
            return False
        if setting.factor is None:
            peaks = [key for key in GPU_FIGURES if key.endswith(PEAKS)]
            setting.refuse(
                f"the peaks differ by format, so this takes a factor, like 2x; or set {', '.join(peaks)}."
            )
        return True

    def applied(self, spec: ClusterSpec) -> ClusterSpec:
        """Return the cluster with what was taken; equal domains stay one object, as costs tell them by that."""
        gpu = _once(self._gpu)
        fabric: dict[str, Callable[[FabricSpec], FabricSpec]] = {
            kind: _once(partial(self._fabric, kind)) for kind in ("up", "out")
        }
        if spec.raw is not None:
            raw = spec.raw
            kinds = {node.id: node.kind for node in raw.nodes}
            nodes = tuple(
                node if node.gpu is None else replace(node, gpu=gpu(node.gpu)) for node in raw.nodes
            )
            links = tuple(
                replace(link, fabric=fabric[_role(link.between, kinds)](link.fabric)) for link in raw.links
            )
            return raw_cluster_spec(spec.name, replace(raw, nodes=nodes, links=links), spec.faults)

        def domain(one: DomainSpec) -> DomainSpec:
            fields: dict[str, Any] = {
                "gpu": gpu(one.gpu),
                "fabric": fabric["up"](one.fabric),
                "figures": self._table("system", one.part, one.figures),
            }
            if isinstance(one, TorusDomain):
                fields["dimension_fabrics"] = tuple(map(fabric["up"], one.dimension_fabrics))
            return replace(one, **fields)

        made = _once(domain)
        out = spec.scale_out
        scale_out = None if out is None else replace(out, fabric=fabric["out"](out.fabric))
        return replace(spec, domains=tuple(map(made, spec.domains)), scale_out=scale_out)

    def _gpu(self, gpu: GpuSpec) -> GpuSpec:
        return replace(gpu, figures=self._table("gpu", gpu.name, gpu.figures))

    def _fabric(self, kind: str, fabric: FabricSpec) -> FabricSpec:
        own = self._table(kind, fabric.name, _figures(kind, fabric))
        return replace(fabric, link_bytes_per_s=own["link_bytes_per_s"], latency_s=own["latency_s"])

    def _table(self, kind: str, name: str, figures: Mapping[str, Figure]) -> dict[str, Figure]:
        """Return the figures of one part with those that were set."""
        new = {
            key: _changed(setting, name, key, _FIGURES[kind][key], figures.get(key))
            for key, setting in self._by.get((kind, name), {}).items()
        }
        return {**figures, **new}


def _once(make: Callable[[_Part], _Part]) -> Callable[[_Part], _Part]:
    """Return ``make`` giving one object for each that it is called with, and its argument where that is equal."""
    made: dict[_Part, _Part] = {}

    def found(one: _Part) -> _Part:
        if one not in made:
            new = make(one)
            made[one] = one if new == one else new
        return made[one]

    return found


def _changed(setting: Setting, name: str, key: str, unit: str, old: Figure | None) -> Figure:
    """Return the figure that a setting makes of ``old``, None where there was none."""
    known = old is not None and old.published
    if setting.factor is not None:
        if old is None or not known:
            like = "a number" if unit == "1" else "a number with its unit"
            setting.refuse(f"nobody published {key} of {name}, so there is nothing to multiply; give {like}.")
        if key in _BILLED and old.kind is not Evidence.USER:
            setting.refuse(_BILLED[key].format(name))
        value = old.value * setting.factor
        _check_size(setting, value, unit, old)
        source = f"{SET_BY_USER}: {setting.value} of {_said(old)}"
        return Figure(value, unit, Evidence.USER, source, quantity_text(value, unit))
    value = _value(setting, unit)
    _check_size(setting, value, unit, old if known else None)
    source = f"{SET_BY_USER} instead of {_said(old)}" if old is not None and known else SET_BY_USER
    return Figure(value, unit, Evidence.USER, source, quantity_text(value, unit))


def _check_size(setting: Setting, value: float, unit: str, old: Figure | None) -> None:
    """Refuse what no machine is: a prefix or a unit is off."""
    if old is None:
        if not 1e-12 < value <= _MOST[unit]:
            setting.refuse("nothing is like that; is a prefix off?")
    elif not 1 / MOST_TIMES <= value / old.value <= MOST_TIMES:
        setting.refuse(
            f"that is more than {MOST_TIMES:,} times off from {_said(old)}; is a prefix or the unit off?"
        )


def _value(setting: Setting, unit: str) -> float:
    """Return a value as written: a number in the SI unit, or a quantity."""
    try:
        value = float(setting.value)
    except ValueError:
        if unit == "1":
            setting.refuse("expected a number, or a factor like 2x.")
        return parse_quantity(setting.value, unit, f"`set` {setting}")
    if not (math.isfinite(value) and value > 0):
        setting.refuse("must be greater than zero and finite.")
    return value


def _said(figure: Figure) -> str:
    return figure.text or quantity_text(figure.value, figure.unit)
