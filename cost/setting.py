"""The old name of :mod:`cost.deployment`, for one version."""

from __future__ import annotations

import warnings
from typing import Any

from cost import deployment


def __getattr__(name: str) -> Any:
    """Return ``cost.deployment``'s, with a warning; ``Setting`` is its ``Deployment``."""
    known = {"Setting": "Deployment"}.get(name, name)
    if not hasattr(deployment, known):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(f"cost.setting.{name} is now cost.deployment.{known}.", DeprecationWarning, stacklevel=2)
    return getattr(deployment, known)
