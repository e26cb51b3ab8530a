"""How many hidden vectors a GPU sends in a dispatch, by kernel family, when routing is even."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cost.terms.alltoall_routing import Routing, hit_chance
from topology.errors import InputError

Family = Literal["per-node", "per-copy", "per-rank", "all-gather"]
FAMILIES: tuple[Family, ...] = get_args(Family)
"""``per-node``: one copy to each other domain, forwarded there (DeepEP normal). ``per-copy``: one copy for each
expert (low latency). ``per-rank``: one copy to each GPU (one-sided). ``all-gather``: everything to everybody."""


@dataclass(frozen=True, eq=False)
class Volumes:
    """Hidden vectors of one dispatch for the busiest GPU; a combine returns the same number.

    Attributes
    ----------
    up, out:
        Vectors that cross its links of the scale-up and of the scale-out fabric, in one direction.
    received:
        Vectors that end on it, its own included.
    """

    up: NDArray[np.float64]
    out: NDArray[np.float64]
    received: NDArray[np.float64]


def require_family(name: str) -> Family:
    """Return the family called ``name``.

    Raises
    ------
    InputError
        If there is none.
    """
    for family in FAMILIES:
        if name == family:
            return family
    raise InputError(f"kernel family {name!r} is not known; choose one of {', '.join(FAMILIES)}.")


def alltoall_volumes(
    family: str, routing: Routing, *, tokens: ArrayLike, ep: ArrayLike, domain_gpus: ArrayLike
) -> Volumes:
    """Return the vectors that each GPU sends when all experts are equally loaded.

    Parameters
    ----------
    family:
        One of :data:`FAMILIES`.
    tokens:
        Tokens per GPU; any shape that broadcasts with the others.
    ep:
        GPUs of the EP group.
    domain_gpus:
        GPUs of the group in one scale-up domain; at least ``ep``: the group lies in one domain.

    Notes
    -----
    With ``h(g)`` the chance that a token uses an expert on ``g`` given GPUs (:func:`hit_chance`), ``N`` GPUs,
    ``D`` of them in a domain and ``K`` experts a token, a token sends

    ========== =================== ========================
    family     out                 up
    ========== =================== ========================
    per-copy   ``K (N - D) / N``   ``K (D - 1) / N``
    per-rank   ``(N - D) h(1)``    ``(D - 1) h(1)``
    per-node   ``(N/D - 1) h(D)``  ``N h(1) (D - 1) / D``
    all-gather ``(N - D) / D``     ``N (D - 1) / D``
    ========== =================== ========================

    Per-node copies arrive on the GPU of the sender's rail, which forwards them: one in ``D`` is already there.
    An all-gather fetches each vector once a domain, shared by its GPUs, and passes it on inside. In one domain
    both per-node terms are those of per-rank.

    Raises
    ------
    InputError
        If the family is not known, or a count is below one.
    """
    require_family(family)
    n, d = (np.asarray(value, dtype=np.int64) for value in (ep, domain_gpus))
    t = np.asarray(tokens, dtype=np.float64)
    if (n < 1).any() or (d < 1).any() or not (t >= 0).all():
        raise InputError("all-to-all: ep and domain_gpus must be at least 1, tokens at least 0.")
    d = np.minimum(n, d)
    if family == "per-copy":
        up, out = routing.top_k * (d - 1) / n, routing.top_k * (n - d) / n
        received = np.asarray(routing.top_k)
    elif family == "all-gather":
        up, out = n * (d - 1) / d, (n - d) / d
        received = n
    else:
        rank = hit_chance(routing, 1, n)
        received = n * rank
        if family == "per-rank":
            up, out = (d - 1) * rank, (n - d) * rank
        else:
            inside = np.where(n == d, (d - 1) * rank, n * rank * (d - 1) / d)
            up, out = inside, (n / d - 1) * hit_chance(routing, d, n)
    moved = np.broadcast_arrays(t * up, t * out, t * received)
    return Volumes(*moved)
