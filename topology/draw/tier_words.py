"""Words about the tiers of a picture: names and counts of switches, links of each, and how they compare."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property

from topology.base.units import format_number, plural, span
from topology.draw.captions import chips_text
from topology.draw.fold import Links, Switch
from topology.draw.painter import Painter
from topology.fabrics.fabric import CabledFabric
from topology.scale_out import switches_above
from topology.structures.switch import ChipDomain


class TierWords:
    """Words about the tiers of all domains, or of the one that is opened (``number``).

    ``leaves`` is the first tier, if it has boxes of its own. ``direct`` means that leaves, or groups of routers, are
    linked to each other, without a switch above them; ``linked`` is what those are called.
    """

    def __init__(self, painter: Painter, leaves: Sequence[Switch]) -> None:
        number = painter.opened
        self.cluster, self.spec, self.fold = painter.cluster, painter.spec, painter.fold
        self.number, self.leaves, self.noun = number, leaves, painter.noun
        self.first_tier = "chip" if number is not None else "router" if self.fold.tier("router") else "leaf"
        self.linked = "groups" if self.first_tier == "router" else "leaves"
        flat = number is None and not self.fold.tier("spine")
        self.direct = flat and any(switch.far.count for switch in self.fold.tier(self.first_tier))
        rails = {leaf.rail for leaf in leaves}
        self.by_rail = self.first_tier == "leaf" and len(rails) > 1 and None not in rails
        out = self.spec.scale_out
        # what one switch of the top tier is called
        self.top_one = "spine"
        if number is not None:
            self.top_one = "switch chip"
        elif isinstance(out, CabledFabric):
            self.top_one = out.spine

    @cached_property
    def beyond(self) -> str:
        """Name the switches that spine planes stand for, where those are more than the graph has."""
        if self.number is not None:
            return ""
        above = switches_above(self.cluster)
        if not above.more:
            return ""
        spines = plural(len(self.fold.tier("spine")) + above.more["spine"], "spine")
        cores = [plural(count, kind) for kind, count in above.more.items() if kind == "core"]
        return " and ".join([spines, *cores])

    def domain(self, number: int, upper: str) -> str:
        """Return what joins a domain; ``upper`` are the chips of its second tier."""
        domain = self.fold.specs[number]
        if not self.leaves:
            return chips_text(self.fold, number)
        planes = len(domain.links_per_switch) if isinstance(domain, ChipDomain) else 0
        return " in ".join([upper, *[plural(planes, "plane")] * bool(planes)])

    def between_groups(self) -> str:
        """Count the links between each two leaves or groups, from least to most."""
        group = {switch.id: switch.group for switch in self.fold.tier(self.first_tier)}
        graph, counts = self.cluster.graph, Counter[tuple[str, str]]()
        for name, home in group.items():
            for neighbour in graph[name]:
                if home < group.get(neighbour, ""):
                    counts[home, group[neighbour]] += graph[name][neighbour]["count"]
        least_most = (f"{count:,}" for count in (min(counts.values()), max(counts.values())))
        return f"{span(least_most)} links between any two, {plural(len(counts), 'pair')}"

    def top(self) -> list[str]:
        """Name the top tier."""
        if self.number is not None:
            if not self.fold.chips(self.number):
                return ["scale-up links"]
            return ["second tier", "of switch chips"] if self.leaves else ["switch chips"]
        return [f"between {self.linked}"] if self.direct else ["spine"]

    def leaf(self) -> list[str]:
        """Name the first tier."""
        if self.first_tier != "leaf":
            return ["first tier,", "in the hosts"] if self.first_tier == "chip" else ["routers", "by group"]
        planes = self.spec.scale_out is not None and self.spec.scale_out.planes > 1
        return ["leaf, one per rail", *["and plane"] * planes] if self.by_rail else ["leaf"]

    def gpus(self) -> list[str]:
        """Name the rows of GPUs."""
        if self.number is None:
            return [f"{self.noun}s by domain", "and node"]
        return [f"{self.noun}s by node"]

    def ratio(self, switches: Sequence[Switch]) -> list[str]:
        """Return the oversubscription of a tier: as designed, of a raw graph that of all its switches."""
        up, down = (
            Links.sum(links).bytes_per_s for links in zip(*((s.up, s.down) for s in switches), strict=True)
        )
        if not up > 0:
            return []
        out = self.spec.scale_out
        ratio = down / up
        if self.number is None and isinstance(out, CabledFabric):
            spine = switches[0].tier == "spine"
            ratio = out.oversubscription_above_pods if spine else out.oversubscription
        return ["not oversubscribed" if ratio <= 1 else f"oversubscribed {format_number(ratio)} : 1"]
