"""The page of examples is the README of `examples/`, and the code of each script and notebook below it."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

PAGE = "examples.md"
FOLDER = Path(__file__).parents[2] / "examples"


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Put the code of each example below what its folder says of them."""
    return "\n".join([markdown, *sections()]) if page.file.src_uri == PAGE else markdown


def sections() -> list[str]:
    """Return a section for each example."""
    paths = sorted(FOLDER.glob("[!_]*"))
    scripts = [_script(path) for path in paths if path.suffix == ".py"]
    return scripts + [_notebook(path) for path in paths if path.suffix == ".ipynb"]


def _script(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    said = ast.get_docstring(tree) or ""
    code = "\n".join(text.splitlines()[tree.body[0].end_lineno if said else 0 :]).strip("\n")
    return f"## {path.stem}\n\n{said}\n\n```python\n{code}\n```\n"


def _notebook(path: Path) -> str:
    """Return the cells of a notebook, without what they printed."""
    parts = [f"## {path.stem}\n"]
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"]).strip()
        if cell["cell_type"] == "code":
            parts.append(f"```python\n{source}\n```\n")
        else:
            parts.append(re.sub(r"^#", "###", source, flags=re.MULTILINE) + "\n")
    return "\n".join(parts)
