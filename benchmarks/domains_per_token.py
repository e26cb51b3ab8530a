"""Domains that a token's experts lie in: ours, experts in order, whole groups, and Mt-KaHyPar's hypergraph partition.

``python benchmarks/domains_per_token.py TRACE.npy --domains N [--slots S] [--json]``: the trace is ``[tokens, k]`` or
``[tokens, layers, k]`` expert ids (``--layer``, the first by default). The first half of the tokens is planned with,
the second scores. ``load`` is the largest load of a domain over the mean among the tokens planned with, where the
limit ``--slack`` holds; ``load_held_out`` among the others. Seconds are of CPU, all threads together. Mt-KaHyPar runs
where ``mtkahypar`` is installed (PyPI; it is no dependency of rackplan): connectivity - 1, exact sizes, loads free,
and then with its loads repaired by the exchanges that cost least.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from placement.arrays import Bools, Floats, Ints
from placement.traffic.exchange import HARD, Exchange
from placement.traffic.place import (
    Places,
    domains_by_tokens,
    first_copies,
    shares_of,
    used_domain,
    whole_groups,
    with_far_copies,
)
from placement.traffic.tokens import MOST_EXPERTS, Partition, Tokens
from topology.base.errors import InputError

MOST_EXCHANGES = 5000
_PRICES = np.linspace(0.0, 1.0, 9)  # of load, in tokens in common per choice, tried for the limit of loads


def main(words: list[str] | None = None) -> int:
    """Print the comparison; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("trace")
    parser.add_argument("--domains", type=int, required=True)
    parser.add_argument("--slots", type=int, help="over all domains; default: one for each expert")
    parser.add_argument("--experts", type=int, help="of the layer; default: the largest id of the trace + 1")
    parser.add_argument("--groups", type=int, default=8, help="of consecutive experts, for `whole_groups`")
    parser.add_argument("--layer", type=int, default=0)
    parser.add_argument("--slack", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(words)
    try:
        train, test, places = read(options)
        found = compare(train, test, places, options)
    except InputError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print(json.dumps(found) if options.json else table(found))
    return 0


def read(options: argparse.Namespace) -> tuple[Tokens, Tokens, Places]:
    """Return the half to plan with, the half that scores, and the slots."""
    choices = layer_of(options.trace, options.layer)
    if len(choices) < 2:
        raise InputError(f"{options.trace}: {len(choices)} tokens cannot be halved.")
    experts = options.experts if options.experts is not None else max(int(choices.max()) + 1, 1)
    slots = experts if options.slots is None else options.slots
    if not 1 <= options.domains <= experts:
        raise InputError(f"--domains {options.domains}: expected 1 to {experts}, the experts of a layer.")
    if slots < experts:
        raise InputError(f"--slots {slots}: {experts} experts need one each.")
    if experts > MOST_EXPERTS:
        raise InputError(
            f"{options.trace}: expert {experts - 1}; a layer has {MOST_EXPERTS} experts at most."
        )
    if slots > options.domains * experts:
        raise InputError(f"--slots {slots}: {options.domains} domains would hold some expert twice.")
    each = shares_of(np.ones(options.domains, dtype=np.int64), slots)
    half = len(choices) // 2
    train, test = Tokens.of(choices[:half], experts), Tokens.of(choices[half:], experts)
    return train, test, Places.of(each, np.arange(options.domains))


def layer_of(path: str, layer: int) -> np.ndarray:
    """Return the choices ``[tokens, k]`` of one layer of a trace."""
    try:
        trace = np.load(Path(path), mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: {error}") from error
    if not isinstance(trace, np.ndarray) or trace.ndim not in {2, 3} or trace.dtype.kind not in "iu":
        raise InputError(f"{path}: expected whole numbers [tokens, k] or [tokens, layers, k] in a .npy file.")
    if trace.ndim == 2:
        return np.asarray(trace)
    if not 0 <= layer < trace.shape[1]:
        raise InputError(f"--layer {layer}: {path} has layers 0 to {trace.shape[1] - 1}.")
    return np.asarray(trace[:, layer])


def compare(train: Tokens, test: Tokens, places: Places, options: argparse.Namespace) -> dict[str, Any]:
    """Return the figures of each way to place, by name."""
    missing: dict[str, str] = {}
    domains, load = places.domains, train.load[None]

    def row(make: Callable[[], Bools | None]) -> dict[str, Any] | None:
        start = time.process_time()
        held = make()
        seconds = time.process_time() - start
        if held is None:
            return None
        reached, crossings = reach(test, held)
        return {
            "domains_per_token": reached,
            "crossings_per_token": crossings,
            "load": peak(train, held, places),
            "load_held_out": peak(test, held, places),
            "seconds": seconds,
            "domains_per_token_in_training": reach(train, held)[0],
            "experts": [np.flatnonzero(held[:, d]).tolist() for d in range(domains)],
        }

    sizes = shares_of(places.domain_slots, train.experts)
    parts: dict[str, Ints] = {}

    def ours() -> Bools:
        part = domains_by_tokens(train, places, load, slack=options.slack, seed=options.seed)
        return with_far_copies(train, first_copies(part, domains), places, load, slack=options.slack)

    def hypergraph() -> Bools:
        parts["free"] = mt_kahypar(train, sizes, options.seed)
        return first_copies(parts["free"], domains)

    def repaired() -> Bools:
        search = Exchange(Partition.of(train, sizes, load, (1 + options.slack) * places.fair), parts["free"])
        search.descend(price=HARD, most=MOST_EXCHANGES)
        return first_copies(search.part[:-1].astype(np.int64), domains)

    def grouped() -> Bools | None:
        part = whole_groups(train.load, options.groups, domains)
        if part is None or (np.bincount(part, minlength=domains) > places.domain_slots).any():
            missing["whole_groups"] = (
                f"{options.groups} groups of {train.experts} experts are not whole in {domains} domains"
            )
            return None
        return first_copies(part, domains)

    rows: dict[str, Any] = {
        "ours": row(ours),
        "contiguous": row(lambda: first_copies(np.repeat(np.arange(domains), sizes), domains)),
        "whole_groups": row(grouped),
    }
    try:
        rows["mt_kahypar"] = row(hypergraph)
        rows["mt_kahypar_repaired"] = row(repaired)
    except ImportError:
        rows["mt_kahypar"] = rows["mt_kahypar_repaired"] = None
        missing["mt_kahypar"] = "mtkahypar is not installed (pip install mtkahypar)"
    spare = int(places.domain_slots.sum()) > train.experts
    limit = np.inf if spare else (1 + options.slack) * float(train.load.sum()) / domains
    rows["bound_in_training"] = least_domains(train, int(places.domain_slots.max()), train.load, limit)
    rows["missing"] = missing
    rows["tokens"] = {"train": len(train), "held_out": len(test)}
    rows["schema_version"] = 1
    return rows


def reach(tokens: Tokens, held: Bools) -> tuple[float, float]:
    """Return domains a token, and those other than its own, with tokens from every domain as often."""
    used, domains = used_domain(held), held.shape[1]
    reached = [tokens.reach(used[:, source], domains).mean() for source in range(domains)]
    own = [
        np.append(used[:, s] == s, values=False)[tokens.choices].any(axis=1).mean() for s in range(domains)
    ]
    return float(np.mean(reached)), float(np.mean(reached) - np.mean(own))


def peak(tokens: Tokens, held: Bools, places: Places) -> float:
    """Return the largest load of a domain over what is even for it."""
    share = (used_domain(held)[:, :, None] == np.arange(places.domains)).mean(axis=1)
    return float((tokens.load @ share / tokens.load.sum() / places.fair).max())


def mt_kahypar(tokens: Tokens, sizes: np.ndarray, seed: int) -> np.ndarray:
    """Return a domain for each expert, ``[experts]``: tokens are hyperedges, connectivity - 1 is least."""
    import mtkahypar

    mtkahypar.set_seed(seed)
    kahypar = mtkahypar.initialize(1, print_warnings=False)
    context = kahypar.context_from_preset(mtkahypar.PresetType.QUALITY)
    context.set_partitioning_parameters(len(sizes), 0.0, mtkahypar.Objective.KM1)
    context.set_individual_target_block_weights(sizes.tolist())
    context.logging = False
    edges, times = np.unique(tokens.choices, axis=0, return_counts=True)
    nets = [[int(e) for e in edge if e < tokens.experts] for edge in edges]
    graph = kahypar.create_hypergraph(
        context, tokens.experts, len(nets), nets, [1] * tokens.experts, times.tolist()
    )
    return np.array(graph.partition(context).get_partition(), dtype=np.int64)


def table(found: dict[str, Any]) -> str:
    """Return the figures as a table."""
    lines = [
        "| placement | domains per token | load in training | load held out | CPU s |",
        "|---|---|---|---|---|",
    ]
    for name, row in found.items():
        if row is None:
            lines.append(f"| {name} | {found['missing'].get(name, '')} | | | |")
        elif isinstance(row, dict) and "load" in row:
            lines.append(
                f"| {name} | {row['domains_per_token']:.3f} | {row['load']:.3f} | {row['load_held_out']:.3f} | "
                f"{row['seconds']:.2f} |"
            )
    ours, bound = found["ours"]["domains_per_token_in_training"], found["bound_in_training"]
    lines.append(f"\nIn training ours is {ours:.3f}; no placement is below {bound:.3f} there.")
    return "\n".join(lines)


def least_domains(
    tokens: Tokens, most_slots: int, load: Floats | None = None, most_load: float = np.inf
) -> float:
    """Return a lower bound of the mean number of domains that tokens reach, each with ``most_slots`` at most.

    A token of ``r`` experts in a domain counts ``1 / r`` for each of them there. Over the tokens of expert e these
    ``r`` add up to ``load[e]`` and those in common with its company, at most the ``most_slots - 1`` experts that have
    most in common with it; and as ``1 / r`` is convex, they count least where ``r`` is as even as can be.

    Parameters
    ----------
    load, most_load:
        Without spare copies, the company is limited by its load as well: ``load`` ``[experts]`` in a domain adds up
        to ``most_load`` at most.
    """
    own = tokens.load
    both = tokens.together.copy()
    np.fill_diagonal(both, -np.inf)
    size = min(max(most_slots, 1), tokens.experts) - 1
    company = _largest(both, size)
    if load is not None and np.isfinite(most_load):
        room = np.maximum(most_load - load, 0.0)
        scale = float(own.sum()) / float(load.sum())
        for price in _PRICES[1:] * scale:
            worth = _largest(np.maximum(both - price * load, 0.0), size) + price * room
            company = np.minimum(company, worth)
    used = own > 0
    each = np.minimum(1 + company[used] / own[used], tokens.k)
    whole = np.floor(each)
    value = 1 / whole + (each - whole) * (1 / (whole + 1) - 1 / whole)
    bound = float((own[used] * value).sum()) / len(tokens)
    return max(1.0, float(np.ceil(tokens.chosen.sum(axis=1) / max(most_slots, 1)).mean()), bound)


def _largest(value: Floats, number: int) -> Floats:
    """Return the sum of the ``number`` largest of each row."""
    if number < 1:
        return np.zeros(len(value))
    if number < value.shape[1]:
        value = np.sort(np.partition(value, -number, axis=1)[:, -number:], axis=1)  # summed in one order
    total: Floats = np.maximum(value, 0.0).sum(axis=1)
    return total


if __name__ == "__main__":
    sys.exit(main())
