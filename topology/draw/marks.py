"""What is wrong in a cluster, in a word for each node: broken and degraded links, GPUs with too few links."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from topology.cluster import Cluster
from topology.draw.parts import Fold

_MOST_NAMED = 4


def short_name(name: str, beside: str = "") -> str:
    """Return the part of an id that a reader needs beside another one: ``s3`` of ``d0.s3`` beside ``d0.n1.g0``."""
    head, dot, rest = name.partition(".")
    return rest if dot and rest and beside.partition(".")[0] == head and head != "f" else name


class Marks:
    """Words about each node that is not as it was built, or not as its siblings are."""

    def __init__(self, cluster: Cluster, folded: Fold) -> None:
        graph = cluster.graph.graph
        self.broken_gpus: tuple[str, ...] = tuple(graph.get("broken_gpus", ()))
        self.broken_links: tuple[tuple[str, str], ...] = tuple(
            tuple(ends) for ends in graph.get("broken_links", ())
        )
        self.degraded = tuple(folded.degraded)
        self._words: dict[str, list[str]] = defaultdict(list)
        out = set(self.broken_gpus)
        for a, b in self.broken_links:
            if a not in out and b not in out:  # the links of a broken GPU are broken with it
                self._both(a, b, "broken")
        for a, b, health in self.degraded:
            self._both(a, b, f"x {health:.3g}")
        if cluster.spec.raw is not None:
            self._odd_ones(cluster, folded)

    def _both(self, a: str, b: str, word: str) -> None:
        """Note a link at both of its ends."""
        self._words[a].append(f"{short_name(b, a)} {word}")
        self._words[b].append(f"{short_name(a, b)} {word}")

    def _odd_ones(self, cluster: Cluster, folded: Fold) -> None:
        """Note GPUs and switches of a raw graph with fewer links than most of their siblings."""
        for number in range(len(cluster.spec.domains)):
            names = [
                (gpu.id, folded.gpu_links[i].count)
                for i, gpu in enumerate(cluster.gpus)
                if gpu.domain == number
            ]
            self._below_most(names, "links")
        for hosts in folded.hosts_by_domain:
            self._below_most([(host.id, host.places) for host in hosts], "GPUs")
            up = [(host.id, sum(links.count for links in host.up.values())) for host in hosts]
            self._below_most(up, "links to the fabric")
        for tier, way, word in (("leaf", "up", "uplinks"), ("spine", "down", "downlinks")):
            links = [(switch.id, getattr(switch, way).count) for switch in folded.tier(tier)]
            self._below_most(links, word)

    def _below_most(self, counts: Sequence[tuple[str, int]], word: str) -> None:
        """Note those whose count is below the commonest one (the largest of equally common ones)."""
        tally = Counter(count for _, count in counts)
        if len(tally) < 2:
            return
        usual = max(tally, key=lambda count: (tally[count], count))
        for name, count in counts:
            if count < usual and not self._words.get(name):
                self._words[name].append(f"{count} of {usual} {word}")

    def of(self, name: str) -> list[str]:
        """Return the words about a node; none if nothing is wrong with it."""
        if name in self.broken_gpus:
            return ["out of service"]
        return self._words.get(name, [])

    @property
    def names(self) -> set[str]:
        """Ids of everything that is not as it was built, or not as its siblings are."""
        return {*self.broken_gpus, *(name for name, words in self._words.items() if words)}

    def lines(self, names: Iterable[str], most: int = 3, *, full: bool = False) -> list[str]:
        """Return at most ``most`` short lines about ``names``: "g1: s5 broken"; ``full``: "n0.g1: s5 broken"."""
        found = [f"{_brief(name, full=full)}: {word}" for name in names for word in self.of(name)]
        return found if len(found) <= most else [*found[: most - 1], f"and {len(found) - most + 1} more"]

    def summary(self) -> list[str]:
        """Return the lines of the caption that name what is broken."""
        lines = []
        if self.broken_gpus:
            lines.append(f"Out of service: {_named(self.broken_gpus, 'GPUs')}")
        links = [f"{a} - {b}" for a, b in self.broken_links]
        if links:
            lines.append(f"Broken links: {_named(links, 'links')}")
        slow = [f"{a} - {b} at x {health:.3g}" for a, b, health in self.degraded]
        if slow:
            lines.append(f"Degraded links: {_named(slow, 'links')}")
        return lines

    def odd_names(self, names: Iterable[str]) -> list[str]:
        """Return those of ``names`` that have words."""
        return [name for name in names if self.of(name)]


def _brief(name: str, *, full: bool) -> str:
    """Return the last part of an id, with ``full`` all but its first part; the id where that says nothing."""
    part = name.partition(".")[2] if full else name.rpartition(".")[2]
    return name if part.isdigit() or not part else part


def _named(names: Sequence[str], word: str) -> str:
    """Return the first few names, and how many more there are."""
    more = len(names) - _MOST_NAMED
    text = ", ".join(names[:_MOST_NAMED])
    return f"{text} and {more} more {word}" if more > 0 else text
