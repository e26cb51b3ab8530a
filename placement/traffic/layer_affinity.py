"""Layer-to-layer affinity: each layer's experts placed so that the fewest tokens change GPU from layer to layer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from cost.traces.transitions import Transitions
from placement.arrays import Ints
from placement.traffic.layer_bound import crossing_bound
from placement.traffic.layer_exact import exact_layers
from placement.traffic.layer_search import LayerSearch, weighted_cost
from placement.traffic.tiers import Tiers
from topology.errors import InputError
from topology.units import plural

SEARCH_S, BOUND_S = 12.0, 4.0
"""Work of the search and of the bound, in seconds of a core of 2026; counted, not timed."""
_EQUAL = 1e-9


@dataclass(frozen=True, eq=False)
class LayerPlacement:
    """Where each expert of each layer lies, and how good that is.

    Attributes
    ----------
    gpu:
        int64 ``[layers, experts]``: the GPU of each expert.
    cost:
        Price of a token over all hops; with a price of 1, how often a token changes GPU.
    bound:
        No placement in these slots costs less.
    contiguous, swept:
        Cost of experts in order, GPU by GPU; and of that after exact sweeps of single layers alone.
    """

    gpu: Ints
    cost: float
    bound: float
    contiguous: float
    swept: float

    @property
    def status(self) -> str:
        """OPTIMAL where the cost is the bound, else FEASIBLE."""
        return "OPTIMAL" if self.cost <= self.bound + _EQUAL * max(1.0, self.cost) else "FEASIBLE"

    @property
    def gap(self) -> float:
        """How much of the cost is not proven to be needed, 0 to 1."""
        return 0.0 if self.status == "OPTIMAL" else (self.cost - self.bound) / self.cost


def even_slots(experts: int, gpus: int) -> Ints:
    """Return the experts of a layer on each GPU: as even as it gets, the first GPUs have one more.

    Raises
    ------
    InputError
        If there is no GPU, or more than experts.
    """
    if not 1 <= gpus <= experts:
        raise InputError(f"`gpus` {gpus}: expected 1 to {experts}, as there are {plural(experts, 'expert')}.")
    return experts // gpus + (np.arange(gpus) < experts % gpus).astype(np.int64)


def crossings(transitions: Transitions, gpu: ArrayLike, tiers: Tiers | None = None) -> float:
    """Return what a token pays over all hops, or how often it changes GPU, from placement and transitions alone.

    Parameters
    ----------
    gpu:
        ``[layers, experts]`` GPU of each expert.
    tiers:
        Prices; None: 1 for each change of GPU.

    Raises
    ------
    InputError
        If the placement is not of these layers and experts, or names a GPU that the tiers do not have.
    """
    place = np.asarray(gpu)
    if place.shape != (transitions.layers, transitions.experts):
        raise InputError(
            f"a placement {list(place.shape)}; the transitions are of {transitions.layers} layers of "
            f"{transitions.experts} experts."
        )
    gpus = int(place.max()) + 1 if tiers is None else tiers.gpus
    if place.min() < 0 or place.max() >= gpus:
        raise InputError(f"a placement on GPUs {place.min()}..{place.max()}; there are {gpus}.")
    return weighted_cost(transitions.weights, place, tiers or Tiers.of(gpus)) / transitions.tokens


def place_layers(
    transitions: Transitions,
    slots: ArrayLike,
    tiers: Tiers | None = None,
    *,
    seed: int = 0,
    search_s: float = SEARCH_S,
    bound_s: float = BOUND_S,
) -> LayerPlacement:
    """Place each layer's experts so that tokens pay least from layer to layer.

    Parameters
    ----------
    slots:
        ``[gpus]`` experts of a layer on each GPU (:func:`even_slots`); they add up to the experts.
    tiers:
        Prices of a change of GPU, node, domain; None: 1 for each change of GPU.
    seed:
        Of the search; the same seed gives the same placement anywhere.
    search_s, bound_s:
        Work, in seconds of a core of 2026; counted, not timed.

    Raises
    ------
    InputError
        If slots are not those of the experts, or tiers are not of these GPUs.
    """
    counts = np.asarray(slots)
    if counts.ndim != 1 or counts.dtype.kind not in "iu" or counts.size == 0 or counts.min() < 0:
        raise InputError("`slots`: expected a whole number from 0 for each GPU.")
    counts = counts.astype(np.int64)
    if counts.sum() != transitions.experts:
        raise InputError(
            f"{plural(int(counts.sum()), 'slot')} over {plural(counts.size, 'GPU')} for "
            f"{transitions.experts} experts: each expert of a layer needs one."
        )
    prices = tiers or Tiers.of(counts.size)
    if prices.gpus != counts.size:
        raise InputError(f"tiers of {plural(prices.gpus, 'GPU')}, slots of {counts.size}.")
    search = LayerSearch(transitions, counts, prices, seed)
    contiguous = search.contiguous()
    swept = search.sweep(contiguous)
    proven = exact_layers(transitions.weights, counts, prices)
    place = search.search(search_s) if proven is None else proven
    cost = search.cost(place)
    bound = cost
    if proven is None:
        bound = min(cost, crossing_bound(transitions.weights, counts, prices, bound_s))
    tokens = transitions.tokens
    return LayerPlacement(
        place, cost / tokens, bound / tokens, search.cost(contiguous) / tokens, search.cost(swept) / tokens
    )
