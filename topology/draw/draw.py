"""Draw a cluster: choose the level of detail, title it, write the file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from topology.base.errors import InputError, input_name
from topology.base.files import write_whole
from topology.cluster import Cluster
from topology.draw.canvas import Canvas
from topology.draw.captions import subtitles, title
from topology.draw.generations import generations_source
from topology.draw.grid import draw_rack, draw_torus, one_rack
from topology.draw.nested import draw_nested
from topology.draw.nodes import DIRECT, MAX_CIRCLE_GPUS, NodesView, view_of, view_of_domain
from topology.draw.overlay import Overlay, TrafficOverlay
from topology.draw.painter import Painter
from topology.draw.render import FORMATS, render
from topology.draw.tiers import Tiers
from topology.graph import INSIDE_KINDS, SCALE_OUT_KINDS

LEVELS = ("auto", "fabric", "domain", "gpu")
_MAX_LINK_BY_LINK_GPUS = 16
"""GPUs of a single domain up to which ``auto`` draws every link."""


def draw_cluster(
    cluster: Cluster,
    path: str | Path,
    *,
    level: str = "auto",
    overlay: Overlay | None = None,
    traffic: TrafficOverlay | None = None,
) -> None:
    """Draw ``cluster`` into the file ``path``; its suffix chooses SVG, PNG or PDF.

    Parameters
    ----------
    level:
        ``fabric`` (all domains and the fabric between them), ``domain`` (the first domain: hosts or racks and
        what joins them), ``gpu`` (the first domain link by link, or one host of it where that is too many),
        ``d3`` (domain 3), or ``auto``.
    overlay:
        Values and labels on the GPUs.
    traffic:
        Bytes on each link: colour and width of the links are then how busy they are.

    Raises
    ------
    InputError
        If the suffix, the level or the overlay cannot be used, or the file cannot be written.
    """
    suffix = _suffix(path)
    write_whole(
        Path(path), render(dot_source(cluster, level=level, overlay=overlay, traffic=traffic), suffix)
    )


def draw_generations(clusters: Sequence[Cluster], path: str | Path | None = None) -> str | None:
    """Draw one domain of each of some clusters, to one scale: into the file ``path``, else return its SVG.

    Raises
    ------
    InputError
        If the suffix cannot be used, or the file cannot be written.
    """
    source = generations_source(clusters)
    if path is None:
        return render(source, "svg").decode()
    write_whole(Path(path), render(source, _suffix(path)))
    return None


def _suffix(path: str | Path) -> str:
    """Return the format of a picture, which its file names.

    Raises
    ------
    InputError
        If it is none of those.
    """
    suffix = Path(path).suffix.lower().removeprefix(".")
    if suffix not in FORMATS:
        raise InputError(
            f"{path}: drawings end in .svg, .png or .pdf, graphs in .graphml or .json, bills of cables in .csv."
        )
    return suffix


def cluster_svg(
    cluster: Cluster,
    overlay: Overlay | None = None,
    *,
    level: str = "auto",
    traffic: TrafficOverlay | None = None,
) -> str:
    """Return the SVG that :func:`draw_cluster` writes."""
    return render(dot_source(cluster, level=level, overlay=overlay, traffic=traffic), "svg").decode()


def dot_source(
    cluster: Cluster,
    *,
    level: str = "auto",
    overlay: Overlay | None = None,
    traffic: TrafficOverlay | None = None,
) -> str:
    """Return the drawing as DOT source: the same cluster, level and overlay give the same text.

    Raises
    ------
    InputError
        If the level or the overlay cannot be used.
    """
    if overlay is not None and traffic is not None:
        raise InputError(
            "plan and traffic cannot share one picture, since both use colour; draw two pictures."
        )
    level, number = _level(cluster, level)
    canvas = Canvas(title(cluster))
    painter = Painter(canvas, cluster, overlay, traffic)
    notes = _draw(painter, level, number)
    usage = painter.usage.subtitles() if painter.usage else []
    canvas.subtitles = [*subtitles(cluster, painter.opened), *notes, *painter.marks.summary(), *usage]
    return canvas.source()


def _draw(painter: Painter, level: str, number: int) -> list[str]:
    """Draw one level; return lines about what it shows and leaves out."""
    spec = painter.spec
    if level == "auto":
        if (view := _node_by_node(painter)) is not None:
            return view.draw()
        single = "gpu" if spec.gpus <= _MAX_LINK_BY_LINK_GPUS else "domain"
        level = "fabric" if len(spec.domains) > 1 else single
    if level == "fabric":
        Tiers(painter).draw()
        return []
    painter.opened = number
    domain = spec.domains[number]
    picture = domain.picture
    if picture == "grid":
        return draw_torus(painter, number)
    if picture == "nested" and domain.gpus > MAX_CIRCLE_GPUS and painter.overlay is None:
        return draw_nested(painter, number)
    one_host = len(painter.fold.hosts_by_domain[number]) == 1
    if level == "gpu" or one_host or (picture in DIRECT and domain.gpus <= MAX_CIRCLE_GPUS):
        view, notes = view_of_domain(painter, number)
        return [*notes, *view.draw()]
    if one_rack(painter, number):
        draw_rack(painter, number)
    else:
        Tiers(painter).draw()
    return []


def _node_by_node(painter: Painter) -> NodesView | None:
    """Return a small raw graph with all its nodes; None where domains or a fabric show more, as of others."""
    spec, wiring = painter.spec, painter.cluster.wiring
    one_level = len(spec.domains) in (1, spec.gpus) or wiring.is_kind(*INSIDE_KINDS).any()
    if spec.raw is None or not one_level:
        return None
    return view_of(painter, [*wiring.names, *painter.marks.broken_gpus])


def _level(cluster: Cluster, level: str) -> tuple[str, int]:
    """Choose the level of detail and the domain that it opens."""
    domains = len(cluster.spec.domains)
    if named := re.fullmatch(r"d(\d{1,9})", level):
        if int(named[1]) >= domains:
            known = f"d0 to d{domains - 1}" if domains > 1 else "d0"
            raise InputError(
                f"{input_name('level')} {level}: {cluster.name} has no such domain; domains are {known}."
            )
        return "domain", int(named[1])
    if level not in LEVELS:
        raise InputError(
            f"{input_name('level')} {level!r}: choose one of {', '.join(LEVELS)}, or a domain, like d0."
        )
    if level == "auto":
        return level, 0
    if level == "fabric" and domains == 1 and not cluster.wiring.is_kind(*SCALE_OUT_KINDS).any():
        domain = cluster.spec.domains[0]
        example = f", like {domain.part}@{2 * cluster.spec.gpus}" if domain.switched else ""
        raise InputError(
            f"{input_name('level')} fabric: {cluster.name} is one domain without a fabric; use level domain, or "
            f"several domains{example}."
        )
    return level, 0
