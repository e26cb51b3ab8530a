"""Drawings of a cluster: SVG, PNG, PDF and DOT, without a system Graphviz and without any installed font."""

from topology.draw.draw import LEVELS, cluster_svg, dot_source, draw_cluster, draw_generations
from topology.draw.overlay import Overlay, TrafficOverlay
from topology.draw.render import FORMATS

__all__ = [
    "FORMATS",
    "LEVELS",
    "Overlay",
    "TrafficOverlay",
    "cluster_svg",
    "dot_source",
    "draw_cluster",
    "draw_generations",
]
