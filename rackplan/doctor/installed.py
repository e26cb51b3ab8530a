"""What the record of the installation says: packages that are asked for, those that are there, and our own files.

Nothing but Python's own library is needed; ``packaging`` compares versions where it is there.
"""

from __future__ import annotations

import csv
import hashlib
import json
import re
import tomllib
from base64 import urlsafe_b64encode
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

State = Literal["ok", "missing", "not installed", "out of range", "broken", "not checked"]

NAME = "rackplan"
HOME = Path(__file__).resolve().parent.parent
"""The folder that our code is read from."""
_PROJECT = HOME.parent / "pyproject.toml"
DEVELOPMENT = ("dev", "browser", "docs", "release")
"""Extras of those who change rackplan."""
REINSTALL = "pip install --force-reinstall"
_SHOWN = 3
"""Damaged files of ours that are named."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_EXTRA = re.compile(r"extra\s*==\s*['\"]([^'\"]+)['\"]")
_BRACKETS = re.compile(r"\[([^\]]*)\]")


@dataclass(frozen=True)
class Package:
    """A package.

    Attributes
    ----------
    name, asked, version:
        Of which versions rackplan asks for, and which one is there (None: none).
    extra:
        Of which it is a part; empty: always needed.
    state, reason:
        ``ok``, or what is wrong with it, and why.
    """

    name: str
    asked: str
    version: str | None
    extra: str = ""
    state: State = "ok"
    reason: str = ""


@dataclass(frozen=True)
class Check:
    """A part that was tried: what it did or why not, and of what is broken what to do."""

    name: str
    state: State
    text: str
    remedy: str = ""


def version_of(name: str) -> str | None:
    """Return the version of a package that is installed; None: it is not, or its record is damaged."""
    try:
        return metadata.version(name) or None
    except Exception:  # noqa: BLE001 - a record that is damaged may raise anything, and is none
        return None


def install(extra: str = "") -> str:
    """Return the arguments of ``pip install`` for this installation: its name, or where it came from (PEP 610)."""
    name = f"{NAME}[{extra}]" if extra else NAME
    try:
        of = json.loads(metadata.distribution(NAME).read_text("direct_url.json") or "{}")
        url = urlsplit(str(of["url"]))
        editable = bool(of.get("dir_info", {}).get("editable"))
    except Exception:  # noqa: BLE001 - no record, or a damaged one: its name is what is left
        return f'"{name}"'
    if url.scheme != "file":
        return f'"{name} @ {url.geturl()}"'
    return f'{"-e " * editable}"{unquote(url.path)}{name.removeprefix(NAME)}"'


def own_files() -> Check:
    """Hold our own files against the record of the installation."""
    try:
        record = metadata.distribution(NAME)
        # the library's own list leaves out those that are missing, from Python 3.12 on
        rows = [(row[0], row[1]) for row in csv.reader((record.read_text("RECORD") or "").splitlines())]
    except Exception:  # noqa: BLE001 - no record, or a damaged one
        rows = []
    if not rows:
        known = "is read from pyproject.toml" if _PROJECT.is_file() else "is not known"
        return Check("files", "not checked", f"no record of an installation; what is needed {known}")
    wrong = sorted(name for name, digest in rows if not _as_installed(record, name, digest))
    if wrong:
        more = f" and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
        text = f"{len(wrong)} of {len(rows)} files are missing or changed: {', '.join(wrong[:_SHOWN])}{more}"
        return Check("files", "broken", text, f"{REINSTALL} --no-deps {install()}")
    if f"{NAME}/__main__.py" not in dict(rows):
        return Check("files", "ok", "read from a checkout")
    return Check("files", "ok", f"{len(rows)} files, as they were installed")


def _as_installed(record: metadata.Distribution, name: str, digest: str) -> bool:
    """Whether a file is there, and what it was when it was installed."""
    kind, _, known = digest.partition("=")
    if kind != "sha256" or name.startswith(".."):
        return True  # compiled files and the record itself have no digest, and scripts may be rewritten
    try:
        content = Path(str(record.locate_file(name))).read_bytes()
    except OSError:
        return False
    return known == urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")


def requirements() -> tuple[list[Package], dict[str, tuple[Package, ...]]]:
    """Return the packages that are always needed, and those of each extra, by what the installed record asks for."""
    needed: dict[str, Package] = {}
    extras: dict[str, dict[str, Package]] = {}
    brought: list[tuple[str, str]] = []
    for text in _asked():
        name, asked, extra, applies = _parsed(text)
        if not (applies and name):
            continue
        if name == NAME:  # an extra that brings others with it
            found = _BRACKETS.search(text)
            brought += [(extra, one.strip()) for one in (found[1] if found else "").split(",")]
        else:
            (extras.setdefault(extra, {}) if extra else needed)[name] = _package(name, asked, extra)
    for extra, other in brought:
        extras[extra] = {**extras.get(other, {}), **extras.get(extra, {})}
    order = sorted(extras, key=lambda name: (name in DEVELOPMENT, name))
    return list(needed.values()), {name: tuple(extras[name].values()) for name in order}


def _asked() -> list[str]:
    """Return what the installed record asks for; of a checkout what its project does, which may be newer."""
    try:
        project = tomllib.loads(_PROJECT.read_text(encoding="utf-8"))["project"]
        extras = project["optional-dependencies"]
        of_extras = [f"{one}; extra == '{extra}'" for extra, some in extras.items() for one in some]
        return [*project["dependencies"], *of_extras]
    except (OSError, ValueError, KeyError):  # no checkout
        pass
    try:
        return metadata.requires(NAME) or []
    except Exception:  # noqa: BLE001 - no record, or a damaged one
        return []


def _parsed(text: str) -> tuple[str, str, str, bool]:
    """Return name, versions and extra of a requirement, and whether it applies on this machine.

    Where packaging is missing itself, what is left of its conditions is taken to apply.
    """
    of_extra = _EXTRA.search(text)
    extra = of_extra[1] if of_extra else ""
    try:
        from packaging.requirements import Requirement

        one = Requirement(text)
        applies = one.marker is None or one.marker.evaluate({"extra": extra})
        return one.name, str(one.specifier), extra, applies
    except Exception:  # noqa: BLE001 - packaging is missing or broken: the first word is the name
        name = _NAME.match(text)
        asked = text.partition(";")[0][name.end() if name else 0 :]
        return name[0] if name else "", re.sub(r"\[[^\]]*\]|[\s()]", "", asked), extra, True


def _package(name: str, asked: str, extra: str) -> Package:
    version = version_of(name)
    if version is None:
        return Package(name, asked, None, extra, "missing")
    try:
        from packaging.specifiers import SpecifierSet

        fits = SpecifierSet(asked).contains(version, prereleases=True)
    except Exception as error:  # noqa: BLE001 - packaging is missing or broken
        return Package(name, asked, version, extra, "not checked", f"{type(error).__name__}: {error}")
    return Package(name, asked, version, extra, "ok" if fits else "out of range")
