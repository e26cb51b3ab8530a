"""Pages as a browser would read them: what they load, what is open, charts, text."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from typing import Any

LOADS = {"src", "href", "action", "data", "poster", "srcset", "xlink:href", "formaction", "background"}
EVIL = '</script><script>alert(1)</script><img src=x onerror="alert(1)"><a href="javascript:1">x'
"""A name that tries to get out of every place that it is put in."""


class Page(HTMLParser):
    """What a browser would find: elements, charts, text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.charts: dict[str, dict[str, Any]] = {}
        self.text = ""
        self._chart = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep an element, and begin a chart."""
        given = dict(attrs)
        self.tags.append((tag, given))
        if tag not in {"meta", "br"}:
            self.open.append(tag)
        if tag == "figure":
            self._chart = str(given["id"])

    def handle_endtag(self, tag: str) -> None:
        """Close an element; one that is not open is an error."""
        assert self.open.pop() == tag, f"{tag} closes what is not open"

    def handle_data(self, data: str) -> None:
        """Keep text, and the data of a chart."""
        if self.open and self.open[-1] == "script":
            if "figure" in self.open:
                self.charts[self._chart] = json.loads(data)
        elif self.open and self.open[-1] != "style":
            self.text += data


def require_safe(text: str) -> Page:
    """Fail where a page loads anything, runs what is not ours, or leaves an element open; return what is in it."""
    page = Page(text)
    assert page.open == []
    for tag, attributes in page.tags:
        assert tag not in {"link", "iframe", "object", "embed", "base", "form", "img"}
        links = LOADS & set(attributes)
        assert not links or (attributes.get("href") or "").startswith("#s"), (tag, attributes)
        assert not [name for name in attributes if name.startswith("on")]
        assert "url(" not in (attributes.get("style") or "")
    style = text[text.index("<style>") : text.index("</style>")]
    assert "@import" not in style
    assert "url(" not in style
    policy = next(a["content"] for tag, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    assert "http" not in policy
    identities = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(identities) == len(set(identities))
    return page
