"""How one GPU and one link look: number or overlay value, what is broken or unlike its siblings, how busy it is."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from functools import cached_property
from itertools import groupby

from topology.base.names import natural
from topology.base.units import format_number, plural
from topology.cluster import Cluster
from topology.draw.canvas import (
    FAULT,
    FAULT_FILL,
    INK,
    QUIET,
    SLOW,
    SLOW_FILL,
    SMALL_POINTS,
    Canvas,
    Line,
    Point,
    Sheet,
    cell,
    ink_on,
    named,
    rail_colour,
    text_width,
    wrapped,
)
from topology.draw.captions import broken_lines, noun, rate_text, slow_gpus
from topology.draw.fold import Fold
from topology.draw.overlay import Overlay, Ramp, TrafficOverlay, Usage, legend, percent
from topology.draw.parts import Host, Links, Switch

_MOST_NAMED = 4
_THROTTLED = "throttled x "


class Marks:
    """Words about each node that is not as it was built, or not as its siblings are."""

    def __init__(self, cluster: Cluster, folded: Fold) -> None:
        self.broken_gpus = cluster.wiring.broken_gpus
        self.broken_links = cluster.wiring.broken_links
        self.degraded = tuple(folded.degraded)
        self.slow = slow_gpus(cluster)
        self._noun = noun(cluster.spec.domains)
        self._words: dict[str, list[str]] = defaultdict(list)
        cut = {end for pair in self.broken_links for end in pair} & folded.switches.keys()
        self.dead = [name for name in folded.switches if name in cut and not folded.switches[name].linked]
        self._out = {*self.broken_gpus, *self.dead}
        self._alone = [pair for pair in self.broken_links if not self._out & set(pair)]
        for a, b in self._alone:  # the links of what is out of service are broken with it
            self._both(a, b, "broken")
        for a, b, health in self.degraded:
            self._both(a, b, f"x {health:.3g}")
        for name, factor in self.slow.items():
            self._words[name].append(f"{_THROTTLED}{factor:.3g}")
        if cluster.spec.raw is not None:
            self._odd_ones(cluster, folded)

    def _both(self, a: str, b: str, word: str) -> None:
        """Note a link at both of its ends."""
        self._words[a].append(f"{b} {word}")
        self._words[b].append(f"{a} {word}")

    def _odd_ones(self, cluster: Cluster, folded: Fold) -> None:
        """Note GPUs and switches of a raw graph with fewer links than most of their siblings."""
        for number in range(len(cluster.spec.domains)):
            gpus = [(i, gpu.id) for i, gpu in enumerate(cluster.gpus) if gpu.domain == number]
            self._below_most([(name, folded.gpu_links[i].count) for i, name in gpus], "links")
        for hosts in folded.hosts_by_domain:
            self._below_most([(host.id, host.places) for host in hosts], f"{self._noun}s")
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
            if count < usual and not self.of(name):
                self._words[name].append(f"{count} of {usual} {word}")

    def of(self, name: str) -> list[str]:
        """Return the words about a node; none if nothing is wrong with it."""
        if name in self._out:
            return ["out of service"]
        return self._words.get(name, [])

    def look(self, name: str) -> tuple[str, str] | None:
        """Return fill and ink of a node that is not as built, amber if it is only throttled; else None."""
        words = self.of(name)
        if words and all(word.startswith(_THROTTLED) for word in words):
            return SLOW_FILL, SLOW
        return (FAULT_FILL, FAULT) if words else None

    @property
    def names(self) -> set[str]:
        """Ids of everything that is not as it was built, or not as its siblings are."""
        return {*self._out, *(name for name, words in self._words.items() if words)}

    def lines(self, names: Iterable[str], most: int = 3) -> list[str]:
        """Return at most ``most`` lines about ``names``: "d0.n0.g1: d0.s5 broken"."""
        found = [f"{name}: {word}" for name in names for word in self.of(name)]
        return found if len(found) <= most else [*found[: most - 1], f"and {len(found) - most + 1} more"]

    def summary(self) -> list[str]:
        """Return the lines of the caption that name what is broken."""
        links = [f"{a} - {b}" for a, b in self._alone]
        slow = [f"{a} - {b} at x {health:.3g}" for a, b, health in self.degraded]
        throttled = [f"{name} at x {factor:.3g}" for name, factor in self.slow.items()]
        all_of = (
            ("Out of service", self.broken_gpus, f"{self._noun}s"),
            ("Throttled", throttled, f"{self._noun}s"),
            ("Switches out of service", self.dead, "switches"),
            ("Broken links", links, "links"),
            ("Degraded links", slow, "links"),
        )
        return [f"{what}: {_named(names, word)}" for what, names, word in all_of if names]

    def legend(self) -> list[tuple[str, str, str, str]]:
        """Return text, fill and ink of each mark in use, and what it means."""
        found = []
        if self.broken_gpus:
            count = plural(len(self.broken_gpus), self._noun)
            found.append(("out", FAULT_FILL, FAULT, f"out of service: {count}"))
        if self.slow:
            count = plural(len(self.slow), self._noun)
            found.append(("amber", SLOW_FILL, SLOW, f"throttled, works at a part of its rates: {count}"))
        if links := len(self._alone) + len(self.degraded):
            words = f"at an end of a link that is broken or below its rate: {plural(links, 'link')}"
            found.append(("red", FAULT_FILL, FAULT, words))
        return found

    def odd_names(self, names: Iterable[str]) -> list[str]:
        """Return those of ``names`` that have words."""
        return [name for name in names if self.of(name)]


def _named(names: Sequence[str], word: str) -> str:
    """Return the first few names, and how many more there are."""
    more = len(names) - _MOST_NAMED
    text = ", ".join(names[:_MOST_NAMED])
    return f"{text} and {more} more {word}" if more > 0 else text


_LABEL_CHARACTERS = 4
_LEGEND_HEIGHT = 20
Place = int | str
Ends = tuple[str, str]


class Painter:
    """Draws parts of one cluster on a canvas; with an overlay or traffic, colour is the value and rails are grey.

    ``opened`` is the one domain that is drawn, None for all.
    """

    def __init__(
        self,
        canvas: Canvas,
        cluster: Cluster,
        overlay: Overlay | None,
        traffic: TrafficOverlay | None,
    ) -> None:
        self.canvas, self.cluster = canvas, cluster
        self.fold = Fold(cluster)
        self.marks = Marks(cluster, self.fold)
        self.overlay = overlay
        self.usage = Usage(cluster, traffic) if traffic is not None else None
        self._said: set[tuple[str, ...]] = set()
        self.opened: int | None = None
        self.told = 0
        if overlay is not None:
            overlay.check(len(cluster.gpus))

    @cached_property
    def ramp(self) -> Ramp | None:
        """Colours of the values of the overlay, as far as they are drawn."""
        if self.overlay is None or self.overlay.values is None:
            return None
        values = zip(self.cluster.gpus, self.overlay.values, strict=True)
        return Ramp([value for gpu, value in values if self.opened in (None, gpu.domain)], self.overlay.spans)

    @property
    def noun(self) -> str:
        """What one GPU of what is drawn is called."""
        domains = self.cluster.spec.domains
        return noun(domains if self.opened is None else domains[self.opened : self.opened + 1])

    @property
    def bottleneck(self) -> tuple[str, ...]:
        """Ends of the link that is named as the bottleneck; none without traffic."""
        return self.usage.bottleneck if self.usage is not None else ()

    @property
    def plain(self) -> bool:
        """Whether colours are free to tell rails apart."""
        return self.overlay is None and self.usage is None

    @cached_property
    def odd(self) -> set[str]:
        """Ids of hosts and switches with something wrong in them: they are not drawn as one of many."""
        found = set(self.marks.names)
        for host in self.fold.hosts:
            if host.broken or any(self.cluster.gpus[i].id in found for i in host.gpus):
                found.add(host.id)
        return found

    def looks(self, hosts: Sequence[Host], switches: Sequence[Switch] = ()) -> Hashable:
        """Return what hosts and switches must have in common, besides their shape, to be drawn as one.

        Those with something wrong in them are like no others; with traffic their links have the same colours.
        """
        names = [*(host.id for host in hosts), *(switch.id for switch in switches)]
        if self.opened is None:
            names += self.fold.chip_ids({host.domain for host in hosts})
        wrong = next((name for name in names if name in self.odd), None)
        if wrong is not None or self.usage is None:
            return wrong
        return self.usage.colours([*self.fold.parts(hosts), *names])

    def holds(self, hosts: Sequence[Host], switches: Sequence[Switch] = ()) -> bool:
        """Whether the link that is named as the bottleneck ends in some hosts or at some switches."""
        if not self.bottleneck:
            return False
        domains = {host.domain for host in hosts} if self.opened is None else ()
        inside = (*self.fold.parts(hosts), *self.fold.chip_ids(domains), *(switch.id for switch in switches))
        return not set(self.bottleneck).isdisjoint(inside)

    def colour(self, pairs: Sequence[Ends], plain: str) -> str:
        """Return the colour of a bundle of links: ``plain``, or how busy its busiest is."""
        return plain if self.usage is None else self.usage.colour(self.usage.busiest(pairs))

    def look(self, pairs: Sequence[Ends], fill: str = "#ffffff", ink: str = INK) -> dict[str, str]:
        """Return fill and ink of words about links: how busy they are, where traffic is drawn."""
        if self.usage is None:
            return {"bgcolor": fill, "ink": ink}
        share = self.usage.busiest(pairs)
        return {"bgcolor": self.usage.colour(share), "ink": self.usage.ink(share)}

    def link(
        self,
        line: Line,
        pairs: Sequence[Ends] | None,
        *,
        colour: str = QUIET,
        width: float = 1.0,
        dashed: bool = False,
        tip: str = "",
        links: Links | None = None,
    ) -> None:
        """Draw a bundle of links: ``pairs`` are the ends of each, None where traffic means nothing for it.

        With traffic, colour and width are how busy its busiest link is. The tip says that and, where none is given,
        how many ``links`` there are of which rate.
        """
        tip = tip or (links.text() if links is not None and links.count else "")
        if self.usage is not None and pairs is not None:
            share = self.usage.busiest(pairs)
            colour, width = self.colour(pairs, colour), self.usage.width(share)
            tip = "; ".join([*filter(None, [tip]), f"{percent(share)} of the time busy"])
        self.canvas.link(line, colour, width=width, style="dashed" if dashed else "solid", tip=tip)

    def say(
        self,
        at: Point,
        links: Links,
        ink: str = QUIET,
        kind: str = "",
        *,
        total: bool = False,
        left: bool = False,
    ) -> None:
        """Write count x rate = total beside a point, the first time that it comes for bundles of its ``kind``.

        With ``total`` the number of links is not known, and their rate together is written alone.
        """
        words = rate_text(links.bytes_per_s) if total else links.text().removesuffix(" each way")
        lines = broken_lines(words)
        if (kind, *lines) not in self._said:
            self._said.add((kind, *lines))
            wide = max(text_width(line, 8) for line in lines) + 4
            corner = (at[0] - 6 - wide if left else at[0] + 6, at[1] - 13 * len(lines) / 2)
            self.canvas.note(f"said{len(self._said)}", corner, lines, ink, 8)

    def around(self, nodes: Iterable[str], others: Iterable[str]) -> list[Ends]:
        """Return the links between ``nodes`` and ``others``, where traffic asks for them."""
        if self.usage is None:
            return []
        far, graph = set(others), self.cluster.graph
        return [(a, b) for a in nodes for b in graph[a] if b in far]

    def rail(self, number: int | None) -> str:
        """Return the colour of a rail: grey where the colours mean something else."""
        return rail_colour(number) if self.plain and number is not None else QUIET

    @cached_property
    def _raw_names(self) -> list[str | None]:
        """Names of the domains of a raw graph, in order."""
        nodes = () if self.cluster.spec.raw is None else self.cluster.spec.raw.nodes
        return list(dict.fromkeys(node.domain for node in nodes if node.kind == "gpu"))

    def domain_name(self, number: int) -> str:
        """Return what a domain is called: its name in a raw graph, else ``d3``."""
        return (self._raw_names[number] if number < len(self._raw_names) else None) or f"d{number}"

    def named_host(self, host: Host) -> dict[str, object]:
        """Return the attributes of a cell that names a host."""
        return named("node", host.id, f"node of {plural(host.places, self.noun)}, rack {host.rack}")

    def gpu_ids(self, hosts: Iterable[Host]) -> list[str]:
        """Return the ids of the working GPUs of some hosts."""
        return [self.cluster.gpus[i].id for host in hosts for i in host.gpus]

    def names(self, host: Host) -> list[str]:
        """Return the ids of a host and its working GPUs (broken ones say so themselves)."""
        return [host.id, *self.gpu_ids([host])]

    def places(self, host: Host) -> list[Place]:
        """Return the GPUs of a host by position: numbers of those that work, ids of those that do not."""
        if not host.broken:
            return list(host.gpus)
        names: dict[str, Place] = {self.cluster.gpus[i].id: i for i in host.gpus}
        names.update({name: name for name in host.broken})
        return [names[name] for name in sorted(names, key=natural)]

    def gpu(self, place: Place, width: int, height: int = 14) -> str:
        """Return the cell of one GPU: ``place`` is its number, or the id of a broken one."""
        size: dict[str, object] = {
            "width": width,
            "height": height,
            "size": SMALL_POINTS,
            "border": 1,
        }
        if isinstance(place, str):
            size["href"] = "#"
            tip = f"{place}: out of service"
            return cell("out", tooltip=tip, bgcolor=FAULT_FILL, ink=FAULT, color=FAULT, bold=True, **size)
        identity = self.cluster.gpus[place].id
        words = self.marks.of(identity)
        tip = "; ".join([identity, *words])
        size["href"] = f"#gpu:{identity}"
        fill, ink = self.marks.look(identity) or ("#ffffff", INK)
        colour = ink if words else "#c8c8c8"
        if self.overlay is None or self.overlay.values is None or self.ramp is None:
            return cell(place, tooltip=tip, bgcolor=fill, ink=ink, color=colour, **size)
        texts, value = self.overlay.texts, self.overlay.values[place]
        text = texts[self.told][place]
        return cell(
            text if self.told else text[:_LABEL_CHARACTERS],
            tooltip=f"{tip}: {texts[-1][place]}, {format_number(value)}",
            bgcolor=self.ramp.fill(value),
            ink=self.ramp.ink(value),
            color=colour,
            **size,
        )

    def detail_width(self, least: int, columns: int, most: int) -> int:
        """Return the width of a GPU's cell: for the longest that the overlay says of all, as far as there is room."""
        self.told, wide = self.detail_widths(least, columns, most)[0]
        return wide

    def detail_widths(self, least: int, columns: int, most: int) -> list[tuple[int, int]]:
        """Return which texts of the overlay have room and how wide their cells are, the longest first."""
        texts = self.overlay.texts if self.overlay is not None else [()]
        wide = [max([least, *(text_width(text, SMALL_POINTS) + 8 for text in part)]) for part in texts]
        fits = [(told, wide[told]) for told in range(len(texts) - 1, 0, -1) if wide[told] * columns <= most]
        return [*fits, (0, least)]

    def summed_up(self, hosts: Iterable[Host]) -> list[str]:
        """Return lines for the GPUs of hosts that are not drawn: how many, their values from to, their tags."""
        gpus = [i for host in hosts for i in host.gpus]
        lines = [plural(len(gpus), self.noun)]
        if self.overlay is not None and self.overlay.values is not None and gpus:
            values = [self.overlay.values[i] for i in gpus]
            lines.append(f"{format_number(min(values))} to {format_number(max(values))}")
        return [*lines, tag] if (tag := self.tag(gpus)) else lines

    def tags(self, places: Iterable[Place]) -> list[str]:
        """Return the different tags that the overlay gives to ``places``, in order."""
        if self.overlay is None or not self.overlay.tags:
            return []
        return list(dict.fromkeys(self.overlay.tags[i] for i in places if isinstance(i, int)))

    def tag(self, places: Iterable[Place]) -> str:
        """Return the tag of all of ``places``, "S0 to S3" for several, or nothing."""
        named = [tag for tag in self.tags(places) if tag]
        return named[0] if len(named) == 1 else f"{named[0]} to {named[-1]}" if named else ""

    def same_tag(self, places: Iterable[Place]) -> str:
        """Return the tag of ``places`` if all have the same one, else nothing."""
        tags = self.tags(places)
        return tags[0] if len(tags) == 1 else ""

    def tag_row(self, places: Sequence[Place]) -> list[str]:
        """Return a row of cells that names the tag of each run of GPUs; nothing where all have the same."""
        if len(self.tags(places)) < 2:
            return []
        runs = [list(run) for _, run in groupby(places, key=lambda place: self.same_tag([place]))]
        return [cell(self.tag(run), colspan=len(run), size=SMALL_POINTS, height=12) for run in runs]

    def host_rows(
        self,
        sheet: Sheet,
        places: Sequence[Place],
        columns: int,
        width: int,
        height: int = 14,
        header: tuple[str, int] | None = None,
        host: Host | None = None,
    ) -> None:
        """Add GPUs in rows of ``columns``, with their tags.

        ``header``: text before the first row, and its width; it names the ``host`` that they are on.
        """
        text, wide = header or ("", 0)
        names = {} if host is None else self.named_host(host)
        for start in range(0, len(places), columns):
            part = places[start : start + columns]
            look: dict[str, object] = {"width": wide, "size": SMALL_POINTS, "align": "left"}
            first = cell("" if start else text, **look, **({} if start else names))
            cells = [self.gpu(place, width, height) for place in part]
            sheet.add([first, *cells] if header else cells, height)
            if tags := self.tag_row(part):
                sheet.add([cell("", width=wide, height=12), *tags] if header else tags, 12)

    def rail_cell(self, rail: int | None, width: int, text: str, height: int = 14) -> str:
        """Return a cell in the colour of a rail."""
        colour = self.rail(rail)
        ink = ink_on(colour) if self.plain and rail is not None else "#ffffff"
        return cell(text, width=width, height=height, bgcolor=colour, ink=ink, size=SMALL_POINTS)

    def fault_rows(
        self,
        names: Iterable[str],
        columns: int,
        most: int = 3,
        width: float | None = None,
    ) -> list[list[str]]:
        """Return rows of a table that say in red what is wrong with ``names``, in lines of ``width`` points."""
        rows = []
        for line in self.marks.lines(names, most):
            ink = SLOW if f": {_THROTTLED}" in line else FAULT
            parts = [line] if width is None else wrapped(line, width, SMALL_POINTS)
            rows += [[cell(part, colspan=columns, ink=ink, size=SMALL_POINTS, height=12)] for part in parts]
        return rows

    def draw_legend(self, at: Point) -> None:
        """Draw what the colours and tags mean, its top left corner at ``at``."""
        x, y = at
        html, width = "", 0
        if self.usage is not None:
            html, width = self.usage.legend()
        elif self.overlay is not None and self.ramp is not None:
            cells = self.overlay.cells[self.told] if self.told < len(self.overlay.cells) else ""
            words = f"{self.overlay.legend} (in cells: {cells})" if cells else self.overlay.legend
            html, width = self.ramp.legend(words)
        if html:
            self.canvas.box("legend", (x, y), (width, _LEGEND_HEIGHT), html)
            y += _LEGEND_HEIGHT + 6
        for number, (text, fill, ink, words) in enumerate(self.marks.legend()):
            html, width = legend([(text, fill, ink)], [(words, None)])
            self.canvas.box(f"mark{number}", (x, y), (width, _LEGEND_HEIGHT), html)
            y += _LEGEND_HEIGHT
        if self.overlay is not None and self.overlay.key:
            self.canvas.note("key", (x, y), list(self.overlay.key))
