"""What a cluster looks like and carries: draw and traffic."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from placement.budget import Budget
from rackplan import inputs
from rackplan.commands.options import WRITTEN, command, exit_if_interrupted
from rackplan.commands.output import Run
from rackplan.progress import progress
from rackplan.requests import DEFAULT_BYTES, DrawRequest, TrafficRequest
from topology.base.errors import InputError
from topology.base.files import write_whole
from topology.base.units import amount as parse_amount

if TYPE_CHECKING:
    from cost.calibration.collectives import Way
    from placement.plan import Plan
    from topology.cluster import Cluster
    from topology.draw import Overlay, TrafficOverlay
    from topology.routes import LinkLoads, Router, Traffic


@command(DrawRequest)
def draw(request: DrawRequest, run: Run) -> None:
    """With a plan or traffic on it; as a picture, as a graph for other tools, or as a bill of cables."""
    from rackplan.report.cluster import drawn_doc
    from topology.draw import cluster_svg, draw_cluster, draw_generations
    from topology.exporters import GRAPH_SUFFIXES, topology_text, write_topology

    plan, traffic, level, form = request.plan, request.traffic, request.level, request.form
    output, notes = request.output, inputs.notes_of(request)
    if plan is not None and traffic is not None:
        raise InputError(
            "--plan and --traffic cannot share one picture, since both use colour; draw two pictures."
        )
    targets = inputs.clusters_of(request.clusters, request.settings)
    graph = form is not None or (output is not None and output.suffix.lower() in GRAPH_SUFFIXES)
    shown = plan is not None or traffic is not None or level != "auto"
    if graph and shown:
        raise InputError(
            "graph files and bills of cables contain only links; leave out --plan, --traffic, --level."
        )
    if len(targets) > 1 and (graph or shown):
        raise InputError(
            "several clusters are drawn as one domain of each: leave out --plan, --traffic, --level and --format, "
            "and write .svg, .png or .pdf."
        )
    overlay = None
    if plan is not None:
        planned = inputs.plan_of(plan)
        notes += inputs.plan_notes(planned)
        targets[0], overlay = _planned(planned, plan, str(request.clusters[0]), targets[0])
    target, text = targets[0], None
    busy = None if traffic is None else _traffic_overlay(traffic, target)
    if len(targets) > 1:
        text = draw_generations(targets, output)
    elif graph and output is not None:
        write_topology(target, output, form)
    elif output is not None:
        draw_cluster(target, output, level=level, overlay=overlay, traffic=busy)
    else:
        text = (
            topology_text(target, str(form))
            if form
            else cluster_svg(target, overlay, level=level, traffic=busy)
        )
    doc = drawn_doc(targets, output, text)
    if output is not None:
        run.show(doc, notes)
    else:
        run.show_file(str(text), doc, notes)


@command(TrafficRequest, WRITTEN)
def traffic(request: TrafficRequest, run: Run) -> None:
    """Shows times, bottlenecks, tiers and the busiest links."""
    from cost.calibration.collectives import reached_by_tier
    from rackplan.report.cluster import traffic_doc
    from topology.changes.drained import drained_note
    from topology.routes import MOST_CLASSES, Router, fair_s, rank_matrix
    from topology.routes.rank_matrix import SUFFIXES

    finish = run.writer("traffic")
    if request.matrix is not None and (request.matrix.suffix not in SUFFIXES or request.matrix.exists()):
        expected = f"a new file that ends in {' or '.join(SUFFIXES)}"
        raise InputError(f"expected {expected}.", field="matrix", value=request.matrix)
    target, ranks, notes = _ranks(request)
    router = Router(target)
    sent, loads, ways = _routed(router, target, request.pattern, request.bytes_per_gpu, request.gpus, ranks)
    note = drained_note(target, sent, loads)
    loads = replace(loads, notes=(*loads.notes, *[note] * bool(note)))
    max_classes = 0 if request.no_fair else MOST_CLASSES
    time, budget = None, Budget()
    with progress() as reporter, budget:
        time = fair_s(router, sent, loads, most_classes=max_classes, progress=reporter.arrived)
    if request.matrix is not None:
        members = _members(request.gpus, ranks)
        size = _bytes(request.bytes_per_gpu)
        facts = {
            "cluster": target.name,
            "gpus": [target.gpus[gpu].id for gpu in members],
            "reached_share": reached_by_tier(target, loads),
        }
        write_whole(request.matrix, rank_matrix(router, members, size).file(request.matrix.suffix, facts))
    finish(traffic_doc(target, sent, loads, time, ways, request.matrix), notes=notes)
    exit_if_interrupted(budget.interrupted, ": the bound was computed, the fair time was not.")


def _routed(
    router: Router,
    target: Cluster,
    pattern: str,
    bytes_per_gpu: str | None = None,
    gpus: str | None = None,
    ranks: Sequence[int] | None = None,
) -> tuple[Traffic, LinkLoads, list[Way]]:
    """Return the traffic for the options with its loads; of a collective the fastest way, and all of them."""
    from cost.calibration.collectives import collective_ways
    from topology.routes import COLLECTIVES

    if pattern not in COLLECTIVES:
        sent = traffic_from_options(pattern, bytes_per_gpu, gpus, len(target.gpus), ranks)
        return sent, router.loads(sent), []
    members = _members(gpus, range(len(target.gpus)) if ranks is None else ranks)
    if len(members) < 2:
        raise InputError(
            f"a collective needs at least two GPUs, not {len(members)}.", field="pattern", value=pattern
        )
    ways = collective_ways(router, target, pattern, _bytes(bytes_per_gpu), members)
    return ways[0].traffic, ways[0].loads, ways


def _bytes(text: str | None) -> float:
    """Parse ``--bytes-per-gpu``; None is the default."""
    from topology.routes.traffic import LEAST_BYTES, MOST_BYTES

    amount = parse_amount(text or DEFAULT_BYTES, "--bytes-per-gpu")
    if not LEAST_BYTES <= amount <= MOST_BYTES:
        raise InputError(f"--bytes-per-gpu {text}: must be greater than zero, at most {MOST_BYTES:g}.")
    return amount


def _ranks(request: TrafficRequest) -> tuple[Cluster, Sequence[int], list[str]]:
    """Return the cluster, or a plan's, the GPUs (all, or ranks of the plan's first replica), and what is odd."""
    named = Path(request.cluster)
    if named.suffix != ".json" and not (named / "plan.json").is_file():
        target = inputs.cluster_of(request.cluster, request.settings)
        return target, range(len(target.gpus)), inputs.notes_of(request)
    plan = inputs.plan_of(named, request.settings)
    members = [gpu for stage in plan.layout.replicas[0] for gpu in stage.gpus]
    return plan.deployment.cluster, members, inputs.plan_notes(plan)


def traffic_from_options(
    pattern: str, bytes_per_gpu: str | None, gpus: str | None, count: int, ranks: Sequence[int] | None = None
) -> Traffic:
    """Return the traffic for the options on a cluster of ``count`` GPUs, among ``ranks`` (default: all).

    Raises
    ------
    InputError
        If they cannot be used.
    """
    from topology.routes import pattern_traffic, read_traffic

    members = _members(gpus, range(count) if ranks is None else ranks)
    if pattern.lower().endswith(".npy"):
        if bytes_per_gpu is not None:
            raise InputError(
                f"--bytes-per-gpu {bytes_per_gpu}: {pattern} already sets the bytes; leave it out."
            )
        return read_traffic(Path(pattern), count, members)
    return pattern_traffic(pattern, count, _bytes(bytes_per_gpu), members)


def _members(text: str | None, ranks: Sequence[int]) -> list[int]:
    """Return the GPUs of ``--gpus`` among ``ranks``."""
    return [ranks[rank] for rank in _range(text, len(ranks))]


def _range(text: str | None, count: int) -> range:
    """Parse ``A-B``, both included; None is all."""
    if text is None:
        return range(count)
    match = re.fullmatch(r"([0-9]{1,9})-([0-9]{1,9})", text.strip())
    if match is None:
        raise InputError(f"--gpus {text}: expected a range of GPU numbers, like 0-{count - 1}.")
    first, last = int(match[1]), int(match[2])
    if last >= count or first >= last:
        raise InputError(
            f"--gpus {text}: GPUs are numbered 0 to {count - 1}; give at least two, the lower first."
        )
    return range(first, last + 1)


def _planned(planned: Plan, plan: Path, name: str, target: Cluster) -> tuple[Cluster, Overlay]:
    """Return the cluster to draw, as the plan knows it if GPUs were lost, and what the plan adds to the picture."""
    from rackplan.report.pictures.overlay import drawn_plan
    from topology.cluster import ClusterView

    cluster, overlay = drawn_plan(planned)
    inside = set(_gpu_ids(cluster)) <= set(_gpu_ids(target))
    if isinstance(cluster, ClusterView) and inside and cluster.spec.domains == target.spec.domains:
        return target, overlay.over(_gpu_ids(cluster), _gpu_ids(target))
    if _gpu_ids(cluster) != _gpu_ids(target):
        if not cluster.spec.faults or _gpu_ids(_whole(cluster)) != _gpu_ids(_whole(target)):
            raise InputError(
                f"--plan {plan}: the plan is for {cluster.name}, which has other GPUs than {name}."
            )
        target = cluster
    return target, overlay


def _gpu_ids(cluster: Cluster) -> list[str]:
    return [gpu.id for gpu in cluster.gpus]


def _whole(cluster: Cluster) -> Cluster:
    """Return the cluster with nothing broken."""
    from topology import build_cluster

    return build_cluster(replace(cluster.spec, faults=()))


def _traffic_overlay(pattern: str, target: Cluster) -> TrafficOverlay:
    """Return the loads of a named pattern, or of a file of bytes; shares of the time do not depend on how many."""
    from cost.calibration.collectives import reached_beside
    from topology.draw import TrafficOverlay
    from topology.routes import MOST_CLASSES, Router, fair_s

    router = Router(target)
    sent, loads, ways = _routed(router, target, pattern)
    beside = reached_beside(target, sent, loads, ways)
    part = f"large messages reach {1 / beside.times:.1%} of it ({beside.figure.kind.label})"
    time = fair_s(router, sent, loads, most_classes=MOST_CLASSES)
    measured = pattern.lower().endswith(".npy")
    title = Path(pattern).name if measured else f"{pattern}, {DEFAULT_BYTES} from each GPU"
    return TrafficOverlay(loads, title, time.completion_s if time.fair else None, part)
