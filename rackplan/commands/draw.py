"""``rackplan draw``: the topology as a picture, or as a graph for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rackplan.commands.options import JsonFlag

if TYPE_CHECKING:
    from topology.cluster import Cluster
    from topology.draw import Overlay, TrafficOverlay


NAME = "draw"

_BYTES_PER_GPU = 1e9  # shares of the time do not depend on it; the caption says it


def run(
    cluster: Annotated[str, typer.Argument(metavar="C", help="Catalog name, name@GPUS or a YAML file.")],
    output: Annotated[
        Path,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help=".svg, .png, .pdf or .dot; the graph as .graphml, .json or .yaml.",
        ),
    ],
    plan: Annotated[
        Path | None, typer.Option("--plan", metavar="PLAN", help="Show stages, experts and load of a plan.")
    ] = None,
    traffic: Annotated[
        str | None,
        typer.Option(
            "--traffic",
            metavar="PATTERN",
            help="Show how busy links are: all-to-all, ring, incast, permutation, random or FILE.npy.",
        ),
    ] = None,
    level: Annotated[
        str, typer.Option("--level", help="auto, fabric, domain, gpu, or one domain, like d3.")
    ] = "auto",
    json: JsonFlag = False,
) -> None:
    """Draw a cluster: tiers, domains, GPUs and their links."""
    from rackplan.output import print_json, print_text
    from topology.draw import draw_cluster
    from topology.errors import InputError
    from topology.resolve import resolve_cluster

    if plan is not None and traffic is not None:
        raise InputError("--plan and --traffic: colour can mean one of them in a picture; draw two pictures.")
    target = resolve_cluster(cluster)
    if _is_graph_file(output):
        if plan is not None or traffic is not None or level != "auto":
            raise InputError(
                f"{output}: a graph file holds the links alone; leave --plan, --traffic and --level out."
            )
        from topology.exporters import write_topology

        write_topology(target, output)
    else:
        overlay = None
        if plan is not None:
            target, overlay = _planned(plan, cluster, target)
        shown = None if traffic is None else _traffic_overlay(traffic, target)
        draw_cluster(target, output, level=level, overlay=overlay, traffic=shown)
    if json:
        print_json({"cluster": target.name, "gpus": len(target.gpus), "file": str(output)})
    else:
        print_text(f"{output}: {target.name}, {len(target.gpus):,} GPUs")


def _is_graph_file(output: Path) -> bool:
    """Whether the file's ending asks for the graph instead of a picture."""
    from topology.exporters import EXPORT_SUFFIXES

    return output.suffix.lower() in EXPORT_SUFFIXES


def _planned(plan: Path, name: str, target: Cluster) -> tuple[Cluster, Overlay]:
    """Return the cluster to draw, as the plan knows it if GPUs were lost, and what the plan adds to the picture."""
    from placement.plan_file import read_plan
    from rackplan.overlay import plan_overlay
    from topology.errors import InputError

    planned = read_plan(plan)
    cluster = planned.deployment.cluster
    if _gpu_ids(cluster) != _gpu_ids(target):
        if not cluster.spec.faults or _gpu_ids(_whole(cluster)) != _gpu_ids(_whole(target)):
            raise InputError(f"--plan {plan}: it is for {cluster.name}, whose GPUs differ from {name}.")
        target = cluster
    return target, plan_overlay(planned)


def _gpu_ids(cluster: Cluster) -> list[str]:
    return [gpu.id for gpu in cluster.gpus]


def _whole(cluster: Cluster) -> Cluster:
    """Return the cluster with nothing broken."""
    from dataclasses import replace

    from topology import build_cluster

    return build_cluster(replace(cluster.spec, faults=()))


def _traffic_overlay(pattern: str, target: Cluster) -> TrafficOverlay:
    """Return the loads of a named pattern, or of a file of bytes."""
    from topology.draw import TrafficOverlay
    from topology.routes import link_loads, pattern_traffic, read_traffic
    from topology.units import format_quantity

    gpus = len(target.gpus)
    if pattern.lower().endswith(".npy"):
        return TrafficOverlay(link_loads(target, read_traffic(Path(pattern), gpus)), Path(pattern).name)
    loads = link_loads(target, pattern_traffic(pattern, gpus, _BYTES_PER_GPU))
    return TrafficOverlay(loads, f"{pattern}, {format_quantity(_BYTES_PER_GPU, 'byte')} from each GPU")
