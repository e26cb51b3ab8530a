"""Documentation and its site: what pages name exists; navigation, references and pictures are those of the code."""

from __future__ import annotations

import pkgutil
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from helpers import script
from rackplan.cli import request_of
from rackplan.commands import COMMANDS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md"))]
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
    return path.is_file() or any(inner.is_file() and inner.suffix != ".pyc" for inner in path.rglob("*"))


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


@pytest.mark.parametrize("page", [*PAGES, *(DOCS / "decisions").glob("*.md")], ids=lambda page: page.name)
def test_what_a_page_names_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert missing_files(text) == []
    assert broken_links(text, page.parent) == []


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


CONFIG = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))


def named_in(navigation: Any) -> list[str]:
    """The files of a navigation."""
    if isinstance(navigation, str):
        return [navigation]
    entries = navigation.values() if isinstance(navigation, dict) else navigation
    return [name for entry in entries for name in named_in(entry)]


def test_every_page_is_in_the_navigation_once() -> None:
    named = named_in(CONFIG["nav"])
    assert len(named) == len(set(named))
    made = {script(f"docs/hooks/{name}.py").PAGE for name in ("commands", "python", "schemas")}
    made |= {*script("docs/hooks/repository.py").PAGES.values(), "decisions/index.md"}
    assert set(named) == {path.name for path in DOCS.glob("*.md")} | made


def test_the_reference_has_every_command_with_all_its_options() -> None:
    text = script("docs/hooks/commands.py").commands_page()
    assert set(re.findall(r"^### (\S+)$", text, re.MULTILINE)) == set(COMMANDS)
    assert "| <code>--goal GOAL</code> |" in text
    assert all(example in text for name in COMMANDS for example in request_of(name).EXAMPLES)


def test_the_reference_has_every_public_name_once() -> None:
    import rackplan

    hook = script("docs/hooks/python.py")
    named = [name for some in hook.PAGES.values() for name in some.split()]
    assert sorted(named) == [name for name in rackplan.__all__ if not name.startswith("__")]
    index, *others = hook.pages().values()
    assert [name for name in named if f"#{hook.home_of(name)})" not in index] == []
    assert "::: placement.plan.Plan\n" in "".join(others)


def test_the_reference_has_every_schema_with_all_its_fields() -> None:
    hook = script("docs/hooks/schemas.py")
    assert set(hook.names()) >= {"size", "plan", "plan.json"}
    schema = hook.schemas()["plan.json"]
    text = hook.schema_page("plan.json", schema)
    assert all(f"| `{field}` | " in text for field in schema["properties"])
    links = set(re.findall(r"\]\(#(\w+)\)", text))
    assert links
    assert links <= {name.lower() for name in re.findall(r"^## (\w+)$", text, re.MULTILINE)}


def test_links_of_the_repository_become_links_of_the_site() -> None:
    hook = script("docs/hooks/repository.py")
    results = "../../benchmarks/RESULTS.md#online"
    for page, link, becomes in (
        ("index.md", "docs/size.md#json", "size.md#json"),
        ("decisions/0001-cost-under-placement.md", results, "../results.md#online"),
        ("cost.md", "../cost/step/score.py", "files/cost/step/score.py"),
        ("size.md", "none.md", "none.md"),
    ):
        site = SimpleNamespace(file=SimpleNamespace(src_uri=page), meta={})
        assert hook.on_page_markdown(f"[it]({link})\n", site, None, None) == f"[it]({becomes})\n"
        fenced = f"```\n[it]({link})\n```\n"
        assert hook.on_page_markdown(fenced, site, None, None) == fenced


NUMBER = re.compile(r"-?\d+(?:,\d{3})*(?:\.\d+)?")


@pytest.mark.wide
@pytest.mark.parametrize(
    "name", ["readme-light", "tutorial-topology", "tutorial-step", "tutorial-frontier", "generations"]
)
def test_a_picture_is_what_the_code_draws(name: str) -> None:
    """``python docs/images/make.py`` makes it anew. Last digits may differ between machines."""
    kept = (DOCS / "images" / f"{name}.svg").read_text(encoding="utf-8")
    if name.startswith("readme"):
        of_readme = script("benchmarks/readme_picture.py")
        if not of_readme.WORKLOADS.is_dir():
            pytest.skip("the published workloads are absent")
        drawn = of_readme.svg(of_readme.computed(), of_readme.SCHEMES["light"])
    else:
        drawn = script("docs/images/make.py").PICTURES[f"{name}.svg"]()
    assert NUMBER.sub("#", kept) == NUMBER.sub("#", drawn)
    was, now = ([float(number.replace(",", "")) for number in NUMBER.findall(text)] for text in (kept, drawn))
    assert was == pytest.approx(now, rel=0.002, abs=0.3)


@pytest.mark.wide
@pytest.mark.skipif(not (ROOT / "site").is_dir(), reason="`make site` has not built it")
def test_nothing_in_the_site_leads_outside() -> None:
    fetched = re.compile(r"<(?:script|img|iframe|link)\b[^>]*(?:src|href)=\"?https?:")
    for path in (ROOT / "site").rglob("*.html"):
        assert not fetched.search(path.read_text(encoding="utf-8")), path
    assert (ROOT / "site" / "search" / "search_index.js").is_file()
