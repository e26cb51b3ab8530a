"""Definition of a study: its kind and its points, every combination of a grid at every draw from some ranges."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, cast

from pydantic import Field

from rackplan.digests import digests
from rackplan.studies.options import NAMED_FILES, Kind, Range, Value, range_of, require_value
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
_T = TypeVar("_T")
_LEAST_IS_BEST = ("usd_per_million_tokens", "step_s")


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
    content: Mapping[str, Any] = field(compare=False, repr=False)
    goal: str = ""
    worth: Mapping[str, float] = field(default_factory=dict)
    _files: dict[str, tuple[str, dict[str, str]]] = field(default_factory=dict, compare=False, repr=False)

    @property
    def least(self) -> bool:
        """Whether the least of the goal is best."""
        return self.goal in _LEAST_IS_BEST

    @property
    def varied(self) -> list[str]:
        """Options that differ between points."""
        return [*self.grid, *self.ranges]

    @property
    def columns(self) -> list[str]:
        """All options of the points, in the order of columns."""
        return list(dict.fromkeys([*self.varied, *self.fixed]))

    @property
    def most(self) -> int:
        """Number of points, if none is drawn twice."""
        return math.prod(map(len, self.grid.values())) * self.draws

    def values(self, name: str) -> Sequence[Value]:
        """Return the values of an option, or the ends of its range."""
        if name in self.ranges:
            return self.ranges[name].ends
        return self.grid[name] if name in self.grid else [self.fixed[name]]

    def combinations(self) -> list[dict[str, Value]]:
        """Return every combination of the grid; one of nothing without a grid."""
        return [dict(zip(self.grid, chosen, strict=True)) for chosen in product(*self.grid.values())]

    def points(self) -> Iterator[Point]:
        """Yield the points; combinations that are drawn twice are one point."""
        seen: set[str] = set()
        for chosen, draw in product(self.combinations(), range(self.draws)):
            drawn = {name: range_.draw(self.seed, name, draw) for name, range_ in self.ranges.items()}
            point = self.point(len(seen), {**chosen, **drawn})
            if point.digest not in seen:
                seen.add(point.digest)
                yield point

    def point(self, number: int, options: Mapping[str, Value]) -> Point:
        """Return the point with these options and the fixed ones."""
        asked = {name: value for name, value in {**self.fixed, **options}.items() if value is not None}
        files: dict[str, str] = {}
        for value in map(asked.get, NAMED_FILES):
            for text in value if isinstance(value, list | dict) else [value]:
                files |= self._file(text)[1] if isinstance(text, str) else {}
        content = {"version": DIGEST_VERSION, "kind": self.kind, "options": asked, "files": files}
        text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return Point(number, asked, hashlib.sha256(text.encode()).hexdigest(), files)

    @property
    def paths(self) -> dict[str, str]:
        """Paths of all files named by points so far, by the name as typed."""
        return {text: path for text, (path, files) in self._files.items() if files}

    def _file(self, text: str) -> tuple[str, dict[str, str]]:
        """Return the path that a text names and the SHA-256 of the files there, by the name as typed."""
        if text not in self._files:
            path, read = text, {}
            try:
                there = [place for place in (self.base / text, Path(text)) if place.exists()]
                path = os.path.realpath(there[0]) if there else text
                read = digests([path])
            except (OSError, ValueError):  # a text that cannot be a path
                path = text
            self._files[text] = path, {name.replace(path, text, 1): digest for name, digest in read.items()}
        return self._files[text]


@keyword_spec
class _Search(Spec):
    """The `optimize` section."""

    goal: _Goal = "usd_per_million_tokens"
    search: Annotated[dict[Text, Any], Field(min_length=1)]
    trials: Annotated[int, checked(require_whole, 1, 100_000)] = 64
    seed: CountOrZero = 0
    curve: dict[Text, Any] | None = None
    usd_per_h: dict[Text, Annotated[float, checked(require_number, 0)]] | None = None


@keyword_spec
class _StudyFile(Spec):
    """The keys of a study; options are checked in :mod:`rackplan.studies.options`."""

    kind: Kind
    fixed: dict[Text, Any] | None = None
    grid: dict[Text, Any] | None = None
    sample: dict[Text, Any] | None = None
    limit_s: Annotated[float, checked(require_number, None, 1e6)] = LIMIT_S
    optimize: _Search | None = None


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
    kind, search, sample = file.kind, file.optimize, dict(file.sample or {})

    def read(read_one: Callable[..., _T], place: str, options: Mapping[str, object] | None) -> dict[str, _T]:
        given = (options or {}).items()
        return {name: read_one(kind, name, value, f"{where}: {place}: {name}") for name, value in given}

    on_grid, in_ranges, draws, seed = "grid", "sample", 1, 0
    if file.sample is not None:
        draws = require_whole(sample.pop("points", None), f"{where}: sample: points", 1, MOST_POINTS)
        seed = require_whole(sample.pop("seed", 0), f"{where}: sample: seed", 0)
        if not sample:
            raise InputError(
                f"{where}: sample: no option is sampled; give a range, like context: [1024, 65536]."
            )
    if search is not None:
        if file.grid or file.sample:
            raise InputError(
                f"{where}: `grid` and `sample` cannot be combined with `optimize`; use `optimize: curve`."
            )
        on_grid, in_ranges, draws, seed = "optimize: curve", "optimize: search", search.trials, search.seed
        if search.curve is not None and len(search.curve) != 1:
            raise InputError(f"{where}: {on_grid}: expected one option, with its values.")
    study = Study(
        kind,
        read(require_value, "fixed", file.fixed),
        read(_several, on_grid, search.curve if search else file.grid),
        read(range_of, in_ranges, search.search if search else sample),
        draws,
        seed,
        file.limit_s,
        base,
        cast(Mapping[str, Any], content),
        search.goal if search else "",
        (search and search.usd_per_h) or {},
    )
    _require_consistent(study, where, on_grid, in_ranges)
    return study


def _require_consistent(study: Study, where: str, on_grid: str, in_ranges: str) -> None:
    """Reject a study of options in two places, without a model or a cluster, or of too many points."""
    for name in study.worth:
        if name not in study.ranges or study.ranges[name].unit.strip() not in ("x", "X"):
            raise InputError(
                f"{where}: optimize: usd_per_h: {name}: needs a figure that `search` gives as factors, like "
                "[0.5x, 4x]."
            )
    places = {"fixed": study.fixed, on_grid: study.grid, in_ranges: study.ranges}
    for name in study.columns:
        under = [place for place, names in places.items() if name in names]
        if len(under) > 1:
            raise InputError(f"{where}: `{name}` is under {' and under '.join(under)}; keep one.")
    if study.most > MOST_POINTS:
        raise InputError(f"{where}: {study.most:,} points; a study has at most {MOST_POINTS:,}.")
    for name in ("model", "cluster"):
        if name not in study.columns:
            raise InputError(
                f"{where}: `{name}` is missing; give it under `fixed`, or several values under `grid`."
            )


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
