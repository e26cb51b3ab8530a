"""What README, CONTRIBUTING and docs name exists: files of the repository, links, and every page is linked."""

from __future__ import annotations

import pkgutil
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
FOLDERS = ("topology", "cost", "placement", "rackplan", "tests", "benchmarks", "examples", "docs")
CODE = re.compile(r"```.*?```", re.DOTALL)
NAMED = re.compile(rf"`(?:python )?((?:{'|'.join(FOLDERS)})/[\w./-]+)`")
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]+)?(?:#([^)\s]+))?\)")


def headings(text: str) -> set[str]:
    """The anchors that GitHub makes of headings."""
    titles = re.findall(r"^#+ (.*)$", CODE.sub("", text), re.MULTILINE)
    words = (re.sub(r"[^\w\- ]", "", title.lower()) for title in titles)
    return {title.strip().replace(" ", "-") for title in words}


def is_there(path: Path) -> bool:
    """Whether a file, or a folder with more than what Python compiled there, exists."""
    return path.is_file() or any(one.is_file() and one.suffix != ".pyc" for one in path.rglob("*"))


def missing_files(text: str) -> list[str]:
    """Files and folders of the repository that ``text`` names and that do not exist; capitals are placeholders."""
    return [name for name in NAMED.findall(text) if name.islower() and not is_there(ROOT / name)]


def broken_links(text: str, folder: Path) -> list[str]:
    """Links of a page in ``folder`` to files or headings that do not exist."""
    wrong = []
    for name, anchor in LINK.findall(CODE.sub("", text)):
        path = (folder / name) if name else None
        if path is not None and not path.exists():
            wrong.append(name)
        elif anchor and (path is None or path.suffix == ".md"):
            target = text if path is None else path.read_text(encoding="utf-8")
            if anchor not in headings(target):
                wrong.append(f"{name}#{anchor}")
    return wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_names_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert missing_files(text) == []
    assert broken_links(text, page.parent) == []


def test_links_between_decisions_lead_somewhere() -> None:
    for page in (ROOT / "docs" / "decisions").glob("*.md"):
        assert broken_links(page.read_text(encoding="utf-8"), page.parent) == [], page.name


def test_dotted_names_can_be_imported() -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    names = set(re.findall(r"`((?:topology|cost|placement|rackplan)(?:\.\w+)+)[`(]", text))
    assert len(names) > 20
    for name in sorted(names):
        if not name.endswith((".conf", ".svg", ".yaml")):  # files
            assert pkgutil.resolve_name(name) is not None


def test_the_rooms_are_there() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(topology|cost|placement|rackplan)`: .*? \| (.*) \|$", text, re.MULTILINE)
    assert [package for package, _ in rows] == ["topology", "cost", "placement", "rackplan"]
    rooms = [f"{package}/{room}" for package, cell in rows for room in re.findall(r"`([\w/.]+)`", cell)]
    assert [room for room in rooms if not is_there(ROOT / room)] == []
