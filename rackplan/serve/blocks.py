"""Documents as the page takes them: blocks as plain data, each cell with its value and its text."""

from __future__ import annotations

from typing import Any

from rackplan.report.doc import Block, Code, Doc, Note, Picture, Record, Table, blocks_of
from topology.base.errors import spelled


def page_data(doc: Doc, *details: str) -> dict[str, Any]:
    """Return the title, the answer and the blocks of a document, and the ``details`` with these keys."""
    extra = (block for block in blocks_of(doc.details) if getattr(block, "key", "") in details)
    shown = (_data(block) for block in [*doc.blocks, *extra])
    return {
        "title": doc.title,
        "answer": [spelled(text) for text in doc.sentences],
        "blocks": [block for block in shown if block],
    }


def _data(block: Block) -> dict[str, Any] | None:
    match block:
        case Record() if block.rows and block.max_rows != 0:
            (row,) = block.rows
            figures = (
                {
                    "key": field.key,
                    "label": field.label,
                    "hint": field.meaning,
                    **_cell(field, row[field.key]),
                }
                for field in block.columns()
            )
            return {"kind": "record", "key": block.key, "title": block.title, "figures": list(figures)}
        case Table() if block.max_rows != 0 and block.rows:
            fields = block.columns()
            heads = [
                {"label": field.label, "hint": field.meaning, "words": not field.is_number}
                for field in fields
            ]
            rows = [[_cell(field, row[field.key]) for field in fields] for row in block.rows]
            return {"kind": "table", "key": block.key, "title": block.title, "heads": heads, "rows": rows}
        case Picture():
            drawn = {"data": dict(block.data)} if block.data else {"svg": block.drawn}
            return {"kind": "picture", "key": block.key, "says": block.alt, "scene": block.scene, **drawn}
        case Note() if block.text:
            return {"kind": "note", "about": block.kind, "text": spelled(block.text)}
        case Code():
            return {"kind": "code", "text": block.text, "title": block.title}
    return None


def _cell(field: Any, value: Any) -> dict[str, Any]:
    return {"value": value if field.is_number else None, "text": field.text(value)}
