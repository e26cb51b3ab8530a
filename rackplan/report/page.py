"""A document as a self-contained page with its style, charts and the chart library, or as a piece of a notebook."""

from __future__ import annotations

import json
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from rackplan.report import assets
from rackplan.report.doc import Block, Chart, Code, Doc, Note, Picture, Record, Table, blocks_of
from rackplan.report.fields import FIELDS
from rackplan.report.text import cells_of, thinned
from topology.base.errors import printable, spelled

if TYPE_CHECKING:
    from jinja2 import Template

POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'"
)
"""A browser that knows of it loads nothing from anywhere."""
_MAX_ROWS = 100
"""Rows of a table that a page shows where text shows fewer than all."""
_NOTEBOOK = """
.rackplan { max-width: 60em; line-height: 1.4; } .rackplan h4, .rackplan h5 { margin: .8em 0 .3em; }
.rackplan p { margin: .2em 0; } .rackplan .wide { overflow-x: auto; } .rackplan summary { cursor: pointer; }
.rackplan caption { text-align: left; } .rackplan th, .rackplan td { text-align: left; padding: 0 .8em 0 0; }
.rackplan .figure { text-align: right; font-variant-numeric: tabular-nums; }
.rackplan .facts div { display: flex; gap: 1em; } .rackplan .facts dd { margin: 0; }
.rackplan .tile { display: inline-block; margin-right: 1.5em; } .rackplan .tile b { display: block; }
"""


@dataclass
class Section:
    """A titled part of a page; a folded one is closed, and is not printed."""

    title: str
    blocks: list[Block] = field(default_factory=list)
    folded: bool = False


def page(doc: Doc) -> str:
    """Return the whole page of a document."""
    head, sections = sections_of(doc)
    blocks = [*head, *(block for section in sections for block in section.blocks)]
    charts = any(isinstance(block, Chart) for block in blocks)
    scripts = any(isinstance(block, Picture) and (block.scene or block.data) for block in blocks)
    return _template().render(
        part="page",
        policy=POLICY,
        style=_Markup(assets.text("style.css") + assets.style()),
        scripts=[_Markup(assets.script())] if scripts else [],
        packed=_Markup(b64encode(assets.plotly()).decode()) if charts else "",
        draw=_Markup(assets.text("draw.js")),
        **_parts(doc, head, sections),
    )


def fragment(doc: Doc) -> str:
    """Return the document as a piece of HTML for notebooks: without charts and scripts, details folded."""
    head, sections = sections_of(doc)
    still = [Section(part.title, [block for block in part.blocks if _is_still(block)]) for part in sections]
    parts = _parts(doc, list(filter(_is_still, head)), [part for part in still if part.blocks])
    return _template().render(part="fragment", style=_Markup(_NOTEBOOK), **parts)


def _is_still(block: Block) -> bool:
    """Whether a block needs no script."""
    return not isinstance(block, Chart) and not (isinstance(block, Picture) and block.data)


def sections_of(doc: Doc) -> tuple[list[Block], list[Section]]:
    """Return the blocks at the top of a page, and its sections: each titled block begins one.

    A section of details is folded unless it begins with what is to be seen, one cluster at most.
    Folded ones come last, after the notes, and what warns comes first.
    """
    head: list[Block] = []
    sections: list[Section] = []
    notes: list[Block] = []
    scenes = 0
    for blocks, folds in ((doc.blocks, False), (doc.details, True)):
        if folds and doc.details:
            sections.append(Section("Details", folded=True))
        for block in blocks_of(blocks):
            if isinstance(block, Note):
                if block.kind == "warning":
                    head.insert(0, block)
                elif block.kind == "method" and sections:
                    sections[-1].blocks.append(block)
                elif block.text:
                    notes.append(block)
                continue
            if isinstance(block, Table) and (block.max_rows == 0 or not block.rows):
                continue
            if block.title:
                scenes += isinstance(block, Picture) and block.scene
                visible = isinstance(block, Chart) or (
                    isinstance(block, Picture) and not (block.scene and scenes > 1)
                )
                sections.append(Section(block.title, folded=folds and not visible))
            at_top = isinstance(block, Record) and not (block.title or folds)
            (sections[-1].blocks if sections and not at_top else head).append(block)
    sections = [
        *(part for part in sections if not part.folded),
        Section("Notes", notes),
        *(part for part in sections if part.folded),
    ]
    return head, [section for section in sections if section.blocks]


@cache
def _template() -> Template:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    def shown(value: Any) -> Any:
        plain = isinstance(value, str) and not hasattr(value, "__html__")
        return printable(spelled(value)) if plain else value

    loader = PackageLoader("rackplan.report", "")
    return Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, finalize=shown
    ).get_template("page.html.j2")


class _Markup(str):
    """Text that is HTML, a script or a style: it is not escaped again."""

    __slots__ = ()

    def __html__(self) -> str:
        """Return the text as Jinja asks for it."""
        return self


def _json(data: object) -> Any:
    """Return data as a script element may hold it."""
    return _Markup(json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c"))


def _short(data: Any) -> Any:
    """Return plain data with figures of six digits: no axis has more pixels."""
    match data:
        case float():
            return float(f"{data:.6g}")
        case dict():
            return {key: _short(value) for key, value in data.items()}
        case list() | tuple():
            return [_short(value) for value in data]
    return data


def _parts(doc: Doc, head: Sequence[Block], sections: Sequence[Section]) -> dict[str, Any]:
    bodies: list[dict[str, Any]] = [
        {
            "title": section.title,
            "folded": section.folded,
            "blocks": [part for block in section.blocks for part in _face(block, section.title)],
        }
        for section in sections
    ]
    lead = [part for block in head for part in _face(block, "")]
    uses: Counter[str] = Counter()
    for part in [*lead, *(part for section in bodies for part in section["blocks"])]:
        if "id" in part:
            uses[part["id"]] += 1
            part["id"] += f"-{uses[part['id']]}" * (uses[part["id"]] > 1)
    return {"title": doc.title, "answer": doc.sentences, "head": lead, "sections": bodies}


def _face(block: Block, above: str) -> Iterator[dict[str, Any]]:
    """Yield what the template shows of a block; a title that its section has is not repeated."""
    match block:
        case Record():
            yield from _record(block)
        case Table():
            yield from _tables(block, above)
        case Chart():
            from rackplan.report.charts import figure

            drawn = _json(_short(figure(block).to_plotly_json()))
            identity = "".join(
                letter if letter.isalnum() else "-" for letter in (block.title or block.alt).lower()
            )
            yield {
                "kind": "chart",
                "id": identity,
                "alt": block.alt or block.title,
                "height": block.height,
                "json": drawn,
            }
        case Picture() if block.data:
            yield {"kind": "map", "id": block.key, "alt": block.alt, "json": _json(dict(block.data))}
        case Picture():
            kind = "scene" if block.scene else "diagram"
            yield {"kind": kind, "id": block.key, "alt": block.alt, "svg": _Markup(block.drawn)}
        case Note():
            about = FIELDS[block.about].label if block.about in FIELDS else ""
            if block.kind == "next":
                yield {"kind": "code", "label": "Command", "text": block.text}
            elif block.text:
                label = about if block.kind == "missing" else ""
                style = "missed" if block.kind == "warning" else "note"
                yield {"kind": "note", "label": label, "text": block.text, "style": style}
        case Code():
            yield {"kind": "code", "label": block.title or "Command", "text": block.text}


def _record(record: Record) -> Iterator[dict[str, Any]]:
    for row in record.rows:
        fields, tiles = record.columns(), record.tiles.split()
        for kind, among in (("tiles", True), ("facts", False)):
            items = [
                (field.label, field.text(row[field.key]), field.meaning)
                for field in fields
                if (field.key in tiles) is among
            ]
            if items:
                yield {"kind": kind, "entries": items}


def _tables(table: Table, above: str) -> Iterator[dict[str, Any]]:
    if table.per:
        parts = table.parts()
        for value, part in parts.items():
            yield from _tables(replace(part, title=value if len(parts) > 1 else above), above)
        return
    rows = table.rows if table.max_rows is None else thinned(table.rows, _MAX_ROWS, even=True)
    fields = table.columns()
    heads, cells, words = cells_of(table, fields, rows, turned=table.across)
    hints = [""] * len(heads) if table.across else [field.meaning for field in fields]
    excerpt = f"{len(rows):,} of {len(table.rows):,} rows" if len(rows) < len(table.rows) else ""
    yield {
        "kind": "table",
        "title": "" if table.title == above else table.title,
        "heads": heads,
        "cells": cells,
        "words": words,
        "hints": hints,
        "more": excerpt,
    }
