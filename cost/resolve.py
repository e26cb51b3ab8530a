"""Models by name or file: the entry that commands and other packages use."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from cost.config.build import load_object, model_from_config
from cost.config.positions import MAX_CONTEXT
from cost.config.quantization import MATMUL_CLASSES
from cost.dtypes import format_called
from cost.model import Model
from topology.base.errors import InputError, input_name
from topology.base.names import Names, plain_words
from topology.base.reading import load_yaml, shown
from topology.base.schema import Spec, Text, checked, keyword_spec, spec, validated
from topology.base.values import plain, require_whole

_CATALOG = Path(__file__).parent / "catalog" / "models"
_CONFIG_FILE = "config.json"
_HUB = re.compile(r"^(https?://)?(www\.)?(huggingface\.co|hf\.co)/", re.IGNORECASE)
"""What stands before an id in the address of its page."""
_QUANT_FILE = "hf_quant_config.json"

# Precisions at the end of a model's name tell the weights; the rest only what the weights were tuned for.
_PRECISION = re.compile(r"-(nvfp4|mxfp4|mxfp8|fp4|fp8|bf16|awq|gptq|int4|int8|w4a16|w8a8)(-dynamic|-v\d+)?$")
_TUNED = re.compile(
    r"-(mtp|instruct|chat|base|hf|it|thinking|exp|terminus|block|preview|v0\.\d|\d{4}|\d+(\.\d+)?t|\d+e)$"
)


@spec
class Published(Spec):
    """Published parameter counts, as printed.

    Attributes
    ----------
    total, active:
        As the authors print them (``671B``), rounded as they round; ``active`` is empty for dense models.
    total_counts, active_counts:
        What their figure counts beyond or short of :attr:`cost.model.Model.total_params` and ``active_params``,
        comma-separated: ``with vision tower``, ``with one draft layer``, ``with input embedding``,
        ``without output head``, ``without embedding and head``, ``without sparse index``,
        ``with an index in every layer``, ``rounded down``.
    sources:
        Where they print them.
    """

    total: str
    sources: tuple[str, ...]
    active: str = ""
    total_counts: str = ""
    active_counts: str = ""


@keyword_spec
class HubModel(Spec):
    """What is published of a Hugging Face id.

    Attributes
    ----------
    positions:
        Tokens of the longest sequence that it was made for; None where nothing that could be read says it.
    quantization:
        Its ``quantization_config`` where that is not the entry's.
    source:
        Where they were read; empty without them.
    """

    positions: Annotated[int | None, checked(require_whole, 1, MAX_CONTEXT)] = None
    source: Text = ""
    quantization: dict[str, Any] | None = None

    def check(self) -> None:
        """Reject positions without a source, and a source of nothing."""
        if bool(self.source) != (self.positions is not None) or (self.quantization and not self.source):
            raise InputError("needs the keys `positions` and `source`, or neither.")


@keyword_spec
class _Entry(Spec):
    """An entry of the catalog; ``huggingface`` are the ids that have its layers, the first the one it stands for."""

    title: Text
    published: Published
    config: dict[str, Any]
    huggingface: dict[str, HubModel] = field(default_factory=dict)


@cache
def model_names() -> tuple[str, ...]:
    """Return the names of the catalog's models, sorted."""
    return tuple(sorted(path.stem for path in _CATALOG.glob("*.yaml")))


@cache
def _entry(name: str) -> _Entry:
    """Return the catalog's entry of ``name``, which must exist."""
    where = f"catalog model {name}"
    return validated(_Entry, load_yaml(_CATALOG / f"{name}.yaml", where), where)


def hugging_face_ids(name: str) -> Mapping[str, HubModel]:
    """Return the Hugging Face ids of the model called ``name`` in the catalog, and what is published of each.

    All have the layers of the entry; the first is the one that its name stands for.
    """
    return _entry(model_called(name)).huggingface


@cache
def spelled_models() -> Names:
    """Return how people may write the models: names, titles, and Hugging Face ids, without owner and BF16 too."""
    spellings: dict[str, str] = {}
    for name in model_names():
        entry = _entry(name)
        for text in (name, entry.title, *entry.huggingface):
            spellings[text] = name
            spellings.setdefault(without_owner(text), name)
            spellings.setdefault(without_owner(text).removesuffix("-bf16"), name)
    return Names("model", {**spellings, **{name: name for name in model_names()}})


def model_called(text: str) -> str:
    """Return the model that ``text`` means, as the catalog writes it.

    Raises
    ------
    InputError
        If it means none (the nearest are offered), or several.
    """
    text = _HUB.sub("", text.strip())
    key = text.lower()
    if key in model_names():
        return key
    known = spelled_models()
    name = known.spelled(text) or known.one(without_owner(text))
    if name is not None and not _of_another_owner(text, name):
        return name
    raise InputError(
        f"model {text!r} is not in the catalog{_hint(text)}",
        hint="There is no such file either; `rackplan catalog models` lists names, or give a config.json.",
    )


def checkpoint_called(text: str) -> tuple[str, str]:
    """Return the model that ``text`` means, and the format of the weights at the end of its name ("" for none).

    ``nvidia/DeepSeek-R1-NVFP4`` is ``deepseek-r1`` with weights in ``nvfp4``, of whichever owner.

    Raises
    ------
    InputError
        If it means none, or several.
    """
    words, weights = without_owner(text), ""
    try:
        return model_called(text), ""
    except InputError:
        name = None  # even where the words alone are known: as of the owner who quantised it so
        while name is None:
            shorter, written = _shortened(words)
            if shorter == words:
                raise
            words, weights = shorter, written or weights
            name = spelled_models().spelled(words)
    return name, weights


def _shortened(name: str) -> tuple[str, str]:
    """Return ``name`` (plain words) without its last remark, and the format that this named; "" where it names none.

    ``deepseek-r1-nvfp4`` is ``deepseek-r1`` in ``nvfp4``, ``kimi-k2-instruct`` is ``kimi-k2``. A name that ends in no
    remark comes back as it is.
    """
    precision = _PRECISION.search(name)
    if precision:
        return name[: precision.start()], format_called(precision.group(1)) or ""
    return _TUNED.sub("", name), ""


def without_owner(text: str) -> str:
    """Return the plain words of ``owner/model`` after the owner; a second model (``deepseek-v3/r1``) is none."""
    name = plain_words(text)
    _, slash, words = name.partition("/")
    return words if slash and not re.fullmatch(r"[vr]\d+", words) else name


def _of_another_owner(text: str, name: str) -> bool:
    """Whether ``text`` is an id whose owner is not the one that the catalog knows to have quantised it so."""
    quantised = [
        hub_id for hub_id, entry in _entry(name).huggingface.items() if entry.quantization is not None
    ]
    alike = [hub_id for hub_id in quantised if without_owner(hub_id) == without_owner(text)]
    return "/" in text and bool(alike) and plain_words(text) not in map(plain_words, alike)


def checkpoint_of(model: Model) -> str:
    """Return what an engine loads for a model: an id of the catalog with its weights in that format, or a path.

    Empty where nothing is known to hold it: weights in a format of one's own, or a config under another name than
    ``config.json``.
    """
    if model.name in model_names():
        default = _entry(model.name).config.get("quantization_config")
        quantization = model.config.get("quantization_config")
        ids = hugging_face_ids(model.name).items()
        fit = (hub_id for hub_id, entry in ids if (entry.quantization or default) == quantization)
        return next(fit, "") if model.weights_override is None else ""
    section: Any = model.config.get("rackplan")
    source = Path(str(section.get("source"))) if isinstance(section, Mapping) else Path()
    return str(source.parent) if source.name == _CONFIG_FILE and model.weights_override is None else ""


def _hint(text: str) -> str:
    """Return what may have been meant: the same model in another format, or the nearest names."""
    known, words = spelled_models(), without_owner(text)
    shorter, weights = _shortened(words)
    name = known.spelled(shorter) if weights else None
    if name is not None:
        flags = f"{input_name('model')} {name} {input_name('weights')} {_by_class(name, weights)}"
        return f"; for its {name} with weights in {weights} give {flags}."
    while (
        not weights and shorter != words
    ):  # the name of a sister that the catalog lacks, but for its last words
        if known.spelled(shorter) is not None:
            return f"; did you mean {known.spelled(shorter)}?"
        words, (shorter, weights) = shorter, _shortened(shorter)
    return f"; {known.near(words)}"


def _by_class(name: str, weights: str) -> str:
    """Return ``weights`` for the classes that the model's own checkpoint quantises, where those are not all."""
    precision = _from_catalog(name, None).precision
    quantised = [
        matmul_class
        for matmul_class in MATMUL_CLASSES
        if matmul_class in precision and precision[matmul_class] != precision["embedding"]
    ]
    if not quantised or len(quantised) == len(
        [matmul_class for matmul_class in MATMUL_CLASSES if matmul_class in precision]
    ):
        return weights
    return ",".join(f"{matmul_class}={weights}" for matmul_class in quantised)


def model_title(name: str) -> str:
    """Return how the model called ``name`` in the catalog is written out."""
    return _entry(model_called(name)).title


def published(name: str) -> Published:
    """Return what the authors publish about the model called ``name`` in the catalog.

    Raises
    ------
    InputError
        If the catalog has no such model.
    """
    return _entry(model_called(name)).published


@cache
def _from_catalog(text: str, weights: str | None) -> Model:
    """Return a model of the catalog; of an id that it lists, with the limit published of that id."""
    name = model_called(text)
    ids = hugging_face_ids(name)
    typed = without_owner(_HUB.sub("", text.strip()))
    default = next(iter(ids.values()), HubModel())
    which = next((entry for hub_id, entry in ids.items() if without_owner(hub_id) == typed), default)
    section: dict[str, object] = {"source": f"catalog {name}"}
    if which.positions is not None:
        section |= {"most_context": which.positions, "most_context_source": which.source}
    config = {**_entry(name).config, "rackplan": section}
    if which.quantization is not None:
        config["quantization_config"] = which.quantization
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


def resolve_model(model: str | Path | Mapping[str, object] | Model, *, weights: str | None = None) -> Model:
    """Return the model that is meant: a name of the catalog, or a Hugging Face ``config.json``.

    Parameters
    ----------
    model:
        For example ``deepseek-v3``, ``deepseek-ai/DeepSeek-V3``, ``Qwen3-235B``, ``models/config.json`` or the folder
        of one; or the content of a config. A model is returned as it is. A catalog name goes before a file of the
        same name, a file before any other spelling.
    weights:
        Precision of experts, shared, attention and dense weights, in place of the checkpoint's own.

    Raises
    ------
    InputError
        If there is no such name or file, the name may mean several, the config cannot be read exactly, or it is
        none of these.
    """
    if not isinstance(weights, str | None):
        raise InputError("expected the name of a format.", field="weights", value=shown(weights))
    if isinstance(model, Model):
        same = weights in (None, model.weights_override)
        return model if same else model_from_config(model.config, name=model.name, weights=weights)
    if isinstance(model, Mapping):
        name = str(model.get("_name_or_path") or "model")
        return model_from_config(plain(dict(model)), name=name, weights=weights)
    if not isinstance(model, str | Path):
        raise InputError(
            "expected a name, a config.json, the content of one, or a Model.",
            field="model",
            value=shown(model),
        )
    text = str(model)
    key, path = text.strip().lower(), Path(text)
    if not key or key in model_names():
        return _from_catalog(text, weights)
    if path.suffix == ".json" or _is_there(path):
        config = path / _CONFIG_FILE
        return _from_file(config if path.is_dir() and config.is_file() else path, weights)
    return _from_catalog(text, weights)


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # longer than a name may be, or with a NUL
        return False
