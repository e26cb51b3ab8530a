"""What ``rackplan doctor`` prints."""

from __future__ import annotations

from typing_extensions import TypedDict


class PackageData(TypedDict):
    """A package.

    Attributes
    ----------
    name, asked, version:
        Which versions rackplan asks for (empty: any), and which is there; null: none.
    extra:
        The extra that it is part of; empty: always needed.
    state, reason:
        ``ok``, ``missing``, ``out of range``, ``broken`` or ``not checked``, and why.
    """

    name: str
    asked: str
    version: str | None
    extra: str
    state: str
    reason: str


class ExtraData(TypedDict):
    """An extra.

    Attributes
    ----------
    name, install:
        What it is called, and the command that adds it.
    state:
        The worst of its packages; ``not installed`` where all are missing.
    packages:
        A row for each.
    """

    name: str
    state: str
    install: str
    packages: list[PackageData]


class InstallationCheckData(TypedDict):
    """A part that was tried.

    Attributes
    ----------
    name, state:
        Which one; ``ok``, ``broken`` or ``not checked``.
    text:
        What it did, or why not.
    remedy:
        What to do where it is broken, else empty.
    """

    name: str
    state: str
    text: str
    remedy: str


class DoctorPrinted(TypedDict):
    """What ``rackplan doctor`` finds of an installation.

    Attributes
    ----------
    version, source:
        Of rackplan, and the folder that its code is read from.
    python, executable, system:
        Of Python and of the machine.
    cores:
        That this process may use.
    packages, extras:
        What is always needed, and what each extra needs.
    engines:
        Versions of engines that are installed beside it.
    checks:
        Parts that were tried.
    variables:
        Of the environment, that change what rackplan does or shows.
    missing:
        What is missing or broken of what is always needed, each with what to do.
    usable:
        Whether nothing is: the exit code is 0, else 1.
    """

    version: str
    source: str
    python: str
    executable: str
    system: str
    cores: int
    packages: list[PackageData]
    extras: list[ExtraData]
    engines: dict[str, str]
    checks: list[InstallationCheckData]
    variables: dict[str, str]
    missing: list[str]
    usable: bool
