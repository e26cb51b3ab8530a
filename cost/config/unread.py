"""What to do with keys that no adapter read: harmless, unknown, or a part that is not modelled."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from cost.config.facts import Facts, shown
from topology.errors import InputError

_LIST = Path(__file__).with_name("harmless.txt")
_HARMLESS_FORMS = re.compile(
    r".*(_ids?|_token_index|_token|_dropout|_pdrop|_dropout_prob|_coef|_implementation|_init|_loss_weight)$"
    r"|dropout.*|(init|initializer|mup|unsloth|summary|tokenizer|generation|yarn|training|transformers)_.*|_.*"
)
# Words in a key that mean weights, caches or what a token is multiplied with.
_STRUCTURE = re.compile(
    r"expert|moe|lora|adapter|mamba|ssm|state|conv|index|linear|layer|block|pattern|window|chunk|head|hidden|size"
    r"|inter|ffn|mlp|d_model|n_embd|dim|bias|qk_|altup|laurel|cross|parallel|kv|shared|gate|router|sink|hash|engram"
    r"|compress|hc_|hyper|group|memory|recurren|sparse|depth|width|vision|audio|image|video|encoder|decoder|rank|ratio"
    r"|topk|top_k|num_|n_|tower|projector|attn|attention|norm|embed|rate|alpha|interval|freq|mtp|draft|medusa|ple"
)

_LEAST_TWIN = 64  # a small number may be equal by chance


@cache
def _harmless() -> frozenset[str]:
    """Return the harmless keys that are known by name."""
    lines = _LIST.read_text(encoding="utf-8").splitlines()
    return frozenset(" ".join(line for line in lines if not line.startswith("#")).split())


def is_harmless(key: str) -> bool:
    """Whether no count depends on ``key``."""
    return key in _harmless() or _HARMLESS_FORMS.fullmatch(key) is not None


def _inactive(value: object) -> bool:
    """Whether the value switches nothing on: null, false, 0, empty."""
    if isinstance(value, (Mapping, list, str)):
        return not value
    return value is None or (isinstance(value, (bool, int, float)) and value == 0)


def _twin(facts: Facts, key: str) -> str | None:
    """Return a read key that ``key`` repeats: one name holds the other, and both the same large number."""
    value = facts.config[key]
    if isinstance(value, bool) or not isinstance(value, int) or value < _LEAST_TWIN:
        return None
    for other in sorted(facts.used):
        if facts.config.get(other) == value and (other in key or key in other):
            return other
    return None


def check_unread(facts: Facts, family: str) -> tuple[str, ...]:
    """Return notes on unread keys that look harmless but are not known.

    Raises
    ------
    InputError
        If an unread key would change the architecture: then the counts would be wrong.
    """
    notes = []
    for key, value in facts.config.items():
        if key in facts.used or _inactive(value) or is_harmless(key):
            continue
        twin = _twin(facts, key)
        if twin:
            notes.append(f"{key}={shown(value)} was taken as another name of {twin}, which says the same")
            continue
        if _STRUCTURE.search(key.lower()):
            raise InputError(
                f"{facts.where}: {key} is {shown(value)}, and a {family} model is not known to have it; "
                "the part it describes is not modelled. Remove the key if it has no effect."
            )
        notes.append(f"{key}={shown(value)} is not known and was taken to have no effect")
    return tuple(notes)
