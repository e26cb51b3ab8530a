"""All-to-all kernels by name: their coefficients, and which one runs where nobody says."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from cost.experts.volumes import FAMILIES, Family, require_family
from cost.terms.alltoall_kernel import Leg
from topology.base.errors import InputError
from topology.base.figures import Figure
from topology.base.reading import Fields, load_yaml
from topology.catalog import read_figure
from topology.schema import Flag, Spec, Text, spec, validated

PATH = Path(__file__).with_name("alltoall.yaml")

_UNITS = {
    "alpha_up_s": "s",
    "alpha_out_s": "s",
    "floor_s": "s",
    "peer_s": "s",
    "copy_bytes_per_s": "byte/s",
    "vector_s": "s",
    "unpack_s": "s",
    "up": "1",
    "out": "1",
}
LOW_LATENCY_TOKENS = 1024
"""Low-latency kernels keep a buffer for every token of every peer; above this, those sources ran the others."""


@spec
class Kernel(Spec):
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
    rows, median_error, worst_error:
        Measured rows of this kernel and how far the fit is off them, as fractions; no rows: not fitted.
    words, many_tokens:
        Groups of words, one of which occurs whole in other names of it; the kernel that such a name means above
        :data:`LOW_LATENCY_TOKENS` tokens per GPU.
    """

    name: str
    family: Family
    text: Text
    fabrics: tuple[Text, ...]
    dispatch: Leg
    combine: Leg
    standard: Flag = False
    notify_s: Figure | None = None
    rows: int = 0
    median_error: float = 0.0
    worst_error: float = 0.0
    words: tuple[tuple[str, ...], ...] = ()
    many_tokens: str = ""

    def figures(self) -> dict[str, Figure]:
        """All coefficients by name, like ``dispatch.up``."""
        found: dict[str, Figure] = {}
        for way, leg in (("dispatch", self.dispatch), ("combine", self.combine)):
            found |= {f"{way}.{name}": figure for name, figure in leg.figures().items()}
        return found | ({"notify_s": self.notify_s} if self.notify_s is not None else {})

    def stand_in(self, up_fabric: str, out_fabric: str = "") -> str:
        """Say that the kernel was not measured on these fabrics, empty where it was."""
        missing = [name for name in (up_fabric, out_fabric) if name and name not in self.fabrics]
        if not missing:
            return ""
        return f"{self.name} was not measured on {', '.join(missing)}: figures of {', '.join(self.fabrics)}"


@dataclass(frozen=True)
class KernelUse:
    """A kernel as somebody asked for it.

    ``spread``: the benchmark routes each token to as many GPUs as it can. ``note`` says what was chosen where
    more than one kernel goes by that name.
    """

    kernel: Kernel
    spread: bool = False
    note: str = ""


@cache
def load_kernels() -> Mapping[str, Kernel]:
    """All kernels by name, in the order in which spellings are tried."""
    return read_kernels(load_yaml(PATH, "all-to-all coefficients"))


def kernel_names() -> tuple[str, ...]:
    """Families and implementations that :func:`find_kernel` knows."""
    return (*FAMILIES, *load_kernels())


def read_kernels(data: object) -> dict[str, Kernel]:
    """Return the kernels of a coefficient file.

    Raises
    ------
    InputError
        If a key, unit or family in it is not known.
    """
    file = Fields(data, "all-to-all coefficients")
    texts = file.by_name("sources", Fields.text)
    shared = file.parts("shared", lambda entry: _figure(entry, entry.text("unit"), texts))
    table = file.by_name("kernels", Fields.sub)
    kernels = {name: _kernel(name, entry, shared, texts) for name, entry in table.items()}
    file.get("errors")  # of the fit and of its cross-validation, for readers
    file.done()
    return kernels


def _kernel(name: str, fields: Fields, shared: Mapping[str, Figure], texts: Mapping[str, str]) -> Kernel:
    fit = fields.sub("fit") if "fit" in fields else None
    known = {
        "name": name,
        "family": require_family(fields.text("family")),
        "dispatch": _leg(fields.sub("dispatch"), shared, texts),
        "combine": _leg(fields.sub("combine"), shared, texts),
        "notify_s": fields.part("notify_s", lambda one: _figure(one, "s", texts))
        if "notify_s" in fields
        else None,
        "rows": fit.count("rows") if fit else 0,
        "median_error": fit.number("median_error", least=0) if fit else 0.0,
        "worst_error": fit.number("worst_error", least=0) if fit else 0.0,
    }
    given = {key: value for key, value in fields.data.items() if key != "fit"}
    return validated(Kernel, {**given, **known}, fields.where)


def _leg(fields: Fields, shared: Mapping[str, Figure], texts: Mapping[str, str]) -> Leg:
    """A coefficient given as a text is the shared one of that name; ``same`` borrows one as weaker evidence."""
    figures = {}
    for key in fields.names():
        if key not in _UNITS:
            fields.fail(key, f"no such coefficient; known: {', '.join(_UNITS)}.")
        if isinstance(fields.get(key), str):
            figures[key] = _shared(fields.text(key), _UNITS[key], fields.at(key), shared)
            continue
        entry = fields.sub(key)
        if "same" in entry:
            found = _shared(entry.text("same"), _UNITS[key], entry.at("same"), shared)
            figures[key] = replace(found, kind=entry.evidence(), source=entry.source(texts))
            entry.done()
        else:
            figures[key] = _figure(entry, _UNITS[key], texts)
            entry.done()
    return Leg(**figures)


def _shared(name: str, unit: str, where: str, shared: Mapping[str, Figure]) -> Figure:
    if name not in shared:
        raise InputError(f"{where}: {name!r} is none of {', '.join(shared)}.")
    if shared[name].unit != unit:
        raise InputError(f"{where}: {name} is in {shared[name].unit}, but {unit} is needed here.")
    return shared[name]


def _figure(fields: Fields, unit: str, texts: Mapping[str, str]) -> Figure:
    found = read_figure(fields, unit, texts)
    if unit == "1" and found.value > 1:
        fields.fail("value", f"{found.value} is no fraction of a link's rate.")
    return replace(found, text=f"{found.value:.3g}") if unit == "1" else found


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
    asked = name.strip().lower()
    for family in FAMILIES:
        if asked == family:
            return KernelUse(_of_family(family, up_fabric, crosses=crosses))
    plain = re.sub(r"[^a-z0-9]+", "", asked)
    spread = "perfectrouter" in plain or "postquant" in plain
    for kernel in kernels.values():
        exact = plain == re.sub(r"[^a-z0-9]+", "", kernel.name)
        if exact or any(all(word in plain for word in words) for words in kernel.words):
            if kernel.many_tokens and not exact and tokens > LOW_LATENCY_TOKENS:
                note = f"{name}: {tokens:g} tokens a GPU, so {kernel.many_tokens}"
                return KernelUse(kernels[kernel.many_tokens], spread, note)
            return KernelUse(kernel, spread)
    raise InputError(f"all-to-all kernel {name!r} is not known; choose one of {', '.join(kernel_names())}.")


def default_kernel(phase: str, *, up_fabric: str, crosses: bool) -> Kernel:
    """Return the kernel of a phase where nobody names one.

    Prefill: one copy to each domain, then forwarded. Decode inside a domain: one copy to each GPU, or what was
    made for that fabric alone; across domains: one for each expert. What serves a fabric that nobody measured
    says so (:meth:`Kernel.stand_in`).

    Raises
    ------
    InputError
        If the phase is neither ``prefill`` nor ``decode``.
    """
    if phase not in {"prefill", "decode"}:
        raise InputError(f"phase {phase!r}: choose prefill or decode.")
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
