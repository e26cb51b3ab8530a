"""The same demand on several clusters: the size of each, or why it cannot serve."""

from __future__ import annotations

from dataclasses import dataclass

from cost.inputs.deployment import Deployment
from cost.serving.sizing import Size
from topology.base.errors import InfeasibleError
from topology.base.shown import Shown


@dataclass(frozen=True)
class Refused:
    """A cluster that cannot serve the demand, and why."""

    deployment: Deployment
    error: InfeasibleError


@dataclass(frozen=True, repr=False)
class Sizes(Shown):
    """Fleets of several clusters for the same demand."""

    clusters: tuple[Size | Refused, ...]

    @property
    def sizes(self) -> list[Size]:
        """Those that serve it."""
        return [answer for answer in self.clusters if isinstance(answer, Size)]

    @property
    def refused(self) -> list[Refused]:
        """Those that do not."""
        return [answer for answer in self.clusters if isinstance(answer, Refused)]

    def brief(self) -> str:
        """Return what each takes."""
        return "; ".join(answer.brief() for answer in self.sizes)
