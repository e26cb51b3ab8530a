"""What a step costs: the arithmetic of models, terms of a step, memory, and the score of a placement."""

from __future__ import annotations

from cost.config.build import model_from_config
from cost.old_names import install as _install_old_names
from cost.resolve import model_names, published, resolve_model

__all__ = ["model_from_config", "model_names", "published", "resolve_model"]

_install_old_names()
