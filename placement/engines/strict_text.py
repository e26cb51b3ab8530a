"""Text files of other people's making, read whole, within a limit, and as JSON or YAML without surprises.

Nothing in a file is run, and nothing is allocated for what a number in it promises. JSON: no key twice, no NaN.
YAML: events of the parser alone; no tags, no anchors, no aliases, a few levels of nesting.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NoReturn

from topology.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["read_json", "read_json_lines", "read_text", "read_yaml"]

LONGEST_BYTES = 64 << 20
"""A plan of 94 layers with 4,096 slots takes 3 MB in the longest form."""

DEEPEST = 6
_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]{0,18})\Z")


def read_text(path: Path) -> str:
    """Return the text of a regular file.

    Raises
    ------
    InputError
        If it is none, is empty, longer than :data:`LONGEST_BYTES` or not UTF-8.
    """
    try:
        if not path.is_file():
            raise InputError(f"{path}: {'not a regular file' if path.exists() else 'there is no such file'}.")
        size = path.stat().st_size
        if size > LONGEST_BYTES:
            raise InputError(f"{path}: {size:,} bytes, more than any plan of experts; is it a recording?")
        text = path.read_bytes().decode("utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error}).") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: not UTF-8 text, so not a plan in this form.") from None
    except ValueError:
        raise InputError("the path holds a zero byte.") from None
    if not text.strip():
        raise InputError(f"{path}: empty.")
    return text


def read_json(path: Path) -> object:
    """Return the JSON value of a file.

    Raises
    ------
    InputError
        If it is not one strict JSON value.
    """
    return _parse(read_text(path), str(path))


def read_json_lines(path: Path) -> Iterator[tuple[int, object]]:
    """Yield line number and value of each line that is not blank.

    Raises
    ------
    InputError
        If a line is not one strict JSON value.
    """
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if line.strip():
            yield number, _parse(line, f"{path}, line {number}")


class _BadValueError(ValueError):
    """A value that JSON's grammar has, and a plan has not."""


def _parse(text: str, where: str) -> object:
    try:
        value: object = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except RecursionError:
        raise InputError(f"{where}: nested too deeply to be a plan.") from None
    except _BadValueError as error:
        raise InputError(f"{where}: {error}.") from None
    except ValueError as error:
        what = " ".join(str(error).split())[:100]
        raise InputError(f"{where}: not JSON, or cut short ({what}).") from None
    return value


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [key for key, _ in pairs]
        twice = next(key for place, key in enumerate(names) if key in names[:place])
        raise _BadValueError(f"key {twice[:40]!r} is there twice")
    return found


def _no_constant(name: str) -> NoReturn:
    raise _BadValueError(f"{name} is not a number of JSON")


def read_yaml(path: Path) -> object:
    """Return the one document of a YAML file: mappings, lists, whole numbers in decimal, and text for all else.

    Raises
    ------
    InputError
        If it is not YAML, or has tags, anchors, aliases, a key twice, a key that is no scalar, or deep nesting.
    """
    import yaml

    text = read_text(path)
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    builder = _YamlBuilder()
    try:
        for event in yaml.parse(text, Loader=loader):
            builder.take(event)
    except _BadValueError as error:
        raise InputError(f"{path}: {error}.") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f"line {mark.line + 1}: " if mark is not None else ""
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "cannot be parsed"
        raise InputError(f"{path}: {line}not YAML, or cut short ({problem}).") from None
    return builder.value


class _YamlBuilder:
    """Builds a value from a parser's events: a loader recurses, and a deep file ends the whole process."""

    def __init__(self) -> None:
        self.value: object = None
        self._documents = 0
        self._open: list[tuple[object, list[object]]] = []  # containers, and for mappings the key that waits

    def take(self, event: Any) -> None:
        """Take the next event."""
        import yaml

        line = f"line {event.start_mark.line + 1}"
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise _BadValueError(
                f"{line}: anchors and aliases (&, *) are not read here; write the values out"
            )
        tag = getattr(event, "tag", None)
        if tag:
            raise _BadValueError(f"{line}: a tag ({tag[:40]}) has no place in a plan")
        if isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                raise _BadValueError(f"{line}: a second document")
        elif isinstance(event, yaml.ScalarEvent):
            self._add(_scalar(event.value, plain=bool(event.implicit[0])), line)
        elif isinstance(event, yaml.MappingStartEvent):
            self._begin({}, line)
        elif isinstance(event, yaml.SequenceStartEvent):
            self._begin([], line)
        elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
            value, _ = self._open.pop()
            self._add(value, line)

    def _begin(self, container: object, line: str) -> None:
        if len(self._open) >= DEEPEST:
            raise _BadValueError(f"{line}: nested too deeply to be a plan")
        self._open.append((container, []))

    def _add(self, value: object, line: str) -> None:
        if not self._open:
            self.value = value
            return
        container, waiting = self._open[-1]
        if isinstance(container, list):
            container.append(value)
        elif isinstance(container, dict) and waiting:
            container[waiting.pop()] = value
        elif isinstance(container, dict):
            if isinstance(value, list | dict):
                raise _BadValueError(f"{line}: a key that is a list or a mapping")
            if value in container:
                raise _BadValueError(f"{line}: key {str(value)[:40]} is there twice")
            waiting.append(value)


def _scalar(text: str, *, plain: bool) -> int | str:
    return int(text) if plain and _WHOLE.match(text) else text
