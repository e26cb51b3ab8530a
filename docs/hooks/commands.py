"""The reference of the commands, made of the command line itself when the site is built."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

PAGE = "reference/commands.md"
FOOT = {
    "plan": "placement options report",
    "replan": "replan",
    "score": "report cost",
    "what-if": "report",
    "draw": "catalog",
    "traffic": "cost",
    "sweep": "compare",
    "size": "size",
    "simulate": "under-load",
    "compare": "compare",
    "study": "compare",
    "roofline": "cost",
    "economics": "cost",
    "replay": "replan",
    "export": "engines",
    "import-plan": "engines",
    "import": "catalog",
    "loads": "engines",
    "catalog": "catalog",
    "validate": "trust",
    "serve": "report",
    "schema": "options",
}
"""Pages that explain a command."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the page."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, PAGE, content=commands_page()))
    return files


def commands_page() -> str:
    """Return a section for each command: what it does, how it is called, its options, two examples."""
    from rackplan.cli import make_app
    from rackplan.commands import SECTIONS

    group: Any = make_app()
    lines = [
        "# Commands",
        "",
        "Every command, from the command line itself: `rackplan COMMAND --help` prints the same.",
        "The contract of all commands, their defaults and exit codes are in [options](../options.md).",
        "",
    ]
    with group.make_context("rackplan", ["catalog"], resilient_parsing=True) as root:
        for title, names in SECTIONS.items():
            lines += [f"## {title}", ""]
            for name in names:
                lines += _section(name, group.get_command(root, name), root)
    return "\n".join(lines)


def _section(name: str, command: Any, root: Any) -> list[str]:
    context = type(root)(command, info_name=name, parent=root)
    usage = " ".join(["rackplan", name, *command.collect_usage_pieces(context)])
    lines = [f"### {name}", "", _paragraphs(command.help or ""), "", "```text", usage, "```", ""]
    for title, records in command.sections(context).items():
        lines += [f"| {title} | |", "|---|---|", *(_row(*record) for record in records), ""]
    lines += ["```console", *(f"$ {example}" for example in command.request.EXAMPLES), "```", ""]
    pages = FOOT.get(name, "").split()
    if pages:
        lines += ["More: " + ", ".join(f"[{page}](../{page}.md)" for page in pages) + ".", ""]
    return lines


def _row(names: str, says: str) -> str:
    return f"| {_code(names)} | {_cell(says)} |"


def _code(text: str) -> str:
    escaped = html.escape(text, quote=False).replace("|", "&#124;")
    return f"<code>{escaped}</code>"


def _cell(text: str) -> str:
    escaped = html.escape(" ".join(text.split()), quote=False)
    for mark in "|[]*_`\\":
        escaped = escaped.replace(mark, f"&#{ord(mark)};")
    return escaped


def _paragraphs(text: str) -> str:
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))
