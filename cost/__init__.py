"""What a step costs: the arithmetic of models, terms of a step, memory, and the score of a placement."""

from __future__ import annotations

from cost.config.build import model_from_config
from cost.resolve import model_names, published, resolve_model

__all__ = ["model_from_config", "model_names", "published", "resolve_model"]
