"""Tables as CSV text, as spreadsheets and pandas read it."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

from rackplan.report.doc import Table

_FORMULA = ("=", "+", "-", "@", "\t")
"""Leading characters that spreadsheets interpret as formulas (OWASP, CSV injection)."""


def table_csv(table: Table) -> str:
    """Return a table as CSV under the keys of its fields, without those that are null in all rows."""
    keys = [field.key for field in table.columns()]
    return csv_text(keys, ([row[key] for key in keys] for row in table.rows))


def csv_text(head: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    """Return rows as CSV; text that a spreadsheet would run as a formula begins with an apostrophe.

    Numbers stay as they are: only names can be somebody else's.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(_cell, head))
    writer.writerows(map(_cell, row) for row in rows)
    return text.getvalue()


def _cell(value: object) -> object:
    if not isinstance(value, str):
        return value
    text = value.replace("\r", " ")  # what the csv module leaves bare ends a row in some readers
    return f"'{text}" if text.lstrip(" ").startswith(_FORMULA) else text
