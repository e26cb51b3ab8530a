"""Every part of the step: a new one is a file beside this and a name in the list."""

from __future__ import annotations

from cost.terms.all_reduce import ALL_REDUCE
from cost.terms.alltoall import COMBINE, DISPATCH
from cost.terms.attention import ATTENTION, RANKS
from cost.terms.context import CONTEXT
from cost.terms.dense import DENSE, HEAD
from cost.terms.experts import EXPERTS
from cost.terms.fetch import FETCH
from cost.terms.overhead import ENGINE, OVERHEAD, SPARSE
from cost.terms.pipeline import BUBBLE, HOPS

TERMS = {
    term.name: term
    for term in (
        ATTENTION, DENSE, HEAD, EXPERTS, FETCH, DISPATCH, COMBINE, ALL_REDUCE, CONTEXT, HOPS, BUBBLE,
        OVERHEAD, SPARSE, ENGINE, RANKS,
    )
}  # fmt: skip
"""By name; layers are added up in this order."""
