"""What of the catalog a text means: a cluster, a GPU or a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from cost.resolve import model_called, model_names, spelled_models, without_owner
from topology.base.errors import InputError
from topology.base.names import Names
from topology.base.reading import shown
from topology.catalog import cluster_names, gpu_names
from topology.catalog.spelled import counted, spelled_clusters, spelled_gpus

LISTS = ("clusters", "gpus", "models")
"""Lists of the catalog."""
Kind = Literal["cluster", "gpu", "model"]


def entry_meant(text: str) -> tuple[Kind, str]:
    """Return the kind and the name that ``text`` means; a cluster may be ``name@GPUS`` or a YAML file.

    Raises
    ------
    InputError
        If the catalog has no such entry: the nearest are offered.
    """
    if "@" in text or text.lower().endswith((".yaml", ".yml")):
        return "cluster", text
    kinds: list[tuple[Kind, Names, Sequence[str]]] = [
        ("cluster", spelled_clusters(), cluster_names()),
        ("gpu", spelled_gpus(), gpu_names()),
        ("model", spelled_models(), model_names()),
    ]
    for kind, _, names in kinds:
        if text in names:
            return kind, text
    for kind, spelled, _ in (kinds[1], kinds[0]):
        meant = spelled.one(text)
        if meant is not None:
            return kind, meant
    if counted(text) is not None:
        return "cluster", text
    if spelled_models().meant(without_owner(text)) or spelled_models().meant(text):
        return "model", model_called(text)
    spellings = {near: name for _, names, _ in kinds for near, name in names.spellings.items()}
    near = Names("entry", {**spellings, **{name: name for name in LISTS}}).near(without_owner(text))
    raise InputError(f"{shown(text)} is not in the catalog; {near}")
