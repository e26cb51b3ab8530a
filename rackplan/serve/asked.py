"""What the page asks: one JSON object, read strictly, and what it means; each mistake beside its field.

Names from the page are looked up in the catalog only, never opened as files; the text of a dropped file is read as
data, and its name is a label.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from topology.base.errors import InputError, RackplanError

if TYPE_CHECKING:
    from cost.model import Model
    from topology.cluster import Cluster

T = TypeVar("T")
MOST_CLUSTERS = 5
MOST_GPUS = 4_608
"""GPUs of a cluster on the page: what is larger is a matter of minutes, and the command line's."""
MOST_TEXT = 262_144
"""Characters of a dropped file."""
_MOST_DIGITS = 15
"""Of a number that a message repeats: JSON has whole ones that no float can hold."""
LEAST_FACTOR, MOST_FACTOR = 0.5, 4.0
"""What the sliders reach."""
SLIDERS: Mapping[str, str] = {
    "hbm": "gpu.hbm_bytes_per_s",
    "flop": "gpu.flop_per_s",
    "up": "scale-up.link_bytes_per_s",
    "out": "scale-out.link_bytes_per_s",
}
"""What each slider of the machine multiplies, as ``--set`` names it; that of the price is beside them."""
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+ -]{0,79}")


class FieldError(RackplanError):
    """Input of the page that cannot be used: a message for each field."""

    exit_code = 2

    def __init__(self, fields: Mapping[str, str]) -> None:
        super().__init__("; ".join(f"{name}: {text}" for name, text in fields.items()))
        self.fields = dict(fields)


@dataclass(frozen=True)
class Named:
    """A model or a cluster: a name of the catalog, or a file that was dropped (its label, and its text)."""

    name: str
    text: str = ""


@dataclass(frozen=True)
class Asked:
    """What is asked, checked as far as that goes without the catalog.

    Attributes
    ----------
    gpus:
        GPUs of each of several clusters; None: as many as the largest named has.
    isl, osl:
        Tokens of a prompt and of its answer.
    pools:
        Whether GPUs that prefill are counted too; else decoding alone, at ``isl + osl / 2`` tokens of context.
    tpot_ms, ttft_ms:
        Service levels in milliseconds; None: the usual one, :data:`math.inf`: none.
    prices:
        USD of a GPU-hour by GPU.
    factors:
        Of :data:`SLIDERS` and ``price``, those that are not 1.
    """

    model: Named
    clusters: tuple[Named, ...]
    gpus: int | None = None
    isl: int = 4096
    osl: int = 1024
    pools: bool = False
    weights: str | None = None
    kv_dtype: str = "bf16"
    draft_tokens: int = 0
    tpot_ms: float | None = None
    ttft_ms: float | None = None
    price_basis: str | None = None
    prices: tuple[tuple[str, float], ...] = ()
    factors: tuple[tuple[str, float], ...] = ()

    @property
    def context(self) -> int:
        """Tokens in the cache of a sequence that decodes, the mean over its answer."""
        return self.isl + self.osl // 2

    @property
    def served(self) -> dict[str, Any]:
        """Keywords of the library that say what is served, but for the lengths and the formats of the weights."""
        said: dict[str, Any] = {"kv_dtype": self.kv_dtype, "draft_tokens": self.draft_tokens}
        if self.price_basis is not None:
            said["price_basis"] = self.price_basis
        return said

    @property
    def settings(self) -> dict[str, str]:
        """The sliders of the machine as settings."""
        return {SLIDERS[name]: f"{value:g}x" for name, value in self.factors if name in SLIDERS}

    @property
    def price_factor(self) -> float:
        """The slider of the price."""
        return dict(self.factors).get("price", 1.0)


class _Reader:
    """Reads one JSON object of known keys; mistakes are gathered by field."""

    def __init__(self, data: object) -> None:
        if not isinstance(data, dict):
            raise FieldError({"request": "expected a JSON object."})
        self._data: dict[str, Any] = dict(data)
        self.wrong: dict[str, str] = {}

    def get(self, name: str, read: Callable[[Any], T], default: T) -> T:
        """Return one value, the default where it is left out or null."""
        value = self._data.pop(name, None)
        if value is None:
            return default
        try:
            return read(value)
        except FieldError as error:
            self.wrong |= error.fields
        except RackplanError as error:
            self.wrong[name] = str(error)
        return default

    def done(self) -> None:
        """Refuse keys that nobody knows, and say what is wrong."""
        for name in self._data:
            self.wrong[str(name)[:40]] = "unknown field."
        if self.wrong:
            raise FieldError(self.wrong)


def read_asked(data: object) -> Asked:
    """Return what a JSON value of the page asks.

    Raises
    ------
    FieldError
        If it is not such an object: what is wrong, by field.
    """
    reader = _Reader(data)
    asked = Asked(
        model=reader.get("model", lambda value: _named(value, "a model"), Named("deepseek-v3")),
        clusters=reader.get("clusters", _clusters, (Named("gb200-nvl72"),)),
        gpus=reader.get("gpus", _whole(1, MOST_GPUS), None),
        isl=reader.get("isl", _length, 4096),
        osl=reader.get("osl", _length, 1024),
        pools=reader.get("pools", _flag, default=False),
        weights=reader.get("weights", _word, None),
        kv_dtype=reader.get("kv_dtype", _word, "bf16"),
        draft_tokens=reader.get("draft_tokens", _whole(0, 3), 0),
        tpot_ms=reader.get("tpot_ms", _limit, None),
        ttft_ms=reader.get("ttft_ms", _limit, None),
        price_basis=reader.get("price_basis", _word, None),
        prices=reader.get("prices", _prices, ()),
        factors=reader.get("factors", _factors, ()),
    )
    reader.done()
    return asked


@dataclass(frozen=True)
class Point:
    """One point of the plot: the cluster by its place, the layout in letters, sequences per GPU."""

    cluster: int
    layout: str
    batch: float


def read_point(data: object, clusters: int) -> Point:
    """Return the point that a JSON value of the page names.

    Raises
    ------
    FieldError
        If it is not such an object.
    """
    reader = _Reader(data)
    point = Point(
        reader.get("cluster", _whole(0, clusters - 1), 0),
        reader.get("layout", _layout, ""),
        reader.get("batch", lambda value: _number(value, 1e-6, 1e9), 1.0),
    )
    reader.done()
    return point


def _layout(value: object) -> str:
    if not isinstance(value, str) or len(value) > 120:
        raise InputError("expected a layout, like EP72 TP1 PP1 x1.")
    return value


@dataclass(frozen=True)
class PlanOrder:
    """What is asked of a plan: cluster by its place, widths and batch (None: the best), loads, seconds of search."""

    cluster: int = 0
    ep: int | None = None
    tp: int | None = None
    stages: int | None = None
    batch: int | None = None
    loads: str = "lognormal:0.63"
    seconds: float = 0.0


MOST_SEARCH_S = 600.0


def read_order(data: object, clusters: int) -> PlanOrder:
    """Return the plan that a JSON value of the page orders.

    Raises
    ------
    FieldError
        If it is not such an object.
    """
    reader = _Reader(data)
    order = PlanOrder(
        cluster=reader.get("cluster", _whole(0, clusters - 1), 0),
        ep=reader.get("ep", _whole(1, MOST_GPUS), None),
        tp=reader.get("tp", _whole(1, MOST_GPUS), None),
        stages=reader.get("stages", _whole(1, MOST_GPUS), None),
        batch=reader.get("batch", _whole(1, 10**9), None),
        loads=reader.get("loads", _loads, "lognormal:0.63"),
        seconds=reader.get("seconds", lambda value: _number(value, 0, MOST_SEARCH_S), 0.0),
    )
    reader.done()
    return order


def _loads(value: object) -> str:
    """Return a generator of loads; files are the command line's."""
    if not isinstance(value, str) or not re.fullmatch(r"uniform|(?:lognormal|zipf):[0-9.]{1,10}", value):
        raise InputError(
            "expected uniform, lognormal:0.63 or zipf:0.4; loads of a file are the command line's."
        )
    return value


MOST_LOST = 256
_ID = re.compile(r"[A-Za-z0-9_.:/@-]{1,120}")


def read_lost(value: object) -> tuple[str, ...]:
    """Return the names of what is lost.

    Raises
    ------
    FieldError
        If it is not a list of names.
    """
    good = isinstance(value, list) and 1 <= len(value) <= MOST_LOST
    if not good or not all(isinstance(one, str) and _ID.fullmatch(one) for one in value):  # type: ignore[attr-defined]
        raise FieldError({"lost": f"expected 1 to {MOST_LOST} ids of GPUs, nodes or racks."})
    return tuple(dict.fromkeys(value))  # type: ignore[call-overload]


def _named(value: object, what: str) -> Named:
    if not isinstance(value, dict) or not set(value) <= {"name", "text"}:
        raise InputError(f"expected {what}: a name of the catalog, or a dropped file.")
    name, text = value.get("name"), value.get("text") or ""
    if not isinstance(name, str) or not name.strip():
        raise InputError(f"give {what}: choose one of the list, or drop a file.")
    if not isinstance(text, str):
        raise InputError("a dropped file is a text.")
    if len(text) > MOST_TEXT:
        raise InputError(f"the file has more than {MOST_TEXT:,} characters.")
    if len(name) > 200:
        raise InputError("the name has more than 200 characters.")
    return Named(name.strip(), text)


def _clusters(value: object) -> tuple[Named, ...]:
    if not isinstance(value, list) or not 1 <= len(value) <= MOST_CLUSTERS:
        raise InputError(f"expected 1 to {MOST_CLUSTERS} clusters.")
    found: list[Named] = []
    wrong: dict[str, str] = {}
    for place, one in enumerate(value):
        try:
            found.append(_named(one, "a cluster"))
        except InputError as error:
            wrong[f"clusters.{place}"] = str(error)
    if wrong:
        raise FieldError(wrong)
    return tuple(found)


def _whole(least: int, most: int) -> Callable[[Any], int]:
    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value):
            raise InputError(f"expected a whole number from {least:,} to {most:,}.")
        if not least <= value <= most:
            said = f"{value:,g}: " if abs(value) < 10**_MOST_DIGITS else ""
            raise InputError(f"{said}expected a whole number from {least:,} to {most:,}.")
        return int(value)

    return lambda value: _finite(read, value)


def _length(value: object) -> int:
    """Return tokens of a prompt or an answer, a number or a text such as ``8k``."""
    from topology.base.units import parse_length

    if isinstance(value, str):
        try:
            value = parse_length(value, "")
        except InputError:
            raise InputError("expected a whole number of tokens, like 8192 or 8k (8,192).") from None
    return _whole(1, 10_000_000)(value)


def _finite(read: Callable[[Any], T], value: object) -> T:
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError("expected a finite number.")
    return read(value)


def _number(value: object, least: float, most: float) -> float:
    good = isinstance(value, int | float) and not isinstance(value, bool)
    if not (good and least <= value <= most):  # type: ignore[operator] # false for nan as well
        raise InputError(f"expected a number from {least:g} to {most:g}.")
    return float(value)  # type: ignore[arg-type]


def _limit(value: object) -> float:
    return math.inf if value == "none" else _number(value, 0.01, 1e7)


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise InputError("expected true or false.")
    return value


def _word(value: object) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9_.:+-]{1,60}", value):
        raise InputError("expected one word.")
    return value.lower()


def _prices(value: object) -> tuple[tuple[str, float], ...]:
    if not isinstance(value, dict) or len(value) > 20:
        raise InputError("expected prices by GPU, like gb200=3.10.")
    found = []
    for name, price in value.items():
        if not _LABEL.fullmatch(name):
            raise InputError("expected prices by GPU, like gb200=3.10.")
        try:
            found.append((name, _number(price, 1e-6, 1e5)))
        except InputError as error:
            raise InputError(f"{name}: {error}") from None
    return tuple(sorted(found))


def _factors(value: object) -> tuple[tuple[str, float], ...]:
    if not isinstance(value, dict):
        raise InputError("expected factors by name.")
    wrong, found = {}, []
    for name, factor in value.items():
        if name not in (*SLIDERS, "price"):
            raise InputError("expected factors of hbm, flop, up, out or price.")
        try:
            number = float(f"{_number(factor, LEAST_FACTOR, MOST_FACTOR):.4g}")
        except InputError as error:
            wrong[f"factors.{name}"] = str(error)
            continue
        if number != 1:
            found.append((name, number))
    if wrong:
        raise FieldError(wrong)
    return tuple(sorted(found))


@lru_cache(maxsize=32)
def model_of(asked: Named, weights: str | None) -> Model:
    """Return the model that is asked for: of the catalog, or the dropped config.

    Raises
    ------
    FieldError
        If there is none of that name, the file cannot be read, or weights have no such format.
    """
    from cost.config.build import model_from_config
    from cost.dtypes import dtype
    from cost.resolve import model_called, resolve_model
    from topology.base.reading import parse_json

    if weights is not None:
        try:
            dtype(weights)
        except InputError as error:
            raise FieldError({"weights": str(error)}) from None
    try:
        if not asked.text:
            return resolve_model(model_called(asked.name), weights=weights)
        config = parse_json(asked.text, asked.name, infinite=True)
        if not isinstance(config, dict):
            raise InputError(f"{asked.name}: a config.json is one JSON object.")
        config["rackplan"] = {"source": asked.name}
        return model_from_config(config, name=label_of(asked), weights=weights)
    except RackplanError as error:
        instead = " Its config.json can be dropped here." if error.hint else ""
        raise FieldError({"model": f"{error.problem}{instead}"}) from None


def label_of(asked: Named) -> str:
    """Return what a dropped file is called: its name without the ending, in the letters of a file name."""
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", asked.name.rsplit(".", 1)[0])[:60].strip("-.")
    return stem or "own"


def clusters_of(asked: Asked) -> tuple[list[Cluster], dict[str, str]]:
    """Return the clusters with the sliders' figures, all of one size; and notes of sliders that move nothing.

    Raises
    ------
    FieldError
        If one cannot be built: what is wrong, by field.
    """
    sides, notes = _scaled(asked.clusters, asked.gpus, asked.factors)
    return list(sides), dict(notes)


@lru_cache(maxsize=64)
def _scaled(
    named: tuple[Named, ...], gpus: int | None, factors: tuple[tuple[str, float], ...]
) -> tuple[tuple[Cluster, ...], dict[str, str]]:
    from topology.changes.overrides import overrides

    sides, notes = _sides(named, gpus), {}
    for name, value in factors:
        if name in SLIDERS:
            try:
                sides = tuple(overrides(sides, [f"{SLIDERS[name]}={value:g}x"]))
            except RackplanError as error:
                notes[f"factors.{name}"] = str(error)
    return sides, notes


@lru_cache(maxsize=32)
def _sides(named: tuple[Named, ...], gpus: int | None) -> tuple[Cluster, ...]:
    from topology.catalog import cluster_names

    found: list[Cluster] = []
    wrong: dict[str, str] = {}
    for place, one in enumerate(named):
        try:
            found.append(_cluster(one))
        except RackplanError as error:
            wrong[f"clusters.{place}"] = str(error)
    if wrong:
        raise FieldError(wrong)
    count = gpus or (max(len(side.gpus) for side in found) if len(found) > 1 else None)
    if count is not None:
        for place, one in enumerate(named):
            called = found[place].name
            if not one.text and called in cluster_names() and len(found[place].gpus) != count:
                try:
                    found[place] = _cluster(Named(f"{called}@{count}"))
                except RackplanError as error:
                    wrong[f"clusters.{place}" if gpus is None else "gpus"] = str(error)
            if gpus is not None and len(found[place].gpus) != gpus and "gpus" not in wrong:
                wrong["gpus"] = f"{one.name} has {len(found[place].gpus)} GPUs; leave this or its @GPUS out."
    if wrong:
        raise FieldError(wrong)
    return tuple(found)


@lru_cache(maxsize=64)
def _cluster(named: Named) -> Cluster:
    from topology.base.reading import parse_yaml
    from topology.build import build_cluster
    from topology.files.cluster_file import read_cluster
    from topology.files.resolve import cluster_called, resolve_cluster

    if named.text:
        label = label_of(named)
        spec = read_cluster(parse_yaml(named.text, named.name), named.name, label)
        if (count := sum(domain.gpus for domain in spec.domains)) > MOST_GPUS:
            raise InputError(_too_many(f"{count:,}"))
        found = build_cluster(spec)
    else:
        if named.name.lower().endswith((".yaml", ".yml")):
            raise InputError(f"{named.name}: drop the file here; the page opens none by name.")
        called = cluster_called(named.name)
        _, _, size = called.partition("@")
        if size.isdecimal() and (len(size) > _MOST_DIGITS or int(size) > MOST_GPUS):
            raise InputError(_too_many(size if len(size) > _MOST_DIGITS else f"{int(size):,}"))
        found = resolve_cluster(called)
    if len(found.gpus) > MOST_GPUS:
        raise InputError(_too_many(f"{len(found.gpus):,}"))
    return found


def _too_many(count: str) -> str:
    return f"{count:.{_MOST_DIGITS}} GPUs: the page takes {MOST_GPUS:,} at most; `rackplan sweep` takes more."
