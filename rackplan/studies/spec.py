"""Definition of a study: its kind and its points (every grid combination at every sampled point)."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from pydantic import Field

from rackplan.digests import digests
from rackplan.studies.options import NAMED_FILES, Kind, Value, require_value
from rackplan.studies.ranges import Range, range_of
from topology.base.errors import InputError
from topology.base.reading import load_yaml, shown
from topology.base.schema import CountOrZero, Spec, Text, checked, keyword_spec, validated
from topology.base.values import require_number, require_whole

MOST_POINTS = 1_000_000
"""Maximum points of one study, since their digests are kept in memory."""
LIMIT_S = 600.0
"""Default time limit of a point in seconds."""
DIGEST_VERSION = 1
"""Version of the content of point digests."""

_Goal = Literal["usd_per_million_tokens", "tok_s_per_gpu", "tok_s_per_user", "tok_s_per_mw", "step_s"]
_LEAST_IS_BEST: tuple[_Goal, ...] = ("usd_per_million_tokens", "step_s")


@dataclass(frozen=True)
class Point:
    """One point.

    Attributes
    ----------
    number, options:
        Its place in the study, and what is priced.
    digest:
        SHA-256 of the options and of the files that they name.
    files:
        SHA-256 of each of those files, by the name typed.
    """

    number: int
    options: Mapping[str, Value]
    digest: str
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Search:
    """Goal of the tuner (:mod:`rackplan.studies.tune`).

    Attributes
    ----------
    goal, least:
        The figure of a row to optimise, and whether the least of it is best.
    ranges:
        The options that it chooses, each with its range.
    trials:
        Points that it prices, for each value of ``curve``.
    curve:
        The option along which the best of the others is found, and its values; None: one optimum.
    worth:
        USD that a GPU-hour costs more where a figure is twice what it is today, by option; others are free.
    """

    goal: str
    least: bool
    ranges: Mapping[str, Range]
    trials: int
    seed: int
    curve: tuple[str, tuple[Value, ...]] | None = None
    worth: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Study:
    """A study.

    Attributes
    ----------
    fixed, grid, sample:
        Options of all points; values by option of which every combination is a point; ranges to draw from.
    draws, seed:
        Points of the sample, 0 without one, and its seed.
    limit_s:
        Seconds that a point may take.
    search:
        What ``--optimize`` looks for; None without it.
    base:
        Folder from which names of files are read first.
    content:
        The mapping that it was read from.
    """

    kind: Kind
    fixed: Mapping[str, Value]
    grid: Mapping[str, Sequence[Value]]
    sample: Mapping[str, Range]
    draws: int
    seed: int
    limit_s: float
    search: Search | None
    base: Path
    content: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def varied(self) -> list[str]:
        """Options that differ between points."""
        names = [*self.grid, *self.sample]
        if self.search is not None:
            names += [*self.curve[0], *self.search.ranges]
        return list(dict.fromkeys(names))

    @property
    def columns(self) -> list[str]:
        """All options of the points, in the order of columns."""
        return list(dict.fromkeys([*self.varied, *self.fixed]))

    @property
    def curve(self) -> list[dict[str, Value]]:
        """Fixed options of each tuner search; one empty mapping without a curve."""
        if self.search is None or self.search.curve is None:
            return [{}]
        name, values = self.search.curve
        return [{name: value} for value in values]

    @property
    def trials(self) -> int:
        """Points of ``--optimize``."""
        return 0 if self.search is None else len(self.curve) * self.search.trials

    def values(self, name: str) -> list[Value]:
        """Return values of an option: all of a grid, or the ends of a range."""
        found = [*self.grid.get(name, ()), *([self.fixed[name]] if name in self.fixed else [])]
        for ranges in (self.sample, self.search.ranges if self.search else {}):
            found += ranges[name].ends if name in ranges else []
        return found + [options[name] for options in self.curve if name in options]

    def points(self, files: Files) -> Iterator[Point]:
        """Yield the points; combinations that a sample draws twice are one point."""
        seen: set[str] = set()
        for chosen, draw in product(product(*self.grid.values()), range(max(1, self.draws))):
            drawn = {name: one.draw(self.seed, name, draw) for name, one in self.sample.items()}
            options = {**self.fixed, **dict(zip(self.grid, chosen, strict=True)), **drawn}
            point = self.point(len(seen), options, files)
            if point.digest not in seen:
                seen.add(point.digest)
                yield point

    def point(self, number: int, options: Mapping[str, Value], files: Files) -> Point:
        """Return the point with these options."""
        asked = {name: value for name, value in options.items() if value is not None}
        named = files.digests(asked)
        content = {"version": DIGEST_VERSION, "kind": self.kind, "options": asked, "files": named}
        text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return Point(number, asked, hashlib.sha256(text.encode()).hexdigest(), named)


class Files:
    """Files named by options, with the digests of their content."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self._known: dict[str, tuple[str, dict[str, str]]] = {}

    @property
    def paths(self) -> dict[str, str]:
        """Paths of all files named by points so far, by the name as typed."""
        return {text: path for text, (path, digests) in self._known.items() if digests}

    def digests(self, options: Mapping[str, Value]) -> dict[str, str]:
        """Return the SHA-256 of every file named by these options, by the name as typed."""
        found: dict[str, str] = {}
        for option in NAMED_FILES:
            value = options.get(option)
            for text in value if isinstance(value, list | dict) else [value]:
                if isinstance(text, str):
                    found |= self._look(text)[1]
        return found

    def _look(self, text: str) -> tuple[str, dict[str, str]]:
        if text not in self._known:
            path, read = text, {}
            try:
                there = [one for one in (self._base / text, Path(text)) if one.exists()]
                path = os.path.realpath(there[0]) if there else text
                read = digests([path])
            except (OSError, ValueError):  # a text that cannot be a path
                path = text
            self._known[text] = path, {name.replace(path, text, 1): one for name, one in read.items()}
        return self._known[text]


@keyword_spec
class _SearchFile(Spec):
    """The `optimize` section."""

    goal: _Goal = "usd_per_million_tokens"
    search: Annotated[dict[Text, Any], Field(min_length=1)]
    trials: Annotated[int, checked(require_whole, 1, 100_000)] = 64
    seed: CountOrZero = 0
    curve: dict[Text, Annotated[list[Any], Field(min_length=1)]] | None = None
    usd_per_h: dict[Text, Annotated[float, checked(require_number, 0)]] | None = None


@keyword_spec
class _StudyFile(Spec):
    """The keys of a study; options are checked in :mod:`rackplan.studies.options`."""

    kind: Kind
    fixed: dict[Text, Any] | None = None
    grid: dict[Text, Any] | None = None
    sample: dict[Text, Any] | None = None
    limit_s: Annotated[float, checked(require_number, None, 1e6)] = LIMIT_S
    optimize: _SearchFile | None = None


def read_study(path: Path) -> Study:
    """Read a ``STUDY.yaml``.

    Raises
    ------
    InputError
        If it cannot be read, or something in it is wrong.
    """
    content = load_yaml(path, str(path))
    try:
        json.dumps(content, allow_nan=False)
    except (TypeError, ValueError):
        raise InputError(
            f"{path}: dates and infinite numbers are not valid options; quote them, or leave them out."
        ) from None
    return study_of(content, str(path), path.parent.resolve())


def study_of(content: object, where: str, base: Path) -> Study:
    """Return the study described by a mapping with the keys of a ``STUDY.yaml``.

    Raises
    ------
    InputError
        If it has unknown keys, or something in it is wrong.
    """
    file = validated(_StudyFile, content, where)
    kind = file.kind
    fixed = {
        name: require_value(kind, name, value, f"{where}: fixed: {name}")
        for name, value in (file.fixed or {}).items()
    }
    grid = {
        name: _several(kind, name, values, f"{where}: grid: {name}")
        for name, values in (file.grid or {}).items()
    }
    sample, draws, seed = _sample(file, f"{where}: sample")
    search = None if file.optimize is None else _search(file.optimize, kind, f"{where}: optimize")
    mapping = cast(Mapping[str, Any], content)
    study = Study(kind, fixed, grid, sample, draws, seed, file.limit_s, search, base, mapping)
    _require_one_place(study, where)
    many = math.prod(map(len, grid.values())) * max(1, draws)
    if many > MOST_POINTS:
        raise InputError(f"{where}: {many:,} points; a study has at most {MOST_POINTS:,}.")
    for name in ("model", "cluster"):
        if name not in study.columns:
            raise InputError(
                f"{where}: `{name}` is missing; give it under `fixed`, or several values under `grid`."
            )
    return study


def _several(kind: Kind, name: str, values: object, where: str) -> list[Value]:
    """Return the values of an option without duplicates."""
    if not isinstance(values, list) or not values:
        raise InputError(f"{where}: {shown(values)} must be a list of values; one value goes under `fixed`.")
    found = [require_value(kind, name, value, where) for value in values]
    texts = [json.dumps(value, sort_keys=True) for value in found]
    if len(set(texts)) < len(texts):
        raise InputError(
            f"{where}: {Counter(texts).most_common(1)[0][0][:60]} is a duplicate; leave one out."
        )
    return found


def _sample(file: _StudyFile, where: str) -> tuple[dict[str, Range], int, int]:
    """Return sampled ranges by option, the number of draws and the seed."""
    if file.sample is None:
        return {}, 0, 0
    options = {**file.sample}
    draws = require_whole(options.pop("points", None), f"{where}: points", 1, MOST_POINTS)
    seed = require_whole(options.pop("seed", 0), f"{where}: seed", 0)
    if not options:
        raise InputError(f"{where}: no option is sampled; give a range, like context: [1024, 65536].")
    return _ranges(options, file.kind, where), draws, seed


def _ranges(options: Mapping[str, Any], kind: Kind, where: str) -> dict[str, Range]:
    return {name: range_of(kind, name, value, f"{where}: {name}") for name, value in options.items()}


def _search(file: _SearchFile, kind: Kind, where: str) -> Search:
    ranges = _ranges(file.search, kind, f"{where}: search")
    worth = file.usd_per_h or {}
    for name in worth:
        if name not in ranges or not ranges[name].factor:
            raise InputError(
                f"{where}: usd_per_h: {name}: needs a figure that `search` gives as factors, like [0.5x, 4x]."
            )
    curve = None
    if file.curve is not None:
        at = f"{where}: curve"
        if len(file.curve) != 1 or next(iter(file.curve)) in ranges:
            raise InputError(f"{at}: expected one option that is not under `search`, with its values.")
        name, values = next(iter(file.curve.items()))
        curve = name, tuple(require_value(kind, name, one, f"{at}: {name}") for one in values)
    return Search(file.goal, file.goal in _LEAST_IS_BEST, ranges, file.trials, file.seed, curve, worth)


def _require_one_place(study: Study, where: str) -> None:
    """Reject options given in two places."""
    optimize = [] if study.search is None else [*study.curve[0], *study.search.ranges]
    places = {"fixed": study.fixed, "grid": study.grid, "sample": study.sample, "optimize": optimize}
    seen: dict[str, str] = {}
    for place, names in places.items():
        for name in names:
            if name in seen:
                raise InputError(f"{where}: `{name}` is under {seen[name]} and under {place}; keep one.")
            seen[name] = place
