"""Every parallel layout at every batch, priced at once."""

from cost.sweep.evaluate import sweep
from cost.sweep.result import Sweep
from cost.sweep.targets import best_at, iso_interactivity

__all__ = ["Sweep", "best_at", "iso_interactivity", "sweep"]
