"""Tables as CSV text, as spreadsheets and pandas read it."""

from __future__ import annotations

import csv
import io

from rackplan.report.doc import Table

_FORMULA = ("=", "+", "-", "@", "\t")
"""Leading characters that spreadsheets interpret as formulas (OWASP, CSV injection)."""


def table_csv(table: Table) -> str:
    """Return a table as CSV under the keys of its fields, without those that are null in all rows.

    Text that a spreadsheet would run as a formula begins with an apostrophe. Numbers stay as they are: only names can
    be somebody else's.
    """
    keys, text = [field.key for field in table.columns()], io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(keys)
    writer.writerows([_cell(row[key]) for key in keys] for row in table.rows)
    return text.getvalue()


def _cell(value: object) -> object:
    if not isinstance(value, str):
        return value
    text = value.replace("\r", " ")  # what the csv module leaves bare ends a row in some readers
    return f"'{text}" if text.lstrip(" ").startswith(_FORMULA) else text
