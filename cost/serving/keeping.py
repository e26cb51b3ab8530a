"""Which ways of serving conversations hold the part of their prompts that they are priced with."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from cost.layouts import Sweep
from cost.layouts.arrays import Array, Index
from cost.money.kv_memory import KvMemory
from cost.serving.cache_path import token_cache_bytes


@dataclass(frozen=True, eq=False)
class Keeping:
    """What caches keep by the room that there is for each conversation that is going on.

    Attributes
    ----------
    tokens, hits:
        Room of a cache for each of the conversations that share it, rising, and the part of all prompts found there,
        ``[sizes]``: of a replay of the conversations by last use.
    pause_s:
        Mean seconds between an answer and the next turn; None: turns do not wait, so that all times change with the
        rate, and ``tokens`` is room for the whole recording.
    memory:
        What each host has besides HBM.
    """

    tokens: Array
    hits: Array
    pause_s: float | None
    memory: KvMemory

    def room(self, swept: Sweep, rows: Index, workers: Index) -> Array:
        """Return the tokens that a replica of configurations holds in HBM and in the tiers below, ``[rows]``."""
        room = swept.cache_tokens(rows)
        deployment, cluster = swept.deployment, swept.deployment.cluster
        token_bytes = token_cache_bytes(deployment, deployment.workload.context)
        for place in self.memory.sizes:
            gpus = len(cluster.gpus) / workers if place == "pool" else swept.gpus[rows]
            size = self.memory.size(cluster.spec.domains[0], place, 1.0, len(cluster.gpus))
            room = room + size * gpus / token_bytes
        return room

    def reached(self, room: Array, workers: Index, requests_per_s: Array, stay_s: Array) -> Array:
        """Return the part of prompts that replicas find, to each of which its conversations stay."""
        going_on = (
            requests_per_s * (self.pause_s + stay_s) if self.pause_s is not None else np.ones(len(room))
        )
        return np.asarray(np.interp(room * workers / going_on, self.tokens, self.hits))

    def measured(self, hit: float, held: float) -> Keeping:
        """Return it with ``held`` where it promised ``hit``."""
        here, there = (float(np.interp(part, self.hits, self.tokens)) for part in (hit, held))
        return replace(self, tokens=self.tokens * (here / max(there, 1e-9)))
