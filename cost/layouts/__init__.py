"""Every parallel layout at every batch, priced at once."""

from cost.layouts.evaluate import sweep
from cost.layouts.result import Sweep, best_at, iso_interactivity

__all__ = ["Sweep", "best_at", "iso_interactivity", "sweep"]
