"""What figures look like in JSON: typed dictionaries that commands print and files hold."""

from __future__ import annotations

from typing import NotRequired

from typing_extensions import TypedDict


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
