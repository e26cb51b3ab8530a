"""All-to-all kernels by name: coefficients, and the default kernels."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import pydantic
from pydantic import InstanceOf

from cost.calibration.tables import CHECKED, Number, Positive, Text, load_table
from cost.experts.tokens.volumes import FAMILIES, Family
from cost.terms.alltoall_kernel import Leg
from topology.base.errors import InputError
from topology.base.figures import Figure
from topology.base.schema import Kind, source_text, validated
from topology.base.units import parse_quantity

PATH = Path(__file__).with_name("alltoall.yaml")

UNITS = {
    "alpha_up_s": "s",
    "alpha_out_s": "s",
    "floor_s": "s",
    "peer_s": "s",
    "copy_bytes_per_s": "byte/s",
    "scale_s": "s",
    "unpack_s": "s",
    "up": "1",
    "out": "1",
    "notify_s": "s",
}
LOW_LATENCY_TOKENS = 1024
"""Low-latency kernels keep a buffer for every token of every peer; above this, those sources ran the others."""


@pydantic.dataclasses.dataclass(frozen=True, config=CHECKED)
class Kernel:
    """One implementation of dispatch and combine.

    Attributes
    ----------
    name, family, text:
        Its name here, its kernel family, and what it is.
    fabrics:
        Fabrics of the catalog that it was measured on.
    dispatch, combine:
        Coefficients of the two directions.
    standard:
        Whether its family means this one where nobody says more.
    notify_s:
        Seconds of the exchange of counts before a dispatch and a combine, where it is timed apart from the rest.
    fit:
        Measured rows, and how far the fit is off them, ``median_error`` and ``worst_error``, as fractions.
    words, many_tokens:
        Groups of words, one of which occurs whole in other names of it; the kernel that such a name means above
        :data:`LOW_LATENCY_TOKENS` tokens per GPU.
    """

    name: Text
    family: Family
    text: Text
    fabrics: tuple[Text, ...]
    dispatch: InstanceOf[Leg]
    combine: InstanceOf[Leg]
    standard: bool = False
    notify_s: InstanceOf[Figure] | None = None
    fit: Mapping[str, Number] = field(default_factory=dict)
    words: tuple[tuple[Text, ...], ...] = ()
    many_tokens: str = ""

    def figures(self) -> dict[str, Figure]:
        """All coefficients by name, like ``dispatch.up``."""
        figures: dict[str, Figure] = {}
        for way, leg in (("dispatch", self.dispatch), ("combine", self.combine)):
            figures |= {f"{way}.{name}": figure for name, figure in leg.figures().items()}
        return figures | ({"notify_s": self.notify_s} if self.notify_s is not None else {})

    def stand_in(self, up_fabric: str, out_fabric: str = "") -> str:
        """Return that the kernel was not measured on these fabrics, empty where it was."""
        missing = [name for name in (up_fabric, out_fabric) if name and name not in self.fabrics]
        if not missing:
            return ""
        return f"{self.name} was not measured on {', '.join(missing)}; using figures from {', '.join(self.fabrics)}"


@dataclass(frozen=True)
class KernelUse:
    """A requested kernel.

    ``spread``: the benchmark routes each token to as many GPUs as it can. ``note`` says what was chosen where
    more than one kernel goes by that name.
    """

    kernel: Kernel
    spread: bool = False
    note: str = ""


@cache
def load_kernels() -> Mapping[str, Kernel]:
    """All kernels by name, in the order in which spellings are tried."""
    return load_table(KernelTable, PATH).kernels_by_name()


@pydantic.dataclasses.dataclass(frozen=True, config=CHECKED)
class _Entry:
    """A figure as the file writes it: a fraction, a text with a unit, or the ``same`` as one that is shared."""

    kind: Kind
    source: Text
    value: Positive | Text | None = None
    same: Text | None = None
    note: Text | None = None
    unit: Text | None = None


@pydantic.dataclasses.dataclass(frozen=True, config=CHECKED)
class KernelTable:
    """The coefficient file; ``errors`` are of the fit and of its cross-validation, for readers."""

    sources: Mapping[str, Text]
    shared: Mapping[str, _Entry]
    kernels: Mapping[str, Mapping[str, Any]]
    errors: Mapping[str, Mapping[str, Number]] | None = None

    def kernels_by_name(self) -> dict[str, Kernel]:
        """Return the kernels of the file, in its order.

        Raises
        ------
        InputError
            If a key, unit or family in it is not known.
        """
        kernels = {}
        for name, entry in self.kernels.items():
            where = f"{PATH.name}: kernels: {name}"
            figures: dict[str, object] = {}
            for way in ("dispatch", "combine"):
                at = f"{where}: {way}"
                legs = {key: self._coefficient(key, value, at) for key, value in entry.get(way, {}).items()}
                figures[way] = Leg(**legs)
            if "notify_s" in entry:
                figures["notify_s"] = self._coefficient("notify_s", entry["notify_s"], where)
            kernels[name] = validated(Kernel, {**entry, **figures, "name": name}, where)
        return kernels

    def _coefficient(self, key: str, entry: object, where: str) -> Figure:
        """Return the coefficient ``key``; a text is the name of a shared one."""
        where = f"{where}: {key}"
        if key not in UNITS:
            raise InputError(f"{where}: no such coefficient; known: {', '.join(UNITS)}.")
        if isinstance(entry, str):
            return self._shared(entry, UNITS[key], where)
        return self._figure(validated(_Entry, entry, where), UNITS[key], where)

    def _figure(self, entry: _Entry, unit: str, where: str) -> Figure:
        source = source_text(entry.source, self.sources, where) + (f" ({entry.note})" if entry.note else "")
        if entry.same is not None:
            return replace(self._shared(entry.same, unit, where), kind=entry.kind, source=source)
        if unit != "1":
            value = parse_quantity(entry.value, unit, f"{where}: value")
            return Figure(value, unit, entry.kind, source, str(entry.value))
        if not isinstance(entry.value, float) or entry.value > 1:
            raise InputError(f"{where}: value: {entry.value} is not a fraction of a link's rate.")
        return Figure(entry.value, unit, entry.kind, source, f"{entry.value:.3g}")

    def _shared(self, name: str, unit: str, where: str) -> Figure:
        if name not in self.shared:
            raise InputError(f"{where}: {name!r} is not one of {', '.join(self.shared)}.")
        entry = self.shared[name]
        if entry.unit != unit:
            raise InputError(f"{where}: {name} is in {entry.unit}, but {unit} is needed here.")
        return self._figure(entry, unit, f"{PATH.name}: shared: {name}")


def find_kernel(name: str, *, tokens: float = 0.0, up_fabric: str = "", crosses: bool = False) -> KernelUse:
    """Return the kernel that ``name`` means: a family, an implementation, or a spelling that sources use.

    Parameters
    ----------
    tokens:
        Tokens per GPU: some sources give one name to the low-latency kernel and to the one for many tokens.
    up_fabric, crosses:
        Scale-up fabric of the cluster, and whether the group spans domains: a family means its implementation
        there.

    Raises
    ------
    InputError
        If nothing goes by that name.
    """
    kernels = load_kernels()
    spelling = name.strip().lower()
    for family in FAMILIES:
        if spelling == family:
            return KernelUse(_of_family(family, up_fabric, crosses=crosses))
    plain = re.sub(r"[^a-z0-9]+", "", spelling)
    spread = "perfectrouter" in plain or "postquant" in plain
    for kernel in kernels.values():
        exact = plain == re.sub(r"[^a-z0-9]+", "", kernel.name)
        if exact or any(all(word in plain for word in words) for words in kernel.words):
            if kernel.many_tokens and not exact and tokens > LOW_LATENCY_TOKENS:
                note = f"{name}: {tokens:g} tokens a GPU, so {kernel.many_tokens}"
                return KernelUse(kernels[kernel.many_tokens], spread, note)
            return KernelUse(kernel, spread)
    known = ", ".join((*FAMILIES, *kernels))
    raise InputError(f"all-to-all kernel {name!r} is not known; choose one of {known}.")


def default_kernel(phase: str, *, up_fabric: str, crosses: bool) -> Kernel:
    """Return the default kernel of a phase.

    Prefill: one copy to each domain, then forwarded. Decode inside a domain: one copy to each GPU, or what was
    made for that fabric alone; across domains: one for each expert. What serves a fabric that nobody measured
    says so (:meth:`Kernel.stand_in`).
    """
    if phase == "prefill" or crosses:
        return _of_family("per-node" if phase == "prefill" else "per-copy", up_fabric, crosses=crosses)
    made_for_it = [
        kernel
        for kernel in load_kernels().values()
        if kernel.standard and up_fabric in kernel.fabrics and kernel.dispatch.out is None
    ]
    per_rank = _of_family("per-rank", up_fabric, crosses=False)
    if up_fabric in per_rank.fabrics or not made_for_it:
        return per_rank
    return made_for_it[0]


def _of_family(family: Family, up_fabric: str, *, crosses: bool) -> Kernel:
    """Return the standard kernel of a family, one measured on that scale-up fabric before others."""
    able = [
        kernel
        for kernel in load_kernels().values()
        if kernel.standard and kernel.family == family and (not crosses or kernel.dispatch.out is not None)
    ]
    if not able:
        raise InputError(f"no {family} kernel has figures across domains; choose per-copy or per-node.")
    return next((kernel for kernel in able if up_fabric in kernel.fabrics), able[0])
