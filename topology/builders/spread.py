"""Whole links spread over switches as evenly as they can be."""

from __future__ import annotations


def spread(links: int, switches: int, turn: int) -> list[int]:
    """Spread ``links`` over ``switches`` as evenly as whole links allow; ``turn`` moves the odd ones round."""
    each, odd = divmod(links, switches)
    return [each + ((number - turn * odd) % switches < odd) for number in range(switches)]
