"""The engines by name."""

from __future__ import annotations

from placement.engines.engine import Engine
from placement.engines.sglang import SGLANG
from placement.engines.trtllm import TRTLLM
from placement.engines.vllm import VLLM
from placement.engines.vllm_ascend import VLLM_ASCEND
from topology.errors import InputError

ENGINES: dict[str, Engine] = {engine.name: engine for engine in (SGLANG, TRTLLM, VLLM_ASCEND, VLLM)}


def require_engine(name: str, option: str) -> Engine:
    """Return the engine of that name; ``option`` is where it was given.

    Raises
    ------
    InputError
        If there is none.
    """
    if name not in ENGINES:
        raise InputError(f"{option} {name}: expected {', '.join(ENGINES)}.")
    return ENGINES[name]
