"""How many earlier tokens a query sees: over a cache, and on average over a prompt."""

from __future__ import annotations

__all__ = ["mean_prompt_span", "span"]


def span(context: float, window: int | None) -> float:
    """Return the cached tokens that one decoded token attends to; ``window`` caps ``context``."""
    return context if window is None else min(context, float(window))


def mean_prompt_span(context: float, window: int | None) -> float:
    """Tokens attended to, averaged over the tokens of a prompt of ``context`` tokens (causal: half of it).

    With a window ``w < context`` the first ``w`` tokens see ``w / 2`` on average and the rest see ``w``.
    """
    if window is None or context <= window:
        return context / 2
    return window - window * window / (2 * context)
