"""Read expert loads: what engines recorded, NumPy files, CSV, and the names of generators.

A file becomes one scenario or several. Its rows are the MoE layers in order, or all layers of the model with
the dense ones all zero, which are dropped and noted. Forms and files: `cost.traces`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cost.loads import ExpertLoads
from cost.synthetic_loads import is_generator, synthetic_loads
from cost.traces.open import open_recording
from cost.traces.recording import Wanted
from cost.traces.rows import moe_rows, require_fit
from cost.traces.windows import MOST_WINDOWS, collect_windows
from topology.errors import InputError


def read_loads(
    texts: Sequence[str],
    *,
    moe_layers: Sequence[int],
    layers: int,
    experts: int,
    seed: int,
    windows: int = MOST_WINDOWS,
    on_progress: Callable[[str, float], None] | None = None,
) -> ExpertLoads:
    """Read each of ``texts``, a recording or a generator, into one or more scenarios.

    Parameters
    ----------
    texts:
        Paths of recordings (SGLang's ``.pt`` and ``.json``, TensorRT-LLM's folder, vLLM's ``.jsonl``), of
        ``.npy``, ``.npz`` (key ``loads``) or ``.csv`` files, or ``lognormal:SIGMA``, ``zipf:S``, ``uniform``.
    moe_layers, layers, experts:
        Absolute ids of the model's MoE layers, its number of layers, and experts a layer.
    seed:
        For generators.
    windows:
        Scenarios of one recording at most; more windows than that are merged, and noted.
    on_progress:
        Called with the path and the fraction that was read.

    Raises
    ------
    InputError
        If a file cannot be read, has another shape than the model needs, holds anything but finite numbers
        that are not negative, or a row of a MoE layer is all zero. The message names file, place and value.
    """
    wanted = Wanted(tuple(moe_layers), layers, experts)
    if not wanted.moe_layers:
        raise InputError(
            "the model has no MoE layers, so expert loads mean nothing for it: leave --loads out."
        )
    if not texts:
        raise InputError("no expert loads given: name a file or a generator such as lognormal:0.63.")
    tokens: list[NDArray[np.float64]] = []
    names: list[str] = []
    notes: list[str] = []
    for draw, text in enumerate(texts):
        if is_generator(text):
            drawn = synthetic_loads(text, layers=len(moe_layers), experts=experts, seed=seed, draw=draw)
            tokens.append(drawn[None])
            again = f", draw {draw + 1}" if text in texts[:draw] else ""
            names.append(f"{text} (synthetic, seed {seed}{again})")
            continue
        recording = open_recording(text, wanted)
        require_fit(recording, wanted)
        found = collect_windows(recording, windows, on_progress)
        table, more = moe_rows(recording, found.tokens, found.names, wanted)
        tokens.append(table)
        stem = Path(text).name
        names += [stem] if len(table) == 1 else [f"{stem}#{name}" for name in found.names]
        notes += [f"{stem}: {note}" for note in (*recording.notes, *found.notes, *more)]
    synthetic = any(is_generator(text) for text in texts)
    return ExpertLoads(np.concatenate(tokens), tuple(names), synthetic, tuple(notes))
