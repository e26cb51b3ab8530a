"""A regular cluster beside the graph that was found: what lacks in it, is slow or ends elsewhere is broken."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest

import numpy as np

from topology.build import build_cluster
from topology.graph import SCALE_OUT_KINDS
from topology.importers.graph_found import MOST_LACKING, GraphFound, rate_of
from topology.importers.parts import Parts
from topology.spec import (
    ClusterSpec,
    DomainSpec,
    Fault,
    RawLink,
)
from topology.wiring import Floats, Wiring

_MOST_TOLD = 8
_SAME = 1e-9
_Row = tuple[RawLink, str, str, float]
"""A link found, its ends and its count in the short form."""


def compared(
    spec: ClusterSpec,
    hosts: Sequence[Sequence[str]],
    found: GraphFound,
    unit: DomainSpec,
    switches: Mapping[str, str],
    parts: Parts,
) -> tuple[ClusterSpec, list[str]] | None:
    """Return a cluster with what lacks in the graph found as its faults, None where more than that differs.

    ``hosts`` are those of each of its domains, ``switches`` what those of the fabric are called in it.
    """
    order = [host or "(absent)" for own in hosts for host in own]
    names = {**switches, **_gpu_names(hosts, found, switches, spec)}
    cluster = build_cluster(spec)
    wiring = cluster.wiring
    have, strays = _renamed(found, names, _chip_names(hosts, found, unit), wiring)
    known = set(names.values())
    gone = [gpu.id for gpu in cluster.gpus if gpu.id not in known] + sorted(names[gpu] for gpu in found.odd)
    alike = _alike(found, wiring, have, strays)
    moved = None if strays and alike else _moved(wiring, have, strays)
    links = None if moved is None else _lacking(wiring, have, gone)
    few = links is not None and moved is not None and len(moved) + len(links) <= MOST_LACKING * len(wiring.a)
    if links is None or moved is None or not few or len(gone) > MOST_LACKING * spec.gpus:
        if alike:
            return spec, order
        if strays:
            kind = spec.scale_out.kind if spec.scale_out else spec.domains[0].structure
            ends = " to ".join(strays[0][0].between)
            parts.note(f"Written out link by link: {ends} is no link of a regular {kind}.")
        return None
    faults = [*(Fault(gpu=gpu) for gpu in gone), *links, *moved]
    if faults:
        spec = replace(spec, faults=tuple(faults))
        build_cluster(spec)
        lines = f"{len(faults)} {'lines' if len(faults) > 1 else 'line'} of `broken:`"
        parts.note(f"Regular but for {lines}: GPUs and links that lack, are slow or end elsewhere.")
        called = {short: long for long, short in names.items()}
        parts.anomalies += [_told(fault, called, found) for fault in faults[:_MOST_TOLD]]
        if len(faults) > _MOST_TOLD:
            parts.anomalies.append(f"{len(faults) - _MOST_TOLD} more lines of `broken:`.")
    return spec, order


def _renamed(
    found: GraphFound, names: Mapping[str, str], chips: Mapping[str, list[tuple[str, float]]], wiring: Wiring
) -> tuple[Floats, list[_Row]]:
    """Return ``[2, links]`` rate and latency found of each link of ``wiring``, NaN of none, and links it lacks."""
    rows = [(link, *part) for link in found.links for part in _split(link, names, chips)]
    known = [a in wiring.number and b in wiring.number for _, a, b, _ in rows]
    at = np.full(len(rows), -1)
    at[known] = wiring.find([(a, b) for (_, a, b, _), one in zip(rows, known, strict=True) if one])
    fits = at >= 0
    fits[fits] = np.bincount(at[fits], minlength=len(wiring.a))[at[fits]] == 1
    have = np.full((2, len(wiring.a)), np.nan)
    have[0, at[fits]] = [
        count * link.fabric.link_bytes_per_s.value
        for (link, _, _, count), one in zip(rows, fits, strict=True)
        if one
    ]
    have[1, at[fits]] = [
        link.fabric.latency_s.value for (link, *_), one in zip(rows, fits, strict=True) if one
    ]
    return have, [rows[row] for row in np.flatnonzero(~fits).tolist()]


def _moved(wiring: Wiring, have: Floats, strays: Sequence[_Row]) -> list[Fault] | None:
    """Return links that lack as cabled to where strays end, set in ``have``; None where a stray is none of them."""
    free: dict[tuple[str, str], list[int]] = defaultdict(list)
    for link in np.flatnonzero(np.isnan(have[0])).tolist() if strays else ():
        for end, other in ((wiring.a[link], wiring.b[link]), (wiring.b[link], wiring.a[link])):
            free[wiring.names[end], wiring.kinds[other]].append(link)
    faults: list[Fault] = []
    for stray, a, b, count in strays:
        rate, latency = count * stray.fabric.link_bytes_per_s.value, stray.fabric.latency_s.value
        for stays, to in ((a, b), (b, a)):
            kind = wiring.kinds[wiring.number[to]] if to in wiring.number else ""
            fits = [
                link
                for link in free[stays, kind] * (kind in SCALE_OUT_KINDS)
                if np.isnan(have[0, link]) and abs(rate / wiring.bytes_per_s[link] - 1) <= _SAME
            ]
            if fits:
                other = wiring.a[fits[0]] + wiring.b[fits[0]] - wiring.number[stays]
                have[:, fits[0]] = rate, latency
                faults.append(Fault(link=(stays, wiring.names[other]), factor=1.0, cabled_to=to))
                break
        else:
            return None
    return faults


def _lacking(wiring: Wiring, have: Floats, gone: Sequence[str]) -> list[Fault] | None:
    """Return the links that are missing or slow, but for those of GPUs that are gone; None where one is faster."""
    out = np.zeros(len(wiring.names), dtype=bool)
    out[[wiring.number[gpu] for gpu in gone]] = True
    stays = ~(out[wiring.a] | out[wiring.b])
    factor = have[0] / wiring.bytes_per_s
    other = abs(have[1] / wiring.latency_s - 1) > _SAME
    if (stays & ((factor > 1 + _SAME) | other)).any():
        return None
    return [
        Fault(
            link=(wiring.names[wiring.a[link]], wiring.names[wiring.b[link]]),
            factor=float(np.nan_to_num(factor[link])),
        )
        for link in np.flatnonzero(stays & ~(factor > 1 - _SAME)).tolist()
    ]


def _told(fault: Fault, called: Mapping[str, str], found: GraphFound) -> str:
    """Return a fault in the names of the files, where they have them."""
    if fault.gpu is not None:
        name = called.get(fault.gpu)
        what = "has no scale-up link" if name in found.odd else "is absent"
        return f"{name or 'a GPU'} {what}: {fault.gpu} is broken."
    a, b = fault.link or ("", "")
    ends = f"{called.get(a, a)} to {called.get(b, b)}"
    if fault.cabled_to is not None:
        to = called.get(fault.cabled_to, fault.cabled_to)
        return f"{ends}: cabled to {to} instead: [{a}, {b}] is cabled to {fault.cabled_to}."
    part = f"at {fault.factor:.3g} of the rate of the others" if fault.factor else "no link"
    return f"{ends}: {part}: [{a}, {b}] is broken."


def _gpu_names(
    hosts: Sequence[Sequence[str]], found: GraphFound, switches: Mapping[str, str], spec: ClusterSpec
) -> dict[str, str]:
    """Return what the GPUs are called in the short form: by their leaf's rail, else in order."""
    rail = spec.scale_out is not None and spec.scale_out.kind == "rail"
    names = {}
    for number, own in enumerate(hosts):
        for place, host in enumerate(own):
            members = found.gpus.get(host, [])
            at: dict[str, int] = {}
            if rail and len(members) < spec.domains[0].gpus_per_node:
                for member in members:
                    leaf = next(iter(found.nics.get(member, ())), "")
                    if leaf in switches:
                        at[member] = int(switches[leaf].rpartition(".l")[2])
            free = (p for p in range(spec.domains[0].gpus_per_node) if p not in at.values())
            for member in members:
                position = at[member] if member in at else next(free, -1)
                names[member] = f"d{number}.n{place}.g{position}"
    return names


def _chip_names(
    hosts: Sequence[Sequence[str]], found: GraphFound, unit: DomainSpec
) -> dict[str, list[tuple[str, float]]]:
    """Return the switch chips that each chip found is: one, or where one stands for all, all with their shares."""
    names: dict[str, list[tuple[str, float]]] = {}
    if not unit.switched:
        return names
    ranked = sorted(range(len(unit.links_per_switch)), key=lambda chip: -unit.links_per_switch[chip])
    total = sum(unit.links_per_switch)
    for number, own in enumerate(hosts):
        counts: dict[str, Counter[int]] = defaultdict(Counter)
        for member in (gpu for host in own for gpu in found.gpus.get(host, ())):
            for chip, link in found.up.get(member, {}).items():
                counts[chip][link.count] += 1
        if len(counts) == 1 and len(unit.links_per_switch) > 1:
            (chip,) = counts
            names[chip] = [
                (f"d{number}.s{i}", links / total) for i, links in enumerate(unit.links_per_switch)
            ]
            continue
        order = sorted(counts, key=lambda chip: -counts[chip].most_common(1)[0][0])
        for place, chip in zip_longest(ranked, order):
            if chip is not None:
                names[chip] = [(f"d{number}.s{len(ranked) if place is None else place}", 1.0)]
    return names


def _split(
    link: RawLink, names: Mapping[str, str], chips: Mapping[str, list[tuple[str, float]]]
) -> Iterator[tuple[str, str, float]]:
    """Yield what a link found is in the short form; a name that is not known stays."""
    a, b = link.between
    for one, part in chips.get(a, [(names.get(a, a), 1.0)]):
        for other, share in chips.get(b, [(names.get(b, b), 1.0)]):
            yield one, other, link.count * part * share


def _alike(found: GraphFound, wiring: Wiring, have: Floats, strays: Sequence[_Row]) -> bool:
    """Whether only links between switches differ, as many of each rate as are built: uplinks that do not divide."""
    above = wiring.is_kind(*SCALE_OUT_KINDS)
    below = ~(above[wiring.a] & above[wiring.b])
    built = np.stack([wiring.bytes_per_s, wiring.latency_s])
    if not (abs(have[:, below] / built[:, below] - 1) <= _SAME).all():
        return False
    if any(found.kinds[end] not in SCALE_OUT_KINDS for link, *_ in strays for end in link.between):
        return False
    links = (wiring.a, wiring.b, wiring.count, wiring.link_bytes_per_s)
    wanted = Counter(
        (frozenset((wiring.kinds[a], wiring.kinds[b])), count, rate)
        for a, b, count, rate in zip(*(part[~below].tolist() for part in links), strict=True)
    )
    seen = Counter(
        (frozenset(found.kinds[end] for end in link.between), link.count, rate_of(link.fabric)[0])
        for link in found.links
        if found.levels.keys() >= set(link.between)
    )
    return wanted == seen
