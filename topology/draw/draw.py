"""Draw a cluster: choose the level of detail, title it, write the file."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from topology.draw.canvas import Canvas
from topology.draw.domain_view import draw_domain_view
from topology.draw.fabric_view import draw_fabric_view
from topology.draw.gpu_view import draw_gpu_view, links_note, opened_gpus
from topology.draw.painter import Painter
from topology.draw.render import FORMATS, render
from topology.draw.style import gpu_line, is_projected, scale_out_line, scale_up_line
from topology.errors import InputError
from topology.files import write_whole

if TYPE_CHECKING:
    from topology.cluster import Cluster
    from topology.draw.overlay import Overlay

__all__ = ["LEVELS", "dot_source", "draw_cluster"]

LEVELS = ("auto", "fabric", "domain", "gpu")
_GPU_LEVEL_MOST = 16
_MOST_KINDS = 3


def draw_cluster(
    cluster: Cluster, path: str | Path, *, level: str = "auto", overlay: Overlay | None = None
) -> None:
    """Draw ``cluster`` into the file ``path``; its suffix chooses SVG, PNG, PDF or DOT.

    Parameters
    ----------
    level:
        ``fabric`` (all domains and the fabric between them), ``domain`` (the first domain: hosts or racks and
        the switch chips), ``gpu`` (the first domain link by link, or one host of it where that is too many),
        or ``auto``.
    overlay:
        Values and labels on the GPUs.

    Raises
    ------
    InputError
        If the suffix, the level or the overlay cannot be used, or the file cannot be written.
    """
    target = Path(path)
    suffix = target.suffix.lower().removeprefix(".")
    if suffix not in FORMATS:
        raise InputError(
            f"{target}: drawings are written as .svg, .png, .pdf or .dot; give one of these endings."
        )
    write_whole(target, render(dot_source(cluster, level=level, overlay=overlay), suffix))


def dot_source(cluster: Cluster, *, level: str = "auto", overlay: Overlay | None = None) -> str:
    """Return the drawing as DOT source: the same cluster, level and overlay give the same text.

    Raises
    ------
    InputError
        If the level or the overlay cannot be used.
    """
    chosen = _level(cluster, level)
    scale_out = cluster.spec.scale_out
    if chosen == "fabric" and scale_out is not None:
        canvas = Canvas(_title(cluster), _subtitles(cluster))
        draw_fabric_view(canvas, Painter(cluster, overlay), scale_out)
        return canvas.source()
    first = cluster.spec.domains[0]
    canvas = Canvas(_title(cluster), _subtitles(cluster, opened=True))
    painter = Painter(cluster, overlay, range(first.gpus))
    if chosen == "gpu":
        canvas.subtitles = [*canvas.subtitles, *_gpu_notes(cluster)]
        draw_gpu_view(canvas, painter)
    else:
        draw_domain_view(canvas, painter)
    return canvas.source()


def _level(cluster: Cluster, level: str) -> str:
    """Choose the level of detail."""
    if level not in LEVELS:
        raise InputError(f"level {level!r}: choose one of {', '.join(LEVELS)}.")
    several = len(cluster.spec.domains) > 1
    if level == "auto":
        if several:
            return "fabric"
        return "gpu" if cluster.spec.gpus <= _GPU_LEVEL_MOST else "domain"
    if level == "fabric" and not several:
        raise InputError(
            f"level fabric: {cluster.name} is one domain, with no fabric to draw; use level domain, "
            f"or several domains, like {cluster.spec.domains[0].part}@{2 * cluster.spec.gpus}."
        )
    return level


def _title(cluster: Cluster) -> str:
    """Return the title: what the cluster is, how many GPUs, and whether it exists."""
    titles = Counter(domain.title for domain in cluster.spec.domains)
    several = len(cluster.spec.domains) > 1
    what = " + ".join(f"{count} x {title}" if several else title for title, count in titles.items())
    warning = ""
    if any(domain.status == "hypothetical" for domain in cluster.spec.domains):
        warning = " (HYPOTHETICAL, projected figures)"
    elif any(is_projected(domain) for domain in cluster.spec.domains):
        warning = " (announced: projected figures)"
    elif any(domain.status == "blackboard" for domain in cluster.spec.domains):
        warning = " (round figures, no such machine)"
    return f"{cluster.name}: {what}, {cluster.spec.gpus} GPUs{warning}"


def _subtitles(cluster: Cluster, *, opened: bool = False) -> list[str]:
    """Return the lines under the title: the GPU, both networks, and which domain is open."""
    kinds = {(domain.gpu.name, domain.fabric.name): domain for domain in cluster.spec.domains}
    shown = list(kinds.values())[: 1 if opened else _MOST_KINDS]
    lines: list[str] = []
    for domain in shown:
        lines += [gpu_line(domain), scale_up_line(domain)]
        if cluster.spec.scale_out is not None:
            lines.append(scale_out_line(cluster.spec.scale_out, domain))
    if not opened and len(kinds) > len(shown):
        lines.append(f"and {len(kinds) - len(shown)} more kinds of domain")
    several = len(cluster.spec.domains)
    if opened and several > 1:
        lines.append(f"Drawn here: domain d0 of {several}")
    return lines


def _gpu_notes(cluster: Cluster) -> list[str]:
    """Return what the link-by-link picture leaves out."""
    domain = cluster.spec.domains[0]
    shown = opened_gpus(domain)
    if shown == domain.gpus:
        return [f"Links of each GPU: {links_note(domain)}"] if len(set(domain.links_per_switch)) > 1 else []
    others = (domain.gpus - shown) // domain.gpus_per_node
    return [f"Drawn here: node d0.n0 and all switch chips; {others} more nodes of d0 have the same links"]
