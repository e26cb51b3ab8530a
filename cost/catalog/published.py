"""What the authors of a model publish about its size."""

from __future__ import annotations

from dataclasses import dataclass


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
    active: str
    total_counts: str
    active_counts: str
    sources: tuple[str, ...]
