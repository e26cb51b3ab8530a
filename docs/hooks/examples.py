"""The page of examples: each script or notebook of `examples/`, in its own words, and its code."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

PAGE = "examples.md"
FOLDER = Path(__file__).parents[2] / "examples"
HEAD = """# Examples

Each runs from the folder of the repository as it stands, `python examples/NAME.py`, and is run by tests.
"""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the page."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, PAGE, content=examples_page()))
    return files


def examples_page() -> str:
    """Return a section for each example."""
    parts = [HEAD]
    for path in sorted(FOLDER.glob("[!_]*")):
        if path.suffix == ".py":
            parts.append(_script(path))
        elif path.suffix == ".ipynb":
            parts.append(_notebook(path))
    return "\n".join(parts)


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
            parts.append(
                source.replace("\n# ", "\n### ").replace("# ", "### ", source.startswith("# ")) + "\n"
            )
    return "\n".join(parts)
