"""How people write the GPUs and systems of the catalog."""

from __future__ import annotations

import re
from functools import cache

from topology.catalog import cluster_names, fabric_names, gpu_names, gpu_title, system_entry
from topology.errors import InputError
from topology.names import Names
from topology.reading import nearest

_MAKER = re.compile(r"^\s*(nvidia|amd|huawei|google|aws)[\s/_-]+", re.IGNORECASE)


@cache
def spelled_gpus() -> Names:
    """Return the spellings of GPUs: their names and titles."""
    titles = {gpu_title(name): name for name in gpu_names()}
    return Names("GPU", {**titles, **{name: name for name in gpu_names()}}, _MAKER)


@cache
def spelled_fabrics() -> Names:
    """Return the spellings of fabrics: their names."""
    return Names("fabric", {name: name for name in fabric_names()}, _MAKER)


@cache
def spelled_clusters() -> Names:
    """Return the spellings of systems: names and titles, and those of the GPU that only one system has."""
    entries = {name: system_entry(name) for name in cluster_names()}
    gpus = [entry.text("gpu") for entry in entries.values()]
    homes = {entry.text("gpu"): name for name, entry in entries.items() if gpus.count(entry.text("gpu")) == 1}
    by_gpu = {text: homes[gpu] for text, gpu in spelled_gpus().spellings.items() if gpu in homes}
    titles = {entry.text("title"): name for name, entry in entries.items()}
    return Names("cluster", {**by_gpu, **titles, **{name: name for name in entries}}, _MAKER)


def find_gpu(text: str) -> str | None:
    """Return the GPU that ``text`` means, None where it means none; refuse what means several."""
    return spelled_gpus().one(text)


def find_system(text: str) -> str | None:
    """Return the system that ``text`` means, None where it means none; refuse what means several."""
    return spelled_clusters().one(text)


def system_called(text: str, more: str = "") -> str:
    """Return the system that ``text`` means, as the catalog writes it.

    Raises
    ------
    InputError
        If it means none (the nearest are offered, and what may be done besides, ``more``), or several.
    """
    return _called(spelled_clusters(), text, cluster_names(), more)


def fabric_called(text: str) -> str:
    """Return the fabric that ``text`` means, as the catalog writes it.

    Raises
    ------
    InputError
        If it means none (the nearest are offered), or several.
    """
    return _called(spelled_fabrics(), text, fabric_names())


def _called(spelled: Names, text: str, names: tuple[str, ...], more: str = "") -> str:
    name = text if text in names else spelled.one(text)
    if name is None:
        near = spelled.near(text) or nearest(text, names)
        raise InputError(" ".join(filter(None, [f'unknown {spelled.what} "{text}"; {near}', more])))
    return name
