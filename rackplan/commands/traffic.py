"""``rackplan traffic``: bytes on every link for a pattern of traffic, the bottleneck and the time it takes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rackplan.commands.options import JsonFlag

if TYPE_CHECKING:
    from topology.routes import Traffic


NAME = "traffic"
DEFAULT_BYTES = "1 GB"


def run(
    cluster: Annotated[str, typer.Argument(metavar="C", help="Catalog name, name@GPUS or a YAML file.")],
    pattern: Annotated[
        str,
        typer.Option(
            "--pattern",
            metavar="PATTERN",
            help="all-to-all, ring, incast, permutation, random, or a .npy of [gpus, gpus] bytes.",
        ),
    ] = "all-to-all",
    bytes_per_gpu: Annotated[
        str | None,
        typer.Option(
            "--bytes-per-gpu", metavar="N", help=f'Bytes each GPU sends in all, or "64 MB". [{DEFAULT_BYTES}]'
        ),
    ] = None,
    gpus: Annotated[
        str | None, typer.Option("--gpus", metavar="A-B", help="Only GPUs A to B, counted from 0. [all]")
    ] = None,
    rail_local_forward: Annotated[
        bool | None,
        typer.Option(
            "--rail-local-forward/--no-rail-local-forward",
            help="Change rails over the scale-up fabric, not over the spine. [on rail fabrics]",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the random pattern.")] = 0,
    json: JsonFlag = False,
) -> None:
    """Route traffic between GPUs over the links. Completion time, bottleneck, tiers and the hottest links."""
    from rackplan.output import print_json, print_text
    from rackplan.traffic_summary import traffic_data, traffic_summary
    from topology.resolve import resolve_cluster
    from topology.routes import Router

    target = resolve_cluster(cluster)
    traffic = traffic_from_options(pattern, bytes_per_gpu, gpus, len(target.gpus), seed)
    loads = Router(target, rail_local_forward=rail_local_forward).loads(traffic)
    if json:
        print_json(traffic_data(target, traffic, loads))
    else:
        print_text(traffic_summary(target, traffic, loads))


def traffic_from_options(
    pattern: str, bytes_per_gpu: str | None, gpus: str | None, count: int, seed: int = 0
) -> Traffic:
    """Return the traffic that the options ask for, on a cluster of ``count`` GPUs.

    Raises
    ------
    InputError
        If they cannot be used.
    """
    from topology.errors import InputError
    from topology.routes import pattern_traffic, read_traffic

    members = None if gpus is None else _range(gpus, count)
    if pattern.lower().endswith(".npy"):
        if bytes_per_gpu is not None:
            raise InputError(
                f"--bytes-per-gpu {bytes_per_gpu}: {pattern} has the bytes already; leave it out."
            )
        return read_traffic(Path(pattern), count, members)
    amount = _bytes(DEFAULT_BYTES if bytes_per_gpu is None else bytes_per_gpu)
    return pattern_traffic(pattern, count, amount, members, seed)


def _bytes(text: str) -> float:
    """Parse ``1e9`` or ``64 MB``."""
    import math

    from topology.errors import InputError
    from topology.units import parse_quantity

    try:
        amount = float(text)
    except ValueError:
        return parse_quantity(text, "byte", "--bytes-per-gpu")
    if not math.isfinite(amount) or amount <= 0:
        raise InputError(f"--bytes-per-gpu {text}: must be greater than zero and finite.")
    return amount


def _range(text: str, count: int) -> range:
    """Parse ``A-B``, both included."""
    import re

    from topology.errors import InputError

    match = re.fullmatch(r"([0-9]{1,9})-([0-9]{1,9})", text.strip())
    if match is None:
        raise InputError(f"--gpus {text}: expected two numbers from 0, like 0-{count - 1}.")
    first, last = int(match[1]), int(match[2])
    if last >= count or first >= last:
        raise InputError(
            f"--gpus {text}: the cluster's {count} GPUs are 0 to {count - 1}; give at least two, the lower first."
        )
    return range(first, last + 1)
