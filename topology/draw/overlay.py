"""Values laid over the GPUs of a drawing: a number and a label for each, on a one-hue ramp."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from topology.errors import InputError

_LIGHT = (0xEF, 0xF6, 0xFC)
_DARK = (0x08, 0x30, 0x6B)
_STEPS = 5
# Dark text on the light part of the ramp, white on the dark part.
_WHITE_FROM = 0.55


@dataclass(frozen=True)
class Overlay:
    """One value, one label and one tag a GPU, in the order of ``Cluster.gpus``.

    Attributes
    ----------
    values:
        Finite numbers: they set the colour; None where there is nothing to colour by.
    labels:
        Short texts (at most four characters are drawn): the number of experts, say.
    legend:
        What the values are, with their unit.
    spans:
        Values that the ramp covers at least, so that a small spread is not drawn as a large one.
    tags:
        What each GPU belongs to, in a few characters ("S0"); empty texts for those that belong to nothing,
        no tags at all where there is nothing to tell apart.
    key:
        What the tags mean, a line each.
    """

    values: Sequence[float] | None
    labels: Sequence[str]
    legend: str
    spans: tuple[float, float] | None = None
    tags: Sequence[str] = ()
    key: Sequence[str] = ()

    def check(self, gpus: int) -> None:
        """Check that there is one finite value and one label for each of ``gpus``.

        Raises
        ------
        InputError
            If there is not.
        """
        values = [0.0] * gpus if self.values is None else self.values
        if len(values) != gpus or len(self.labels) != gpus:
            raise InputError(
                f"overlay: {len(values)} values and {len(self.labels)} labels for {gpus} GPUs; "
                "it needs one of each for every GPU."
            )
        if self.tags and len(self.tags) != gpus:
            raise InputError(
                f"overlay: {len(self.tags)} tags for {gpus} GPUs; give one for every GPU, or none."
            )
        for i, value in enumerate(values):
            if not math.isfinite(value):
                raise InputError(f"overlay: the value of GPU {i} is {value}; values must be finite.")


class Ramp:
    """Colours for the values of an overlay, from its least to its largest value, or over ``spans`` if wider."""

    def __init__(self, values: Sequence[float], spans: tuple[float, float] | None = None) -> None:
        self.least = float(min([*values, *(spans or ())]))
        self.most = float(max([*values, *(spans or ())]))

    def fraction(self, value: float) -> float:
        """Return where ``value`` lies from least (0) to largest (1); 0 if all are equal."""
        span = self.most - self.least
        return (float(value) - self.least) / span if span > 0 else 0.0

    def fill(self, value: float) -> str:
        """Return the colour of ``value``."""
        return _mix(self.fraction(value))

    def ink(self, value: float) -> str:
        """Return the colour of text on top of ``fill(value)``."""
        return "#ffffff" if self.fraction(value) > _WHITE_FROM else "#1a1a1a"

    def steps(self) -> list[float]:
        """Return the values that a legend names."""
        if self.most <= self.least:
            return [self.least]
        span = self.most - self.least
        return [self.least + span * i / (_STEPS - 1) for i in range(_STEPS)]


def _mix(fraction: float) -> str:
    """Mix the two ends of the ramp."""
    parts = (round(a + (b - a) * fraction) for a, b in zip(_LIGHT, _DARK, strict=True))
    return "#" + "".join(f"{part:02x}" for part in parts)
