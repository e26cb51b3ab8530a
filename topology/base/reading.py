"""Strict reading of YAML and JSON: no duplicate keys, tags, aliases or endless files; errors name the place."""

from __future__ import annotations

import difflib
import json
import math
import os
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from pathlib import Path
from typing import Any

from topology.base.errors import InputError

_SHOWN_CHARACTERS = 60
"""Of a value or the reason of a parser in a message."""
_MAX_LISTED = 60
"""Known names in a message."""
FILE_BYTES = 320_000_000
"""Of a file that is read whole: a plan of 33 million expert copies has 290 MB."""
DEEPEST = 64
"""Levels of lists and mappings within each other in YAML, of elements in XML: their parsers recurse."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return "did you mean ...?" with the known names nearest to ``name``, or a list of them, of many the first."""
    choices = sorted(set(known))
    close = difflib.get_close_matches(name.lower(), choices, n=3, cutoff=0.5)
    if close:
        return f"did you mean {' or '.join(close)}?"
    suffix = f", ... ({len(choices)} in all)" if len(choices) > _MAX_LISTED else ""
    return f"known: {', '.join(choices[:_MAX_LISTED]) or 'none'}{suffix}."


def shown(value: object) -> str:
    """Return a value from a file as messages print it: one line, not too long, no control characters."""
    try:
        text = repr(value)
    except ValueError:
        return "a number with thousands of digits"  # in hexadecimal, which YAML reads whatever its length
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[: _SHOWN_CHARACTERS - 3]}..."


def read_text(path: Path, where: str) -> str:
    """Return the text of a UTF-8 file, without a mark of the order of bytes.

    Raises
    ------
    InputError
        If the file cannot be read, is longer than :data:`FILE_BYTES` or not UTF-8.
    """
    try:
        return read_bytes(path, where).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{where}: is not UTF-8 text (byte {error.start}).") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{where}: cannot read it ({getattr(error, 'strerror', None) or error}).") from None


def read_bytes(path: Path, where: str) -> bytes:
    """Return what is in a file, of a device that never ends (``/dev/zero``) nothing.

    Raises
    ------
    InputError
        If it is longer than :data:`FILE_BYTES`.
    OSError
        If it cannot be read.
    """
    size = path.stat().st_size
    data = b""
    if size <= FILE_BYTES:
        with open(path, "rb", opener=_open_nonblocking) as file:
            data = file.read((size if path.is_file() else FILE_BYTES) + 1)
    if (size := max(size, len(data))) > FILE_BYTES:
        raise InputError(f"{where}: {size:,} bytes is too large; at most {FILE_BYTES:,} are read.")
    return data


def _open_nonblocking(path: str, flags: int) -> int:
    """Open a file; a FIFO that nobody writes to is empty, and is not waited for."""
    if not hasattr(os, "mkfifo"):
        return os.open(path, flags)
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    os.set_blocking(descriptor, True)
    return descriptor


def load_yaml(path: Path, where: str) -> object:
    """Read one YAML document.

    Raises
    ------
    InputError
        If the file cannot be read or is not YAML.
    """
    return parse_yaml(read_text(path, where), where)


def _at_line(where: str, line: int | None, problem: str) -> InputError:
    return InputError(f"{where}: {'' if line is None else f'line {line}: '}{problem}")


def parse_json(text: str, where: str, *, infinite: bool = False) -> Any:
    """Return the value of a JSON text without duplicate keys, NaN and numbers beyond the range of a float.

    Parameters
    ----------
    text:
        One JSON value.
    where:
        What messages call it.
    infinite:
        Let ``Infinity`` and numbers that are read as it through: some configs hold it as a limit.

    Raises
    ------
    InputError
        If it is none; of a text of several lines the message names the line.
    """
    repeated: list[tuple[object, str]] = []
    odd: list[float] = []

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        mapping = dict(pairs)
        if len(mapping) < len(pairs):
            repeated.append((mapping, Counter(key for key, _ in pairs).most_common(1)[0][0]))
        return mapping

    def number(digits: str) -> float:
        value = float(digits)
        if not math.isfinite(value) and (math.isnan(value) or not infinite):
            odd.append(value)
        return value

    try:
        value = json.loads(text, object_pairs_hook=unique, parse_constant=number, parse_float=number)
    except json.JSONDecodeError as problem:
        cut = " (is the file truncated?)" if problem.pos >= len(text.rstrip()) - 1 else ""
        reason = f"column {problem.colno}: not valid JSON ({problem.msg}){cut}."
        raise _at_line(where, problem.lineno if "\n" in text.strip() else None, reason) from None
    except RecursionError:
        raise InputError(f"{where}: nested too deeply.") from None
    except ValueError as problem:  # whole numbers of thousands of digits
        raise InputError(
            f"{where}: not valid JSON ({' '.join(str(problem).split())[:_SHOWN_CHARACTERS]})."
        ) from None
    if repeated:
        inside, key = repeated[-1]  # of nested ones the outer comes last: it is still part of the value
        path = next(path for path, container in containers(value) if container is inside)
        raise InputError(f"{where}: {_dotted(*path, key)}: duplicate key; keep one of them.")
    if odd:
        path = next(
            (
                (*path, key)
                for path, container in containers(value)
                for key, item in _entries(container)
                if item is odd[0]
            ),
            (),
        )
        reason = "NaN is not a JSON number" if math.isnan(odd[0]) else "infinite or too large for a number"
        raise InputError(f"{where}: {f'{_dotted(*path)}: ' if path else ''}{reason}.")
    return value


def require_version(value: object, where: str, version: int) -> None:
    """Reject a file of another version of its schema.

    Raises
    ------
    InputError
        If ``value`` is a whole number from 1 that is not ``version``.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < 1 or value == version:
        return
    age, upgrade = ("older", "") if value < version else ("newer", "upgrade rackplan, or ")
    raise InputError(
        f"{where}: written by {'an' if age == 'older' else 'a'} {age} rackplan (schema {shown(value)}; this one "
        f"reads {version}); {upgrade}create the file again with this version."
    )


def containers(value: object, where: tuple[object, ...] = ()) -> Iterator[tuple[tuple[object, ...], Any]]:
    """Yield all mappings and lists inside ``value``, itself too, with the keys and numbers that lead there."""
    yield where, value
    for key, item in _entries(value):
        if isinstance(item, dict | list):
            yield from containers(item, (*where, key))


def _entries(value: object) -> Iterable[tuple[object, object]]:
    return value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()


def _dotted(*where: object) -> str:
    return ".".join(map(str, where))[:_SHOWN_CHARACTERS]


def parse_yaml(text: str, where: str, *, deepest: int = DEEPEST) -> object:
    """Return the one document of a YAML text, without tags, aliases, duplicate keys and deep nesting.

    The parser's events are looked at first: a loader recurses, and a file nested a hundred thousand deep ends the
    whole process; nested aliases grow without bound when walked.
    """
    import yaml

    base = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Loader(base):  # type: ignore[misc, valid-type]
        """The safe loader, that refuses duplicate keys."""

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
            keys = set()
            for key, _ in node.value:
                if isinstance(key, yaml.ScalarNode):
                    if (key.tag, key.value) in keys:
                        raise _at_line(where, key.start_mark.line + 1, f"duplicate key {shown(key.value)}.")
                    keys.add((key.tag, key.value))
            constructed: dict[Hashable, Any] = super().construct_mapping(node, deep)
            return constructed

    try:
        _check_events(yaml.parse(text, Loader=base), where, deepest)
        value: object = yaml.load(text, Loader=Loader)  # noqa: S506 - a subclass of the safe loader
    except yaml.YAMLError as problem:
        mark = getattr(problem, "problem_mark", None)
        reason = getattr(problem, "problem", None) or getattr(problem, "reason", None) or "cannot be parsed"
        words = " ".join(str(reason).split())
        raise _at_line(where, None if mark is None else mark.line + 1, f"not valid YAML ({words}).") from None
    except RecursionError:
        raise InputError(f"{where}: nested too deeply.") from None
    except (ValueError, OverflowError, TypeError) as problem:
        raise InputError(f"{where}: not valid YAML ({' '.join(str(problem).split())[:80]}).") from None
    return value


def _check_events(events: Iterable[Any], where: str, deepest: int) -> None:
    """Reject what the loader must not see."""
    import yaml

    depth = 0
    for event in events:
        line = None if event.start_mark is None else event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent):
            raise _at_line(where, line, "YAML aliases (`*name`) are not read here; write the values out.")
        if getattr(event, "tag", None):
            raise _at_line(where, line, f"a YAML tag ({event.tag[:40]}) is not allowed here.")
        if isinstance(event, yaml.ScalarEvent) and event.implicit[0]:
            _check_plain(event.value, where, line)
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > deepest:
                raise _at_line(where, line, f"is nested more than {deepest} levels deep.")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


_OTHER_BASES = re.compile(r"[-+]?(?:0[0-7_]++|[1-9][0-9_]*+(?::[0-5]?[0-9])++(?:\.[0-9_]*+)?)")
"""What YAML 1.1 reads in base 8 and in base 60."""


def _check_plain(text: str, where: str, line: int | None) -> None:
    """Reject what stands without quotes and would become another number, or keys that no duplicate is seen among."""
    if text == "<<":
        raise _at_line(where, line, "YAML merge keys (`<<`) are not read here; write the keys out.")
    if _OTHER_BASES.fullmatch(text):
        base = "in base 60" if ":" in text else "as octal"
        reason = f"YAML reads {text[:_SHOWN_CHARACTERS]} {base}; quote it if it is a name, else write a plain number."
        raise _at_line(where, line, reason)
