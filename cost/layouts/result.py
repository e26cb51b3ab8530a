"""What a sweep found, one row for each layout at each batch; its Pareto frontier and its best at given speeds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cost.inputs.deployment import Deployment
from cost.inputs.layout import Layout, StageWidths, widths_label
from cost.layouts.arrays import Array, Index, numbered, pairs
from cost.layouts.front import pareto
from cost.layouts.partition import Variant
from cost.layouts.parts import PartsOf, StepParts
from cost.memory.stages import CacheRoom
from cost.money.bill import Totals
from cost.serving.limits import out_of_reach, relax_default_limits, rounded_down, rounded_up
from topology.base.errors import InfeasibleError
from topology.base.shown import Shown


@dataclass(frozen=True, eq=False, repr=False)
class Sweep(Shown):
    """Layouts at batches that fit; every array is ``[configurations]``.

    Attributes
    ----------
    deployment:
        What was swept; its own batch plays no part.
    tp, attention_dp, ep, moe_tp, dcp, pcp, stages, replicas:
        Width of tensor parallelism in attention and dense parts; attention groups of a stage; places that a layer's
        experts are spread over and parts that each is cut into (``ep * moe_tp`` GPUs; 1 and 1 without experts);
        context parallelism (:class:`cost.inputs.layout.Layout`); pipeline stages; independent copies of the model.
    gpus:
        GPUs of one replica.
    batch, max_batch:
        Sequences (prefill: prompts) per GPU in use, and the most that fit HBM and the chunk with the layers split so;
        below 1 a group of ``tp`` GPUs has ``batch * tp`` of them.
    step_s:
        Expected seconds of a step (:class:`cost.step.score.Score`).
    tok_s:
        Output (prefill: input) tokens per second of all replicas.
    parts_of:
        Finds what the steps of some configurations are spent on, which costs far more than to price them: whoever
        shows a few takes :meth:`rows` first.
    shortage_bytes:
        HBM bytes per GPU that the layout nearest to fitting one sequence lacks; 0 where something fits.
    imbalance:
        Busiest GPU's expert load over the mean that was counted; None: the usual one of wide groups.
    limit_s, limit_default:
        Longest seconds per token (prefill: of a step) of :attr:`best`, None: no limit. A default one gives way where
        nothing keeps it.
    afd:
        Attention apart from the experts, which is asked about beside these layouts: ``off``, ``auto`` or ``48:24``.
    """

    deployment: Deployment
    layout: Index
    tp: Index
    attention_dp: Index
    ep: Index
    moe_tp: Index
    dcp: Index
    pcp: Index
    stages: Index
    replicas: Index
    gpus: Index
    batch: Array
    max_batch: Array
    step_s: Array
    tok_s: Array
    parts_of: PartsOf
    variants: tuple[Variant, ...]
    shortage_bytes: float = 0.0
    imbalance: float | None = 1.0
    limit_s: float | None = None
    limit_default: bool = False
    afd: str = "off"

    def brief(self) -> str:
        """Return a summary of the sweep with the ends of the frontier."""
        ends = self.frontier()[[0, -1]] if len(self) else ()
        figures = (
            f"{self.tok_s_per_gpu[at]:,.0f} tok/s/GPU at {self.tok_s_per_user[at]:,.3g} tok/s/user"
            for at in ends
        )
        return (
            f"{self.deployment.brief()}: {len(self):,} configurations, {' to '.join(figures) or 'none fits'}"
        )

    def __len__(self) -> int:
        return len(self.step_s)

    def that_fits(self) -> Sweep:
        """Return the sweep.

        Raises
        ------
        InfeasibleError
            If no layout fits: what the closest lacks.
        """
        model, where = self.deployment.model.name, self.deployment.cluster.name
        if not len(self):
            raise InfeasibleError(
                f"HBM capacity binds: no layout of {model} on {where} holds a sequence of "
                f"{self.deployment.workload.context:,} tokens; the closest lacks {self.shortage_bytes / 1e9:.1f} GB "
                "per GPU."
            )
        return self

    @cached_property
    def parts(self) -> StepParts:
        """What every step is spent on."""
        return self.parts_of()

    @property
    def lower_step_s(self) -> Array:
        """Seconds of a step that no schedule can beat at data-sheet peaks."""
        return self.parts.lower_step_s

    @property
    def bound_by(self) -> Index:
        """What most of the step is spent on, as an index into ``limits``."""
        return self.parts.bound_by

    @property
    def limits(self) -> tuple[str, ...]:
        """What may bind a step."""
        return self.parts.limits

    @property
    def terms_s(self) -> Mapping[str, Array]:
        """Seconds of the step by part; they add up to ``step_s``."""
        return self.parts.terms_s

    @cached_property
    def tok_s_per_user(self) -> Array:
        """Output (prefill: input) tokens per second of one sequence."""
        return np.asarray(self.deployment.workload.tokens_per_step / self.step_s)

    @cached_property
    def tok_s_per_gpu(self) -> Array:
        """Output (prefill: input) tokens per second over all GPUs of the cluster."""
        return self.tok_s / len(self.deployment.cluster.gpus)

    @cached_property
    def tok_s_per_gpu_used(self) -> Array:
        """Output (prefill: input) tokens per second over the GPUs in use."""
        return np.asarray(self.tok_s / (self.gpus * self.replicas))

    def rows(self, which: Sequence[int] | Index) -> Sweep:
        """Return some of the configurations."""
        which = np.asarray(which, dtype=np.int64)
        arrays = {field.name: getattr(self, field.name) for field in fields(self)}
        chosen: dict[str, Any] = {
            name: value[which] for name, value in arrays.items() if isinstance(value, np.ndarray)
        }
        return replace(self, parts_of=self.parts_of.rows(which), **chosen)

    def run(self, which: Sequence[int] | Index, step_batch: Array, batch: Array) -> Sweep:
        """Return configurations at ``batch`` on average, their steps priced at ``step_batch`` (sequences per GPU)."""
        rows = self.rows(which)
        parts = replace(rows.parts_of, batch=step_batch)
        priced = parts.layouts.price(parts.layout, step_batch)
        tok_s = priced.tok_s * batch / step_batch
        return replace(rows, batch=batch, step_s=priced.step_s, tok_s=tok_s, parts_of=parts)

    @property
    def best(self) -> int | None:
        """The configuration with most throughput that keeps the limit; None where none does."""
        if self.limit_s is None:
            return int(self.frontier()[0]) if len(self) else None
        tokens = 1 if self.deployment.workload.decodes else self.deployment.workload.tokens_per_step
        return best_at(self, tokens / self.limit_s)

    def within(self, limit_s: float | None, *, default: bool = False) -> Sweep:
        """Return the sweep with a limit for :attr:`best`; a default one gives way where nothing keeps it.

        Raises
        ------
        LimitError
            If nothing keeps a limit that is no default: with the shortest time there is.
        """
        limited = replace(self, limit_s=limit_s, limit_default=default)
        return relax_default_limits(_require_best, limited, {"limit_s"} if default else ())[0]

    def frontier(self) -> Index:
        """Return the configurations that none beats in both speeds, from the slowest per user to the fastest."""
        return pareto(self.tok_s_per_user, self.tok_s_per_gpu)

    @cached_property
    def best_of_shapes(self) -> tuple[Index, Index]:
        """The configurations that no other of as many GPUs, stages and of its width beats in both speeds.

        Returns
        -------
        Those, by shape and growing speed, and the number of their shape.
        """
        shape = numbered(pairs(numbered(pairs(self.tp, self.stages))[1], self.gpus))[1]
        rows = pareto(self.tok_s_per_user, self.tok_s / self.replicas, shape)
        return rows, shape[rows]

    def best_at_least(self, speed: float) -> Index:
        """Return of each such shape the one with most throughput that has ``speed`` tokens per second of a user."""
        rows, shape = self.best_of_shapes
        fast = self.tok_s_per_user[rows] >= speed
        return np.asarray(rows[fast][np.diff(shape[fast], prepend=-1) > 0])

    def layout_of(self, index: int) -> Layout:
        """The layout of one configuration, GPU by GPU."""
        variant = self.variants[self.layout[index]]
        replicas = range(len(variant.arrangement.replicas))
        stages = tuple(variant.stages(replica) for replica in replicas)
        return Layout(stages, **self.widths_of(index))

    def widths_of(self, index: int) -> StageWidths:
        """Widths of parallelism inside a stage of one configuration, as :attr:`Layout.widths`."""
        tp, moe_tp, dcp, pcp = (int(column[index]) for column in (self.tp, self.moe_tp, self.dcp, self.pcp))
        return {"tp": tp, "moe_tp": moe_tp, "dcp": dcp, "pcp": pcp}

    def label(self, index: int) -> str:
        """The layout in a few letters: ``EP72 TP1 PP1 x1``; ``ETP``: parts that each expert is cut into."""
        return f"{self.worker_label(index)} x{self.replicas[index]}"

    def worker_label(self, index: int) -> str:
        """The layout of one replica, without how many the cluster holds."""
        ep = int(self.ep[index]) if self.deployment.model.moe is not None else None
        return widths_label(ep, stages=int(self.stages[index]), **self.widths_of(index))

    def cache(self, index: int) -> CacheRoom:
        """What the KV cache of a replica of one configuration holds."""
        gpus = int(self.gpus[index])
        # of prompts a step takes few, whatever there is room for
        sequences = round(float(self.max_batch[index]) * gpus) if self.deployment.workload.decodes else None
        return self.parts_of.layouts.cache(int(self.parts_of.layout[index]), gpus, sequences)

    @cached_property
    def _cache_tokens(self) -> dict[int, float]:
        return {}

    def cache_tokens(self, rows: Index) -> Array:
        """Tokens that the KV cache of a replica of some configurations holds, ``[rows]``: those of a layout alike."""
        known, layouts = self._cache_tokens, self.parts_of.layout[rows].tolist()
        for row, layout in zip(rows.tolist(), layouts, strict=True):
            if layout not in known:
                known[layout] = self.cache(row).tokens
        return np.array([known[layout] for layout in layouts])

    def bound(self, index: int) -> str:
        """What most of the step of one configuration is spent on."""
        return self.limits[int(self.bound_by[index])]

    @property
    def longest_wait_ms(self) -> Array:
        """Milliseconds that a request with a place waits at most for its next token: two steps (`token_wait_s`)."""
        return 2e3 * self.step_s

    def totals(self, index: int) -> Totals:
        """What the whole cluster gives, costs and draws in a configuration, GPUs that stay idle too."""
        workload, bill = self.deployment.workload, self.deployment.bill
        used = int(self.gpus[index] * self.replicas[index])
        return bill.totals(
            float(self.tok_s[index]),
            workload.token_word,
            gpus_idle=bill.gpus - used,
            phase=workload.phase,
        )

    def columns(self) -> dict[str, Array | Index | NDArray[np.str_]]:
        """All columns by name, as a file of them has; dollars and megawatts where their figures are known."""
        names = (
            "tp attention_dp ep moe_tp dcp pcp stages replicas batch max_batch step_s lower_step_s "
            "tok_s tok_s_per_user tok_s_per_gpu tok_s_per_gpu_used"
        )
        columns: dict[str, Array | Index | NDArray[np.str_]] = {
            "layout": np.array([self.label(index) for index in range(len(self))], dtype=np.str_),
            "gpus_per_worker": self.gpus,
            "gpus_used": self.gpus * self.replicas,
            **{name: getattr(self, name) for name in names.split()},
        }
        columns["longest_wait_ms"] = self.longest_wait_ms
        bill = self.deployment.bill
        money = {
            "usd_per_million_tokens": bill.usd_per_million(self.tok_s),
            "tok_s_per_mw": bill.tok_s_per_megawatt(self.tok_s),
        }
        columns |= {name: values for name, values in money.items() if values is not None}
        columns["bound_by"] = np.array(self.limits)[self.bound_by]
        return columns | {f"{term}_s": seconds for term, seconds in self.terms_s.items()}


def _require_best(swept: Sweep) -> Sweep:
    if swept.best is None:
        workload, fastest_s = swept.deployment.workload, float(swept.step_s.min())
        option, action = "ttft_ms", f"prefills prompts of {workload.context:,} tokens in"
        if workload.decodes:
            fastest_s /= workload.tokens_per_step
            option, action = "tpot_ms", f"gives {rounded_down(1 / fastest_s)} tok/s/user, a token in"
        best = f"the fastest layout {action} {rounded_up(fastest_s * 1e3)} ms"
        where = swept.deployment.cluster.name
        raise out_of_reach("limit_s", option, swept.limit_s or 0.0, where, best)
    return swept


def best_at(sweep: Sweep, target: float) -> int | None:
    """Return the configuration with most tok/s/GPU of those with at least ``target`` tok/s/user, or None.

    It is exact to a whole sequence: near the frontier every batch is priced, and off it at the speeds that the sweep
    was given.
    """
    fast = np.flatnonzero(sweep.tok_s_per_user >= target)
    return int(fast[np.argmax(sweep.tok_s_per_gpu[fast])]) if len(fast) else None


def iso_interactivity(sweep: Sweep, targets: Iterable[float]) -> list[float | None]:
    """Return the best tok/s/GPU at each target in tok/s/user; None where no configuration is that fast.

    Every figure is of a configuration that was priced: nothing is interpolated or extrapolated.
    """
    indices = (best_at(sweep, target) for target in targets)
    return [None if index is None else float(sweep.tok_s_per_gpu[index]) for index in indices]
