"""``rackplan draw``: the topology as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rackplan.commands.options import JsonFlag

__all__ = ["NAME", "run"]

NAME = "draw"


def run(
    cluster: Annotated[str, typer.Argument(metavar="C", help="Catalog name, name@GPUS or a YAML file.")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help=".svg, .png, .pdf or .dot.")],
    plan: Annotated[
        Path | None, typer.Option("--plan", metavar="PLAN", help="Colour GPUs by their load.")
    ] = None,
    level: Annotated[str, typer.Option("--level", help="auto, fabric, domain or gpu.")] = "auto",
    json: JsonFlag = False,
) -> None:
    """Draw a cluster: tiers, domains, GPUs and their links."""
    from rackplan.output import print_json, print_text
    from topology.draw import draw_cluster
    from topology.errors import InputError
    from topology.resolve import resolve_cluster

    target = resolve_cluster(cluster)
    overlay = None
    if plan is not None:
        from placement.plan_file import read_plan
        from rackplan.overlay import plan_overlay

        planned = read_plan(plan)
        if [gpu.id for gpu in planned.setting.cluster.gpus] != [gpu.id for gpu in target.gpus]:
            raise InputError(
                f"--plan {plan}: it is for {planned.setting.cluster.name}, whose GPUs differ from {cluster}."
            )
        overlay = plan_overlay(planned)
    draw_cluster(target, output, level=level, overlay=overlay)
    if json:
        print_json({"cluster": target.name, "gpus": len(target.gpus), "file": str(output)})
    else:
        print_text(f"{output}: {target.name}, {len(target.gpus):,} GPUs")
