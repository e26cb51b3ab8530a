"""Old name of :mod:`placement.migrate.migration`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

from placement.migrate.migration import KNEE, Migration, migrate
from placement.migrate.task import MigrationTask
from placement.stop import Stop

__all__ = ["KNEE", "FewMoves", "few_moves"]

FewMoves = Migration

warnings.warn(
    "placement.replan.few_moves is placement.migrate.migration; few_moves is migrate, FewMoves is Migration",
    DeprecationWarning,
    stacklevel=2,
)


def few_moves(
    tasks: Sequence[MigrationTask],
    *,
    max_moves: int | None = None,
    only_restore: bool = False,
    time_limit_s: float = 0.0,
    seed: int = 0,
    on_progress: Callable[..., None] | None = None,
) -> Migration:
    """Call :func:`placement.migrate.migration.migrate`."""
    stop = Stop(time_limit_s, on_progress)
    return migrate(tasks, max_moves=max_moves, only_restore=only_restore, stop=stop, seed=seed)
