"""The score of a placement: step time, throughput, bottleneck, memory and evidence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from cost.dtypes import multiply_units
from cost.experts.tokens.reach import ExpertUse
from cost.inputs.deployment import Deployment
from cost.inputs.layout import CutReplicas, Layout, Replica, StageSpec, joints
from cost.inputs.stage_context import digest
from cost.inputs.workload import Workload
from cost.memory.batches import sequences_of
from cost.memory.stages import NO_CACHE, CacheRoom, StageMemory, layout_memory, replica_max_batch
from cost.step.apart import Sides, apart_turns
from cost.step.step import batch_cost
from cost.terms.pipeline import BUBBLE, HOPS, bubble_seconds, hops
from cost.terms.registry import TERMS
from cost.terms.work import IMBALANCE, PlacedExperts, StepCost, totals
from topology.base.errors import InfeasibleError, InputError, input_name
from topology.base.figures import Evidence, weakest
from topology.base.units import added

Uses = Sequence[Sequence[ExpertUse | None]]


@dataclass(frozen=True)
class Score:
    """What a step costs, at one batch.

    Attributes
    ----------
    step_s:
        Expected seconds of a step (the slowest replica's): decode, between two tokens of a sequence, or between
        two groups of ``accept_length`` tokens where tokens are drafted; prefill, of a batch of prompts.
    lower_step_s:
        No step of this layout can be faster: each resource at its data-sheet peak, all overlapped.
    tok_s_per_gpu, tok_s_per_gpu_used:
        Output tokens (prefill: input tokens) per second over all GPUs given, and over those in use.
    tok_s_per_user:
        Output (prefill: input) tokens per second of one sequence.
    parts_s:
        ``step_s`` by part and resource: what binds each part, and for how long.
    floor_s:
        Seconds at its data-sheet peak that each resource is busy in a step, on the stage where it is busiest;
        none is above ``lower_step_s``.
    hbm_bytes, hbm_of:
        The fullest GPU, by use; adds up to what the driver reports. With attention apart also that of each pool.
    batch, max_batch:
        Sequences per GPU in use: at this score, and the most that fit; below 1 a tensor-parallel group has fewer
        sequences than GPUs.
    cache:
        Tokens that the KV cache of a replica has room for.
    evidence:
        The weakest kind of figure that the score rests on.
    tokens_per_step:
        Output tokens of a sequence that a step yields (prefill: 1).
    tokens:
        Which tokens are counted: ``output`` or ``input``.
    what_if:
        The hypothetical that the score supposes (``sparse_attention sqrt``); empty where there is none.
    prefill_s:
        Of both phases: seconds of a request's own prefill, alone; 0 of one phase. Throughput counts it as time that
        the request stays (:func:`cost.serving.one_pool.one_pool`).
    """

    step_s: float
    lower_step_s: float
    tok_s_per_gpu: float
    tok_s_per_gpu_used: float
    tok_s_per_user: float
    parts_s: Mapping[tuple[str, str], float]
    floor_s: Mapping[str, float]
    hbm_bytes: Mapping[str, float]
    batch: float
    max_batch: float
    evidence: Evidence
    tokens_per_step: float = 1.0
    tokens: str = "output"
    what_if: str = ""
    prefill_s: float = 0.0
    cache: CacheRoom = NO_CACHE
    hbm_of: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    @cached_property
    def terms_s(self) -> Mapping[str, float]:
        """``step_s`` by part."""
        return totals(self.parts_s, 0)

    @cached_property
    def limits_s(self) -> Mapping[str, float]:
        """``step_s`` by resource."""
        return totals(self.parts_s, 1)

    def bounds_of(self, part: str) -> dict[str, float]:
        """Return the seconds of a part by the resource that binds them, the most first; where that is known."""
        bounds = {limit: s for (name, limit), s in self.parts_s.items() if name == part and limit and s > 0}
        return dict(sorted(bounds.items(), key=lambda bound: -bound[1]))

    @property
    def bound_by(self) -> str:
        """The resource that most of ``step_s`` is spent on."""
        return max(self.limits_s, key=lambda name: self.limits_s[name])

    @property
    def tpot_s(self) -> float:
        """Decode: seconds per output token of a sequence. Prefill: seconds of a batch of prompts."""
        return self.step_s / max(1.0, self.tokens_per_step)

    def hidden_s(self, share: float) -> dict[str, float]:
        """Return communication time hidden by compute in a step of two half-batches on one stage, by part.

        ``share`` of the shorter of computing and sending stays hidden (:func:`cost.step.step.overlapped`), so
        that of ``S`` seconds of sending ``S - share * min(S, C)`` are seen beside ``C`` of computing; pipelines
        are left out.
        """
        sends = {name: s for name, s in self.terms_s.items() if s > 0 and name in TERMS and TERMS[name].sends}
        visible_s = added(sends.values())
        if not 0 < share < 1 or not visible_s or {HOPS.name, BUBBLE.name} & set(self.terms_s):
            return {}
        computing = self.step_s - visible_s
        sending = visible_s / (1 - share)
        if sending > computing:
            sending = visible_s + share * computing
        return {name: seconds * (sending - visible_s) / visible_s for name, seconds in sends.items()}


@dataclass(frozen=True)
class _ReplicaCost:
    step_s: float
    lower_step_s: float
    parts_s: Mapping[tuple[str, str], float]
    floor_s: Mapping[str, float]


@dataclass(frozen=True, eq=False)
class _Kind:
    """Replicas that cost the same: one of them, its memory, and what its steps cost by workload and batch."""

    number: int
    stages: Replica
    uses: Sequence[ExpertUse | None]
    keys: Sequence[object]
    memories: Sequence[StageMemory]
    costs: dict[tuple[Workload, float], _ReplicaCost] = field(default_factory=dict)


class LayoutScorer:
    """Scores one layout at any batch: what does not depend on the batch is computed once.

    Parameters
    ----------
    uses:
        What the experts ask of the GPUs, ``uses[replica][stage]``; None for a stage without experts.
    synthetic:
        Whether nobody measured the loads behind ``uses``.
    fair:
        Whether tokens on their way between domains share links max-min fairly
        (:mod:`cost.step.fair_sharing`), as in the score of a plan; else the busiest link alone counts, as
        in sweeps.
    near:
        A scorer of the same deployment, widths and sharing: replicas that it has too, with the same ``uses``, are
        not computed again.
    """

    def __init__(
        self,
        deployment: Deployment,
        layout: Layout,
        uses: Uses,
        *,
        synthetic: bool = False,
        fair: bool = False,
        near: LayoutScorer | None = None,
    ) -> None:
        self._deployment, self._layout, self._uses = deployment, layout, uses
        self._synthetic, self._fair = synthetic, fair
        self._alike = _alike(deployment, layout, uses)
        known = {} if near is None or layout.apart is not None else near.by_stages
        self._kinds = [self._kind(replica, known) for replica, _ in self._alike]
        self._evidence = _evidence(deployment, layout, self._alike, synthetic=synthetic)
        self._scores: dict[float, Score] = {}

    @cached_property
    def by_stages(self) -> dict[Replica, _Kind]:
        """The first of each kind of replicas, by its stages."""
        return {kind.stages: kind for kind in self._kinds}

    def _kind(self, replica: int, known: Mapping[Replica, _Kind]) -> _Kind:
        """Return what is computed once of the replicas that cost as much as the ``replica`` of them."""
        deployment, layout = self._deployment, self._layout
        stages, uses = layout.replicas[replica], self._uses[replica]
        kind = known.get(stages)
        if kind is not None and all(a is b for a, b in zip(kind.uses, uses, strict=True)):
            return kind
        slots = [_slots_per_gpu(use, stage) for use, stage in zip(uses, stages, strict=True)]
        return _Kind(
            replica,
            stages,
            uses,
            [_stage_key(deployment, *pair) for pair in zip(stages, uses, strict=True)],
            layout_memory(deployment, layout, replica, slots),
        )

    @property
    def tp(self) -> float:
        """GPUs in use for each attention group, which has whole sequences."""
        return self._layout.group_gpus

    @property
    def uses(self) -> Uses:
        """What the experts ask of the GPUs, ``uses[replica][stage]``."""
        return self._uses

    @cached_property
    def max_batch(self) -> float:
        """The largest batch that fits; 0 where none does."""
        return min(replica_max_batch(kind.memories, self.tp) for kind in self._kinds)

    @property
    def memories(self) -> Sequence[StageMemory]:
        """Memory of each stage of the first replica; with attention apart of its GPUs, then of the experts'."""
        return self._kinds[0].memories

    @cached_property
    def cache(self) -> CacheRoom:
        """Tokens that the KV cache of a replica has room for, of the replica that has least."""
        fullest = min(
            (memory for kind in self._kinds for memory in kind.memories), key=lambda memory: memory.room
        )
        gpus = self._layout.gpus_used // len(self._layout.replicas)
        return fullest.cache(gpus, self._deployment.workload.cached, round(self.max_batch * gpus))

    @cached_property
    def alike(self) -> list[tuple[int, ...]]:
        """Replicas that cost the same, as indices into those of the layout: a row for each kind of them."""
        if len(self._alike) == 1:
            return [tuple(range(len(self._layout.replicas)))]
        return [tuple(row) for row in _kinds(self._deployment, self._layout, self._uses)]

    def of_replicas(self, which: Sequence[int]) -> tuple[Layout, LayoutScorer]:
        """Return the layout of some replicas alone, and its scorer; the other GPUs stay idle."""
        layout = self._layout.of_replicas(which)
        uses = [self._uses[replica] for replica in which]
        return layout, LayoutScorer(
            self._deployment, layout, uses, synthetic=self._synthetic, fair=self._fair
        )

    def at(self, batch: float) -> Score:
        """Return the score at ``batch`` sequences per GPU in use.

        Raises
        ------
        InputError
            If an attention group has no whole number of sequences at that batch, or none.
        InfeasibleError
            If it does not fit in HBM.
        """
        if batch not in self._scores:
            self._scores[batch] = self._score(batch)
        return self._scores[batch]

    def _score(self, batch: float) -> Score:
        if not sequences_of(batch, self.tp):
            group = "each GPU" if self.tp == 1 else f"a tensor-parallel group of {self._layout.tp} GPUs"
            if self._layout.apart is not None:
                group = f"an attention group, of which there is one for {self.tp:.4g} GPUs in use,"
            raise InputError(
                f"{group} needs a whole number of sequences, 1 or more.", field="batch", value=batch
            )
        limit = self.max_batch
        if batch > limit:
            need, usable = self._fullest(batch).used(batch) / 1e9, self._fullest(batch).usable / 1e9
            if need <= usable:
                raise InfeasibleError(
                    f"{input_name('batch')} {batch:,.9g} is more than engines run at a time: "
                    f"{self._deployment.most_sequences:,} sequences of an attention group; the largest is {limit}."
                )
            raise InfeasibleError(
                f"HBM capacity binds: batch {batch} needs {need:.1f} GB per GPU and {usable:.1f} GB are usable, "
                f"{need - usable:.1f} GB too few; the largest batch that fits is {limit}."
            )
        deployment, layout = self._deployment.with_batch(batch), self._layout
        costs = self._costs(deployment, batch)
        slowest = max(costs, key=lambda cost: cost.step_s)
        stays, prefill_s = self.stays(slowest.step_s, batch)
        tokens = deployment.workload.tokens_per_step
        tok_s = added(
            count * (batch * len(layout.gpus_of(i)) * tokens / (cost.step_s * stays))
            for (i, count), cost in zip(self._alike, costs, strict=True)
        )
        return Score(
            step_s=slowest.step_s,
            lower_step_s=slowest.lower_step_s,
            tok_s_per_gpu=tok_s / len(deployment.cluster.gpus),
            tok_s_per_gpu_used=tok_s / layout.gpus_used,
            tok_s_per_user=tokens / slowest.step_s,
            parts_s=slowest.parts_s,
            floor_s=slowest.floor_s,
            hbm_bytes=self._fullest(batch).breakdown(batch),
            batch=batch,
            max_batch=limit,
            cache=self.cache,
            evidence=self._evidence,
            tokens_per_step=tokens if deployment.workload.decodes else 1.0,
            tokens=deployment.workload.token_word,
            what_if=deployment.workload.what_if,
            prefill_s=prefill_s,
            hbm_of={
                name: memory.breakdown(batch)
                for (name, _), memory in zip(layout.pools_of(0), self.memories, strict=False)
            },
        )

    def step_s(self, batch: float) -> float:
        """Return the seconds of a step at any batch, parts of a sequence per GPU too, whether it fits or not."""
        return max(cost.step_s for cost in self._costs(self._deployment, batch))

    def terms_s(self, workload: Workload, batch: float) -> Mapping[str, float]:
        """Return the seconds of a step of another workload by part, of the slowest replica; it need not fit."""
        costs = self._costs(replace(self._deployment, workload=workload), batch)
        return totals(max(costs, key=lambda cost: cost.step_s).parts_s, 0)

    def _costs(self, deployment: Deployment, batch: float) -> list[_ReplicaCost]:
        """What a step of each kind of replicas costs."""
        layout, key = self._layout, (deployment.workload, batch)
        for kind in self._kinds:
            if key not in kind.costs:
                kind.costs[key] = (
                    _replica_cost(
                        deployment, layout, kind.stages, kind.uses, batch, kind.keys, fair=self._fair
                    )
                    if layout.apart is None
                    else _apart_cost(deployment, layout, kind, batch)
                )
        return [kind.costs[key] for kind in self._kinds]

    def stays(self, step_s: float, batch: float) -> tuple[float, float]:
        """How long a request stays over its decode steps, and seconds of its own prefill: 1 and 0 of one phase."""
        work = self._deployment.workload
        if work.phase != "both":
            return 1.0, 0.0
        prompt = replace(self._deployment, workload=work.of_prompt)
        full = replace(self._deployment, workload=replace(work, prompt_share=1.0))
        own_s = max(cost.step_s for cost in self._costs(prompt, 1 / self._layout.tp))
        return max(cost.step_s for cost in self._costs(full, batch)) / step_s, own_s

    def _fullest(self, batch: float) -> StageMemory:
        """Memory of the stage with least left."""
        stages = (memory for kind in self._kinds for memory in kind.memories)
        return min(stages, key=lambda memory: memory.usable - memory.used(batch))


def _slots_per_gpu(use: ExpertUse | None, stage: StageSpec) -> NDArray[np.int64]:
    return np.zeros(len(stage.gpus), dtype=np.int64) if use is None else use.fixed_slots


def _alike(deployment: Deployment, layout: Layout, uses: Uses) -> Sequence[tuple[int, int]]:
    """First of each set of replicas that cost the same, and how many they are: each is computed once."""
    if isinstance(layout.replicas, CutReplicas) and all(row is uses[0] for row in uses):
        return layout.replicas.alike
    return [(row[0], len(row)) for row in _kinds(deployment, layout, uses)]


def _kinds(deployment: Deployment, layout: Layout, uses: Uses) -> list[list[int]]:
    """Replicas that cost the same, a row for each kind of them."""
    rows: dict[object, list[int]] = {}
    for index, (stages, row) in enumerate(zip(layout.replicas, uses, strict=True)):
        keys = tuple(_stage_key(deployment, *pair) for pair in zip(stages, row, strict=True))
        near: object = joints([deployment.place(stage) for stage in stages])
        if layout.apart is not None:
            near = deployment.context(StageSpec(layout.gpus_of(index), stages[0].layers)).kind
        rows.setdefault((keys, near), []).append(index)
    return list(rows.values())


def _stage_key(deployment: Deployment, stage: StageSpec, use: ExpertUse | None) -> object:
    """Equal for stages that cost the same: alike GPUs, as many layers of each kind, experts loaded alike."""
    kinds = deployment.model.kind_of[stage.layers.start : stage.layers.stop]
    experts: object = use
    if use is not None and use.share.shape[:2] == (1, 1) and use.hits is None and use.filled is None:
        experts = use.repeats, digest(use.slot_gpu, use.share, use.slot_share)
    return deployment.context(stage).kind, tuple(Counter(kinds).items()), experts


def _replica_cost(
    deployment: Deployment,
    layout: Layout,
    stages: Sequence[StageSpec],
    uses: Sequence[ExpertUse | None],
    batch: float,
    keys: Sequence[object],
    *,
    fair: bool,
) -> _ReplicaCost:
    """Time for one token of every sequence of a replica: one pass, its hops and the bubble."""
    total = sum(len(stage.gpus) for stage in stages)
    depth = len(stages)
    known: dict[object, StepCost] = {}
    parts: dict[tuple[str, str], float] = {}
    busy: dict[str, float] = {}
    floors: list[float] = []
    seconds: list[float] = []
    for index, stage in enumerate(stages):
        sequences = batch * total / (depth * len(stage.gpus))
        is_last = index == depth - 1
        key = keys[index], is_last
        if key not in known:
            known[key] = batch_cost(
                deployment,
                stage,
                sequences,
                use=uses[index],
                last=is_last,
                fair=fair,
                **layout.widths,
            )
        cost = known[key]
        seconds.append(float(cost.total_s))
        floors.append(float(cost.lower_s))
        for names, value in cost.parts_s.items():
            _add(parts, names, float(value))
        for resource, value in cost.floor_s.items():
            busy[resource] = max(busy.get(resource, 0.0), depth * float(value))
    hops_s = hops_floor_s = 0.0
    for fabric, hop_s, peak_s in hops(deployment, stages, batch):
        hops_s += hop_s
        hops_floor_s += peak_s
        _add(parts, (HOPS.name, fabric), hop_s)
    if depth > 1:
        bubble_s = float(bubble_seconds(depth, max(seconds), added(seconds), hops_s))
        _add(parts, (BUBBLE.name, IMBALANCE), bubble_s)
    lower = max(added(floors) + hops_floor_s, depth * max(floors))
    floor_s = {resource: value for resource, value in busy.items() if value}
    return _ReplicaCost(added(parts.values()), lower, parts, floor_s)


def _apart_cost(deployment: Deployment, layout: Layout, kind: _Kind, batch: float) -> _ReplicaCost:
    """Time for one token of every sequence of a replica whose attention runs apart from its experts."""
    (stage,), (use,), apart = kind.stages, kind.uses, layout.apart
    assert apart is not None  # noqa: S101 - the caller's
    attention = StageSpec(apart.gpus[kind.number], stage.layers)
    slots = 0.0 if use is None else float(use.fixed_slots.sum())
    cost = apart_turns(
        deployment.model,
        deployment.workload,
        Sides.of(deployment, attention, stage, layout.tp, slots),
        batch * layout.group_gpus / layout.tp,
        apart.micro_batches,
        None if use is None else PlacedExperts(deployment, stage, use),
        attention,
    ).step()
    parts = {names: float(seconds) for names, seconds in cost.parts_s.items() if seconds}
    floor_s = {resource: float(seconds) for resource, seconds in cost.floor_s.items() if seconds}
    return _ReplicaCost(float(cost.total_s), max(floor_s.values()), parts, floor_s)


def _add(into: dict[tuple[str, str], float], names: tuple[str, str], seconds: float) -> None:
    if seconds:
        into[names] = into.get(names, 0.0) + seconds


def _evidence(
    deployment: Deployment, layout: Layout, alike: Sequence[tuple[int, int]], *, synthetic: bool
) -> Evidence:
    """The weakest kind among the figures of GPUs, fabrics, kernels and all-to-all in use, and of the loads."""
    stages = [stage for replica, _ in alike for stage in layout.replicas[replica]]
    if layout.apart is not None:
        stages = [
            StageSpec(layout.gpus_of(replica), layout.replicas[replica][0].layers) for replica, _ in alike
        ]
    domains = {domain for stage in stages for domain in deployment.domain_set(stage)}
    cluster = deployment.cluster
    specs = {cluster.domain_kind[domain]: cluster.spec.domains[domain] for domain in domains}
    kinds = [
        figure.kind for stage in stages for figure in deployment.machine(stage).efficiency.figures().values()
    ]
    kernels = [kernel for stage in stages if (kernel := deployment.kernel(stage, tp=layout.tp // layout.pcp))]
    kinds += [figure.kind for kernel in kernels for figure in kernel.figures().values()]
    for domain in specs.values():
        dtypes = {*deployment.model.precision.values(), "bf16"}
        units = {f"{unit}_flop_per_s" for unit in multiply_units(dtypes, domain.gpu)}
        kinds += [domain.gpu.figures[key].kind for key in (*units, "hbm_bytes", "hbm_bytes_per_s")]
        kinds += [domain.fabric.link_bytes_per_s.kind, domain.fabric.latency_s.kind]
    out = cluster.spec.scale_out
    if out is not None and _across(deployment, layout):
        kinds += [out.fabric.link_bytes_per_s.kind, out.fabric.latency_s.kind]
    if synthetic or deployment.workload.what_if:
        kinds.append(Evidence.ASSUMED)
    return weakest(kinds)


def _across(deployment: Deployment, layout: Layout) -> bool:
    """Whether the layout has GPUs of several domains."""
    gpus = deployment.cluster.gpus
    domain = gpus[layout.replicas[0][0].gpus[0]].domain
    if layout.apart is not None:
        return any(gpus[gpu].domain != domain for gpu in layout.gpus_of(0))
    return any(gpus[gpu].domain != domain for stages in layout.replicas for s in stages for gpu in s.gpus)
