"""How one GPU looks as a cell: its number, the value and label of an overlay, or that it is broken."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import groupby

from topology.cluster import Cluster
from topology.draw.canvas import TEXT_POINTS, Canvas, cell, table
from topology.draw.marks import Marks
from topology.draw.metrics import fitting, text_width
from topology.draw.overlay import Overlay, Ramp
from topology.draw.parts import Fold, Host, Pod
from topology.draw.style import FAULT, FAULT_FILL, INK, QUIET, ink_on, natural, rail_colour
from topology.draw.usage import Usage
from topology.units import format_number

_SMALL_POINTS = 8
_LABEL_CHARACTERS = 4
_LEGEND_HEIGHT = 20
Place = int | str


class Painter:
    """Draws GPU cells of one cluster; with an overlay or traffic, colour is the value and rails are grey."""

    def __init__(
        self,
        cluster: Cluster,
        folded: Fold,
        marks: Marks,
        overlay: Overlay | None = None,
        usage: Usage | None = None,
        shown: Sequence[int] | None = None,
    ) -> None:
        self.cluster, self.fold, self.marks = cluster, folded, marks
        self.overlay, self.usage = overlay, usage
        self._raw_names: list[str | None] | None = None
        self.ramp = None
        if overlay is not None:
            overlay.check(len(cluster.gpus))
            chosen = range(len(cluster.gpus)) if shown is None else shown
            if overlay.values is not None:
                self.ramp = Ramp([overlay.values[i] for i in chosen], overlay.spans)

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

    def is_odd(self, pod: Pod) -> bool:
        """Whether something is wrong in a pod."""
        parts = (*(host.id for host in pod.hosts), *(leaf.id for leaf in pod.leaves))
        return any(name in self.odd for name in parts)

    def rail(self, number: int | None) -> str:
        """Return the colour of a rail: grey where the colours mean something else."""
        return rail_colour(number) if self.plain and number is not None else QUIET

    def domain_name(self, number: int) -> str:
        """Return what a domain is called: its name in a raw graph, else ``d3``."""
        if self.cluster.spec.raw is None:
            return f"d{number}"
        if self._raw_names is None:
            named = (node.domain for node in self.cluster.spec.raw.nodes if node.kind == "gpu")
            self._raw_names = list(dict.fromkeys(named))
        name = self._raw_names[number] if number < len(self._raw_names) else None
        return name or f"d{number}"

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
            "size": _SMALL_POINTS,
            "href": "#",
            "border": 1,
        }
        if isinstance(place, str):
            tip = f"{place}: out of service"
            return cell("out", tooltip=tip, bgcolor=FAULT_FILL, ink=FAULT, color=FAULT, bold=True, **size)
        identity = self.cluster.gpus[place].id
        words = self.marks.of(identity)
        tip = "; ".join([identity, *words])
        colour = FAULT if words else "#c8c8c8"
        if self.overlay is None or self.overlay.values is None or self.ramp is None:
            ink, fill = (FAULT, FAULT_FILL) if words else (INK, "#ffffff")
            return cell(place, tooltip=tip, bgcolor=fill, ink=ink, color=colour, **size)
        label, value = self.overlay.labels[place], self.overlay.values[place]
        return cell(
            label[:_LABEL_CHARACTERS],
            tooltip=f"{tip}: {label}, {format_number(value)}",
            bgcolor=self.ramp.fill(value),
            ink=self.ramp.ink(value),
            color=colour,
            **size,
        )

    def range_text(self, gpus: Sequence[int]) -> str:
        """Return the least and largest value of some GPUs, nothing where there are no values."""
        if self.overlay is None or self.overlay.values is None or not gpus:
            return ""
        values = [self.overlay.values[i] for i in gpus]
        return f"{format_number(min(values))} to {format_number(max(values))}"

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
        return [cell(self.tag(run), colspan=len(run), size=_SMALL_POINTS, height=12) for run in runs]

    def rail_cell(self, rail: int | None, width: int, text: str, port: str = "", height: int = 14) -> str:
        """Return a cell in the colour of a rail."""
        colour = self.rail(rail)
        ports = {"port": port} if port else {}
        ink = ink_on(colour) if self.plain and rail is not None else "#ffffff"
        return cell(text, width=width, height=height, bgcolor=colour, ink=ink, size=_SMALL_POINTS, **ports)

    def fault_rows(
        self,
        names: Iterable[str],
        columns: int,
        most: int = 3,
        width: float | None = None,
        *,
        full: bool = False,
    ) -> list[list[str]]:
        """Return rows of a table that say in red what is wrong with ``names``, cut to ``width`` points."""
        lines = self.marks.lines(names, most, full=full)
        if width is not None:
            lines = [fitting(line, width, _SMALL_POINTS) for line in lines]
        return [[cell(line, colspan=columns, ink=FAULT, size=_SMALL_POINTS, height=12)] for line in lines]

    def draw_legend(self, canvas: Canvas, at: tuple[float, float]) -> None:
        """Draw what the colours and tags mean, its top left corner at ``at``."""
        x, y = at
        html, width = self._ramp_legend() if self.usage is None else self.usage.legend()
        if html:
            canvas.box("legend", (x, y), (width, _LEGEND_HEIGHT), html)
            y += _LEGEND_HEIGHT + 6
        if self.overlay is not None and self.overlay.key:
            canvas.note("key", (x, y), list(self.overlay.key))

    def _ramp_legend(self) -> tuple[str, int]:
        """Return the legend of the overlay as a table, and its width; nothing where there is none."""
        if self.overlay is None or self.ramp is None:
            return "", 0
        texts = [format_number(value) for value in self.ramp.steps()]
        wide = max(46, *(text_width(text, TEXT_POINTS) + 6 for text in texts))
        swatches = [
            cell(
                text,
                bgcolor=self.ramp.fill(value),
                ink=self.ramp.ink(value),
                width=wide,
                height=16,
                border=1,
                color="#c8c8c8",
            )
            for value, text in zip(self.ramp.steps(), texts, strict=True)
        ]
        width = len(texts) * wide + 8 + text_width(self.overlay.legend, TEXT_POINTS)
        words = [cell("", width=8), cell(self.overlay.legend, align="left")]
        return table([[*swatches, *words]], width=width), width
