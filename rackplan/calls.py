"""How a result was made from Python: the call, as its page says it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

import numpy as np

P = ParamSpec("P")
R = TypeVar("R")
_HEARS = {"on_progress", "cancel"}
"""Arguments that change no result."""


def recorded(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function whose results know the call that made them (:func:`call_of`)."""

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        result = function(*args, **kwargs)
        said = [
            *map(_said, args),
            *(f"{name}={_said(one)}" for name, one in kwargs.items() if name not in _HEARS),
        ]
        # results are frozen; what made them is no part of what they are
        object.__setattr__(result, "_call", f"rackplan.{function.__name__}({', '.join(said)})")
        return result

    return called


def call_of(result: object) -> str:
    """Return the call that made a result; what writes its page where nobody knows."""
    return str(getattr(result, "_call", "")) or f"rackplan.write_report({_said(result)}, 'report.html')"


def _said(value: object) -> str:
    """Return an argument as Python reads it; what is too large for that by its kind and name."""
    plain: str | None = None
    if isinstance(value, Path):
        plain = repr(str(value))
    elif isinstance(value, np.generic):
        plain = repr(value.item())
    elif isinstance(value, np.ndarray):
        plain = f"<array {list(value.shape)}>"
    elif isinstance(value, Mapping):
        plain = f"{{{', '.join(f'{_said(key)}: {_said(one)}' for key, one in value.items())}}}"
    elif isinstance(value, list | tuple):
        plain = f"[{', '.join(map(_said, value))}]"
    elif value is None or isinstance(value, str | int | float | bool):
        plain = repr(value)
    if plain is not None:
        return plain
    name = str(getattr(value, "name", ""))
    return str(getattr(value, "_call", "")) or f"<{type(value).__name__}{f' {name}' if name else ''}>"
