"""One number, or an array of them: formulas are written once for a single configuration and for thousands."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Quantity: TypeAlias = float | NDArray[np.float64]
