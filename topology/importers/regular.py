"""The short form of what is regular: equal domains and a fabric of one kind, and what is broken in it.

The commonest host, domain, leaf and spine of a graph give the cluster as it was meant; its own graph is built and
compared link by link with the one found. What lacks is written as broken. A short form is only given where nothing is
left over, and little lacks: then both are the same graph, but for the names of hosts and switches.
"""

from __future__ import annotations

from dataclasses import replace

from topology.build import check_cluster
from topology.catalog import systems_of
from topology.errors import InputError
from topology.fabrics import check_scale_out
from topology.importers.as_built import compared
from topology.importers.assemble import Assembled
from topology.importers.found import FabricFound
from topology.importers.graph_found import GraphFound
from topology.importers.parts import Parts, missing
from topology.importers.shapes import Shape, as_read, shape_of
from topology.spec import ClusterSpec
from topology.structures import check_domain


def regular_form(
    name: str, assembled: Assembled, parts: Parts, place: str, *, bundles: bool = False
) -> tuple[ClusterSpec, list[str]] | None:
    """Return the short form of a graph and its hosts in order, None where it is not regular.

    With ``bundles`` one link may stand for several, so only rates between switches are compared.
    """
    found = GraphFound.of(assembled.raw, bundles=bundles)
    unit = None if found is None else found.unit(parts)
    if found is None or unit is None:
        return None
    shape: Shape | None = Shape(None, list(found.domains.values()), {})
    if found.leaves:
        shape = None if len(found.domains) == 1 else shape_of(found, unit)
    if shape is None:
        return None
    try:
        check_domain(unit, place)
        if shape.out is not None:
            check_scale_out(shape.out, place)
        spec = check_cluster(ClusterSpec(name, (unit,) * len(shape.hosts), shape.out), place)
        return compared(spec, shape.hosts, found, unit, shape.names, parts)
    except InputError:
        return None


def unswitched(
    name: str, fabric: FabricFound, assembled: Assembled, parts: Parts
) -> tuple[ClusterSpec, list[str]]:
    """Return hosts that no file puts on switches, in the fabric of the system that the user named.

    Raises
    ------
    InputError
        If no system was named: then nothing says how its domains are cabled.
    """
    found = GraphFound.of(assembled.raw)
    unit = None if found is None else found.unit(parts)
    if found is None or unit is None:
        raise InputError(f"{fabric.place}: names no switches, and its hosts differ; add the fabric's file.")
    each = unit.gpus_per_node
    domains = tuple(replace(unit, gpus=each * len(hosts)) for hosts in found.domains.values())
    found_alike = compared(
        ClusterSpec(name, domains, None), list(found.domains.values()), found, unit, {}, parts
    )
    if found_alike is None or found_alike[0].faults:
        raise InputError(f"{fabric.place}: names no switches, and its hosts differ; add the fabric's file.")
    design = parts.design
    if len(domains) == 1:
        design = None
    elif design is None:
        systems = ", ".join(one.part for one in systems_of(parts.gpu.name)) or "of the catalog"
        how = f"the fabric's file too (Slurm tree, ibnetdiscover, ...) or option `gpu` SYSTEM ({systems})"
        raise missing(fabric.place, {"how its domains are cabled to each other": how})
    else:
        nic = parts.nic()
        parts.take(
            f"Fabric between domains: {design.kind}, as catalog system {parts.named_system} is cabled."
        )
        if nic != design.fabric:
            count = parts.nics_per_gpu()
            design = replace(design, fabric=as_read(design.kind, nic), nic_links_per_gpu=count)
        if parts.options.oversubscription is not None:
            ratio = parts.oversubscription()
            design = replace(design, oversubscription=ratio, fabric=as_read(design.kind, nic))
    return check_cluster(ClusterSpec(name, domains, design), fabric.place), found_alike[1]
