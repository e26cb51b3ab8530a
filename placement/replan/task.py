"""Old name of :mod:`placement.migrate.task`."""

from __future__ import annotations

import warnings

from placement.migrate import task

replan_task, ReplanTask = task.migration_task, task.MigrationTask

warnings.warn(
    "placement.replan.task is placement.migrate.task; replan_task is migration_task",
    DeprecationWarning,
    stacklevel=2,
)
