"""Export a plan to an engine's file: unsupported plans are rejected, and the file is read back and compared."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cost.model import Model
from cost.resolve import checkpoint_of
from placement.engines.engine import Engine, Launch, Role
from placement.engines.findings import require_sound
from placement.engines.mapping import ExpertMapping, ModelFacts, Place, mapping_of, model_facts, rank_places
from placement.plan import Plan
from placement.scoring import ExpertPlacement, moe_rows, placement_balancedness
from topology.base.errors import InputError, input_name
from topology.base.files import no_room, scratch
from topology.base.shown import Shown
from topology.base.units import mean_of


@dataclass(frozen=True, eq=False, repr=False)
class Exported(Shown):
    """A plan in an engine's format, not yet written.

    Attributes
    ----------
    model:
        Name of the model.
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
    tp_source:
        Who says the tensor-parallel width of the launch: the plan, or the user.
    """

    engine: Engine
    model: str
    text: str
    mapping: ExpertMapping
    launch: Launch
    flags: tuple[str, ...]
    warnings: tuple[str, ...]
    places: tuple[Place, ...]
    balancedness: float
    planned: float
    tp_source: str

    def brief(self) -> str:
        """Return the model, the engine, the file, and how even the load is there."""
        return f"of {self.model} for {self.engine.title}: {self.launch.file}, balancedness {self.balancedness:.4f}"


def export_plan(
    plan: Plan, engine: Engine, file: str, *, tp: int | None = None, served: str = "", role: Role = "both"
) -> Exported:
    """Return ``plan`` in the form of ``engine``, as the file that the engine will find at ``file``.

    Parameters
    ----------
    tp:
        Tensor-parallel width of attention in the engine; None: the plan's.
    served:
        What the engine loads; empty: the Hugging Face id that the catalog has, or the folder of the config.
    role:
        What its replicas do.

    Raises
    ------
    InputError
        If the engine would reject or misread it: with the reason, and the option that avoids it.
    """
    plan.require_experts()
    if plan.layout.apart is not None:
        raise InputError(
            f"{engine.title} ({engine.version}) runs attention and experts on the same GPUs; apart only vLLM 0.26.0 "
            "with afd-plugin does (experimental: DeepSeek-V2 and V3, two micro-batches, attention ranks a multiple "
            f"of FFN ranks), which reads no placement. Plan with {input_name('afd')} off to export."
        )
    if plan.split == "quota" and "quota" not in engine.splits:
        raise InputError(
            f"{engine.title} ({engine.version}) fills no quota slots at run time, so the plan would be less balanced "
            "than it says; of releases only UltraEP 1.0.0 does, in Megatron-LM, for training. Plan with "
            f"{input_name('split')} {' or '.join(engine.splits[:3])} for this engine.",
            field="split",
            value=plan.split,
        )
    facts = model_facts(plan.deployment.model)
    if engine.suffixes and not file.endswith(engine.suffixes):
        raise InputError(
            f"{engine.title} reads a plan only from a file that ends in {engine.suffixes[0]}.",
            field="path",
            value=file,
        )
    mapping = mapping_of(plan)
    launch = _launch(plan, mapping, file, facts, tp, served, role)
    reason = engine.cannot_run(launch) or engine.no_context(launch) or engine.cannot_hold(mapping)
    if reason:
        raise InputError(f"{engine.title} cannot hold this plan: {reason}.")
    text = engine.write(mapping, facts)
    _read_back(text, engine, mapping, facts)
    return Exported(
        engine,
        facts.name,
        text,
        mapping,
        launch,
        tuple(engine.flags(launch)),
        (*engine.warnings(launch), *_contexts(engine, launch), *_notes(plan, launch)),
        tuple(rank_places(plan)),
        _balancedness(plan, engine, launch.tp),
        mean_of(plan.balancedness.values()),
        "the plan" if tp is None else "the user",
    )


def _balancedness(plan: Plan, engine: Engine, tp: int) -> float:
    """Balancedness under the engine's own split: the plan's, where the engine can be told to."""
    if plan.loads is None:
        return mean_of(plan.balancedness.values())
    balance = engine_balancedness(engine, tp, plan)
    if balance is not None:
        return balance
    if plan.split in engine.splits:
        return mean_of(plan.balancedness.values())
    return mean_of(
        placement_balancedness(
            ExpertPlacement(plan.deployment, plan.layout, plan.experts, plan.loads, engine.splits[0])
        ).values()
    )


def engine_balancedness(engine: Engine, tp: int, plan: Plan) -> float | None:
    """Return mean over max GPU load, over layers and loads, if ``engine`` has its own split; else None."""
    balances: list[float] = []
    for stage, part in zip(plan.layout.replicas[0], plan.experts, strict=True):
        if part is None or plan.loads is None:
            continue
        shares = engine.shares(part, tp)
        if shares is None:
            return None
        for tokens in plan.loads.tokens[:, moe_rows(plan.deployment, stage.layers)]:
            balances += part.balancedness(tokens, shares).tolist()
    return mean_of(balances)


def own_balancedness(plan: Plan, engine: Engine | None) -> float | None:
    """Return the balancedness of a plan as ``engine`` splits tokens; None where nobody says how."""
    if engine is None or plan.loads is None:
        return None
    return engine_balancedness(engine, plan.layout.tp, plan)


def _read_back(text: str, engine: Engine, mapping: ExpertMapping, facts: ModelFacts) -> None:
    """Check what will be written as any file is checked, and that it holds the mapping."""
    with scratch() as folder:
        path = folder / f"plan{engine.suffix}"
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise no_room(error) from None
        try:
            reread = require_sound(path, engine.title, engine.inspect(path, facts, mapping.ranks))
        except InputError as error:
            raise InputError(f"{engine.title} cannot hold this plan: {error}") from None
    if not np.array_equal(reread.slot_expert, mapping.slot_expert):
        raise AssertionError(f"the {engine.name} file does not hold the plan, please report it")


def served_name(model: Model) -> str:
    """Return the checkpoint that an engine loads for a model, else a placeholder path."""
    return checkpoint_of(model) or f"PATH/OF/{model.name}"


def _launch(
    plan: Plan, mapping: ExpertMapping, file: str, facts: ModelFacts, tp: int | None, served: str, role: Role
) -> Launch:
    """Return what a replica of ``plan`` is started with."""
    width = plan.layout.tp if tp is None else tp
    if width < 1 or mapping.ranks % width:
        raise InputError(f"does not divide the {mapping.ranks} GPUs of an EP group.", field="tp", value=width)
    gpus = plan.deployment.cluster.gpus
    nodes = {gpus[gpu].node for stage in plan.layout.replicas[0] for gpu in stage.gpus}
    return Launch(
        file=file,
        model=served or served_name(plan.deployment.model),
        ep=mapping.ranks,
        tp=width,
        dcp=plan.layout.dcp,
        pcp=plan.layout.pcp,
        attention_dp=mapping.ranks // width,
        nodes=len(nodes),
        redundant=mapping.redundant,
        split=plan.split,
        model_type=facts.model_type,
        architecture=facts.architecture,
        cut=tuple(len(stage.layers) for stage in plan.layout.replicas[0]),
        role=role,
    )


def _contexts(engine: Engine, launch: Launch) -> list[str]:
    """What the engine says of the context parallelism of a plan."""
    widths = {"dcp": launch.dcp, "pcp": launch.pcp}
    return [f"{name.upper()} {width}: {engine.contexts[name]}" for name, width in widths.items() if width > 1]


def _notes(plan: Plan, launch: Launch) -> list[str]:
    notes = []
    model = plan.deployment.model
    if launch.model == served_name(model) and not checkpoint_of(model):
        reason = f"no known checkpoint has {model.name}"
        weights = f" with weights in {model.weights_override}" if model.weights_override else ""
        notes.append(f"{reason}{weights}: replace {launch.model} by one (`model_path`)")
    if launch.tp != plan.layout.tp:
        notes.append(
            f"the plan was made and priced for attention with tensor parallelism {plan.layout.tp}, but the "
            f"engine is started with {launch.tp}"
        )
    if plan.layout.stages > 1:
        sizes = ", ".join(
            f"{stage.layers.start}-{stage.layers.stop - 1}" for stage in plan.layout.replicas[0]
        )
        notes.append(
            f"the plan's pipeline stages hold layers {sizes}; an engine with other stage boundaries puts "
            "experts on other GPUs"
        )
    alike = len(plan.layout.replicas) - len(plan.unlike)
    if alike > 1:
        notes.append(f"{alike} replicas: start one server per replica, all with this file")
    for replica in plan.unlike:
        gpus = sum(len(stage.gpus) for stage in plan.layout.replicas[replica])
        notes.append(
            f"replica {replica}, of {gpus} GPUs, holds different experts, so this file does not apply to it"
        )
    return notes
