"""Models by name or file: the entry that commands and other packages use."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from cost.config.build import load_object, model_from_config
from cost.model import Model
from topology.errors import InputError
from topology.reading import Fields, load_yaml
from topology.schema import read

_CATALOG = Path(__file__).parent / "catalog" / "models"
_CONFIG_FILE = "config.json"
_QUANT_FILE = "hf_quant_config.json"


@dataclass(frozen=True)
class Published:
    """Published parameter counts, as printed.

    Attributes
    ----------
    total, active:
        As the authors print them (``671B``), rounded as they round; ``active`` is empty for dense models.
    total_counts, active_counts:
        What their figure counts beyond or short of :attr:`cost.model.Model.total_params` and ``active_params``,
        comma-separated: ``with vision tower``, ``with one draft layer``, ``with input embedding``,
        ``without output head``, ``without embedding and head``, ``without sparse index``, ``rounded down``.
    sources:
        Where they print them.
    """

    total: str
    sources: tuple[str, ...]
    active: str = ""
    total_counts: str = ""
    active_counts: str = ""


@cache
def model_names() -> tuple[str, ...]:
    """Return the names of the catalog's models, sorted."""
    return tuple(sorted(path.stem for path in _CATALOG.glob("*.yaml")))


@cache
def _entry(name: str) -> dict[str, Any]:
    """Return the catalog's entry of ``name``, which must exist."""
    where = f"catalog model {name}"
    fields = Fields(load_yaml(_CATALOG / f"{name}.yaml", where), where)
    entry = {key: fields.need(key) for key in ("title", "published", "config")}
    fields.done()
    return entry


def _known(text: str) -> str:
    """Return the catalog name that ``text`` means, or raise with the nearest names."""
    key = text.strip().lower()
    if key in model_names():
        return key
    near = difflib.get_close_matches(key, model_names(), n=3, cutoff=0.4)
    hint = f"; did you mean {', '.join(near)}?" if near else "."
    raise InputError(
        f"model {text!r} is neither in the catalog nor a file{hint} "
        "`rackplan catalog models` lists the names; a path of a config.json works too."
    )


def model_title(name: str) -> str:
    """Return how the model called ``name`` in the catalog is written out."""
    return str(_entry(_known(name))["title"])


def published(name: str) -> Published:
    """Return what the authors publish about the model called ``name`` in the catalog.

    Raises
    ------
    InputError
        If the catalog has no such model.
    """
    known = _known(name)
    facts = Fields(_entry(known)["published"], f"catalog model {known}: published")
    return read(Published, facts)


def _from_catalog(name: str, weights: str | None) -> Model:
    config = {**_entry(name)["config"], "rackplan": {"source": f"catalog {name}"}}
    return model_from_config(config, name=name, weights=weights)


def _from_file(path: Path, weights: str | None) -> Model:
    """Read a ``config.json``, and the quantiser's own file beside it where the config has no such section."""
    config = load_object(path)
    beside = path.with_name(path.name.removesuffix(_CONFIG_FILE) + _QUANT_FILE)
    if not config.get("quantization_config") and beside.is_file():
        config["quantization_config"] = {"quant_method": "modelopt", **load_object(beside)}
    config["rackplan"] = {"source": str(path)}
    name = path.parent.name if path.stem == "config" and path.parent.name else path.stem
    return model_from_config(config, name=name, weights=weights)


def resolve_model(text: str, *, weights: str | None = None) -> Model:
    """Return the model that ``text`` means: a catalog name, or the path of a Hugging Face ``config.json``.

    Parameters
    ----------
    text:
        For example ``deepseek-v3`` or ``models/config.json``. A name goes before a file of the same name.
    weights:
        Precision of experts, shared, attention and dense weights, in place of the checkpoint's own.

    Raises
    ------
    InputError
        If there is no such name or file, or the config cannot be read exactly.
    """
    key, path = text.strip().lower(), Path(text)
    if key and key not in model_names() and (path.suffix == ".json" or path.exists() or "/" in text):
        return _from_file(path, weights)
    return _from_catalog(_known(text), weights)
