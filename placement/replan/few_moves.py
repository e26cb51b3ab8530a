"""Old name of :mod:`placement.migrate.migration`."""

from __future__ import annotations

import warnings

from placement.migrate import migration

few_moves, FewMoves, KNEE = migration.migrate, migration.Migration, migration.KNEE

warnings.warn(
    "placement.replan.few_moves is placement.migrate.migration; few_moves is migrate, FewMoves is Migration",
    DeprecationWarning,
    stacklevel=2,
)
