"""An installation as text and data: what is there, what is missing, and how to get it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rackplan.doctor.examine import ENGINES, Installation, extra_state
from rackplan.doctor.installed import DEVELOPMENT, Package, install
from rackplan.views.blocks import Block, Heading, Items, Table, Text, View, labelled, picked, sections

if TYPE_CHECKING:
    from rackplan.schemas.doctor import DoctorPrinted, PackageData


def doctor_view(found: Installation) -> View:
    """Return what :func:`rackplan.doctor.examine.examine` found."""
    head: list[Block] = [
        Heading(f"rackplan {found.version}"),
        *labelled("Code", found.source),
        *labelled("Python", f"{found.python}, {found.executable}"),
        *labelled("Machine", f"{found.system}; this process may use {_count(found.cores, 'core')}"),
        *labelled("Variables", ", ".join(f"{name}={value}" for name, value in found.variables.items())),
    ]
    needed = Table.of(
        found.packages,
        ("package", lambda one: one.name),
        ("needs", lambda one: one.asked or "any"),
        ("installed", lambda one: one.version or "-"),
        ("state", lambda one: one.state),
        title="Needed:",
    )
    extras = [
        f"{name}: {_extra(some)}"
        + ("" if extra_state(some) == "ok" or name in DEVELOPMENT else f"; pip install {install(name)}")
        for name, some in found.extras.items()
        if name not in DEVELOPMENT or extra_state(some) != "not installed"
    ]
    beside = ", ".join(f"{name} {version}" for name, version in found.engines.items())
    checks = [
        Text(check.text if check.state == "ok" else f"{check.state}: {check.text}", check.name.capitalize())
        for check in found.checks
    ]
    blocks = sections(
        head,
        [needed] if found.packages else [],
        [Text("Extras, none of them needed:"), Items(extras, hanging=True)] if extras else [],
        [*checks, *labelled("Engines", beside or f"none of {', '.join(ENGINES)} is installed here")],
        labelled("Missing", *(found.missing or ["nothing that rackplan needs."])),
    )
    data: DoctorPrinted = {
        "version": found.version,
        "source": found.source,
        "python": found.python,
        "executable": found.executable,
        "system": found.system,
        "cores": found.cores,
        "packages": [_package(one) for one in found.packages],
        "extras": [
            {
                "name": name,
                "state": extra_state(some),
                "install": f"pip install {install(name)}",
                "packages": [_package(one) for one in some],
            }
            for name, some in found.extras.items()
        ],
        "engines": dict(found.engines),
        "checks": [picked(one, "name state text remedy") for one in found.checks],
        "variables": dict(found.variables),
        "missing": found.missing,
        "usable": not found.missing,
    }
    return View(blocks, data)


def _package(package: Package) -> PackageData:
    data: PackageData = picked(package, "name asked version extra state reason")
    return data


def _count(number: int, name: str) -> str:
    return f"{number} {name}{'s' * (number != 1)}"


def _extra(packages: Sequence[Package]) -> str:
    """Return the state of an extra and its packages, those that lack with what is asked for."""
    state = extra_state(packages)
    said = [
        f"{one.name} {one.version or one.asked}"
        + f" ({one.state})" * (one.state != "ok" and state != "not installed")
        for one in packages
    ]
    return f"{state}; {', '.join(said)}"
