"""Short names for the types of arrays."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Experts = NDArray[np.int32]
"""Expert ids by slot."""
Bools = NDArray[np.bool_]
Index = NDArray[np.intp]
