"""Clusters priced for the page: every layout at every batch, or two pools matched, under what is asked."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from cost.inputs.deployment import Deployment
from cost.layouts import Sweep
from cost.money.prices import gpu_named
from cost.serving.pools import TTFT_LIMIT
from placement.layouts.shapes import TP_WIDTHS
from placement.options import USUAL_TPOT
from rackplan import library
from rackplan.serve.asked import Asked, FieldError, clusters_of, model_of
from rackplan.work import BothPhases, matched, swept
from topology.base.errors import RackplanError

if TYPE_CHECKING:
    from cost.model import Model
    from rackplan.views.pools import Pools
    from topology.cluster import Cluster

T = TypeVar("T")
KEPT = 12
"""Answers kept: those of the sliders' last positions."""


@dataclass(frozen=True, eq=False)
class Side:
    """One cluster priced: its sweep, or why nothing fits; with pools both sweeps and their matches."""

    deployment: Deployment
    sweep: Sweep | None = None
    pools: Pools | None = None
    reason: str = ""

    @cached_property
    def speeds(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Output tokens per second of one user, and per GPU, of every configuration or pair of pools."""
        if self.pools is not None:
            matches = self.pools.matches
            return matches.tok_s_per_user, matches.output_tok_s_per_gpu
        assert self.sweep is not None  # noqa: S101 - asked of sides that fit
        return self.sweep.tok_s_per_user, self.sweep.tok_s_per_gpu


@dataclass(frozen=True, eq=False)
class Explored:
    """All that one request needs: what was asked, the clusters, and notes beside fields."""

    asked: Asked
    model: Model
    sides: tuple[Side, ...]
    notes: dict[str, str]


class Recent:
    """The last few answers by what was asked."""

    def __init__(self, most: int = KEPT) -> None:
        self._found: OrderedDict[Any, Any] = OrderedDict()
        self._most = most

    def get(self, key: object, make: Callable[[], T]) -> T:
        """Return what ``make`` returns, or what it returned for the same key not long ago."""
        if key in self._found:
            self._found.move_to_end(key)
        else:
            self._found[key] = make()
            while len(self._found) > self._most:
                self._found.popitem(last=False)
        found: T = self._found[key]
        return found


_RECENT = Recent()


def explored(asked: Asked) -> Explored:
    """Return the clusters priced.

    Raises
    ------
    FieldError
        If something asked cannot be used: what, by field.
    """
    return _RECENT.get(asked, lambda: _explored(asked))


def _explored(asked: Asked) -> Explored:
    model, deployments, notes = deployed(asked)
    return Explored(asked, model, tuple(_side(asked, one) for one in deployments), notes)


def deployed(asked: Asked) -> tuple[Model, list[Deployment], dict[str, str]]:
    """Return the model, what is priced on each cluster, and notes by field of sliders that move nothing.

    Raises
    ------
    FieldError
        If something asked cannot be used: what, by field.
    """
    wrong: dict[str, str] = {}
    model = None
    try:
        model = model_of(asked.model, asked.weights)
    except FieldError as error:
        wrong |= error.fields
    try:
        clusters, notes = clusters_of(asked)
    except FieldError as error:
        raise FieldError(wrong | error.fields) from None
    if wrong or model is None:
        raise FieldError(wrong)
    own = _own_prices(asked, clusters)
    return model, [_deployment(asked, model, cluster, own) for cluster in clusters], notes


def _deployment(asked: Asked, model: Model, cluster: Cluster, own: Mapping[str, float]) -> Deployment:
    served = asked.served | {"context": asked.context}
    try:
        base = library.make_deployment(model, cluster, **served)
        prices = prices_on(asked, base, own)
        return library.make_deployment(model, cluster, prices=prices, **served) if prices else base
    except RackplanError as error:
        raise FieldError({_field_of(error): str(error)}) from None


def _own_prices(asked: Asked, clusters: Sequence[Cluster]) -> dict[str, float]:
    """Return the user's prices by the catalog's name of each GPU."""
    prices: dict[str, float] = {}
    for name, price in asked.prices:
        try:
            gpu = gpu_named(name, clusters)
        except RackplanError as error:
            raise FieldError({"prices": str(error)}) from None
        if gpu in prices:
            raise FieldError({"prices": f"{name}: {gpu} has two prices; leave one out."})
        prices[gpu] = price
    return prices


def prices_on(asked: Asked, base: Deployment, own: Mapping[str, float]) -> dict[str, float]:
    """Return the prices of a cluster's GPUs that the user sets: given ones, all times the slider's factor."""
    chips = {domain.gpu.name for domain in base.cluster.spec.domains}
    prices = {name: price for name, price in own.items() if name in chips}
    if asked.price_factor != 1:
        for part in base.bill.parts:
            if part.usd_per_hour is not None and part.name in chips:
                price = prices.get(part.name, part.usd_per_hour.value)
                prices[part.name] = float(f"{price * asked.price_factor:.6g}")
    return prices


def _side(asked: Asked, deployment: Deployment) -> Side:
    """Price one cluster; where nothing fits the side says why."""
    try:
        if asked.pools:
            pools = matched(deployment, deployment.cluster, both_phases(asked))
            reason = "" if len(pools.matches) else _no_match(pools, asked)
            return Side(deployment, pools.decode, pools, reason)
        # as the command does: each layout at its exact batch where somebody gave a limit
        tpot_s = None if asked.tpot_ms is None else limits_s(asked)[0]
        return Side(deployment, swept(deployment, speeds=[] if tpot_s is None else [1 / tpot_s]))
    except RackplanError as error:
        return Side(deployment, reason=str(error))


def both_phases(asked: Asked) -> BothPhases:
    """Return what is asked of matched pools, as ``rackplan sweep --isl --osl`` reads it."""
    tpot_s, ttft_s = limits_s(asked)
    return BothPhases(
        isl=asked.isl,
        osl=asked.osl,
        ttft_s=ttft_s,
        tpot_s=None if asked.tpot_ms is None else tpot_s,
        ttft_usual=asked.ttft_ms is None,
    )


def _field_of(error: RackplanError) -> str:
    """Return the page's field of the input that a refusal is about, ``request`` where it has none."""
    return next((_FIELDS.get(name, name) for name in error.inputs if name in _ON_PAGE), "request")


_FIELDS = {"context": "isl", "accept_length": "draft_tokens"}
_ON_PAGE = {*_FIELDS, "draft_tokens", "prices", "price_basis", "kv_dtype", "weights"}


def limits_s(asked: Asked) -> tuple[float | None, float | None]:
    """Return the longest time per output token and to the first token in seconds; None: no limit."""
    found: list[float | None] = []
    for given, usual in ((asked.tpot_ms, USUAL_TPOT), (asked.ttft_ms, TTFT_LIMIT)):
        found.append(usual.value if given is None else None if math.isinf(given) else given / 1e3)
    return found[0], found[1]


def _no_match(pools: Pools, asked: Asked) -> str:
    fastest = pools.matches.fastest_ttft_s * 1e3
    limit = "none" if pools.ttft_s is None else f"{pools.ttft_s * 1e3:,.0f} ms"
    return (
        f"no two pools keep a first token within {limit}: the fastest prefill of {asked.isl:,} tokens takes "
        f"{fastest:,.0f} ms."
    )


def may_be_planned(sweep: Sweep, row: int) -> bool:
    """Whether a plan may have a configuration: experts whole, and at least a sequence per GPU."""
    return bool(sweep.moe_tp[row] == 1 and sweep.batch[row] >= 1 and sweep.tp[row] in TP_WIDTHS)
