"""Spellings of catalog GPUs and systems."""

from __future__ import annotations

import re
from functools import cache
from typing import NoReturn

from topology.base.errors import InputError, printable
from topology.base.names import Names, only
from topology.catalog import cluster_names, entry, fabric_names, gpu_names, other_names

_MAKER = re.compile(r"^\s*(nvidia|amd|huawei|google|aws|intel)[\s/_-]+", re.IGNORECASE)


@cache
def spelled_gpus() -> Names:
    """Return the spellings of GPUs: their names, titles and what else people call them."""
    titles = {entry("gpus", name)["title"]: name for name in gpu_names()}
    return Names("GPU", {**other_names("gpus"), **titles, **{name: name for name in gpu_names()}}, _MAKER)


@cache
def spelled_fabrics() -> Names:
    """Return the spellings of fabrics: their names."""
    return Names("fabric", {name: name for name in fabric_names()}, _MAKER)


@cache
def spelled_clusters() -> Names:
    """Return the spellings of systems: names, titles and others, and those of the GPU that only one has."""
    entries = {name: entry("systems", name) for name in cluster_names()}
    gpus = [row["gpu"] for row in entries.values()]
    homes = {row["gpu"]: name for name, row in entries.items() if gpus.count(row["gpu"]) == 1}
    by_gpu = {text: homes[gpu] for text, gpu in spelled_gpus().spellings.items() if gpu in homes}
    titles = {row["title"]: name for name, row in entries.items()}
    spellings = other_names("systems")
    return Names("cluster", {**by_gpu, **spellings, **titles, **{name: name for name in entries}}, _MAKER)


def find_gpu(text: str) -> str | None:
    """Return the GPU that ``text`` means, None where it means none; refuse what means several."""
    return spelled_gpus().one(text)


def find_system(text: str) -> str | None:
    """Return the system that ``text`` means, None where it means none; refuse what means several."""
    return only("cluster", text, systems_meant(text))


def systems_meant(text: str) -> tuple[str, ...]:
    """Return the systems that ``text`` may mean: the one it spells, else those begun by it or with that GPU."""
    known = spelled_clusters()
    if (name := known.spelled(text)) is not None:
        return (name,)
    gpu = spelled_gpus().spelled(text)
    begun = known.meant(text)
    return tuple(
        name
        for name in cluster_names()
        if name in begun or (gpu is not None and entry("systems", name)["gpu"] == gpu)
    )


def system_called(text: str, hint: str = "") -> str:
    """Return the system that ``text`` means, as the catalog writes it.

    Raises
    ------
    InputError
        If it means none (the nearest are offered, and what may be done besides, ``hint``), or several.
    """
    name = text if text in cluster_names() else find_system(text)
    return name or _unknown(spelled_clusters(), text, hint)


def fabric_called(text: str) -> str:
    """Return the fabric that ``text`` means, as the catalog writes it.

    Raises
    ------
    InputError
        If it means none (the nearest are offered), or several.
    """
    name = text if text in fabric_names() else spelled_fabrics().one(text)
    return name or _unknown(spelled_fabrics(), text)


def _unknown(spelled: Names, text: str, hint: str = "") -> NoReturn:
    raise InputError(f'unknown {spelled.what} "{printable(text)}"; {spelled.near(text)} {hint}'.rstrip())


_SIZES = r"\d{1,7}(?:\s*[x*]\s*\d{1,7})*"
_COUNTED = (
    re.compile(rf"(?P<sizes>{_SIZES})(?:\s*[x*]\s*|\s+)(?P<name>[^\W\d].*)"),
    re.compile(rf"(?P<name>.+?)\s*[x*:]\s*(?P<sizes>{_SIZES})"),
)
"""A number before a name (``8 x H100``) and behind one (``h100x8``, ``h100:8``)."""
_MAX_CHARACTERS = 200
"""Characters of a number and a name, several times those of the longest."""


def counted(text: str) -> tuple[str, tuple[int, ...], bool] | None:
    """Return the system that a text with a number names, the number's factors, and whether it counts GPUs.

    ``8xH100`` and ``H100 x 8`` count GPUs, ``GB200-NVL72 x 4`` and ``2 DGX H100`` systems; None where the text is no
    such thing.

    Raises
    ------
    InputError
        If the name may mean several systems.
    """
    words = text.lower().replace("\u00d7", "x").split()
    plain = " ".join(words[: -1 if words[1:] and words[-1] in {"gpu", "gpus"} else None])
    if len(plain) > _MAX_CHARACTERS:  # the patterns take the square of a length
        return None
    for pattern in _COUNTED:
        match = pattern.fullmatch(plain)
        name = match and find_system(match["name"])
        if match and name:
            sizes = tuple(int(size) for size in re.findall(r"\d+", match["sizes"]))
            return name, sizes, bool(spelled_gpus().meant(match["name"]))
    return None


def taken_as(text: str, name: str) -> bool:
    """Whether ``text`` is an alias of the system ``name``, neither its name nor its title."""
    title = entry("systems", name)["title"]
    return Names("cluster", {title: name, name: name}, _MAKER).spelled(text) is None
