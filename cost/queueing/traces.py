"""Recorded requests: traces of services and benchmarks, each read by its own columns, conversations kept together."""

from __future__ import annotations

import csv
import io
import json
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

from cost.quantity import MAX_CONTEXT_TOKENS
from cost.queueing.requests import BLOCK_TOKENS, ENGINE_BLOCK, Requests, segmented
from topology.base.errors import InputError, input_name
from topology.base.reading import parse_json, read_text, shown

Record = Mapping[str, Any]


@dataclass(frozen=True)
class TraceFormat:
    """What a trace calls the time a request came and the tokens of its prompt and answer.

    Attributes
    ----------
    mark:
        The column that no other format has.
    at, isl, osl:
        Columns; a dot stands between the keys of objects in objects.
    unit_s:
        Seconds of the unit of ``at``; None: dates and times of day.
    block:
        Tokens of a block of the prompt that ``hash_ids`` names.
    recorded:
        Whether requests that failed are recorded, and in the order in which they ended.
    """

    mark: str
    at: str
    isl: str
    osl: str
    unit_s: float | None
    block: int = BLOCK_TOKENS
    recorded: bool = False

    def __str__(self) -> str:
        return f"{self.at}, {self.isl}, {self.osl}"


MOONCAKE = TraceFormat("input_length", "timestamp", "input_length", "output_length", 1e-3)
"""Mooncake's traces, and AIPerf's with sessions: https://github.com/kvcache-ai/Mooncake"""
WEKA = TraceFormat("requests", "t", "in", "out", 1.0)
"""Agents' conversations, one an object: github.com/callanjfox/kv-cache-tester, also of AIPerf and InferenceX."""
TRACES = (
    WEKA,
    # Bailian's: https://github.com/alibaba-edu/qwen-bailian-usagetraces-anon
    TraceFormat("chat_id", "timestamp", "input_length", "output_length", 1.0, block=16),
    MOONCAKE,
    # LLM inference traces of 2023 and 2024: https://github.com/Azure/AzurePublicDataset
    TraceFormat("ContextTokens", "TIMESTAMP", "ContextTokens", "GeneratedTokens", None),
    # https://github.com/HPMLL/BurstGPT: requests that failed have no answer
    TraceFormat("Request tokens", "Timestamp", "Request tokens", "Response tokens", 1.0, recorded=True),
    # AIPerf's profile_export.jsonl: docs/tutorials/working-with-profile-exports.md of ai-dynamo/aiperf
    TraceFormat(
        "metadata.request_start_ns",
        "metadata.request_start_ns",
        "metrics.input_sequence_length.value",
        "metrics.output_sequence_length.value",
        1e-9,
        recorded=True,
    ),
)
_UNITS = {1.0: "seconds", 1e-3: "milliseconds", 1e-9: "nanoseconds"}
_EPOCHS = {1e16: "nanoseconds", 1e14: "microseconds", 1e11: "milliseconds", 1e9: "seconds"}
"""Units since 1970 of timestamps from so much on."""
_MAX_RATE = 1_000.0
"""Requests a second of a recorded trace: public ones have up to some 100."""
_TURNS = "turns"
_FIRST_OWN_HASH = 2**70
"""No hash of a block in a trace is as large."""


@dataclass
class _Conversation:
    """What the next prompt begins with: tokens and blocks of all before, and the row of the last request."""

    tokens: int
    blocks: list[int]
    row: int


@dataclass
class _Rows:
    """Columns of the requests of a trace; times in the unit of the trace, ``after`` as in :class:`Requests`.

    ``sizes``: tokens of each block; ``prompts``: how many blocks of each row are of its prompt.
    """

    trace: TraceFormat
    at: list[float] = field(default_factory=list)
    isl: list[int] = field(default_factory=list)
    osl: list[int] = field(default_factory=list)
    blocks: list[Sequence[int]] = field(default_factory=list)
    prompts: list[int] = field(default_factory=list)
    sizes: dict[int, int] = field(default_factory=dict)
    after: list[int] = field(default_factory=list)
    delays: list[float] = field(default_factory=list)
    left_out: int = 0
    last: float = -math.inf
    conversations: dict[str, _Conversation] = field(default_factory=dict)
    fresh: Iterator[int] = field(default_factory=lambda: count(-_FIRST_OWN_HASH, -1))

    def add(self, row: Record, where: str) -> None:
        """Add a request; one of a conversation begins with all that was said before."""
        trace = self.trace
        if trace.recorded and (row.get("was_cancelled") or not _is_answered(row.get(trace.osl))):
            self.left_out += 1
            return
        if trace is WEKA:
            self._add_turns(row, where)
            return
        isl, osl = _tokens(row, trace.isl, where), _tokens(row, trace.osl, where)
        blocks = list(_blocks(row.get("hash_ids"), where))
        key = str(row["session_id"]) if trace is MOONCAKE and row.get("session_id") is not None else None
        conversation = None if key is None else self.conversations.get(key)
        waits = conversation is not None and row.get(trace.at) is None
        before = conversation.row if conversation is not None and waits else -1
        delay = _number(row, "delay", where) if waits and row.get("delay") is not None else 0.0
        at = self.at[before] + delay if waits else _time(row, trace, where)
        if not waits and not trace.recorded and at < self.last:
            raise InputError(
                f"{where}: {trace.at} {at:g} is before {self.last:g} of the previous request; sort them."
            )
        self.last = self.last if waits else at
        self.sizes.update(dict.fromkeys(blocks, trace.block))
        prompt = len(blocks)
        if conversation is not None:
            isl += conversation.tokens
            if isl > MAX_CONTEXT_TOKENS:
                raise InputError(
                    f"{where}: the conversation {shown(key)} has grown to {isl:,} tokens; at most "
                    f"{MAX_CONTEXT_TOKENS:,} are simulated."
                )
            blocks = [*conversation.blocks, *blocks]
        if key is not None:
            blocks = self._filled(blocks, isl)
            prompt, blocks = len(blocks), self._filled(blocks, isl + osl)
            self.conversations[key] = _Conversation(isl + osl, blocks, len(self.at))
        self._append(at, isl, osl, blocks, prompt, before, delay)

    def _append(
        self, at: float, isl: int, osl: int, blocks: Sequence[int], prompt: int, before: int, delay: float
    ) -> None:
        self.at.append(at)
        self.isl.append(isl)
        self.osl.append(osl)
        self.blocks.append(blocks)
        self.prompts.append(prompt)
        self.after.append(before)
        self.delays.append(delay)

    def _filled(self, blocks: list[int], tokens: int) -> list[int]:
        """Return the blocks with a new one for the rest of so many tokens."""
        rest = tokens - sum(map(self.sizes.__getitem__, blocks))
        if rest <= 0:
            return blocks
        block = next(self.fresh)
        self.sizes[block] = rest
        return [*blocks, block]

    def _add_turns(self, session: Record, where: str) -> None:
        """Add a conversation of an agent, those of agents that it starts too: each turn waits for the one before."""
        names: dict[int, int] = defaultdict(lambda: next(self.fresh))
        block = _tokens(session, "block_size", where)

        def add(turns: object, before: int, left_s: float) -> None:
            known: list[int] = []
            blocks: list[int] = []
            if not isinstance(turns, list):
                raise InputError(f"{where}: requests is {shown(turns)}; expected a list of turns.")
            for number, turn in enumerate(turns, 1):
                place = f"{where}, turn {number}"
                if not isinstance(turn, dict):
                    raise InputError(f"{place}: is {shown(turn)}; expected an object with {WEKA}.")
                if turn.get("type") == "subagent":
                    add(turn.get("requests", []), before, left_s)
                    continue
                if not turn.get(WEKA.osl):
                    self.left_out += 1
                    continue
                at = _number(turn, WEKA.at, place)
                isl, osl = _tokens(turn, WEKA.isl, place), _tokens(turn, WEKA.osl, place)
                hashes = list(turn.get("hash_ids") or ())
                same = (
                    len(known) if hashes[: len(known)] == known else 0
                )  # a turn goes on from the one before
                new = [names[name] for name in _blocks(hashes[same:], place)]
                self.sizes.update(dict.fromkeys(new, block))
                known, blocks = hashes, [*blocks[:same], *new]
                delay = 0.0 if before < 0 else max(0.0, at - left_s)
                self._append(at, isl, osl, blocks, len(blocks), before, delay)
                before = len(self.at) - 1
                took_s = _number(turn, "api_time", place) if turn.get("api_time") is not None else 0.0
                left_s = at + took_s

        add(session[WEKA.mark], -1, 0.0)


def read_trace(path: str | Path, speed: float = 1.0, *, timed: bool = True) -> Requests:
    """Read a trace of requests: JSON lines, JSON or CSV with the columns of one of :data:`TRACES`, or a folder.

    ``hash_ids`` names the blocks of tokens of each prompt, so that equal ones at the start need be computed once.
    In the traces of Mooncake and AIPerf rows of one ``session_id`` are a conversation: each prompt is what came
    before and ``input_length`` tokens more, sent at its time, or ``delay`` milliseconds after the answer before it.

    Parameters
    ----------
    speed:
        Times as fast as it was recorded.
    timed:
        Whether its times are those of a load; else conversations may all begin at once.

    Raises
    ------
    InputError
        If the file cannot be read, a row is not of that form (with its place), or times are in another unit.
    """
    if not (math.isfinite(speed) and speed > 0):
        raise InputError("expected a factor above 0.", field="speed", value=speed)
    rows = None
    for where, row in _records(Path(path)):
        rows = rows or _Rows(_format(row, where))
        rows.add(row, where)
    if rows is None or not rows.at:
        raise InputError(f"{path}: has no requests{f'; {rows.left_out:,} failed' if rows else ''}.")
    _check_times(rows, path, speed, timed=timed)
    order = sorted(range(len(rows.at)), key=rows.at.__getitem__)
    place = {row: number for number, row in enumerate(order)} | {-1: -1}
    unit_s, start = (rows.trace.unit_s or 1.0) / speed, rows.at[order[0]]
    waits = any(row >= 0 for row in rows.after)
    segments, sizes, answers = segmented(
        [rows.blocks[row] for row in order], [rows.prompts[row] for row in order], rows.sizes
    )
    return Requests(
        [(rows.at[row] - start) * unit_s for row in order],
        [rows.isl[row] for row in order],
        [rows.osl[row] for row in order],
        [0] * len(order),
        segments=segments if sizes else (),
        sizes=sizes,
        answers=answers,
        block=ENGINE_BLOCK if rows.conversations or rows.trace is WEKA else rows.trace.block,
        made=False,
        after=[place[rows.after[row]] for row in order] if waits else (),
        delays_s=[rows.delays[row] * unit_s for row in order] if waits else (),
        left_out=rows.left_out,
    )


def _format(row: Record, where: str) -> TraceFormat:
    """Return the kind of trace that a first row is of."""
    for trace in TRACES:
        if trace.mark in row:
            return trace
    if MOONCAKE.at in row:
        return MOONCAKE
    forms = "; or ".join(map(str, TRACES))
    raise InputError(f"{where}: has {', '.join(map(shown, row)) or 'nothing'}; a trace needs {forms}.")


def _is_answered(tokens: object) -> bool:
    return tokens is not None and str(tokens).strip() not in ("", "0", "0.0")


def _time(row: Record, trace: TraceFormat, where: str) -> float:
    """Return the time of a request in its unit, of a date in seconds."""
    if trace.unit_s is not None:
        return _number(row, trace.at, where)
    try:
        at = datetime.fromisoformat(str(row[trace.at]).strip())
    except (KeyError, ValueError):
        problem = f"{trace.at} is {shown(row.get(trace.at))}; expected a date and time."
        raise InputError(f"{where}: {problem}") from None
    return at.replace(tzinfo=at.tzinfo or UTC).timestamp()


def _check_times(rows: _Rows, path: str | Path, speed: float, *, timed: bool) -> None:
    """Refuse times that are in another unit than those of such a trace, or of a load all the same."""
    starts = [at for at, predecessor in zip(rows.at, rows.after, strict=True) if predecessor < 0]
    unit_s, column = rows.trace.unit_s, rows.trace.at
    if unit_s is None or len(starts) < 2:
        return
    unit, earliest = _UNITS[unit_s], min(starts)
    meant = next((name for least, name in _EPOCHS.items() if earliest >= least), unit)
    if meant != unit:
        raise InputError(
            f"{path}: {column} {earliest:.0f} is in {meant} since 1970, and such a trace has {unit}; convert it."
        )
    span_s = (max(starts) - earliest) * unit_s
    if not timed and span_s == 0:
        return
    if span_s == 0:
        raise InputError(
            f"{path}: all {len(starts):,} requests have the {column} {earliest:g}; for requests that wait together "
            f"give {input_name('concurrency')} instead."
        )
    rate = (len(starts) - 1) / span_s * speed
    if rate > _MAX_RATE:
        raise InputError(
            f"{path}: {len(starts):,} requests in {span_s / speed:.3g} s are {rate:,.0f} requests/s, unusual of a "
            f"trace; the {column} must be in {unit}: if it is not, convert it; else slow it down with "
            f"{input_name('speed')}."
        )


def _records(path: Path) -> Iterator[tuple[str, Record]]:
    """Yield the records of a file, or of all files of a folder, with their places."""
    for file in sorted(path.glob("*.json*")) if path.is_dir() else [path]:
        text = read_text(file, str(file))
        yield from _json_rows(text, file) if text.lstrip()[:1] in ("{", "[") else _csv_rows(text, file)


def _json_rows(text: str, path: Path) -> Iterator[tuple[str, Record]]:
    first, _, rest = text.lstrip().partition("\n")
    if rest.strip() and first.rstrip() in ("{", "["):  # not a line a row
        whole = parse_json(text, str(path))
        text = "\n".join(map(json.dumps, whole if isinstance(whole, list) else [whole]))
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            where = f"{path}, line {number}"
            row = parse_json(line, where)
            if not isinstance(row, dict):
                raise InputError(f"{where}: expected an object with {MOONCAKE}.")
            yield from _turns(row, where)


def _turns(row: dict[str, Any], where: str) -> Iterator[tuple[str, Record]]:
    """Yield the requests of a row: one, or each of the ``turns`` of a conversation."""
    turns = row.get(_TURNS)
    if not isinstance(turns, list):
        yield where, _flat(row)
        return
    session = {key: value for key, value in row.items() if key not in (_TURNS, MOONCAKE.at)}
    session.setdefault("session_id", where)
    for number, turn in enumerate(turns, 1):
        place = f"{where}, turn {number}"
        if not isinstance(turn, dict):
            raise InputError(f"{place}: is {shown(turn)}; expected an object with {MOONCAKE}.")
        start = {MOONCAKE.at: row[MOONCAKE.at]} if number == 1 and MOONCAKE.at in row else {}
        yield place, _flat(session | start | turn)


def _flat(row: Record) -> dict[str, Any]:
    """Return a row with the values of objects in it under the keys that lead to them, with dots between."""
    values: dict[str, Any] = {}
    for key, value in row.items():
        if isinstance(value, dict):
            values.update({f"{key}.{name}": inner for name, inner in _flat(value).items()})
        else:
            values[key] = value
    return values


def _csv_rows(text: str, path: str | Path) -> Iterator[tuple[str, Record]]:
    for number, row in enumerate(csv.DictReader(io.StringIO(text)), 2):
        values: dict[str, Any] = {key: value for key, value in row.items() if key}
        if values.get("hash_ids"):
            values["hash_ids"] = parse_json(values["hash_ids"], f"{path}, line {number}, hash_ids")
        yield f"{path}, line {number}", values


def _number(row: Record, key: str, where: str) -> float:
    value = row.get(key)
    try:
        number = math.nan if value is None or isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not (math.isfinite(number) and number >= 0):
        problem = "is missing" if value is None else f"is {shown(value)}"
        raise InputError(f"{where}: {key} {problem}; expected a number of 0 or more.")
    return number


def _tokens(row: Record, key: str, where: str) -> int:
    number = _number(row, key, where)
    if number != int(number) or not 1 <= number <= MAX_CONTEXT_TOKENS:
        raise InputError(
            f"{where}: {key} is {number:g}; expected whole tokens from 1 to {MAX_CONTEXT_TOKENS:,}."
        )
    return int(number)


def _blocks(value: object, where: str) -> Sequence[int]:
    if value in (None, ""):
        return ()
    if not isinstance(value, list) or any(
        not isinstance(block, int) or isinstance(block, bool) for block in value
    ):
        raise InputError(f"{where}: hash_ids is {shown(value)}; expected a list of whole numbers.")
    return value
