"""XML as elements with their lines: well-formed, not too deep, without entities or a document type."""

from __future__ import annotations

from dataclasses import dataclass, field
from xml.parsers import expat

from topology.base.errors import InputError
from topology.base.reading import DEEPEST, shown
from topology.base.values import MAX_COUNT, require_name
from topology.importers.source import Source


@dataclass(eq=False)
class Element:
    """One XML element: its attributes, children in order, and the line of its start tag."""

    source: Source
    tag: str
    attributes: dict[str, str]
    line: int
    children: list[Element] = field(default_factory=list)

    def all(self, tag: str) -> list[Element]:
        """Return the children called ``tag``."""
        return [child for child in self.children if child.tag == tag]

    def get(self, name: str) -> str:
        """Return an attribute, empty where it is absent."""
        return self.attributes.get(name, "")

    def text(self, name: str) -> str:
        """Return an attribute that must be there and not empty."""
        value = self.get(name).strip()
        if not value:
            raise self.source.error(self.line, f"<{self.tag}> has no `{name}`.")
        return require_name(value, f"{self.source.at(self.line)}: <{self.tag}> {name}")

    def count(self, name: str, *, minimum: int = 1, maximum: int = MAX_COUNT) -> int:
        """Return an attribute that is a whole number from ``minimum`` to ``maximum``."""
        text = self.text(name)
        if not text.isdecimal() or len(text) > 12 or not minimum <= int(text) <= maximum:
            must = f"must be a whole number from {minimum} to {maximum}"
            raise self.source.error(self.line, f"<{self.tag} {name}={shown(text)}> {must}.")
        return int(text)


def parse_xml(source: Source) -> Element:
    """Return the root element of an XML text.

    Raises
    ------
    InputError
        If the text is not well-formed (of a cut file the message names the element left open), nested too
        deeply, or has a document type or entities.
    """
    parser = expat.ParserCreate()
    root = Element(source, "", {}, 0)
    path = [root]

    def refuse(*_: object) -> None:
        problem = "a document type or entity (<!DOCTYPE ...>) is not supported; remove it."
        raise source.error(parser.CurrentLineNumber, problem)

    def start(tag: str, attributes: dict[str, str]) -> None:
        element = Element(source, tag, attributes, parser.CurrentLineNumber)
        if len(path) > DEEPEST:
            raise source.error(element.line, f"elements are nested more than {DEEPEST} levels deep.")
        path[-1].children.append(element)
        path.append(element)

    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = refuse
    parser.StartElementHandler = start
    parser.EndElementHandler = lambda _: path.pop()
    try:
        parser.Parse(source.text.strip(), True)
    except expat.ExpatError as error:
        problem = expat.ErrorString(error.code)
        if path[1:]:
            problem += f"; <{path[-1].tag}> of line {path[-1].line} is not closed"
        where = f"{source.at(error.lineno)}: column {error.offset + 1}"
        raise InputError(f"{where}: not valid XML ({problem}).") from None
    except (ValueError, LookupError) as error:
        raise source.error(None, f"not valid XML ({shown(str(error))}).") from None
    return root.children[0]
