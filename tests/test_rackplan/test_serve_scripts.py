"""Scripts of the local page: what they import is there, and in no circle."""

from __future__ import annotations

import re
from graphlib import TopologicalSorter
from pathlib import Path

import rackplan

SCRIPTS = {
    path.name: path.read_text(encoding="utf-8")
    for path in Path(rackplan.__file__).parent.glob("serve/static/*.js")
}
IMPORT = re.compile(r'^import \{ ([^}]*) \} from "\./([\w.]+)";$', re.MULTILINE)


def imported(text: str) -> list[tuple[str, str]]:
    """Each name that a script imports, and the script that has it."""
    return [(name, of) for names, of in IMPORT.findall(text) for name in names.split(", ")]


def order(scripts: dict[str, str]) -> list[str]:
    return list(
        TopologicalSorter(
            {name: {of for _, of in imported(text)} for name, text in scripts.items()}
        ).static_order()
    )


def test_scripts_import_in_no_circle_what_others_export() -> None:
    assert order(SCRIPTS)[-1] == "main.js"
    for name, text in SCRIPTS.items():
        assert text.count("import {") == len(IMPORT.findall(text)), name
        for wanted, of in imported(text):
            assert re.search(
                rf"^export (const|class|(async )?function\*?) {wanted}\b", SCRIPTS[of], re.MULTILINE
            ), wanted
            assert len(re.findall(rf"\b{wanted}\b", text)) > 1, f"{name} does not use {wanted}"
