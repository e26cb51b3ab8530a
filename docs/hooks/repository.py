"""Pages of the site that lie elsewhere in the repository, and links between them: nothing is copied by hand.

README, CONTRIBUTING, CHANGELOG and the results of benchmarks are pages; other files that a page links (data, code)
come along as they are. Headings have the anchors that GitHub gives them, so that a link works in both places.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "benchmarks/RESULTS.md": "results.md",
    "examples/README.md": "examples.md",
}
"""Pages by the files that they are."""
DECISIONS = "decisions/index.md"
FOLDERS = {"docs/decisions": DECISIONS, "examples": "examples.md"}
"""Pages by the folders that they list."""
LAST_FOUND = {"changelog.md", "results.md", "contributing.md"}
"""Pages that searching shows last, with those in folders: references and decisions."""
_LINK = re.compile(r"(!?\[[^\]]*\]\()([^)#\s]+)((?:#[^)\s]*)?\))")
_PICTURE = re.compile(r"""(\bsrc(?:set)?=")([^"]+)(")""")
_ROW = re.compile(r"^\|.*$", re.MULTILINE)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_CODE = re.compile(r"^(```.*?^```|~~~.*?^~~~)", re.DOTALL | re.MULTILINE)


def github_anchor(title: str, separator: str = "-") -> str:
    """Return the anchor that GitHub makes of a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", separator)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Anchors as on GitHub; no script of another host."""
    config.mdx_configs["toc"] = {"slugify": github_anchor, "permalink": True}
    # what the plugin `offline` adds for searching in old browsers
    config.extra["polyfills"] = [one for one in config.extra.get("polyfills", ()) if "://" not in one]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the repository, and the files that pages link."""
    from mkdocs.structure.files import File

    for source, page in PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / source)))
    files.append(File.generated(config, DECISIONS, content=_list_of_decisions()))
    for page in [one for one in files if one.is_documentation_page()]:
        for _, target, _ in _LINK.findall(_CODE.sub("", page.content_string)):
            file = _target(_origin(page.src_uri), target)
            if file is not None and file.is_file() and _page_of(file) is None:
                name = _kept(file)
                if name not in files.src_uris:
                    files.append(File.generated(config, name, abs_src_path=str(file)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Let links between files of the repository be links between pages."""
    source = _origin(page.file.src_uri)
    here = posixpath.dirname(page.file.src_uri)

    def moved(match: re.Match[str]) -> str:
        file = _target(source, match[2])
        if file is None or not file.exists():
            return match[0]
        target = _page_of(file) or _kept(file)
        return f"{match[1]}{posixpath.relpath(target, here or '.')}{match[3]}"

    # a comment at the start of a line would end the paragraph that it stands in
    parts = _CODE.split(markdown)
    for number in range(0, len(parts), 2):
        text = _PICTURE.sub(moved, _LINK.sub(moved, _COMMENT.sub("", parts[number])))
        parts[number] = _ROW.sub(lambda row: _without_escapes(row[0]), text)
    if page.file.src_uri in LAST_FOUND or here:
        page.meta.setdefault("search", {"boost": 0.1})
    return "".join(parts)


def _without_escapes(row: str) -> str:
    """Return a row of a table as it is read here: a bar in code ends no cell, where GitHub wants it escaped."""
    return re.sub(r"`[^`]*`", lambda code: code[0].replace("\\|", "|"), row)


def _origin(page: str) -> str:
    """Return the file in the repository that a page is."""
    return next((source for source, name in PAGES.items() if name == page), f"docs/{page}")


def _target(source: str, link: str) -> Path | None:
    if "://" in link or link.startswith(("mailto:", "/")):
        return None
    return ROOT / posixpath.normpath(posixpath.join(posixpath.dirname(source), link))


def _page_of(file: Path) -> str | None:
    name = file.relative_to(ROOT).as_posix()
    known = PAGES.get(name) or FOLDERS.get(name)
    return known or (name.removeprefix("docs/") if name.startswith("docs/") else None)


def _kept(file: Path) -> str:
    """Return the name under which the site has a file that is no page."""
    return f"files/{file.relative_to(ROOT).as_posix()}"


def _decisions() -> list[str]:
    return [f"decisions/{one.name}" for one in sorted((ROOT / "docs" / "decisions").glob("*.md"))]


def _list_of_decisions() -> str:
    lines = ["# Decisions", "", "Choices that a reader may question, with the evidence.", ""]
    for name in _decisions():
        first = (ROOT / "docs" / name).read_text(encoding="utf-8").splitlines()[0]
        lines.append(f"- [{first.lstrip('# ')}]({posixpath.basename(name)})")
    return "\n".join(lines) + "\n"
