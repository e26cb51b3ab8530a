"""What a picture of tiers says of them: names and counts of switches, links of each, and how they compare."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from topology.base.names import natural
from topology.base.units import format_number, plural
from topology.draw.captions import broken_lines, chips_text
from topology.draw.fold import Links, Switch, most_common
from topology.draw.painter import Painter
from topology.fabrics import fabric_of

_MOST_PAIRS = 6


class TierWords:
    """Words about the tiers of all domains, or of one (``number``); ``leaves`` is the first tier, if drawn apart.

    ``direct`` says that groups of routers are linked to each other, without a switch above them.
    """

    def __init__(self, painter: Painter, number: int | None, leaves: Sequence[Switch]) -> None:
        self.cluster, self.spec, self.fold = painter.cluster, painter.cluster.spec, painter.fold
        self.number, self.leaves, self.noun = number, leaves, painter.noun
        self.direct = number is None and any(switch.far.count for switch in self.fold.tier("router"))
        self.first_word = "router" if self.fold.tier("router") else "leaf"

    def top_one(self) -> str:
        """Return what one switch of the top tier is called."""
        if self.number is not None:
            return "switch chip"
        fabric = fabric_of(self.spec.scale_out)
        return "spine" if fabric is None else fabric.spine

    def domain(self, number: int, second: str) -> str:
        """Return what joins a domain, and its links; ``second`` are the chips of its second tier."""
        hosts, bundled = self.fold.hosts_by_domain[number], self.fold.specs[number].links_bundled
        if self.leaves:
            up = Links.sum(chip.up for chip in self.leaves)
            planes = len(self.fold.specs[number].links_per_switch)
            within = f" in {plural(planes, 'plane')}" if planes else ""
            return f"{second}{within}, {plural(up.count, 'link')} to the first tier"
        links, text = self.fold.scale_up_links(hosts), chips_text(self.fold, number)
        if bundled or not self.fold.chips(number):
            return text
        return (
            f"{text}, {plural(links.count, 'link')} to "
            f"{plural(sum(len(host.gpus) for host in hosts), self.noun)}"
        )

    def between_groups(self) -> str:
        """Count the links between groups of routers: of each two where they are few, else from least to most."""
        group = {name: switch.group for name, switch in self.fold.switches.items()}
        pairs: dict[tuple[str, str], list[Any]] = defaultdict(list)
        graph = self.cluster.graph
        for name, own in group.items():
            for other in graph[name]:
                if own < group.get(other, ""):
                    pairs[own, group[other]].append(graph[name][other])
        in_order = sorted(pairs.items(), key=lambda item: natural(str(item[0])))
        links = {ends: Links.of(edges) for ends, edges in in_order}
        total = Links.sum(links.values())
        counts = sorted({one.count for one in links.values()})
        short = {ends: "g" + " - g".join(one.removeprefix("group ") for one in ends) for ends in links}
        each = ", ".join(f"{short[ends]}: {one.count}" for ends, one in links.items())
        if len(links) > _MOST_PAIRS:
            each = f"each two groups: {' to '.join(map(str, dict.fromkeys([counts[0], counts[-1]])))} links"
            each += f", {plural(len(links), 'pair')}"
        return f"{each}; in all {total.text()}"

    def top(self) -> list[str]:
        """Say what the top tier is."""
        if self.number is not None:
            return ["second tier", "of switch chips"] if self.leaves else ["switch chips"]
        return ["between groups"] if self.direct else ["spine"]

    def leaf(self) -> list[str]:
        """Say what the first tier is."""
        if self.number is not None:
            return ["first tier,", "in the hosts"]
        if self.first_word == "router":
            return ["routers", "by group"]
        rails = [leaf.rail for leaf in self.leaves]
        if not rails or None in rails or len(set(rails)) == 1:
            return ["leaf"]
        out = self.spec.scale_out
        return ["leaf, one per rail", *(["and plane"] if out is not None and out.planes > 1 else [])]

    def gpus(self) -> list[str]:
        """Name the rows of GPUs."""
        by = ["by domain", "and node"] if self.number is None else ["by node"]
        return [f"{self.noun}s {by[0]}", *by[1:]]

    def up(self) -> list[str]:
        """Say what goes up from each switch of the first tier, and how it compares with what comes from below."""
        links, which = most_common(leaf.far if self.direct else leaf.up for leaf in self.leaves)
        if not links.count:
            return []
        one, more = {"chip": ("chip", "chips"), "leaf": ("leaf", "leaves"), "router": ("router", "routers")}[
            "chip" if self.number is not None else self.first_word
        ]
        each = f"each {one}" if which == "each" else f"{which} {more}"
        each += ":" if self.direct else ", up:"
        return [each, *broken_lines(links.text()), self._ratio(links)]

    def _ratio(self, up: Links) -> str:
        """Say the oversubscription of the first tier: as designed, else of most switches."""
        scale_out = self.spec.scale_out
        if self.number is None and scale_out is not None and scale_out.kind != "raw":
            ratio = scale_out.oversubscription
        else:
            down, _ = most_common(leaf.down for leaf in self.leaves)
            ratio = down.bytes_per_s / up.bytes_per_s if up.bytes_per_s > 0 else 0.0
        if not ratio > 0:
            return ""
        return "not oversubscribed" if ratio <= 1 else f"oversubscribed {format_number(ratio)} : 1"

    def down(self) -> list[str]:
        """Say what goes from each GPU (or host) to the first tier."""
        if self.number is not None:
            return self._scale_up_words(self.number)
        linked = [host for host in self.fold.hosts if host.up.count and not host.broken]
        whole = [host.up for host in linked]
        shares = [links.share(host.places) for links, host in zip(whole, linked, strict=True)]
        each, which = most_common(share for share in shares if share is not None)
        if each.count and which == "each" and None not in shares:
            word = "rail" if self.leaf()[0].endswith("rail") else self.first_word
            return [f"each {self.noun} to its {word}:", *broken_lines(each.text())]
        links, which = most_common(whole)
        if not links.count:
            return []
        return ["each host:" if which == "each" else f"{which} hosts:", *broken_lines(links.text())]

    def _scale_up_words(self, number: int) -> list[str]:
        """Say what goes from each GPU of the domain to its chips."""
        gpus = [gpu for host in self.fold.hosts_by_domain[number] for gpu in host.gpus]
        links, which = most_common(self.fold.gpu_links[gpu] for gpu in gpus)
        if not links.count or self.spec.domains[number].links_bundled:
            return []
        return [f"{which} {self.noun}{'s' * (which != 'each')}:", *broken_lines(links.text())]
