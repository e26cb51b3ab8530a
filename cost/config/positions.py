"""How long a sequence a config says that its model was made for."""

from __future__ import annotations

import math
from collections.abc import Mapping

MAX_CONTEXT = 1 << 30
"""No published model states as many positions; more is a placeholder (``1e30``), not a limit."""

_STATED = ("max_position_embeddings", "n_positions", "max_seq_len")
"""Keys of published configs that state it; ``max_length`` is of generation."""

_STATE_THE_PRODUCT = frozenset({"", "default", "llama3", "longrope", "su", "proportional"})
"""Ways to scale positions whose configs state the length after it, as vLLM's engine reads them."""


def most_positions(
    recorded: Mapping[str, object], config: Mapping[str, object], source: str
) -> tuple[int | None, str]:
    """Return the tokens of the longest sequence and where that was read; None and "" where nothing states it.

    Parameters
    ----------
    recorded:
        What was found before: ``most_context`` and ``most_context_source``.
    config:
        The language model's part of a ``config.json``.
    source:
        Where that is from.
    """
    known = _whole(recorded.get("most_context"))
    if known is not None:
        return known, str(recorded.get("most_context_source", source))
    key = next((key for key in _STATED if _whole(config.get(key)) is not None), None)
    stated = None if key is None else _whole(config[key])
    if key is None or stated is None:
        return None, ""
    scaled = _scaled(stated, config)
    return scaled, f"{source}: {key}" + (" with its positions scaled" if scaled != stated else "")


def _scaled(stated: int, config: Mapping[str, object]) -> int:
    """Return the length after scaling: YaRN's from where it starts, though no less than is stated."""
    scaling = config.get("rope_scaling") or config.get("rope_parameters")
    if not isinstance(scaling, Mapping):
        return stated
    kind, factor = scaling.get("rope_type", scaling.get("type", "")), scaling.get("factor")
    if (
        not isinstance(kind, str)
        or kind in _STATE_THE_PRODUCT
        or isinstance(factor, bool)
        or not isinstance(factor, int | float)
    ):
        return stated
    if not math.isfinite(factor) or factor < 1:
        return stated
    start = _whole(scaling.get("original_max_position_embeddings")) if kind == "yarn" else stated
    product = (start or stated) * factor
    return max(stated, int(product)) if product <= MAX_CONTEXT else stated


def _whole(value: object) -> int | None:
    """Return a number of tokens, None where the value is none that could be meant."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= MAX_CONTEXT:
        return None
    return int(value) if value == int(value) else None
