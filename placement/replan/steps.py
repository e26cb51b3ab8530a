"""The moves as steps that a runtime can follow: no copy is overwritten before all who fetch it have it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Step:
    """One move.

    Attributes
    ----------
    layer:
        Absolute id of the layer.
    gpu, source:
        Numbers of the GPU that fetches and of the one it fetches from, in ``Cluster.gpus``; source None: storage.
    slot:
        Position among the slots of the GPU.
    expert, replaces:
        What comes, and what it overwrites; None where the slot is empty.
    buffer:
        Fetch it into a spare buffer at this step, and put it into the slot after the layer's other steps.
    """

    layer: int
    gpu: int
    slot: int
    expert: int
    replaces: int | None
    source: int | None = None
    buffer: bool = False


def in_order(steps: Iterable[Step]) -> list[Step]:
    """Return the steps layer by layer, each after those that fetch what it overwrites.

    Where steps wait for each other in a circle, as in a swap, one of them is marked ``buffer``: its expert is
    fetched in turn, but overwrites nothing until the layer's other steps are done.
    """
    layers: dict[int, list[Step]] = {}
    for step in steps:
        layers.setdefault(step.layer, []).append(step)
    return [step for layer in sorted(layers) for step in _one_layer(layers[layer])]


def _one_layer(steps: Sequence[Step]) -> list[Step]:
    readers: dict[tuple[int, int], int] = {}
    for step in steps:
        if step.source is not None:
            readers[step.source, step.expert] = readers.get((step.source, step.expert), 0) + 1
    overwrites = {(step.gpu, step.replaces): at for at, step in enumerate(steps) if step.replaces is not None}

    def free(step: Step) -> bool:
        return step.replaces is None or readers.get((step.gpu, step.replaces), 0) == 0

    ready = [at for at, step in enumerate(steps) if free(step)][::-1]
    waiting = dict.fromkeys(range(len(steps)))
    ordered = []
    while waiting:
        buffered = not ready
        at = next(iter(waiting)) if buffered else ready.pop()
        if at not in waiting:
            continue
        del waiting[at]
        step = steps[at]
        ordered.append(replace(step, buffer=True) if buffered else step)
        if step.source is None:
            continue
        readers[step.source, step.expert] -= 1
        then = overwrites.get((step.source, step.expert))
        if then is not None and then in waiting and free(steps[then]):
            ready.append(then)
    return ordered
