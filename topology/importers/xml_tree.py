"""XML as a small tree with line numbers; document types, and with them entities, are refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from xml.parsers import expat

from topology.importers.source import Source
from topology.reading import shown

_DEEPEST = 64
_MOST_ELEMENTS = 200_000


@dataclass
class Element:
    """One element: its attributes, children in order, and the line it starts on."""

    tag: str
    attributes: dict[str, str]
    line: int
    children: list[Element] = field(default_factory=list)

    def all(self, tag: str) -> list[Element]:
        """Return the children called ``tag``."""
        return [child for child in self.children if child.tag == tag]

    def walk(self) -> Iterator[Element]:
        """Yield this element and all below it, in the order of the file."""
        yield self
        for child in self.children:
            yield from child.walk()


class _Tree:
    """Builds the tree from the parser's events."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.parser = expat.ParserCreate()
        self.root: Element | None = None
        self.open: list[Element] = []
        self.count = 0
        self.parser.StartDoctypeDeclHandler = self._doctype
        self.parser.EntityDeclHandler = self._doctype
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end

    def _doctype(self, *_: object) -> None:
        raise self.source.error(
            self.parser.CurrentLineNumber,
            "a document type or entity (<!DOCTYPE ...>) is not read; remove it.",
        )

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        line = self.parser.CurrentLineNumber
        self.count += 1
        if self.count > _MOST_ELEMENTS:
            raise self.source.error(line, f"more than {_MOST_ELEMENTS} elements.")
        if len(self.open) >= _DEEPEST:
            raise self.source.error(line, f"elements are nested more than {_DEEPEST} deep.")
        element = Element(tag, attributes, line)
        if self.open:
            self.open[-1].children.append(element)
        elif self.root is None:
            self.root = element
        self.open.append(element)

    def _end(self, _: str) -> None:
        self.open.pop()


def parse_xml(source: Source) -> Element:
    """Return the root element.

    Raises
    ------
    InputError
        If the text is no well-formed XML (a cut file names the element left open), or has a document type.
    """
    tree = _Tree(source)
    try:
        tree.parser.Parse(source.text.strip(), True)
    except expat.ExpatError as error:
        problem = expat.ErrorString(error.code)
        if tree.open:
            last = tree.open[-1]
            problem += f"; <{last.tag}> of line {last.line} is not closed"
        raise source.error(error.lineno, f"column {error.offset + 1}: not valid XML ({problem}).") from None
    except (ValueError, LookupError) as error:
        raise source.error(None, f"not valid XML ({shown(str(error))}).") from None
    if tree.root is None:
        raise source.error(None, "has no XML element.")
    return tree.root
