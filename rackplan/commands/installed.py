"""Output of ``rackplan --version``: installed versions and missing extras."""

from __future__ import annotations

import platform
from importlib import metadata

from packaging.requirements import Requirement

DEVELOPMENT = {"dev", "browser", "docs", "release"}
"""Extras for development."""


def version_text(version: str) -> str:
    """Return the lines of ``rackplan --version``; only Python's version if rackplan is not installed."""
    versions: dict[str, str] = {"Python": platform.python_version()}
    absent: dict[str, list[str]] = {}
    try:
        record = metadata.metadata("rackplan")
        needed = [Requirement(text) for text in record.get_all("Requires-Dist") or []]
        extras = ["", *(record.get_all("Provides-Extra") or [])]
    except metadata.PackageNotFoundError:
        needed, extras = [], []
    for requirement in needed:
        of = [
            extra
            for extra in extras
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra})
        ]
        if not of or of[0] in DEVELOPMENT or requirement.name == "rackplan":
            continue
        try:
            versions[requirement.name] = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            absent.setdefault(of[0], []).append(requirement.name)
    lines = [
        f"rackplan {version}",
        "",
        *(f"  {name:<18} {installed}" for name, installed in versions.items()),
    ]
    for extra, names in absent.items():
        install = f"pip install 'rackplan[{extra}]'" if extra else "pip install rackplan"
        lines.append(f"  {extra or 'a dependency'} is not installed ({', '.join(names)}): {install}")
    return "\n".join(lines)
