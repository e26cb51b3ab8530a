"""What a user set of a cluster: said wherever figures rest on it."""

from __future__ import annotations

from typing import Any

from rackplan.views.blocks import Block, labelled
from rackplan.views.data import figure_data
from topology.base.figures import Figure
from topology.base.units import format_quantity
from topology.changes.overrides import SET_BY_USER, figures_set
from topology.cluster import Cluster


def set_words(*clusters: Cluster) -> str:
    """Return what was set, with what it was before; empty where nothing was."""
    said = (
        f"{part} {name} {figure.text} ({', '.join(filter(None, _notes(cluster, part, name, figure)))})"
        for cluster in clusters
        for part, name, figure in figures_set(cluster.spec)
    )
    return "; ".join(dict.fromkeys(said))


def _notes(cluster: Cluster, part: str, name: str, figure: Figure) -> tuple[str, str]:
    """Return what a figure was before, and of a link how many a GPU has."""
    before = figure.source.removeprefix(SET_BY_USER).lstrip(": ") or "previously unset"
    if name != "link_bytes_per_s" or cluster.spec.raw is not None:
        return before, ""
    links = next(
        (
            count
            for domain in cluster.spec.domains
            for count, fabric in domain.scale_up_links
            if fabric.name == part and count > 1
        ),
        1,
    )
    total = format_quantity(links * figure.value, figure.unit)
    return before, f"each of a GPU's {links} links: {total} in total" if links > 1 else ""


def set_blocks(label: str, *clusters: Cluster) -> list[Block]:
    """Return what was set as a paragraph; nothing where nothing was."""
    return labelled(label, set_words(*clusters))


def set_data(cluster: Cluster) -> Any:
    """Return what was set under the key ``set``, as :class:`rackplan.views.data.SetData` has it; else nothing."""
    found = [figure_data(figure, part=part, figure=name) for part, name, figure in figures_set(cluster.spec)]
    return {"set": found} if found else {}
