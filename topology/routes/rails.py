"""Which GPU hands bytes to the fabric: on rails, the one of the own node that is on the destination's rail.

NCCL calls it PXN: bytes for another rail go over the scale-up fabric first, to a GPU whose NIC is on that rail, so
that they need not cross the spine only to change rails (NVIDIA technical blog, "Doubling all2all Performance with
NVIDIA Collective Communication Library 2.12").
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from topology.cluster import Gpu

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


def relays(gpus: Sequence[Gpu], rails: Ints, has_nic: Bools) -> Any:
    """Return the part ``[gpus * rails, gpus]`` that each GPU hands over for each source and destination rail.

    Row ``s * rails + r`` is for bytes from GPU ``s`` to GPUs on the rail numbered ``r`` in other domains: ``s``
    itself where it is on that rail, else the GPUs of its node that are, else those of its domain, evenly; ``s``
    where there are none. ``rails [gpus]`` numbers the rail of each GPU; only GPUs with a NIC hand over.
    """
    from scipy.sparse import csr_array

    count = int(rails.max(initial=0)) + 1
    near: dict[tuple[object, int], list[int]] = {}
    for number, gpu in enumerate(gpus):
        if has_nic[number]:
            rail = int(rails[number])
            near.setdefault((gpu.node, rail), []).append(number)
            near.setdefault((gpu.domain, rail), []).append(number)
    rows: list[int] = []
    columns: list[int] = []
    parts: list[float] = []
    for number, gpu in enumerate(gpus):
        for rail in range(count):
            own = rail == rails[number] and has_nic[number]
            chosen = (
                [number] if own else near.get((gpu.node, rail)) or near.get((gpu.domain, rail)) or [number]
            )
            rows += [number * count + rail] * len(chosen)
            columns += chosen
            parts += [1 / len(chosen)] * len(chosen)
    return csr_array((parts, (rows, columns)), shape=(len(gpus) * count, len(gpus)))


def no_relays(gpus: int) -> Any:
    """Return the same where every GPU uses its own NIC: one rail for all."""
    from scipy.sparse import csr_array

    return csr_array((np.ones(gpus), (np.arange(gpus), np.arange(gpus))), shape=(gpus, gpus))
