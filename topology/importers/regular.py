"""The short form of what is regular: domains of the catalog and a fabric of one kind, instead of every link."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from topology.importers.assemble import Assembled
    from topology.importers.found import FabricFound, NodeFound
    from topology.importers.parts import Parts
    from topology.spec import ClusterSpec

__all__ = ["regular_spec"]


def regular_spec(
    name: str,
    fabric: FabricFound,
    nodes: Mapping[str, NodeFound | None],
    assembled: Assembled,
    parts: Parts,
    *,
    regular: bool,
) -> ClusterSpec | None:
    """Return the short form, None where the fabric has none."""
    return None
