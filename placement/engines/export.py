"""A plan as a file of one engine: what it cannot hold is refused, what is written is read back and compared."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from cost.dispatch import source_shares
from placement.engines.engine import Engine, Launch
from placement.engines.findings import require_sound
from placement.engines.mapping import ExpertMapping, ModelFacts, Place, mapping_of, model_facts, rank_places
from placement.plan import Plan
from placement.scoring import moe_rows, placement_balancedness
from topology.errors import InputError
from topology.units import mean_of


@dataclass(frozen=True, eq=False)
class Exported:
    """A plan in an engine's form, not yet written.

    Attributes
    ----------
    text:
        The whole file.
    launch, flags:
        What the engine is started with, and the lines to start it.
    warnings:
        What a person should know first.
    places:
        The GPU of each rank.
    balancedness:
        Mean over max GPU load, the mean over layers and loads, as the engine will split tokens over copies.
    planned:
        The same as the plan expects them to be split.
    """

    engine: Engine
    text: str
    mapping: ExpertMapping
    launch: Launch
    flags: tuple[str, ...]
    warnings: tuple[str, ...]
    places: tuple[Place, ...]
    balancedness: float
    planned: float


def export_plan(plan: Plan, engine: Engine, file: str) -> Exported:
    """Return ``plan`` in the form of ``engine``, as the file that the engine will find at ``file``.

    Raises
    ------
    InputError
        If the engine would reject or misread it: with the reason, and the option that avoids it.
    """
    facts = model_facts(plan.deployment.model)
    if engine.suffixes and not file.endswith(engine.suffixes):
        raise InputError(
            f"`output` {file}: {engine.title} reads a plan only from a file that ends in {engine.suffixes[0]}."
        )
    mapping = mapping_of(plan)
    launch = launch_of(plan, mapping, file, facts)
    reason = engine.cannot_hold(mapping) or engine.cannot_run(launch)
    if reason:
        raise InputError(f"{engine.title} cannot hold this plan: {reason}.")
    text = engine.write(mapping, facts)
    _read_back(text, engine, mapping, facts)
    return Exported(
        engine,
        text,
        mapping,
        launch,
        tuple(engine.flags(launch)),
        (*engine.warnings(launch), *_notes(plan)),
        tuple(rank_places(plan)),
        _balancedness(plan, engine),
        mean_of(plan.balancedness.values()),
    )


def _balancedness(plan: Plan, engine: Engine) -> float:
    """Balancedness under the engine's own split: the plan's, where the engine can be told to."""
    loads = plan.loads
    if loads is None or (engine.nearest_copy and plan.split in engine.splits):
        return mean_of(plan.balancedness.values())
    if engine.nearest_copy:
        split = engine.splits[0]
        return mean_of(
            placement_balancedness(plan.deployment, plan.layout, plan.experts, loads, split).values()
        )
    found: list[float] = []
    for stage, part in zip(plan.layout.replicas[0], plan.experts, strict=True):
        if part is not None:
            shares = source_shares(part, nearest=False)
            for tokens in loads.tokens[:, moe_rows(plan.deployment, stage.layers)]:
                found += part.balancedness(tokens, shares).tolist()
    return mean_of(found)


def _read_back(text: str, engine: Engine, mapping: ExpertMapping, facts: ModelFacts) -> None:
    """Check what will be written the way a file of anyone's is checked."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"plan{engine.suffixes[0] if engine.suffixes else '.jsonl'}"
        path.write_text(text, encoding="utf-8")
        found = require_sound(path, engine.title, engine.inspect(path, facts, mapping.ranks))
    if not np.array_equal(found.slot_expert, mapping.slot_expert):
        raise AssertionError(f"the {engine.name} file does not hold the plan, please report it")


def launch_of(plan: Plan, mapping: ExpertMapping, file: str, facts: ModelFacts) -> Launch:
    """Return what a replica of ``plan`` is started with."""
    gpus = plan.deployment.cluster.gpus
    nodes = {gpus[gpu].node for stage in plan.layout.replicas[0] for gpu in stage.gpus}
    return Launch(
        file=file,
        model=facts.name,
        ep=mapping.ranks,
        tp=plan.layout.tp,
        attention_dp=mapping.ranks // plan.layout.tp,
        stages=plan.layout.stages,
        nodes=len(nodes),
        redundant=mapping.redundant,
        split=plan.split,
        model_type=facts.model_type,
    )


def _notes(plan: Plan) -> list[str]:
    found = []
    if plan.layout.stages > 1:
        sizes = ", ".join(
            f"{stage.layers.start}-{stage.layers.stop - 1}" for stage in plan.layout.replicas[0]
        )
        found.append(
            f"the plan's pipeline stages hold layers {sizes}; an engine that cuts elsewhere puts experts "
            "on other GPUs"
        )
    if len(plan.layout.replicas) > 1:
        found.append(f"{len(plan.layout.replicas)} replicas: start one server for each, all with this file")
    return found
