"""The figures of machine and kernels behind a score, and the weakest of some."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from cost.calibration.alltoall import Kernel
from cost.dtypes import multiply_units
from cost.inputs.deployment import Deployment
from cost.inputs.layout import StageSpec
from cost.inputs.machine import Machine
from cost.terms.registry import TERMS
from placement.plan import Plan
from topology.base.figures import UNPUBLISHED, Evidence, Figure, weakest


@dataclass(frozen=True)
class UsedFigure:
    """A figure with its subject: a GPU, a fabric, kernels on a chip, an all-to-all kernel, or loads.

    ``group`` is ``machine``, ``kernels``, ``loads`` or ``what-if``.
    """

    group: str
    of: str
    name: str
    figure: Figure

    @property
    def title(self) -> str:
        """Subject and name of the figure."""
        return f"{self.of} {self.name}" if self.of else self.name

    @property
    def shown(self) -> str:
        """The value as its source prints it, else in SI; a dash where there is none."""
        return self.figure.text or (
            f"{self.figure.value:g} {self.figure.unit}" if self.figure.published else "-"
        )


def used_figures(plan: Plan) -> list[UsedFigure]:
    """Return all figures; synthetic loads and what-if assumptions count as assumed figures without a value."""
    gpus = plan.deployment.cluster.gpus
    domains = sorted({gpus[gpu].domain for gpu in plan.layout.gpus_in_use})
    figures = [*_figures_of(plan.deployment, domains), *coefficients(plan)]
    if plan.loads is not None and plan.loads.synthetic:
        assumed = Figure(UNPUBLISHED, "1", Evidence.ASSUMED, "synthetic; measured ones are better")
        figures.append(UsedFigure("loads", "", ", ".join(plan.loads.names), assumed))
    if plan.score.what_if:
        supposed = Figure(UNPUBLISHED, "1", Evidence.ASSUMED, "what-if, neither trained nor measured")
        figures.append(UsedFigure("what-if", "", plan.score.what_if, supposed))
    return figures


def coefficients(plan: Plan) -> list[UsedFigure]:
    """Return kernel efficiencies and delays for the chips and fabrics of the plan's stages."""
    used: dict[tuple[str, str], UsedFigure] = {}
    for _, machine, kernel in _machines(plan):
        reached = {machine.efficiency.chip: machine.efficiency.figures()}
        if kernel is not None:
            reached[kernel.name] = kernel.figures()
        for of, figures in reached.items():
            for name, figure in figures.items():
                used.setdefault((of, name), UsedFigure("kernels", of, name, figure))
    known = [
        (name, figure) for term in plan.score.terms_s for name, figure in TERMS[term].known_delays.items()
    ]
    return [*used.values(), *(UsedFigure("kernels", "", name, figure) for name, figure in known)]


def kernel_notes(plan: Plan) -> list[str]:
    """Return which all-to-all kernels stand in for those of fabrics that have no measured kernel."""
    notes = []
    for stage, machine, kernel in _machines(plan):
        if kernel is not None:
            out = machine.rates.out_fabric if len(plan.deployment.domain_set(stage)) > 1 else ""
            notes.append(kernel.stand_in(machine.rates.up_fabric, out))
    return [note for note in dict.fromkeys(notes) if note]


def _machines(plan: Plan) -> Iterator[tuple[StageSpec, Machine, Kernel | None]]:
    """Yield stages with machine and all-to-all kernel: the first on each machine, in one domain and in several."""
    yielded: list[tuple[Machine, bool]] = []
    for stages in plan.layout.replicas:
        for stage in stages:
            machine = plan.deployment.machine(stage)
            key = machine, len(plan.deployment.domain_set(stage)) > 1
            if key not in yielded:
                yielded.append(key)
                yield stage, machine, plan.deployment.kernel(stage, tp=plan.layout.tp // plan.layout.pcp)


def term_evidence(plan: Plan, term: str) -> Evidence | None:
    """Return the weakest kind among the coefficients of one part of the step; None where none is known."""
    behind = TERMS[term].behind
    kinds = [used.figure.kind for used in coefficients(plan) if used.name.startswith(behind)]
    return weakest(kinds) if kinds else None


def deployment_figures(deployment: Deployment) -> list[UsedFigure]:
    """Return the figures of all GPUs, fabrics and kernels of a cluster, without a plan."""
    reached = deployment.kernels_reach()
    kernels = [UsedFigure("kernels", reached.chip, *named) for named in reached.figures().items()]
    return [*_figures_of(deployment, range(len(deployment.cluster.spec.domains))), *kernels]


def _figures_of(deployment: Deployment, used: Sequence[int]) -> list[UsedFigure]:
    """Return the figures of the domains ``used``, each once; of the scale-out fabric where there are several."""
    cluster, model = deployment.cluster, deployment.model
    figures: dict[tuple[str, str], UsedFigure] = {}

    def add(of: str, name: str, figure: Figure) -> None:
        figures.setdefault((of, name), UsedFigure("machine", of, name, figure))

    for index in used:
        domain = cluster.spec.domains[index]
        units = multiply_units(sorted({*model.precision.values(), "bf16"}), domain.gpu)
        for name in (*(f"{unit}_flop_per_s" for unit in units), "hbm_bytes_per_s", "hbm_bytes"):
            add(domain.gpu.name, name, domain.gpu.figures[name])
        add(domain.fabric.name, "link_bytes_per_s", domain.fabric.link_bytes_per_s)
        add(domain.fabric.name, "latency_s", domain.fabric.latency_s)
    out = cluster.spec.scale_out
    if out is not None and len(used) > 1:
        add(out.fabric.name, "link_bytes_per_s", out.fabric.link_bytes_per_s)
        add(out.fabric.name, "latency_s", out.fabric.latency_s)
    return list(figures.values())


def weakest_figures(figures: Iterable[UsedFigure]) -> list[UsedFigure]:
    """Return those of the weakest kind among ``figures``."""
    candidates = list(figures)
    kind = weakest(used.figure.kind for used in candidates)
    return [used for used in candidates if used.figure.kind is kind]
