"""The old name of :mod:`cost.deployment`, for one version."""

from __future__ import annotations

import warnings

from cost import deployment


def __getattr__(name: str) -> object:
    """Return ``cost.deployment``'s, with a warning; ``Setting`` is its ``Deployment``."""
    known = {"Setting": "Deployment"}.get(name, name)
    if not hasattr(deployment, known):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(f"cost.setting.{name} is now cost.deployment.{known}.", DeprecationWarning, stacklevel=2)
    return getattr(deployment, known)  # type: ignore[no-any-return]
