"""Documents as they were looked at once, kept as files: ``GOLDEN=write pytest`` writes them anew."""

from __future__ import annotations

import os
from pathlib import Path

from rackplan.report.doc import Doc
from rackplan.report.schema import schema_of
from rackplan.report.text import text
from schema_check import unlike

FOLDER = Path(__file__).parent / "golden"
MOST_LINES, MOST_SENTENCES = 40, 3


def require_golden(name: str, doc: Doc, *, ending: str = "") -> None:
    """Fail where the text of a document is not that of the file, or the document breaks a rule of all documents.

    ``ending`` is text of the run that the document lacks.
    """
    require_doc(doc)
    require_text(name, text(doc, details=True) + ending)


def require_text(name: str, shown: str) -> None:
    """Fail where a text is not that of the file."""
    path = FOLDER / f"{name}.txt"
    if os.environ.get("GOLDEN") == "write":
        path.parent.mkdir(exist_ok=True)
        path.write_text(shown, encoding="utf-8")
    assert shown == path.read_text(encoding="utf-8"), f"{name}: GOLDEN=write shows what changed"


def require_doc(doc: Doc) -> None:
    """Fail where a document breaks a rule: its schema, three sentences, forty lines."""
    found = list(unlike(schema_of(doc.shape, doc.shape.name, ""), doc.data))
    assert not found, f"{doc.shape.name}: {found[:5]}"
    assert len(doc.sentences) <= MOST_SENTENCES, doc.sentences
    assert all(sentence[-1] in ".:!" and "\n" not in sentence for sentence in doc.sentences), doc.sentences
    lines = text(doc, details=False).splitlines()
    assert len(lines) <= MOST_LINES, f"{doc.shape.name}: {len(lines)} lines"
