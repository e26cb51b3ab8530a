"""Where spare copies go: to domains where they save crossings, or beside the first copy to even out loads."""

from __future__ import annotations

import numpy as np

from placement.arrays import Floats, Ints
from placement.traffic.places import Places
from placement.traffic.reach import used_domain
from placement.traffic.tokens import Tokens

_TOKENS = 4096  # that gains are counted on
_ROUNDS = 8  # in each, gains are counted anew


def shares_of(weight: Ints, total: int) -> Ints:
    """Split ``total`` in proportion to ``weight`` in whole numbers; what is left goes by largest remainder."""
    exact = weight * total / weight.sum()
    share: Ints = np.floor(exact).astype(np.int64)
    order = np.argsort(-(exact - share), kind="stable")
    share[order[: total - int(share.sum())]] += 1
    return share


def copies_for_traffic(
    tokens: Tokens,
    held: Ints,
    free: Ints,
    load: Floats,
    limit: Floats,
    *,
    most: int,
    own: float,
) -> Ints:
    """Add up to ``most`` copies where they save crossings, and return copies ``[experts, domains]``.

    Parameters
    ----------
    held:
        Copies now, ``[experts, domains]``.
    free:
        Free slots of each domain.
    load, limit:
        Loads ``[scenarios, experts]``, each adding up to 1, and what domains should not exceed, ``[domains]``.
    own:
        What it costs a token to reach its own domain: 0 counts crossings, 1 domains.

    Notes
    -----
    What a copy saves is exact for the tokens counted: those of its domain use it, and the far ones take the domains
    in turn. Copies of one round are chosen as if alone.
    """
    held, free = held.copy(), free.copy()
    sample = tokens.sample(_TOKENS)
    share = -(-most // _ROUNDS)
    while most > 0 and (free > 0).any():
        saved, used = _saved(sample, held > 0, own)
        saved[held > 0] = -np.inf
        saved[:, free == 0] = -np.inf
        busy = _domain_load(load, used)
        taken, done = set[int](), 0
        for best in np.argsort(-saved, axis=None, kind="stable"):
            expert, domain = divmod(int(best), held.shape[1])
            if not saved[expert, domain] > 0 or done == min(share, most):
                break
            if expert in taken or free[domain] == 0:
                continue
            after = used_domain((held[expert] > 0) | (np.arange(held.shape[1]) == domain))
            moved = _moved(load[:, expert], used[expert], after, held.shape[1])
            if (np.maximum(busy + moved - limit, 0).sum() > np.maximum(busy - limit, 0).sum() + 1e-12).any():
                continue
            busy += moved
            held[expert, domain] += 1
            free[domain] -= 1
            taken.add(expert)
            done += 1
        most -= done
        if done == 0:
            break
    return held


def copies_for_balance(held: Ints, free: Ints, load: Floats, places: Places) -> Ints:
    """Fill the free slots with copies beside others, each for the largest load a copy; return ``[experts, domains]``.

    A domain without an expert that may have one more takes one that it does not hold.
    """
    held, free = held.copy(), free.copy()
    used = used_domain(held > 0)
    share = np.zeros(held.shape)
    np.add.at(share, (np.arange(len(held))[:, None], used), 1.0 / held.shape[1])
    busy = share * load.max(axis=0)[:, None]
    gpus = np.bincount(places.domain[places.slots_per_gpu > 0], minlength=held.shape[1])
    for domain in np.flatnonzero(free):
        for _ in range(int(free[domain])):
            mine = held[:, domain]
            may = (mine > 0) & (mine < gpus[domain])
            if may.any():
                expert = int(np.argmax(np.where(may, busy[:, domain] / np.maximum(mine, 1), -1.0)))
            else:
                expert = int(np.argmin(np.where(mine > 0, np.inf, load.max(axis=0))))
            held[expert, domain] += 1
    return held


def _saved(tokens: Tokens, held: np.ndarray, own: float) -> tuple[Floats, Ints]:
    """Return what one more copy of an expert in a domain saves, ``[experts, domains]``, and the domains used now."""
    experts, domains = held.shape
    used = used_domain(held)
    more = held[:, None, :] | np.eye(domains, dtype=bool)
    after = used_domain(more)  # [experts, domain of the copy, source]
    rows, token = np.arange(experts), np.arange(len(tokens))[:, None]
    saved = np.zeros((experts, domains))
    for source in range(domains):
        part = np.append(used[:, source], domains)
        where = part[tokens.choices]
        count = np.bincount((where + (domains + 1) * token).ravel(), minlength=(domains + 1) * len(tokens))
        count = count.reshape(-1, domains + 1)
        alone = tokens.by_expert @ (count[:, :domains] == 0).astype(np.float64)
        single = (count[token, where] == 1) & tokens.chosen
        alone[rows, used[:, source]] = np.bincount(tokens.choices[single], minlength=experts)
        alone[:, source] *= own
        saved += alone[rows, used[:, source]][:, None] - alone[rows[:, None], after[:, :, source]]
    return saved / (domains * len(tokens)), used


def _domain_load(load: Floats, used: Ints) -> Floats:
    domains = used.shape[1]
    return np.stack(
        [
            np.bincount(used.ravel(), weights=np.repeat(row / domains, domains), minlength=domains)
            for row in load
        ]
    )


def _moved(load: Floats, before: Ints, after: Ints, domains: int) -> Floats:
    """Change of the load of each domain where an expert's tokens go elsewhere, ``[scenarios, domains]``."""
    change = np.bincount(after, minlength=domains) - np.bincount(before, minlength=domains)
    moved: Floats = load[:, None] * change / domains
    return moved
