"""Strict reading of YAML, JSON and XML: no duplicate or unknown keys, checked types, errors that name the place."""

from __future__ import annotations

import difflib
import json
import math
import os
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, Self, TypeVar

from topology.base.errors import InputError, printable
from topology.base.figures import Evidence

T = TypeVar("T")
_LONGEST_SHOWN = 60
_MOST_LISTED = 60
FILE_BYTES = 320_000_000
"""Of a file that is read whole: a plan of 33 million expert copies has 290 MB."""
DEEPEST = 64
"""Levels of lists, mappings and elements within each other in YAML and XML, whose parsers recurse."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return "did you mean ...?" with the known names nearest to ``name``, or a list of them, of many the first."""
    choices = sorted(known)
    close = difflib.get_close_matches(name.lower(), choices, n=3, cutoff=0.5)
    if close:
        return f"did you mean {' or '.join(close)}?"
    more = f", ... ({len(choices)} in all)" if len(choices) > _MOST_LISTED else ""
    return f"known: {', '.join(choices[:_MOST_LISTED]) or 'none'}{more}."


def evidence_called(label: object) -> Evidence:
    """Return a kind of evidence by its label.

    Raises
    ------
    ValueError
        If there is none of that label.
    """
    labels = {kind.label: kind for kind in Evidence}
    if label not in labels:
        raise ValueError(f"{shown(label)} is no kind of evidence; {nearest(str(label), labels)}")
    return labels[label]


def source_text(name: str, sources: Mapping[str, str], where: str) -> str:
    """Return the text of one of a file's sources.

    Raises
    ------
    InputError
        If it has no such source.
    """
    if name not in sources:
        raise InputError(f"{where}: source: {shown(name)} is not among the file's sources.")
    return sources[name]


def shown(value: object) -> str:
    """Return a value from a file as messages print it: one line, not too long, no control characters."""
    try:
        text = repr(value)
    except ValueError:
        return "a number of thousands of digits"  # in hexadecimal, which YAML reads whatever its length
    return text if len(text) <= _LONGEST_SHOWN else f"{text[: _LONGEST_SHOWN - 3]}..."


class Fields:
    """The fields of one mapping, taken one by one; :meth:`done` refuses what nobody asked for.

    Each reader raises an ``InputError`` with the place and the key where the value is missing or of the wrong type.
    """

    most = 1_000_000
    """The largest whole number, where no other limit is given."""

    def __init__(self, data: object, where: str) -> None:
        if not isinstance(data, Mapping):
            raise InputError(f"{where}: expected a mapping of keys to values, found {_kind(data)}.")
        self.data: Mapping[Any, Any] = data
        self.asked: set[str] = set()
        self._known: set[str] = set()  # keys that could be there: what an unknown one may have meant
        self.where = where

    def __contains__(self, key: str) -> bool:
        self._known.add(key)
        return key in self.data

    def has(self, key: str) -> bool:
        """Whether the key is there and not null."""
        return key in self and self.data[key] is not None

    def at(self, key: str) -> str:
        """Return the place of ``key``, for messages."""
        return f"{self.where}: {key}"

    def fail(self, key: str, problem: str) -> NoReturn:
        """Raise InputError: ``problem`` is what is wrong with ``key``."""
        raise InputError(f"{self.at(key)}: {problem}")

    def must_be(self, key: str, what: str) -> NoReturn:
        """Raise InputError: the value of ``key`` is not what it must be."""
        raise _wrong(self.data.get(key), self.at(key), what)

    def get(self, key: str, default: object = None) -> Any:
        """Return the raw value of an optional key."""
        self.asked.add(key)
        return self.data.get(key, default)

    def need(self, key: str) -> Any:
        """Return the raw value of a key that must be there."""
        self.asked.add(key)
        if self.data.get(key) is None:
            raise InputError(f"{self.where}: needs the key `{key}`.")
        return self.data[key]

    def figure_of(self, key: str) -> object:
        """Return the raw value of a key that should be a number."""
        return self.need(key)

    def text(self, key: str, default: str | None = None) -> str:
        """Return a text that is not empty; ``default`` where the key is absent."""
        if default is not None and key not in self:
            return default
        return _text(self.need(key), self.at(key))

    def name(self, key: str) -> str:
        """Return a name: a text, or a number as its digits (not everybody quotes names like 17)."""
        return _name(self.need(key), self.at(key))

    def choice(self, key: str, known: Iterable[str], default: str | None = None) -> str:
        """Return a text that is one of ``known``; ``default`` where the key is absent."""
        value = self.text(key, default)
        if value not in known:
            self.fail(key, f"{shown(value)} is not one of {', '.join(known)}.")
        return value

    def evidence(self, key: str = "kind") -> Evidence:
        """Return a kind of evidence."""
        try:
            return evidence_called(self.text(key))
        except ValueError as error:
            self.fail(key, str(error))

    def name_list(self, key: str) -> list[str]:
        """Return a list of names, empty where the key is absent or null."""
        return [_name(item, self.at(key)) for item in self.items(key)]

    def items(self, key: str) -> list[Any]:
        """Return a list, empty where the key is absent or null."""
        value = self.get(key)
        if value is None:
            return []
        if not isinstance(value, list):
            self.must_be(key, "a list")
        return value

    def source(self, sources: Mapping[str, str]) -> str:
        """Return the text of the one of the file's ``sources`` that its own names."""
        return source_text(self.text("source"), sources, self.where)

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of texts, empty where the key is absent."""
        value = self.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            self.fail(key, "must be a list of texts.")
        return tuple(_text(item, self.at(key)) for item in value)

    def pair(self, key: str, example: str = "like [g0, s0]") -> tuple[str, str]:
        """Return the ids of the two ends of a link."""
        ends = self.texts(key)
        if len(ends) != 2:
            self.fail(key, f"must be the ids of its two ends, {example}.")
        return ends[0], ends[1]

    def count(self, key: str, default: int | None = None, *, least: int = 1, most: int | None = None) -> int:
        """Return a whole number from ``least`` to ``most``; ``default`` where the key is absent."""
        if default is not None and key not in self:
            return default
        return _whole(self.figure_of(key), self.at(key), least, self.most if most is None else most)

    def counts(self, key: str) -> tuple[int, ...]:
        """Return a list of whole numbers of at least one."""
        items = self._filled(key, "a list of whole numbers, like [5, 5, 4, 4]")
        return tuple(_whole(item, self.at(key), 1, self.most) for item in items)

    def number(
        self,
        key: str,
        default: float | None = None,
        *,
        least: float | None = None,
        most: float = math.inf,
    ) -> float:
        """Return a finite number above zero, or from ``least`` on; ``default`` where the key is absent."""
        if default is not None and key not in self:
            return default
        return _number(self.figure_of(key), self.at(key), least, most)

    def numbers(self, key: str, size: int = 0) -> tuple[float, ...]:
        """Return a list of finite numbers greater than zero, ``size`` of them if given."""
        items = self._filled(key, "a list of numbers, like [1, 4]")
        if size and len(items) != size:
            self.must_be(key, f"a list of {size} numbers")
        return tuple(_number(item, self.at(key)) for item in items)

    def _filled(self, key: str, what: str) -> list[Any]:
        """Return a list that is not empty."""
        value = self.need(key)
        if not isinstance(value, list) or not value:
            self.must_be(key, what)
        return value

    def flag(self, key: str, default: bool | None = False) -> bool:
        """Return true or false; ``default`` where the key is absent."""
        if default is not None and key not in self:
            return default
        value = self.need(key)
        if not isinstance(value, bool):
            self.must_be(key, "true or false")
        return value

    def flags(self, key: str, size: int = 0) -> tuple[bool, ...]:
        """Return a list of true and false; one answer will do for all where the ``size`` is known."""
        value = self.need(key)
        if isinstance(value, bool) and size:
            return (value,) * size
        if not isinstance(value, list) or not all(isinstance(item, bool) for item in value):
            self.must_be(key, f"{'true, false, or ' if size else ''}a list of true and false")
        return tuple(value)

    def sub(self, key: str) -> Self:
        """Return the mapping under ``key``."""
        return type(self)(self.need(key), self.at(key))

    def part(self, key: str, read: Callable[[Fields], T]) -> T:
        """Return what ``read`` makes of the mapping under ``key``, in which it must ask for every key."""
        inner = self.sub(key)
        found = read(inner)
        inner.done()
        return found

    def parts(self, key: str, read: Callable[[Fields], T]) -> dict[str, T]:
        """Return what ``read`` makes of each mapping in the one under ``key``, every key of which it must ask for."""
        found = self.sub(key)
        return {name: found.part(name, read) for name in found.names()}

    def by_name(self, key: str, read: Callable[[Fields, str], T]) -> dict[str, T]:
        """Return what ``read`` (such as ``Fields.text``) makes of each key of the mapping under ``key``."""
        found = self.sub(key)
        return {name: read(found, name) for name in found.names()}

    def subs(self, key: str, *, empty: bool = False) -> list[Self]:
        """Return the list of mappings under ``key``; with ``empty`` it may be absent or have no entries."""
        value = self.items(key) if empty else self.need(key)
        if not isinstance(value, list) or not (value or empty):
            some = "" if empty else " with at least one entry"
            self.fail(key, f"must be a list{some}, found {_kind(value)}.")
        return [type(self)(item, f"{self.where}: {key}[{i}]") for i, item in enumerate(value)]

    def names(self) -> tuple[str, ...]:
        """Return all keys as texts, and take them as asked for."""
        for key in self.data:
            if not isinstance(key, str):
                raise InputError(f"{self.where}: the key {shown(key)} must be a text.")
        self.asked.update(self.data)
        return tuple(self.data)

    def done(self) -> None:
        """Refuse keys that nobody asked for."""
        for key in self.data:
            if key not in self.asked:
                known = nearest(str(key), self.asked | self._known)
                raise InputError(f"{self.where}: unknown key `{str(key)[:_LONGEST_SHOWN]}`; {known}")


def _wrong(value: object, where: str, what: str) -> InputError:
    return InputError(f"{where}: {shown(value)} must be {what}.")


def _number(value: object, where: str, least: float | None = None, most: float = math.inf) -> float:
    """Return a finite number within limits."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            number = float(value)
            above = number > 0 if least is None else number >= least
            if math.isfinite(number) and above and number <= most:
                return number
        except OverflowError:
            pass
    if least is None:
        limit = "greater than zero" + (f", at most {most:g}" if most < math.inf else "")
    else:
        limit = f"of {least:g} or more" if most == math.inf else f"from {least:g} to {most:g}"
    if least == -math.inf:
        limit = f"of at most {most:g}" if most < math.inf else "that is finite"
    unit = (
        ", without a unit" if isinstance(value, str) and value[:1].isdigit() and value[-1].isalpha() else ""
    )
    raise _wrong(value, where, f"a number {limit}{unit}")


def _whole(value: object, where: str, least: int, most: int) -> int:
    """Return a whole number within limits."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise _wrong(value, where, f"a whole number from {least} to {most}")
    return value


def _name(value: object, where: str) -> str:
    """Return a name of something, without control characters."""
    number = isinstance(value, int) and not isinstance(value, bool)
    return _text(str(value) if number else value, where).strip()


def _text(value: object, where: str) -> str:
    """Return a text that is not empty and that can be printed: it is the name of something, or where it is from."""
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"{where}: {shown(value)} must be a text.")
    if printable(value) != value:
        raise InputError(f"{where}: {shown(value)} must be a text without control characters.")
    return value


def _kind(data: object) -> str:
    """Return the name of what was found, for people."""
    names = {
        type(None): "nothing",
        list: "a list" if data else "an empty list",
        str: "a text",
        int: "a number",
        float: "a number",
        dict: "a mapping",
    }
    return names.get(type(data), type(data).__name__)


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
        with open(path, "rb", opener=_at_once) as file:
            data = file.read((size if path.is_file() else FILE_BYTES) + 1)
    if (size := max(size, len(data))) > FILE_BYTES:
        raise InputError(f"{where}: {size:,} bytes is too long; expected {FILE_BYTES:,} or fewer.")
    return data


def _at_once(path: str, flags: int) -> int:
    """Open a file; a FIFO that nobody writes to is empty, and is not waited for."""
    if not hasattr(os, "mkfifo"):
        return os.open(path, flags)
    found = os.open(path, flags | os.O_NONBLOCK)
    os.set_blocking(found, True)
    return found


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
        found = dict(pairs)
        if len(found) < len(pairs):
            repeated.append((found, Counter(key for key, _ in pairs).most_common(1)[0][0]))
        return found

    def number(digits: str) -> float:
        value = float(digits)
        if not math.isfinite(value) and (math.isnan(value) or not infinite):
            odd.append(value)
        return value

    try:
        value = json.loads(text, object_pairs_hook=unique, parse_constant=number, parse_float=number)
    except json.JSONDecodeError as problem:
        cut = " (is the file cut?)" if problem.pos >= len(text.rstrip()) - 1 else ""
        what = f"column {problem.colno}: not valid JSON ({problem.msg}){cut}."
        raise _at_line(where, problem.lineno if "\n" in text.strip() else None, what) from None
    except RecursionError:
        raise InputError(f"{where}: is nested too deeply.") from None
    except ValueError as problem:  # whole numbers of thousands of digits
        raise InputError(
            f"{where}: not valid JSON ({' '.join(str(problem).split())[:_LONGEST_SHOWN]})."
        ) from None
    if repeated:
        inside, key = repeated[-1]  # of nested ones the outer comes last: it is still part of the value
        path = next(path for path, one in containers(value) if one is inside)
        raise InputError(f"{where}: {_dotted(*path, key)}: duplicate key; keep one of them.")
    if odd:
        path = next(
            (
                (*path, key)
                for path, one in containers(value)
                for key, item in _entries(one)
                if item is odd[0]
            ),
            (),
        )
        what = "NaN is not a JSON number" if math.isnan(odd[0]) else "infinite or too large for a number"
        raise InputError(f"{where}: {f'{_dotted(*path)}: ' if path else ''}{what}.")
    return value


def require_version(value: object, where: str, ours: int) -> None:
    """Refuse a file of another version of its schema.

    Raises
    ------
    InputError
        If ``value`` is a whole number from 1 that is not ``ours``.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < 1 or value == ours:
        return
    age, upgrade = ("older", "") if value < ours else ("newer", "upgrade rackplan, or ")
    raise InputError(
        f"{where}: written by {'an' if age == 'older' else 'a'} {age} rackplan (schema {shown(value)}; this one "
        f"reads {ours}); {upgrade}make the file again with this one."
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
    return ".".join(map(str, where))[:_LONGEST_SHOWN]


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
            seen = set()
            for key, _ in node.value:
                if isinstance(key, yaml.ScalarNode):
                    if (key.tag, key.value) in seen:
                        raise _at_line(where, key.start_mark.line + 1, f"duplicate key {shown(key.value)}.")
                    seen.add((key.tag, key.value))
            constructed: dict[Hashable, Any] = super().construct_mapping(node, deep)
            return constructed

    try:
        _check_events(yaml.parse(text, Loader=base), where, deepest)
        value: object = yaml.load(text, Loader=Loader)  # noqa: S506 - a subclass of the safe loader
    except yaml.YAMLError as problem:
        mark = getattr(problem, "problem_mark", None)
        what = getattr(problem, "problem", None) or getattr(problem, "reason", None) or "cannot be parsed"
        words = " ".join(str(what).split())
        raise _at_line(where, None if mark is None else mark.line + 1, f"not valid YAML ({words}).") from None
    except RecursionError:
        raise InputError(f"{where}: is nested too deeply.") from None
    except (ValueError, OverflowError, TypeError) as problem:
        raise InputError(f"{where}: not valid YAML ({' '.join(str(problem).split())[:80]}).") from None
    return value


def _check_events(events: Iterable[Any], where: str, deepest: int) -> None:
    """Refuse what the loader must not see."""
    import yaml

    depth = 0
    for event in events:
        line = None if event.start_mark is None else event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent):
            raise _at_line(where, line, "YAML aliases (`*name`) are not read here; write the values out.")
        if getattr(event, "tag", None):
            raise _at_line(where, line, f"a YAML tag ({event.tag[:40]}) has no place here.")
        if isinstance(event, yaml.ScalarEvent) and event.implicit[0]:
            _check_plain(event.value, where, line)
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > deepest:
                raise _at_line(where, line, f"is nested more than {deepest} deep.")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


_OTHER_BASES = re.compile(r"[-+]?(?:0[0-7_]++|[1-9][0-9_]*+(?::[0-5]?[0-9])++(?:\.[0-9_]*+)?)")
"""What YAML 1.1 reads in base 8 and in base 60."""


def _check_plain(text: str, where: str, line: int | None) -> None:
    """Refuse what stands without quotes and would become another number, or keys that no duplicate is seen among."""
    if text == "<<":
        raise _at_line(where, line, "YAML merge keys (`<<`) are not read here; write the keys out.")
    if _OTHER_BASES.fullmatch(text):
        base = "in base 60" if ":" in text else "as octal"
        what = (
            f"YAML reads {text[:_LONGEST_SHOWN]} {base}; quote it if it is a name, else write a plain number."
        )
        raise _at_line(where, line, what)


@dataclass
class Element:
    """One XML element: its attributes, children in order, own text, and the place of its start tag, for messages."""

    tag: str
    attributes: dict[str, str]
    line: int
    where: str
    children: list[Element] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)

    @property
    def content(self) -> str:
        """Its own text."""
        return "".join(self.texts)

    def all(self, tag: str) -> list[Element]:
        """Return the children called ``tag``."""
        return [child for child in self.children if child.tag == tag]

    def text(self, name: str) -> str:
        """Return an attribute that must be there and not empty."""
        value = self.attributes.get(name, "").strip()
        if not value:
            raise InputError(f"{self.where}: <{self.tag}> has no `{name}`.")
        return _name(value, f"{self.where}: <{self.tag}> {name}")

    def count(self, name: str, *, least: int = 1, most: int = Fields.most) -> int:
        """Return an attribute that is a whole number from ``least`` to ``most``."""
        text = self.text(name)
        if not text.isdecimal() or len(text) > 12 or not least <= int(text) <= most:
            must = f"must be a whole number from {least} to {most}"
            raise InputError(f"{self.where}: <{self.tag} {name}={shown(text)}> {must}.")
        return int(text)


def parse_xml(text: str, name: str, *, doctype: str = "") -> Element:
    """Return the root element of an XML text; ``name`` is what messages call it.

    A document type is let through if it is called ``doctype`` and defines nothing itself; what it refers to is
    not read.

    Raises
    ------
    InputError
        If the text is not well-formed (of a cut file the message names the element left open), nested too
        deeply, or has a document type or entities.
    """
    from xml.parsers import expat

    parser = expat.ParserCreate()
    tree = _Tree(name, doctype, lambda: int(parser.CurrentLineNumber))
    parser.StartDoctypeDeclHandler = tree.start_doctype
    parser.EntityDeclHandler = tree.refuse
    parser.StartElementHandler = tree.start
    parser.EndElementHandler = lambda _: tree.path.pop()
    parser.CharacterDataHandler = tree.add_content
    parser.buffer_text = True
    try:
        parser.Parse(text.strip(), True)
    except expat.ExpatError as error:
        problem = expat.ErrorString(error.code)
        if tree.path:
            problem += f"; <{tree.path[-1].tag}> of line {tree.path[-1].line} is not closed"
        where = f"{name}: line {error.lineno}: column {error.offset + 1}"
        raise InputError(f"{where}: not valid XML ({problem}).") from None
    except (ValueError, LookupError) as error:
        raise InputError(f"{name}: not valid XML ({shown(str(error))}).") from None
    if not tree.roots:
        raise InputError(f"{name}: has no XML element.")
    return tree.roots[0]


class _Tree:
    """The elements of an XML text as a parser, which is at ``line``, comes to them."""

    def __init__(self, name: str, doctype: str, line: Callable[[], int]) -> None:
        self._name, self._doctype, self._line = name, doctype, line
        self.roots: list[Element] = []
        self.path: list[Element] = []

    def _place(self) -> str:
        return f"{self._name}: line {self._line()}"

    def refuse(self, *_: object) -> None:
        """Refuse an entity, or a document type that is not the one let through."""
        raise InputError(
            f"{self._place()}: a document type or entity (<!DOCTYPE ...>) is not read; remove it."
        )

    def start_doctype(self, called: str, _system: object, _public: object, own: int) -> None:
        """Let a document type through that defines nothing itself."""
        if called != self._doctype or own:
            self.refuse()

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        """Add an element below the one that is open."""
        if len(self.path) >= DEEPEST:
            raise InputError(f"{self._place()}: elements are nested more than {DEEPEST} deep.")
        element = Element(tag, attributes, self._line(), self._place())
        (self.path[-1].children if self.path else self.roots).append(element)
        self.path.append(element)

    def add_content(self, text: str) -> None:
        """Add text to the element that is open."""
        if self.path and text.strip():
            self.path[-1].texts.append(text)
