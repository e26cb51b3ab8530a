"""Balancer options from environment variables, since engine command lines cannot pass them."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache

from topology.base.errors import InputError

SWITCH = "RACKPLAN_BALANCER"
"""The environment variable that enables the plug-ins."""

_PREFIX = "RACKPLAN_"
_ON, _OFF = {"1", "true", "on", "yes"}, {"", "0", "false", "off", "no"}


@dataclass(frozen=True)
class Settings:
    """Move limit of a balancer, and its data besides the last window.

    Attributes
    ----------
    max_moves:
        Copies that one call may move, as a fraction of all; 0 none, None all that pays.
    history:
        Windows that are planned for together, the last one among them.
    scenarios:
        Recordings of loads that every placement is made for as well.
    plan:
        Path of a plan: its loads are such scenarios, and where all is placed anew it is placed so.
    node_groups:
        Of groups of experts that divide over the nodes by what the engine says: ``keep`` them on one node where they
        lie so, or all is planned afresh; ``gather`` them too, where any number of copies may move; ``ignore`` them.
    """

    max_moves: float | None = None
    history: int = 8
    scenarios: tuple[str, ...] = ()
    plan: str = ""
    node_groups: str = "keep"

    @property
    def words(self) -> str:
        """The settings in one line, for the log."""
        phrases = {
            "no limit on moves": self.max_moves is None,
            f"at most {100 * (self.max_moves or 0):.4g}% of copies moved per call": self.max_moves
            is not None,
            f"keeping {self.history} windows": self.history > 1,
            "keeping the last window only": self.history == 1,
            f"scenarios from {', '.join(self.scenarios)}": self.scenarios,
            f"plan and loads of {self.plan}": self.plan,
            f"expert groups: {self.node_groups}": self.node_groups != "keep",
        }
        return ", ".join(text for text, is_set in phrases.items() if is_set)


def switched_on() -> bool:
    """Whether the plug-ins replace the engines' balancers.

    Raises
    ------
    InputError
        If the variable says neither yes nor no.
    """
    return _yes(SWITCH, os.environ.get(SWITCH, ""))


def settings() -> Settings:
    """Return the options in the ``RACKPLAN_*`` environment variables, with defaults.

    Raises
    ------
    InputError
        If a value is none that its variable takes.
    """
    variables = ((name, os.environ.get(name, "")) for name in _READERS)
    return _settings(tuple(sorted((name, text) for name, text in variables if text.strip())))


def require_known() -> None:
    """Reject variables that look like options but are unknown.

    Raises
    ------
    InputError
        If there is one: a misspelt option would be silently left out.
    """
    known = [SWITCH, *_READERS]
    for name in sorted(os.environ):
        if name.startswith(_PREFIX) and name not in known:
            near = get_close_matches(name, known, 1)
            guess = f"; did you mean {near[0]}?" if near else f"; options are {', '.join(known)}."
            raise InputError(f"{name}: unknown balancer option{guess}")


@cache
def _settings(variables: tuple[tuple[str, str], ...]) -> Settings:
    fields: dict[str, object] = {}
    for name, text in variables:
        field, read = _READERS[name]
        fields[field] = read(name, text.strip())
    return Settings(**fields)  # type: ignore[arg-type]


def _fraction(name: str, text: str) -> float | None:
    if text.lower() == "none":
        return None
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = math.nan
    if not 0 <= value <= 1:
        raise InputError(
            f"{name} {text!r}: expected a share of the copies, such as 5% or 0.05, up to 100%; 0: no "
            "moves, none: no limit."
        )
    return value


def _yes(name: str, text: str) -> bool:
    word = text.strip().lower()
    if word not in _ON | _OFF:
        raise InputError(f"{name} {text!r}: expected 1 or 0.")
    return word in _ON


def _windows(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10) or not 1 <= int(text) <= _MOST_WINDOWS:
        raise InputError(f"{name} {text!r}: expected a number of windows from 1 to {_MOST_WINDOWS}.")
    return int(text)


def _groups(name: str, text: str) -> str:
    word = text.lower()
    if word not in {"keep", "gather", "ignore"}:
        raise InputError(f"{name} {text!r}: expected keep, gather or ignore.")
    return word


def _files(name: str, text: str) -> tuple[str, ...]:
    files = tuple(part.strip() for part in text.split(","))
    if not all(files):
        raise InputError(f"{name} {text!r}: expected comma-separated paths of recordings.")
    return files


_MOST_WINDOWS = 1000

_READERS = {
    "RACKPLAN_MAX_MOVES": ("max_moves", _fraction),
    "RACKPLAN_HISTORY": ("history", _windows),
    "RACKPLAN_SCENARIOS": ("scenarios", _files),
    "RACKPLAN_PLAN": ("plan", lambda _, text: text),
    "RACKPLAN_NODE_GROUPS": ("node_groups", _groups),
}
