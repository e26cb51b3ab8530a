"""The documentation site: pages in its navigation, words explained, pictures and references as the code has them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml

from helpers import script
from rackplan.cli import request_of
from rackplan.commands import COMMANDS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
CODE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
CONFIG = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))


def pages(entries: Any) -> Iterator[str]:
    """The files of a navigation."""
    if isinstance(entries, str):
        yield entries
    else:
        for entry in entries.values() if isinstance(entries, dict) else entries:
            yield from pages(entry)


def test_every_page_is_in_the_navigation_once() -> None:
    named = list(pages(CONFIG["nav"]))
    assert len(named) == len(set(named))
    made = {script(f"docs/hooks/{name}.py").PAGE for name in ("commands", "python", "schemas")}
    made |= {*script("docs/hooks/repository.py").PAGES.values(), "decisions/index.md"}
    assert set(named) == {path.name for path in DOCS.glob("*.md")} | made


def test_the_reference_has_every_command_with_all_its_options() -> None:
    text = script("docs/hooks/commands.py").commands_page()
    assert set(re.findall(r"^### (\S+)$", text, re.MULTILINE)) == set(COMMANDS)
    assert "| <code>--goal GOAL</code> |" in text
    assert all(example in text for name in COMMANDS for example in request_of(name).EXAMPLES)
    foot = script("docs/hooks/commands.py").FOOT
    assert set(foot) <= set(COMMANDS)
    assert [
        page for names in foot.values() for page in names.split() if not (DOCS / f"{page}.md").is_file()
    ] == []


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


@pytest.mark.parametrize(
    ("page", "link", "becomes"),
    [
        ("index.md", "docs/size.md#json", "size.md#json"),
        ("size.md", "../CONTRIBUTING.md", "contributing.md"),
        (
            "decisions/0001-cost-under-placement.md",
            "../../benchmarks/RESULTS.md#online",
            "../results.md#online",
        ),
        ("cost.md", "../cost/step/score.py", "files/cost/step/score.py"),
        ("size.md", "none.md", "none.md"),
    ],
)
def test_links_of_the_repository_become_links_of_the_site(page: str, link: str, becomes: str) -> None:
    class File:
        src_uri = page

    class Page:
        file = File
        meta: ClassVar[dict[str, Any]] = {}

    hook = script("docs/hooks/repository.py")
    assert hook.on_page_markdown(f"see [it]({link})\n", Page, None, None) == f"see [it]({becomes})\n"
    assert hook.on_page_markdown(f"```\n[it]({link})\n```\n", Page, None, None) == f"```\n[it]({link})\n```\n"


@pytest.mark.parametrize(
    ("words", "page"),
    [
        ("cost per token", "size.md"),
        ("NVL72", "catalog.md"),
        ("EPLB", "placement.md"),
        ("time to first token", "under-load.md"),
        ("node failure", "replan.md"),
        ("SGLang", "engines.md"),
    ],
)
def test_what_is_searched_for_is_in_the_headings_of_one_page(words: str, page: str) -> None:
    """Search ranks words of a heading above all others."""
    texts = {path.name: CODE.sub("", path.read_text(encoding="utf-8")).lower() for path in DOCS.glob("*.md")}
    headings = {name: " ".join(re.findall(r"^##? .*$", text, re.MULTILINE)) for name, text in texts.items()}
    assert [name for name, text in headings.items() if words.lower() in text] == [page]


NUMBER = re.compile(r"-?\d+(?:,\d{3})*(?:\.\d+)?")


@pytest.mark.wide
@pytest.mark.parametrize(
    "name",
    [
        "readme-light.svg",
        "tutorial-topology.svg",
        "tutorial-step.svg",
        "tutorial-frontier.svg",
        "generations.svg",
    ],
)
def test_a_picture_is_what_the_code_draws(name: str) -> None:
    """``python docs/images/make.py`` makes it anew. Last digits may differ between machines."""
    kept = (DOCS / "images" / name).read_text(encoding="utf-8")
    if name.startswith("readme"):
        of_readme = script("benchmarks/readme_picture.py")
        if not of_readme.WORKLOADS.is_dir():
            pytest.skip("the published workloads are absent")
        drawn = of_readme.svg(of_readme.computed(), of_readme.SCHEMES["light"])
    else:
        drawn = script("docs/images/make.py").PICTURES[name]()
    assert NUMBER.sub("#", kept) == NUMBER.sub("#", drawn)
    was, now = ([float(one.replace(",", "")) for one in NUMBER.findall(text)] for text in (kept, drawn))
    assert was == pytest.approx(now, rel=0.002, abs=0.3)


@pytest.mark.wide
@pytest.mark.skipif(not (ROOT / "site").is_dir(), reason="`make site` has not built it")
def test_nothing_in_the_site_leads_outside() -> None:
    fetched = re.compile(r"<(?:script|img|iframe|link)\b[^>]*(?:src|href)=\"?https?:")
    outside = [
        path.name
        for path in (ROOT / "site").rglob("*.html")
        if fetched.search(path.read_text(encoding="utf-8"))
    ]
    assert outside == []
    assert (ROOT / "site" / "search" / "search_index.js").is_file()
