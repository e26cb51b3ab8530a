"""The parallel layout of one pool, as its cells give it."""

from __future__ import annotations

from cost.validation.cells import Row
from cost.validation.point import Pool

BEST = "best"
"""What a width says that is for the model to choose."""

NO_LAYOUT = Pool(tp=0, attention_dp=0, ep=0, moe_tp=0)
"""The pool of a row that does not say how its GPUs work together: nothing can be predicted for it."""

_WIDTHS = ("tp", "ep", "moe_tp", "attention_dp")


def read_pool(row: Row, prefix: str = "") -> Pool:
    """Return the pool of the columns that begin with ``prefix``; blank cells follow from the others.

    The GPUs of a stage are ``tp * attention_dp`` for attention and ``ep * moe_tp`` for the experts, so one of the
    four follows from the other three: a blank ``attention_dp`` from the experts' side, else 1; a blank ``ep`` is
    all GPUs of the stage where attention is data-parallel, else 1; a blank ``moe_tp`` is what remains; a blank
    ``tp`` is 1, or ``moe_tp`` where nothing else is given. Where one of them is ``best``, the model chooses it and
    those that are blank, and the workers if they are blank too.

    Raises
    ------
    InputError
        If the two sides do not use the same GPUs, or a pipeline is asked for whose widths are to be chosen.
    """
    if any(row.text(prefix + name).lower() == BEST for name in _WIDTHS):
        return _open_pool(row, prefix)
    tp, ep, moe_tp, dp = (row.count(prefix + name) for name in _WIDTHS)
    stages = row.count(prefix + "stages", 1) or 1
    workers = row.count(prefix + "workers", 1) or 1
    if not (tp or ep or moe_tp or dp):
        return NO_LAYOUT
    tp = tp or (moe_tp if not (ep or dp) else 1)
    if not dp:
        dp = max(1, (ep or 1) * (moe_tp or 1) // tp)
    width = tp * dp
    if not ep:
        ep = width // moe_tp if moe_tp else width if dp > 1 else 1
    moe_tp = moe_tp or width // max(ep, 1)
    if ep * moe_tp != width:
        row.fail(
            f"{prefix}ep",
            f"ep {ep} x moe_tp {moe_tp} is not tp {tp} x attention_dp {dp}: both are the GPUs of one stage.",
        )
    slots = row.count(prefix + "slots") if not prefix else 0
    return Pool(tp, dp, ep, moe_tp, stages, workers, slots)


def _open_pool(row: Row, prefix: str) -> Pool:
    """The pool of which at least one width is ``best``: 0 in those that the model chooses."""
    if row.count(prefix + "stages", 1) > 1:
        row.fail(prefix + "stages", f"widths that are {BEST!r} are chosen for one stage; leave it blank.")
    tp, ep, moe_tp, dp = (
        0 if row.text(prefix + name).lower() == BEST else row.count(prefix + name) for name in _WIDTHS
    )
    slots = row.count(prefix + "slots") if not prefix else 0
    return Pool(tp, dp, ep, moe_tp, 1, row.count(prefix + "workers"), slots, best=True)


def pool_cells(pool: Pool, prefix: str = "") -> dict[str, object]:
    """Return the cells that :func:`read_pool` reads as ``pool``."""
    if not pool.tp and not pool.best:
        return {}
    names = (*_WIDTHS, "stages", "slots", "workers")
    cells: dict[str, object] = {prefix + name: getattr(pool, name) for name in names}
    if pool.best:
        cells |= {prefix + name: getattr(pool, name) or BEST for name in _WIDTHS}
    return cells
