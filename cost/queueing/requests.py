"""Requests of a simulation: made by a rate and lengths, kept going by users, or read from a trace."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cost.quantity import LONGEST_CONTEXT
from cost.serving.lengths import Lengths
from topology.base.errors import InputError, input_name
from topology.base.reading import parse_json, read_text, shown

Array = NDArray[np.float64]

ARRIVALS = ("poisson", "constant", "bursty")
BURSTY = 0.25
"""Shape of the gamma distribution of times between bursty arrivals: four times the variance of Poisson's."""
BLOCK_TOKENS = 512
"""Tokens of a block of Mooncake's traces and of AIPerf's."""
KINDS = 6
"""Lengths that stand for those of a trace where layouts are priced."""


@dataclass(frozen=True)
class TraceColumns:
    """What a trace calls the time a request came and the tokens of its prompt and answer, and seconds of its unit.

    No ``unit_s``: dates and times of day.
    """

    at: str
    isl: str
    osl: str
    unit_s: float | None

    def __str__(self) -> str:
        return f"{self.at}, {self.isl}, {self.osl}"


MOONCAKE = TraceColumns("timestamp", "input_length", "output_length", 1e-3)
"""Mooncake's traces, and AIPerf's: https://github.com/kvcache-ai/Mooncake"""
TRACES = (
    MOONCAKE,
    # LLM inference traces of 2023 and 2024: https://github.com/Azure/AzurePublicDataset
    TraceColumns("TIMESTAMP", "ContextTokens", "GeneratedTokens", None),
    # https://github.com/HPMLL/BurstGPT
    TraceColumns("Timestamp", "Request tokens", "Response tokens", 1.0),
)
_EPOCHS = {1e16: "nanoseconds", 1e14: "microseconds", 1e11: "", 1e9: "seconds"}
"""Units since 1970 of timestamps from so much on; milliseconds are what is expected."""
_FASTEST = 1_000.0
"""Requests a second of a recorded trace: public ones have up to some 100."""


@dataclass(frozen=True, eq=False)
class Requests:
    """Requests in the order in which they are sent.

    Attributes
    ----------
    starts_s:
        When each is sent, rising; of ``users`` (0: nobody waits) only their first ones, then each when one ends.
    isl, osl, cached:
        Tokens of the prompt, of the answer, and of the prompt that a cache holds whatever was served before.
    blocks:
        Identities of the blocks of ``block`` tokens of each prompt; empty: prompts share nothing.
    made:
        Whether they were made; else recorded.
    begun:
        Tokens of their answers that the first so many have already, each in an engine that decodes it; ``tail``: the
        last so many keep up the load for those before.
    """

    starts_s: Sequence[float]
    isl: Sequence[int]
    osl: Sequence[int]
    cached: Sequence[int]
    users: int = 0
    blocks: Sequence[Sequence[int]] = ()
    block: int = BLOCK_TOKENS
    made: bool = True
    begun: Sequence[int] = ()
    tail: int = 0

    def __len__(self) -> int:
        return len(self.isl)

    def at_rate(self, requests_per_s: float) -> Requests:
        """Return the same requests, sent at another mean rate."""
        scale = self.rate / requests_per_s
        return replace(self, starts_s=[at * scale for at in self.starts_s])

    @property
    def rate(self) -> float:
        """Requests per second on average."""
        return (len(self) - 1) / max(self.starts_s[-1] - self.starts_s[0], 1e-12) if len(self) > 1 else 1.0

    @property
    def lengths(self) -> Lengths:
        """About the same lengths as a mix of :data:`KINDS`: equally many requests each, by prompt, with their means.

        What a cache of all blocks seen before would hold is its part of the prompts.
        """
        rows = sorted(zip(self.isl, self.osl, strict=True))
        parts = [part for part in np.array_split(np.array(rows, dtype=np.float64), KINDS) if len(part)]
        means = [np.maximum(1, np.rint(part.mean(axis=0))).astype(int).tolist() for part in parts]
        seen: set[int] = set()
        hits = 0
        for blocks, isl in zip(self.blocks, self.isl, strict=False):
            known = sum(1 for _ in takewhile(seen.__contains__, blocks))
            hits += min(known * self.block, isl - 1)
            seen.update(blocks)
        return Lengths(
            tuple(isl for isl, _ in means),
            tuple(osl for _, osl in means),
            tuple(len(part) / len(rows) for part in parts),
            prefix_hit=hits / sum(self.isl),
        )


def made_requests(
    lengths: Lengths,
    number: int,
    *,
    requests_per_s: float = 1.0,
    users: int = 0,
    arrivals: str = ARRIVALS[0],
    cv: float = 0.0,
    seed: int = 0,
) -> Requests:
    """Return ``number`` requests of some lengths.

    Parameters
    ----------
    requests_per_s, arrivals:
        Mean rate, and one of :data:`ARRIVALS`.
    users:
        Instead of a rate: each sends a request, waits for its answer and sends the next.
    cv:
        Standard deviation over mean of the lengths of prompts and of answers, log-normal; 0: as ``lengths`` has them.
    """
    random = np.random.default_rng(seed)
    kind = random.choice(len(lengths.isl), number, p=np.array(lengths.share))
    shape = {"poisson": 1.0, "bursty": BURSTY}.get(arrivals)
    gaps = np.ones(number) if shape is None else random.gamma(shape, 1 / shape, number)
    sigma = math.sqrt(math.log1p(cv * cv))

    def drawn(tokens: Sequence[int]) -> Array:
        spread = np.exp(sigma * random.standard_normal(number) - sigma * sigma / 2) if sigma else 1.0
        return np.maximum(1.0, np.rint(np.array(tokens, dtype=np.float64)[kind] * spread))

    isl, osl = drawn(lengths.isl), drawn(lengths.osl)
    cached = np.minimum(np.floor(lengths.prefix_hit * isl), isl - 1)
    starts = np.zeros(min(users, number)) if users else np.cumsum(gaps) / requests_per_s

    def whole(tokens: Array) -> list[int]:
        return [int(one) for one in tokens.tolist()]

    return Requests(starts.tolist(), whole(isl), whole(osl), whole(cached), users)


def read_trace(path: str | Path, speed: float = 1.0) -> Requests:
    """Read a trace of requests: JSON lines or CSV with the columns of one of :data:`TRACES`.

    Times rise; in the traces of Mooncake and AIPerf they are milliseconds, and ``hash_ids`` names the blocks of
    :data:`BLOCK_TOKENS` tokens of each prompt, so that equal ones at the start need be computed once.

    Parameters
    ----------
    speed:
        Times as fast as it was recorded.

    Raises
    ------
    InputError
        If the file cannot be read, a row is not of that form (with its place), or times are in another unit.
    """
    if not (math.isfinite(speed) and speed > 0):
        raise InputError("expected a factor above 0.", field="speed", value=speed)
    text = read_text(Path(path), str(path))
    rows = _json_rows(text, path) if text.lstrip()[:1] in ("{", "[") else _csv_rows(text, path)
    starts: list[float] = []
    isl: list[int] = []
    osl: list[int] = []
    blocks: list[Sequence[int]] = []
    columns = None
    for where, row in rows:
        columns = columns or _columns(row, where)
        at = _time(row, columns, where)
        if starts and at < starts[-1]:
            raise InputError(
                f"{where}: {columns.at} {at:g} is before {starts[-1]:g} of the previous request; sort them."
            )
        starts.append(at)
        isl.append(_tokens(row, columns.isl, where))
        osl.append(_tokens(row, columns.osl, where))
        blocks.append(_blocks(row.get("hash_ids"), where))
    if columns is None:
        raise InputError(f"{path}: has no requests.")
    unit_s = columns.unit_s or 1.0
    _check_times(starts, columns, path, speed)
    return Requests(
        [(at - starts[0]) * unit_s / speed for at in starts],
        isl,
        osl,
        [0] * len(isl),
        blocks=blocks if any(blocks) else (),
        made=False,
    )


def _columns(row: Mapping[str, Any], where: str) -> TraceColumns:
    """Return the columns of the kind of trace that a first row is of."""
    for columns in TRACES:
        if columns.at in row and columns.isl in row:
            return columns
    if MOONCAKE.at in row:
        return MOONCAKE
    wanted = "; or ".join(map(str, TRACES))
    raise InputError(f"{where}: has {', '.join(map(shown, row)) or 'nothing'}; a trace needs {wanted}.")


def _time(row: Mapping[str, Any], columns: TraceColumns, where: str) -> float:
    """Return the time of a request in its unit, of a date in seconds."""
    if columns.unit_s is not None:
        return _number(row, columns.at, where)
    try:
        at = datetime.fromisoformat(str(row[columns.at]).strip())
    except ValueError:
        problem = f"{columns.at} is {shown(row[columns.at])}; expected a date and time."
        raise InputError(f"{where}: {problem}") from None
    return at.replace(tzinfo=at.tzinfo or UTC).timestamp()


def _check_times(starts: Sequence[float], columns: TraceColumns, path: str | Path, speed: float) -> None:
    """Refuse times that are in another unit than those of such a trace, or all the same."""
    unit_s = columns.unit_s
    if unit_s is None or len(starts) < 2:
        return
    unit = "milliseconds" if unit_s == 1e-3 else "seconds"
    least = next((least for least in _EPOCHS if starts[0] >= least), None)
    meant = "" if least is None else _EPOCHS[least]
    if meant and meant != unit:
        raise InputError(
            f"{path}: {columns.at} {starts[0]:.0f} is in {meant} since 1970, and such a trace has {unit}; convert it."
        )
    span_s = (starts[-1] - starts[0]) * unit_s
    if span_s == 0:
        raise InputError(
            f"{path}: all {len(starts):,} requests have the {columns.at} {starts[0]:g}; for requests that wait "
            f"together give {input_name('concurrency')} instead."
        )
    rate = (len(starts) - 1) / span_s * speed
    if rate > _FASTEST:
        raise InputError(
            f"{path}: {len(starts):,} requests in {span_s / speed:.3g} s are {rate:,.0f} requests/s, unusual of a "
            f"trace; the {columns.at} must be in {unit}: if it is not, convert it; else slow it down with "
            f"{input_name('speed')}."
        )


def _json_rows(text: str, path: str | Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            where = f"{path}, line {number}"
            row = parse_json(line, where)
            if not isinstance(row, dict):
                raise InputError(f"{where}: expected an object with {MOONCAKE}.")
            yield where, row


def _csv_rows(text: str, path: str | Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for number, row in enumerate(csv.DictReader(io.StringIO(text)), 2):
        found: dict[str, Any] = {key: value for key, value in row.items() if key}
        if found.get("hash_ids"):
            found["hash_ids"] = parse_json(found["hash_ids"], f"{path}, line {number}, hash_ids")
        yield f"{path}, line {number}", found


def _number(row: Mapping[str, Any], key: str, where: str) -> float:
    value = row.get(key)
    try:
        found = math.nan if value is None or isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        found = math.nan
    if not (math.isfinite(found) and found >= 0):
        what = "is missing" if value is None else f"is {shown(value)}"
        raise InputError(f"{where}: {key} {what}; expected a number of 0 or more.")
    return found


def _tokens(row: Mapping[str, Any], key: str, where: str) -> int:
    found = _number(row, key, where)
    if found != int(found) or not 1 <= found <= LONGEST_CONTEXT:
        raise InputError(f"{where}: {key} is {found:g}; expected whole tokens from 1 to {LONGEST_CONTEXT:,}.")
    return int(found)


def _blocks(value: object, where: str) -> Sequence[int]:
    if value in (None, ""):
        return ()
    if not isinstance(value, list) or any(not isinstance(one, int) or isinstance(one, bool) for one in value):
        raise InputError(f"{where}: hash_ids is {shown(value)}; expected a list of whole numbers.")
    return value
