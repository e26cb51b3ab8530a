"""Definition of a study: its kind and its points, every combination of a grid at every draw from some ranges.

Options are those of the request of the kind, by the name of their flag, and their values of its types.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from rackplan import requests
from rackplan.digests import digests, read_in
from topology.base.errors import InputError
from topology.base.reading import load_yaml, nearest, shown
from topology.base.schema import CountOrZero, Spec, Text, checked, keyword_spec, validated
from topology.base.values import require_number, require_whole

Kind = Literal["score", "sweep", "plan"]
KINDS: Mapping[Kind, type[requests.Request]] = {
    "score": requests.LayoutRequest,
    "sweep": requests.SweepRequest,
    "plan": requests.PlanRequest,
}
"""Request of a point by kind."""
ENTRIES = ("set", "price", "power")
"""Mappings whose entries may be options of their own: ``set.gpu.hbm_bytes_per_s``, ``price.gb200``."""
NAMED_FILES = ("model", "cluster", "prefill_cluster", "loads", "routing")
"""Options that may name files."""
MAX_POINTS = 1_000_000
"""Points of one study, whose rows are kept in memory."""
Value = str | int | float | bool | list[Any] | dict[str, Any] | None
"""Value of an option in YAML; None: not given."""

_T = TypeVar("_T")
_Goal = Literal["usd_per_million_tokens", "tok_s_per_gpu", "tok_s_per_user", "tok_s_per_mw", "step_s"]
_QUANTITY = re.compile(r"([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)(| ?[A-Za-z][A-Za-z/]*)")


@cache
def fields_of(kind: Kind) -> Mapping[str, str]:
    """Return the fields of a kind's request by their names in studies: flag names, with the unit for seconds."""
    fields: dict[str, str] = {}
    for name, (option, _) in requests.options_of(KINDS[kind]).items():
        if not option.python and name != "tok_s_user":
            flag = option.flag(name).removeprefix("--").replace("-", "_")
            fields[name if name == f"{flag}_s" else flag] = name
    return fields


@cache
def _type(kind: Kind, name: str) -> TypeAdapter[Any]:
    """Return the type of an option of the request, or that of a figure."""
    field_name = fields_of(kind).get(name)
    declared = requests.Count if name == "domain_gpus" else requests.Number
    return TypeAdapter(requests.options_of(KINDS[kind])[field_name][1] if field_name else declared)


def require_value(kind: Kind, name: str, value: Any, where: str) -> Value:
    """Return a value of an option as written; lengths, limits and shares given as text are parsed.

    Raises
    ------
    InputError
        If this kind of study has no such option, or the value is of another type.
    """
    known = [*fields_of(kind), "domain_gpus", "price_more"]
    group, _, entry = name.partition(".")
    if group in ENTRIES and entry:
        if group == "set" and ("." not in entry or not all(entry.split("."))):
            raise InputError(f"{where}: expected set.PART.FIGURE, like set.gpu.hbm_bytes_per_s.")
        if group == "set" and isinstance(value, str):  # a quantity or a factor: its unit depends on the part
            return value
    elif name not in known:
        others = [other for other in KINDS if name in fields_of(other)]
        hint = f"it belongs to kind {' or '.join(others)}." if others else nearest(name, known)
        raise InputError(f"{where}: a study of kind {kind} has no option `{name[:60]}`; {hint}")
    if value is None:
        return None
    try:
        read: Value = _type(kind, name).validate_python(value)
    except ValidationError as error:
        text = requests.expected(error.errors(include_url=False)[0])
        raise InputError(f"{where}: {shown(value)}: {text}") from None
    parsed = isinstance(value, str) and not isinstance(read, str | list | tuple | dict)
    return read if parsed or read == "none" else value


@keyword_spec
class _RangeFile(Spec):
    """Values to choose from, or the ends of a range and its scale."""

    values: Annotated[list[Any], Field(min_length=1)] | None = None
    low: Any = None
    high: Any = None
    scale: Literal["linear", "log"] = "linear"


@dataclass(frozen=True)
class Range:
    """Range of an option: one of its ``values``, or numbers between the two ``ends``, with both.

    Attributes
    ----------
    unit:
        What stands after the number: ``x`` of a factor, `` TB/s``; empty for a mere number.
    whole:
        Whether only whole numbers are meant.
    log:
        Whether numbers are even in their logarithm.
    """

    values: Sequence[Value]
    ends: tuple[float, float] | None = None
    unit: str = ""
    whole: bool = False
    log: bool = False

    def at(self, part: float) -> Value:
        """Return the value at a part (0 to 1) of the range; numbers have six digits."""
        if self.ends is None:
            return self.values[min(int(part * len(self.values)), len(self.values) - 1)]
        low, high = self.ends[0], self.ends[1] + self.whole
        number = low * (high / low) ** part if self.log else low + part * (high - low)
        if self.whole:
            return int(min(number, self.ends[1]))
        rounded = min(max(float(f"{number:.6g}"), low), high)
        return f"{rounded:.6g}{self.unit}" if self.unit else rounded


def range_of(kind: Kind, name: str, value: object, where: str) -> Range:
    """Read ``[low, high]``, ``{low, high, scale: log}``, a list of values to choose from, or ``{values: [...]}``.

    Raises
    ------
    InputError
        If it is none of them, or a value is not one of the option's.
    """
    given = validated(_RangeFile, {"values": value} if isinstance(value, list) else value, where)
    values = [require_value(kind, name, end, where) for end in given.values or (given.low, given.high)]
    numbers = [_number(value) for value in values]
    able = None not in numbers and len(numbers) == 2
    if given.values and not (isinstance(value, list) and able and numbers[0] != numbers[1]):
        return Range(values)
    (low, unit), (high, unit_of_high) = (number or (0.0, "") for number in numbers)
    log = given.scale == "log"
    if not able or unit != unit_of_high or low >= high or (log and low <= 0):
        limits = "two numbers with the same unit, the first less than the second" + ", and above 0" * log
        raise InputError(f"{where}: {shown(values)}: expected {limits}.")
    return Range(values, (low, high), unit, all(isinstance(end, int) for end in values), log)


def _number(value: Value) -> tuple[float, str] | None:
    """Return a number and the unit after it, None if it is not a number."""
    if isinstance(value, bool) or (quantity := _QUANTITY.fullmatch(str(value).strip())) is None:
        return None
    return float(quantity[1]), quantity[2]


class Point(NamedTuple):
    """One point: its place in the study, what is priced, and the SHA-256 of that."""

    number: int
    options: dict[str, Any]
    digest: str


def uniform(text: str) -> float:
    """Return the number from 0 to 1 that a text draws, the same on every machine."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7]) / 2.0**56


@dataclass(frozen=True)
class Study:
    """A study.

    Attributes
    ----------
    fixed, grid:
        Options of all points, and values by option of which every combination is taken; with a goal the option of the
        curve along which the best of the others is found.
    ranges:
        Options to draw from; with a goal those that the tuner (:mod:`rackplan.studies.tune`) chooses.
    draws, seed:
        Points at each combination, and the seed of what is drawn.
    limit_s:
        Seconds that a point may take.
    base:
        Folder from which names of files are read first.
    content:
        The mapping that it was read from.
    goal:
        The figure of a row that ``--optimize`` optimises; empty: none.
    worth:
        USD that a GPU-hour costs more where a figure is twice what it is today, by option; others are free.
    """

    kind: Kind
    fixed: Mapping[str, Value]
    grid: Mapping[str, Sequence[Value]]
    ranges: Mapping[str, Range]
    draws: int
    seed: int
    limit_s: float
    base: Path
    content: Any = field(compare=False, repr=False)
    goal: str = ""
    worth: Mapping[str, float] = field(default_factory=dict)

    @property
    def least(self) -> bool:
        """Whether the least of the goal is best."""
        return self.goal in ("usd_per_million_tokens", "step_s")

    @property
    def varied(self) -> list[str]:
        """Options that differ between points."""
        return [*self.grid, *self.ranges]

    @property
    def size(self) -> int:
        """Number of points, if none is drawn twice."""
        return math.prod(map(len, self.grid.values())) * self.draws

    @property
    def values(self) -> dict[str, Sequence[Value]]:
        """The values of each option, or the ends of its range, in the order of columns."""
        ends = {name: span.values for name, span in self.ranges.items()}
        return {**self.grid, **ends, **{name: [value] for name, value in self.fixed.items()}}

    @cached_property
    def files(self) -> dict[str, list[Path]]:
        """The files that options name, and those that are read in such folders, by the name typed."""
        files: dict[str, list[Path]] = {}
        for value in (value for name in NAMED_FILES for value in self.values.get(name, ())):
            for text in map(str, value if isinstance(value, list | dict) else [value]):
                with suppress(OSError, ValueError):  # a text that cannot be a path
                    path = self.base / text
                    files[text] = read_in(path) if path.is_dir() else [path] * path.is_file()
        return {text: paths for text, paths in files.items() if paths}

    @cached_property
    def sha256(self) -> dict[str, str]:
        """Digests of those files, by the name typed."""
        return {text: " ".join(digests(map(str, paths)).values()) for text, paths in self.files.items()}

    def combinations(self) -> list[dict[str, Value]]:
        """Return every combination of the grid; one of nothing without a grid."""
        return [dict(zip(self.grid, chosen, strict=True)) for chosen in product(*self.grid.values())]

    def points(self) -> Iterator[Point]:
        """Yield the points; combinations that are drawn twice are one point."""
        seen: set[str] = set()
        for chosen, draw in product(self.combinations(), range(self.draws)):
            texts = {name: f"{self.seed}|{name}|{draw}" for name in self.ranges}
            drawn = {name: self.ranges[name].at(uniform(text)) for name, text in texts.items()}
            point = self.point(len(seen), {**chosen, **drawn})
            if point.digest not in seen:
                seen.add(point.digest)
                yield point

    def point(self, number: int, options: Mapping[str, Value]) -> Point:
        """Return the point with these options and the fixed ones."""
        given = {name: value for name, value in {**self.fixed, **options}.items() if value is not None}
        text = json.dumps({"kind": self.kind, "options": given}, sort_keys=True)
        return Point(number, given, hashlib.sha256(text.encode()).hexdigest())


@keyword_spec
class _Search(Spec):
    """The `optimize` section."""

    goal: _Goal = "usd_per_million_tokens"
    search: Annotated[dict[Text, Any], Field(min_length=1)]
    trials: Annotated[int, checked(require_whole, 1, 100_000)] = 64
    seed: CountOrZero = 0
    curve: Annotated[dict[Text, Any], Field(min_length=1, max_length=1)] | None = None
    usd_per_h: dict[Text, Annotated[float, checked(require_number, 0)]] = field(default_factory=dict)


@keyword_spec
class _StudyFile(Spec):
    """The keys of a study."""

    kind: Kind
    fixed: dict[Text, Any] | None = None
    grid: dict[Text, Any] | None = None
    sample: dict[Text, Any] | None = None
    limit_s: Annotated[float, checked(require_number, None, 1e6)] = 600.0
    optimize: _Search | None = None


def read_study(path: Path) -> Study:
    """Read a ``STUDY.yaml``.

    Raises
    ------
    InputError
        If it cannot be read, or something in it is wrong.
    """
    return study_of(load_yaml(path, str(path)), str(path), path.parent.resolve())


def study_of(content: object, where: str, base: Path) -> Study:
    """Return the study described by a mapping with the keys of a ``STUDY.yaml``.

    Raises
    ------
    InputError
        If it has unknown keys, or something in it is wrong.
    """
    file = validated(_StudyFile, content, where)
    try:
        json.dumps(content, allow_nan=False)
    except (TypeError, ValueError):
        why = "dates and infinite numbers are not valid options; quote them, or leave them out."
        raise InputError(f"{where}: {why}") from None
    kind, sample, search = file.kind, dict(file.sample or {}), file.optimize
    if search and (file.grid or sample):
        raise InputError(
            f"{where}: `grid` and `sample` cannot be combined with `optimize`; use `optimize: curve`."
        )
    points = require_whole(
        sample.pop("points", None if sample else 1), f"{where}: sample: points", 1, MAX_POINTS
    )
    seed = require_whole(sample.pop("seed", 0), f"{where}: sample: seed", 0)

    def read(of: Callable[..., _T], place: str, options: Mapping[str, object] | None) -> dict[str, _T]:
        names = options or {}
        return {name: of(kind, name, value, f"{where}: {place}: {name}") for name, value in names.items()}

    study = Study(
        kind,
        read(require_value, "fixed", file.fixed),
        read(_values, "optimize: curve" if search else "grid", search.curve if search else file.grid),
        read(range_of, "optimize: search" if search else "sample", search.search if search else sample),
        search.trials if search else points,
        search.seed if search else seed,
        file.limit_s,
        base,
        content,
        search.goal if search else "",
        search.usd_per_h if search else {},
    )
    for name in study.worth:
        if name not in study.ranges or study.ranges[name].unit.strip() not in ("x", "X"):
            why = "needs a figure that `search` gives as factors, like [0.5x, 4x]."
            raise InputError(f"{where}: optimize: usd_per_h: {name}: {why}")
    names = [*study.varied, *study.fixed]
    if twice := [name for name in study.values if names.count(name) > 1]:
        raise InputError(f"{where}: `{twice[0]}` is there twice, to vary or as `fixed`; keep one.")
    if study.size > MAX_POINTS:
        raise InputError(f"{where}: {study.size:,} points; a study has at most {MAX_POINTS:,}.")
    if missing := [name for name in ("model", "cluster") if name not in names]:
        raise InputError(f"{where}: `{missing[0]}` is missing; give it under `fixed` or `grid`.")
    return study


def _values(kind: Kind, name: str, values: object, where: str) -> list[Value]:
    """Return the values of an option on the grid."""
    if not isinstance(values, list) or not values:
        raise InputError(f"{where}: {shown(values)} must be a list of values; one value goes under `fixed`.")
    return [require_value(kind, name, value, where) for value in values]
