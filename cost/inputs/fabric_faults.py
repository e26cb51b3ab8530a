"""What links between domains still carry where some are broken or slow: routes of the faulty and the whole fabric.

The rate between domains of a cluster as built is that of its NICs over its oversubscription. Faults leave the part
of it that the busiest link leaves to the same traffic on both: one GPU's NIC, a leaf, a spine, or what GPUs that
stand in for another carry besides. So a cost goes up by as much as :mod:`topology.routes` says that the traffic does.
Slow links count as down where that is faster, so that a worse fault never costs less.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from topology.base.errors import InfeasibleError, InputError
from topology.changes.drained import named, without_broken_links
from topology.cluster import Cluster
from topology.routes import LinkLoads, Pairs, Router, Traffic, pattern_traffic
from topology.scale_out import leaves_and_pods

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
_FULL_RATE = 0.995  # of a rate, from which on nothing is lost in two digits


@dataclass(frozen=True)
class FaultyLinks:
    """Where the links of a cluster are broken or slow.

    Attributes
    ----------
    domains:
        Domains with a faulty link, inside them or out of them.
    nodes:
        Names of hosts with one, where their parts are written out one by one.
    between:
        Whether some faulty link does not stay inside one domain.
    above:
        Whether some faulty link joins switches of the fabric between domains.
    """

    domains: frozenset[int] = frozenset()
    nodes: frozenset[str] = frozenset()
    between: bool = False
    above: bool = False


def faulty_links(cluster: Cluster) -> FaultyLinks:
    """Return where the links of ``cluster`` are broken or slow."""
    links = [fault.link for fault in cluster.spec.faults if fault.link is not None]
    if not links:
        return FaultyLinks()
    domains: set[int] = set()
    nodes: set[str] = set()
    between = above = False
    for ends in links:
        places = [_place(cluster, end) for end in ends]
        inside = {domain for domain, _ in places}
        hosts = {node for _, node in places if node is not None}
        domains |= {domain for domain in inside if domain is not None}
        nodes |= hosts
        between |= len(inside) > 1 or None in inside
        above |= inside == {None} and not hosts
    return FaultyLinks(frozenset(domains), frozenset(nodes), between and len(cluster.spec.domains) > 1, above)


def _place(cluster: Cluster, end: str) -> tuple[int | None, str | None]:
    """Return the domain of the end of a link, or the host that it is in; neither of a switch between domains."""
    if cluster.spec.raw is None:
        number = end.partition(".")[0]
        return (int(number[1:]), None) if number[1:].isdigit() else (None, None)
    wiring = cluster.wiring
    at = wiring.number.get(end)
    if at is None:  # a GPU that is gone
        return None, None
    domain = int(wiring.domain[at])
    return (domain, None) if domain >= 0 else (None, wiring.node[at])


def _places(cluster: Cluster, faulty: FaultyLinks) -> tuple[Bools, Ints, tuple[Ints, Ints]]:
    """Return, ``[gpus]``, whether links or GPUs of its own domain or host are broken, its place, its domain and host.

    Traffic of GPUs in equal places is routed alike: those have alike links to the same leaves. One whose domain has
    faults has a place of its own.
    """
    gpus, spec = cluster.gpus, cluster.spec
    domain = np.array([gpu.domain for gpu in gpus])
    missing = np.array([domain_spec.gpus for domain_spec in spec.domains]) != np.bincount(
        domain, minlength=len(spec.domains)
    )
    unlike = missing[domain] | np.array(
        [gpu.domain in faulty.domains or gpu.node in faulty.nodes for gpu in gpus]
    )
    kind = np.array(cluster.domain_kind)[domain]
    rows = [*leaves_and_pods(spec, gpus), [gpu.rail for gpu in gpus], kind]
    place = np.unique(np.array(rows), axis=1, return_inverse=True)[1].reshape(-1)
    host = np.unique([gpu.node for gpu in gpus], return_inverse=True)[1].reshape(-1)
    return unlike, np.where(unlike, -1 - np.arange(len(gpus)), place), (domain, host)


class FaultyFabric:
    """The fabric between the domains of a cluster, some links of which are broken or slow.

    Parameters
    ----------
    cluster:
        With its faults.
    router:
        Its routes.
    drained:
        Names of slow links, and the routes where those are out of service so that others stand in.
    """

    def __init__(
        self, cluster: Cluster, router: Router, drained: Sequence[tuple[tuple[str, ...], Router]]
    ) -> None:
        self._cluster, self._faulty, self._drained = cluster, router, drained
        self._known: dict[tuple[str, bytes], float] = {}
        self._links = faulty_links(cluster)
        self._own, self._place, self._hosts = _places(cluster, self._links)

    @cached_property
    def _whole(self) -> Router:
        """Routes where all links work; GPUs that are gone stay gone."""
        return Router(without_broken_links(self._cluster))

    def router(self, traffic: Traffic) -> Router:
        """Return the routes that a traffic takes: over slow links too, or without them where that is faster."""
        return self._fastest(traffic)[1]

    def _fastest(self, traffic: Traffic) -> tuple[tuple[str, ...], Router, float]:
        """Return what is out of service, the routes, and the seconds of their busiest link between domains."""
        fastest: tuple[tuple[str, ...], Router, float] = (
            (),
            self._faulty,
            busiest_s(self._faulty.loads(traffic)),
        )
        for names, router in self._drained:
            seconds = busiest_s(router.loads(traffic))
            if seconds < fastest[2]:
                fastest = names, router, seconds
        return fastest

    @property
    def note(self) -> str:
        """Remaining all-to-all rates with faults, and the GPUs that forward for others."""
        pattern = pattern_traffic("all-to-all", len(self._cluster.gpus), 1.0)
        try:
            share = 1 / self.longer(pattern)
        except InfeasibleError as error:
            return str(error)
        rate = (
            f"reaches {share:.2g} of the full rate" if share < _FULL_RATE else "still reaches the full rate"
        )
        text = f"links between domains are broken or slow; an all-to-all of all GPUs {rate}"
        names, router, _ = self._fastest(pattern)
        if names:
            text += f", with slow links disabled ({named(names)}), which is faster than using them"
        return " ".join([*router.loads(pattern).notes, text])

    def alltoall(self, gpus: Sequence[int]) -> float:
        """Return the part of its rate, at most 1, that an all-to-all of equal parts among ``gpus`` has left.

        Raises
        ------
        InfeasibleError
            If two of them cannot reach each other.
        """
        return self._left(pattern_traffic("all-to-all", len(self._cluster.gpus), 1.0, gpus), np.asarray(gpus))

    def handing(self, senders: Sequence[int], receivers: Sequence[int]) -> float:
        """Return the part left where each sender hands equal bytes to its counterpart, in order.

        Raises
        ------
        InfeasibleError
            If one cannot reach its counterpart.
        """
        count = max(len(senders), len(receivers))
        index = np.arange(count)
        sending, receiving = (np.asarray(side)[index * len(side) // count] for side in (senders, receivers))
        pairs = Pairs(sending, receiving, np.ones(count))
        return self._left(Traffic("hand-over", len(self._cluster.gpus), pairs=pairs), sending, receiving)

    def _left(self, traffic: Traffic, *ends: Ints) -> float:
        """Return the part left to ``traffic``, from what is known where GPUs in the same places are its ``ends``."""
        gpus = np.concatenate(ends)
        if not (self._links.above or self._own[gpus].any()):
            return 1.0  # no route of theirs has a faulty link
        which = [np.unique(column[gpus], return_inverse=True)[1].reshape(-1) for column in self._hosts]
        key = traffic.name, np.stack([self._place[gpus], *which]).tobytes()
        if key not in self._known:
            self._known[key] = 1 / self.longer(traffic)
        return self._known[key]

    def longer(self, traffic: Traffic) -> float:
        """Return how many times as long as with all links the busiest link between domains takes, at least 1.

        Raises
        ------
        InfeasibleError
            If a GPU cannot reach another that it sends to.
        """
        intact_s = busiest_s(self._whole.loads(traffic))
        try:
            faulty_s = self._fastest(traffic)[2]
        except InputError as error:
            raise InfeasibleError(f"{self._cluster.name}: {error} The faults disconnect it.") from None
        return max(1.0, faulty_s / intact_s) if intact_s > 0 else 1.0


def busiest_s(loads: LinkLoads) -> float:
    """Seconds of the busiest link that is not inside a domain."""
    return float(loads.seconds[loads.network.scale_up_domain < 0].max(initial=0.0))
