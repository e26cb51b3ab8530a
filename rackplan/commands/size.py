"""How many racks: the fleet that serves so many tokens a second, what it costs, and what a smaller one misses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from rackplan import options
from rackplan.options import Limits, opt

if TYPE_CHECKING:
    from cost.serving.lengths import Lengths
    from cost.serving.sizing import Demand


@dataclass(frozen=True, kw_only=True)
class Asked(Limits):
    """What the fleet shall serve."""

    tok_s: Annotated[
        str, opt("--tok-s", "Output tokens per second on average, all users: 200e6, 200M, 128k.", "N")
    ]
    context: Annotated[
        int | None, options.length("--context", "Decode alone: tokens already in each sequence. [4096]")
    ] = None
    isl: options.Isl = None
    osl: options.Osl = None
    lengths: Annotated[
        str | None,
        opt(
            "--lengths", "Instead: a mix of them, a CSV file with the columns isl, osl and share.", "FILE.csv"
        ),
    ] = None
    utilization: Annotated[
        float, opt("--utilization", "Mean traffic over its peak, above 0 to 1: the peak is bought.", "U")
    ] = 1.0
    spares: Annotated[int, opt("--spares", "Domains kept for failures, besides those that serve.", "N")] = 0

    @property
    def pooled(self) -> bool:
        """Whether both phases are asked for."""
        return self.isl is not None or self.lengths is not None

    @property
    def requests(self) -> Lengths | None:
        """Tokens of prompts and answers where both phases are asked for."""
        from cost.serving.lengths import Lengths, read_lengths

        if self.lengths is not None:
            return read_lengths(self.lengths)
        return None if self.isl is None or self.osl is None else Lengths.of(self.isl, self.osl)

    @property
    def demand(self) -> Demand:
        """What is asked, with the usual limits where nobody gave any."""
        from cost.serving.sizing import Demand

        tpot_s, ttft_s = self.limits_s
        return Demand(
            tok_s=options.tokens_per_s(self.tok_s),
            utilization=self.utilization,
            spares=self.spares,
            tpot_s=tpot_s,
            ttft_s=ttft_s if self.pooled else None,
        )


def size(
    *,
    model: options.ModelName,
    cluster: Annotated[
        str, opt("--cluster", "The unit that repeats: catalog name (one domain), name@GPUS or YAML.", "C")
    ],
    asked: Asked,
    pricing: options.Pricing,
    output: options.Written = None,
    json: options.JsonFlag = False,
) -> None:
    """Size a fleet for so many tokens a second. GPUs, racks, MW, dollars, and the next smaller level."""
    from rackplan.output import written
    from rackplan.progress import progress
    from rackplan.views.size import size_view
    from rackplan.work import sized

    finish = written(output, "size", json=json)
    context = options.CONTEXT if asked.context is None else asked.context
    deployment = pricing.deployment(model, cluster, options.Serving(context=context))
    with progress() as reporter:
        reporter.stage("sizing")
        found, left_out = sized(deployment, asked.demand, asked.usual, lengths=asked.requests)
    finish(size_view(found, usual=asked.usual, left_out=left_out))
