"""A mapping from any form that is read here, strictly: what an engine would not check is checked."""

from __future__ import annotations

from pathlib import Path

from placement.engines.check import require_ranks
from placement.engines.findings import require_sound
from placement.engines.mapping import ExpertMapping, ModelFacts
from placement.engines.phy2log import inspect_phy2log
from placement.engines.registry import ENGINES
from topology.errors import InputError

PHY2LOG = "npy"


def read_mapping(path: Path, kind: str, facts: ModelFacts, ranks: int) -> ExpertMapping:
    """Read the plan file of an engine, or EPLB's ``phy2log`` (``npy``), for a model on ``ranks`` GPUs.

    Raises
    ------
    InputError
        If there is no such kind, the file cannot be read, or the engine would refuse or misread it.
    """
    require_ranks(ranks, "--ep")
    if kind == PHY2LOG:
        return require_sound(path, "EPLB (phy2log)", inspect_phy2log(path, facts, ranks))
    if kind not in ENGINES:
        raise InputError(f"--from {kind}: expected {', '.join(ENGINES)} or {PHY2LOG}.")
    engine = ENGINES[kind]
    return require_sound(path, engine.title, engine.inspect(path, facts, ranks))
