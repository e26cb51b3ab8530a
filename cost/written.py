"""What figures look like in JSON: typed dictionaries that commands print and files hold."""

from __future__ import annotations

from typing import NotRequired

from typing_extensions import TypedDict

from topology.base.figures import EvidenceLabel


class PriceFigure(TypedDict):
    """A figure with its origin.

    Attributes
    ----------
    value, unit:
        The figure, and its unit in SI.
    kind:
        How it is known.
    source:
        Where it was read.
    """

    value: float
    unit: str
    kind: EvidenceLabel
    source: str


class BillPart(TypedDict):
    """What is paid for: GPUs of a kind, or a part of the network.

    Attributes
    ----------
    name, count:
        The GPU or part, and how many.
    usd_per_hour, power_w:
        Of one; null where there is no figure.
    all_in:
        Whether the power has its share of host and cooling.
    """

    name: str
    count: float
    usd_per_hour: PriceFigure | None
    power_w: PriceFigure | None
    all_in: bool


class BillData(TypedDict):
    """Money and power; null is what has no figure, and ``missing`` says of what.

    Attributes
    ----------
    usd_per_hour, usd_per_year:
        Of all parts; a year has 8,760 hours.
    price_basis, price_kind:
        Whose price of a GPU-hour, and the weakest kind of figure behind it.
    power_w, power_kind:
        Of all parts, and the weakest kind of figure behind it.
    parts:
        GPUs by kind, and the network where it is counted.
    missing:
        What has no figure, and how to give it.
    """

    usd_per_hour: float | None
    usd_per_year: float | None
    price_basis: str
    price_kind: EvidenceLabel | None
    power_w: float | None
    power_kind: EvidenceLabel | None
    parts: list[BillPart]
    missing: list[str]


class UsedData(TypedDict):
    """What totals come to with the GPUs in use paid for alone.

    Attributes
    ----------
    gpus:
        GPUs in use.
    tok_s_per_gpu:
        Throughput over them.
    usd_per_hour, usd_per_million_tokens:
        Of them alone; null where there is no price.
    power_w, tok_s_per_mw:
        Of them alone; null where there is no power.
    """

    gpus: int
    tok_s_per_gpu: float
    usd_per_hour: float | None
    usd_per_million_tokens: float | None
    power_w: float | None
    tok_s_per_mw: float | None


class TotalsData(BillData):
    """What a whole cluster gives, costs and draws.

    Attributes
    ----------
    gpus, gpus_idle:
        GPUs that are paid for, and those of them without work; null where nobody looked.
    tokens, phase:
        Which tokens are counted (``output`` or ``input``), and of which phase: ``decode``, ``prefill`` or ``both``.
    tok_s_per_gpu, tok_s, requests_per_s:
        Over all GPUs, and of all together; requests are null where only one phase is priced.
    usd_per_million_tokens, tok_s_per_mw:
        Cost and power of the tokens; null where there is no figure.
    used:
        The same over the GPUs in use; null where none is idle.
    """

    gpus: int
    gpus_idle: int | None
    tokens: str
    phase: str
    tok_s_per_gpu: float
    tok_s: float
    requests_per_s: float | None
    usd_per_million_tokens: float | None
    tok_s_per_mw: float | None
    used: UsedData | None


class CalibrationData(TypedDict):
    """How far predictions of a chip were off where it was measured; errors are fractions of what was measured.

    Attributes
    ----------
    chip, stand_in_for:
        The chip that was measured, and the one that it stands in for; null: itself.
    engine, phase:
        Of the measured rows; ``any``: all of them.
    rows, rows_of:
        How many rows, and what they are of.
    median_abs_error, mean_abs_error, bias:
        Absolute errors, and the median signed one (below 0: most predictions are too small).
    within_20_percent:
        Share of the rows within 20 percent.
    left_out_chip, left_out_median_abs_error, left_out_within_20_percent:
        The same of a fit that did not see this chip; null where there is none.
    band:
        Factor within which four of five measured rows lie.
    note:
        What the rows are not of; null: nothing.
    each:
        The errors of all chips where several differ: the whole is that with the widest band.
    """

    chip: str
    stand_in_for: str | None
    engine: str
    phase: str
    rows: int
    rows_of: str
    median_abs_error: float
    mean_abs_error: float
    within_20_percent: float
    bias: float
    left_out_chip: str | None
    left_out_median_abs_error: float | None
    left_out_within_20_percent: float | None
    band: float
    note: str | None
    each: NotRequired[list[CalibrationData]]


class LayerTrafficData(TypedDict):
    """Where the tokens of a layer go.

    Attributes
    ----------
    gpus_per_token, nodes_per_token, domains_per_token:
        How many of each a token needs, on average.
    """

    gpus_per_token: float
    nodes_per_token: float
    domains_per_token: float


class TokenTrafficData(LayerTrafficData):
    """Where tokens go, as routing traces have it; means over MoE layers.

    Attributes
    ----------
    routing, tokens:
        Names of the traces, and the tokens in them.
    bytes_per_step:
        Bytes that all GPUs send in a step, by fabric.
    layers:
        By id of the layer.
    independent:
        The same if tokens chose experts independently of each other.
    """

    routing: list[str]
    tokens: int
    bytes_per_step: dict[str, float]
    layers: dict[str, LayerTrafficData]
    independent: TokenTrafficData | None


class ProofData(TypedDict):
    """What is proven of a search.

    Attributes
    ----------
    status:
        ``OPTIMAL``, ``FEASIBLE``, ``INFEASIBLE`` or ``UNKNOWN``.
    objective, bound, gap:
        What was reached, what nothing can be better than, and the fraction between the two.
    """

    status: str
    objective: float
    bound: float
    gap: float
