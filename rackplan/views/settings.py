"""What a user set of a cluster: said wherever figures rest on it."""

from __future__ import annotations

from typing import Any

from rackplan.report.notes import set_words as set_words  # noqa: PLC0414 - until these modules are gone
from rackplan.views.blocks import Block, labelled
from rackplan.views.data import figure_data
from topology.changes.overrides import figures_set
from topology.cluster import Cluster


def set_blocks(label: str, *clusters: Cluster) -> list[Block]:
    """Return what was set as a paragraph; nothing where nothing was."""
    return labelled(label, set_words(*clusters))


def set_data(cluster: Cluster) -> Any:
    """Return what was set under the key ``set``, as :class:`rackplan.views.data.SetData` has it; else nothing."""
    found = [figure_data(figure, part=part, figure=name) for part, name, figure in figures_set(cluster.spec)]
    return {"set": found} if found else {}
