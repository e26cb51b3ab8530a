"""Charts of levers, of validated points, and of expert loads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rackplan.report.plotting import (
    BLUE,
    NEUTRAL,
    ORANGE,
    SYMBOLS,
    VERMILION,
    axis_of,
    chart_of,
    line_of,
    log_axis,
    plotly_text,
    scatter_of,
    series,
)

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def validation_chart(points: Mapping[str, Sequence[tuple[str, float, float]]]) -> Figure:
    """Return measured against predicted on logarithmic axes, and the diagonal.

    ``points`` by quantity: the name, the measured and the predicted figure of each, in the quantity's unit.
    """
    figures = [figure for some in points.values() for _, *pair in some for figure in pair if figure > 0]
    ends = [min(figures), max(figures)]
    data = [scatter_of("equal", "lines", ends, ends, hoverinfo="skip", line=line_of(NEUTRAL, 1.5, "dash"))]
    for number, ((quantity, some), colour) in enumerate(
        zip(points.items(), series(len(points)), strict=True)
    ):
        hover = [f"{plotly_text(name)}<br>measured {was:.4g}, predicted {now:.4g}" for name, was, now in some]
        look = {"color": colour, "symbol": SYMBOLS[number % len(SYMBOLS)], "size": 6, "opacity": 0.7}
        across, up = [now for *_, now in some], [was for _, was, _ in some]
        data.append(
            scatter_of(
                plotly_text(quantity), "markers", across, up, marker=look, hovertext=hover, hoverinfo="text"
            )
        )
    axes = (
        log_axis(f"{word}, in the unit of the quantity (log scale)", ends)
        for word in ("predicted", "measured")
    )
    return chart_of(data, **dict(zip(("xaxis", "yaxis"), axes, strict=True)))


def skew_chart(loads: NDArray[np.float64]) -> Figure:
    """Return the load of experts by rank over the mean of their layer: of the evenest, a middle and the worst layer.

    Parameters
    ----------
    loads:
        ``[layers, experts]``, each layer with mean 1.
    """
    ranked = -np.sort(-loads, axis=1)
    order = np.argsort(ranked[:, 0], kind="stable")
    chosen = {"evenest": order[0], "median": order[len(order) // 2], "most uneven": order[-1]}
    ranks = np.arange(1, loads.shape[1] + 1)
    data = [
        scatter_of(
            f"{name}: layer {layer}",
            "lines",
            ranks.tolist(),
            ranked[layer].round(4).tolist(),
            line=line_of(colour),
            hovertemplate=f"layer {layer}, expert of rank %{{x}}: %{{y:.2f}} times the mean<extra></extra>",
        )
        for (name, layer), colour in zip(chosen.items(), (BLUE, ORANGE, VERMILION), strict=True)
    ]
    up = axis_of("tokens over the layer's mean", rangemode="tozero")
    return chart_of(data, xaxis=axis_of("experts by rank"), yaxis=up)
