"""Requests of the page: one pydantic model per request, with bounds and errors by field.

Names from the page are looked up in the catalog only, never opened as files; the text of a dropped file is read as
data, and its name is a label.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    FailFast,
    Field,
    ValidationError,
    model_validator,
)

from placement.options import USUAL_TPOT
from rackplan import requests
from topology.base.errors import InputError, RackplanError
from topology.base.reading import shown
from topology.base.schema import checked, problem

MAX_CLUSTERS = 5
"""Clusters that the form has room for."""
MAX_GPUS = 4_608
"""Maximum GPUs of a cluster on the page; larger ones take minutes and are left to the command line."""
MAX_TEXT = 262_144
"""Maximum characters of a dropped file."""
MAX_LOST = 256
"""Lost parts that a re-plan takes."""
MAX_DRAFTS, MAX_FIGURES = 3, 20
"""Drafted tokens of which the acceptance is measured, and figures that are set by hand or by GPU."""
Serving = Literal["better", "one pool", "two pools", "decode"]
"""Whole requests in the better or a given serving mode, or decode only."""
SLIDERS: Mapping[str, str] = {
    "hbm": "gpu.hbm_bytes_per_s",
    "flop": "gpu.flop_per_s",
    "up": "scale-up.link_bytes_per_s",
    "out": "scale-out.link_bytes_per_s",
}
"""Figure that each slider multiplies, as named by ``--set``; the price slider is separate."""
_BY_PLACE = ("clusters", "factors")
"""Fields with a message slot for each entry."""
_PARTS = ("asked", "point", "order")
"""Parts of a request with separate field names."""


class FieldError(RackplanError):
    """Input of the page that cannot be used, with a message for each field."""

    def __init__(self, fields: Mapping[str, str], status: int = 422) -> None:
        super().__init__("; ".join(f"{name}: {text}" for name, text in fields.items()))
        self.fields, self.status = dict(fields), status


def _items(value: object) -> object:
    """Return figures by name as pairs, in the order of the names."""
    return tuple(sorted(value.items())) if isinstance(value, dict) else value


def _settings(value: object, where: str) -> tuple[tuple[str, str], ...]:
    """Read ``gb200.hbm_bytes_per_s=2x, gpu.hbm_bytes=+10%``."""
    parts = [part.partition("=") for part in re.split("[,;]", str(value)) if part.strip()]
    figures = {name.strip(): figure.strip() for name, _, figure in parts}
    if not isinstance(value, str) or len(figures) > MAX_FIGURES or not all(figures.values()):
        raise InputError(f"{where}: {shown(value)} must be figures by part, like gb200.hbm_bytes_per_s=2x.")
    return tuple(figures.items())


def _loads(value: object, where: str) -> object:
    if not re.fullmatch(r"uniform|(?:lognormal|zipf):[0-9.]{1,10}", str(value)):
        expected = "uniform, lognormal:0.63 or zipf:0.4; use the command line for loads from a file"
        raise InputError(f"{where}: {shown(value)} must be {expected}.")
    return value


Word = Annotated[str, requests.Word, Field(max_length=60)]
Tokens = Annotated[requests.Tokens, Field(ge=1, le=10_000_000)]
Width = Annotated[requests.Count, Field(ge=1, le=MAX_GPUS)] | None
Place = Annotated[requests.Count, Field(ge=0, lt=MAX_CLUSTERS)]
Batch = Annotated[requests.Number, Field(ge=1e-6, le=1e9)]
Factor = Annotated[requests.Number, Field(ge=0.5, le=4), AfterValidator(lambda value: float(f"{value:.4g}"))]
"""The position of a slider."""
_Figure = Annotated[requests.Number, Field(ge=1e-6, le=1e6)]
ByGpu = Annotated[tuple[tuple[str, _Figure], ...], BeforeValidator(_items), Field(max_length=MAX_FIGURES)]
"""Prices in USD/h or powers in W; the library checks whether they are plausible."""


class PageRequest(BaseModel):
    """A part of a request: unknown fields are rejected, null means the default."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _without_null(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        return {name: value for name, value in data.items() if value is not None}


class Source(PageRequest):
    """A model or a cluster: a name of the catalog, or a file that was dropped (its label, and its text)."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    text: Annotated[str, Field(max_length=MAX_TEXT)] = ""

    @property
    def label(self) -> str:
        """The name of a file without the ending, in the letters of a file name."""
        stem = re.sub(r"[^A-Za-z0-9._-]+", "-", self.name.rsplit(".", 1)[0])[:60].strip("-.")
        return stem or "own"


class Factors(PageRequest):
    """Positions of the sliders."""

    hbm: Factor = 1
    flop: Factor = 1
    up: Factor = 1
    out: Factor = 1
    price: Factor = 1

    @property
    def moved(self) -> dict[str, str]:
        """Hardware factors that differ from 1."""
        return {name: f"{getattr(self, name):g}x" for name in sorted(SLIDERS) if getattr(self, name) != 1}


def _shared(name: str, of: type[requests.Request] = requests.SweepRequest, default: Any = ...) -> Any:
    """Return a field as the option of a request has it: title, hint, placeholder and, but for its own, default."""
    option, _ = requests.options_of(of)[name]
    title, hint = option.label
    value = requests.default_of(of, name) if default is ... else default
    return Field(default=value, title=title, description=hint, examples=[option.default or str(value or "")])


class Question(PageRequest):
    """Settings for all clusters.

    Attributes
    ----------
    gpus:
        GPUs of each of several clusters; None: as many as the largest named has.
    isl, osl:
        Tokens of a prompt and of its answer.
    serving:
        Serving mode; decode only is at ``isl + osl / 2`` tokens of context.
    tp, ep:
        Required widths of decode layouts (in one pool: of all layouts); None: any.
    tpot_ms, ttft_ms:
        Service levels in milliseconds; None: the default.
    settings:
        Custom figures, as for ``--set``.
    prices, powers:
        USD per GPU-hour and all-in watts by catalog name of the GPU; other names are ignored.
    runs:
        The user's measured runs, a CSV of points.

    A field with a title is one of the page's form: its description is the hint, its example what stands in it while
    it is empty.
    """

    model: Source = Source(name="deepseek-v3")
    clusters: Annotated[tuple[Source, ...], FailFast(), Field(min_length=1, max_length=MAX_CLUSTERS)] = (
        Source(name="gb200-nvl72"),
    )
    gpus: Width = _shared("gpus", requests.CompareRequest)
    serving: Serving = Field(default="better", title="Serving")
    recipe: Annotated[requests.Recipe, requests.Word] = _shared("recipe")
    isl: Tokens = _shared("isl", default=requests.ISL)
    osl: Tokens = _shared("osl", default=requests.OSL)
    tpot_ms: requests.Milliseconds | None = _shared("tpot_ms")
    ttft_ms: requests.Milliseconds | None = _shared("ttft_ms")
    weights: Word | None = _shared("weights")
    kv_dtype: Word | None = _shared("kv_dtype")
    draft_tokens: Annotated[requests.Count, Field(ge=0, le=MAX_DRAFTS)] | None = _shared("draft_tokens")
    engine: Annotated[Word, Field(pattern=r"^[a-z0-9.=-]{0,40}$")] = _shared("engine")
    mem_util: Annotated[float, Field(gt=0, le=1)] | None = _shared("mem_util")
    max_seqs: Annotated[requests.Count, Field(ge=1, le=1_000_000)] | None = _shared("max_seqs")
    tp: Width = _shared("tp", requests.PlanRequest)
    ep: Width = _shared("ep", requests.PlanRequest)
    settings: Annotated[tuple[tuple[str, str], ...], checked(_settings)] = _shared("settings")
    price_basis: Word | None = _shared("price_basis")
    prices: ByGpu = ()
    powers: ByGpu = ()
    factors: Factors = Factors()
    runs: Source | None = None

    @property
    def context(self) -> int:
        """Mean tokens in the cache of a decoding sequence over its answer."""
        return self.isl + self.osl // 2

    @property
    def whole(self) -> bool:
        """Whether whole requests are modelled."""
        return self.serving != "decode"

    @property
    def tpot_s(self) -> float | None:
        """The limit on the time per output token (default if not given); None: no limit."""
        return requests.limit_s(self.tpot_ms, USUAL_TPOT.value)

    @property
    def given(self) -> dict[str, Any]:
        """Library keywords for lengths and limits."""
        names = ("isl", "osl", "tpot_ms", "ttft_ms") if self.whole else ("context", "tpot_ms")
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    @property
    def served(self) -> dict[str, Any]:
        """Library keywords for the serving options, except lengths and weight formats."""
        names = ("recipe", "kv_dtype", "draft_tokens", "price_basis", "engine", "mem_util", "max_seqs")
        return {name: getattr(self, name) for name in names}


class Point(PageRequest):
    """One point of the plot: cluster index, layout label, sequences per GPU."""

    cluster: Place = 0
    layout: Annotated[str, Field(max_length=120)] = ""
    batch: Batch = 1.0


class PlanOrder(PageRequest):
    """A plan to make: cluster index, widths and batch (None: the best), loads, seconds of search."""

    cluster: Place = 0
    ep: Width = None
    tp: Width = None
    stages: Width = None
    dcp: Width = None
    batch: Batch | None = None
    loads: Annotated[str, checked(_loads)] = requests.DEFAULT_LOADS
    seconds: Annotated[requests.Number, Field(ge=0, le=600)] = 0.0

    def given(self, question: Question) -> dict[str, Any]:
        """Return library keywords for lengths, limits (none at a batch of its own), widths and batch."""
        widths = {name: getattr(self, name) for name in ("ep", "tp", "stages", "dcp", "batch")}
        shared = {name: getattr(question, name, None) for name, width in widths.items() if width is None}
        limited = {
            name: value for name, value in question.given.items() if not (self.batch and "_ms" in name)
        }
        return limited | {name: width for name, width in (widths | shared).items() if width is not None}


def _on_a_cluster(request: Any) -> Any:
    """Refuse a point or an order of a cluster that is not there."""
    part = request.point if isinstance(request, PointRequest) else request.order
    if part.cluster >= len(request.asked.clusters):
        raise problem(f"there is no cluster number {part.cluster}.")
    return request


class PointRequest(PageRequest):
    """A question, and a point of its plot."""

    asked: Question = Question()
    point: Point = Point()
    _one_of_the_clusters = model_validator(mode="after")(_on_a_cluster)


class PlaceOrder(PageRequest):
    """Place the experts of one cluster."""

    kind: Literal["place"]
    asked: Question = Question()
    order: PlanOrder = PlanOrder()
    _one_of_the_clusters = model_validator(mode="after")(_on_a_cluster)


class LoseOrder(PageRequest):
    """Re-plan the plan of a job without what is lost."""

    kind: Literal["lose"]
    of: str
    lost: Annotated[
        tuple[Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:/@-]{1,120}$")], ...],
        FailFast(),
        Field(min_length=1, max_length=MAX_LOST),
    ]


class OpenOrder(PageRequest):
    """Show a plan that the command line opened."""

    kind: Literal["open"]
    plan: Annotated[requests.Count, Field(ge=0)] = 0


class ReportOrder(PageRequest):
    """Write the report of the current settings, or of the plan of a job."""

    kind: Literal["report"]
    asked: Question | None = None
    of: str = ""


Order = PlaceOrder | LoseOrder | OpenOrder | ReportOrder
ORDERS: Mapping[object, type[Order]] = {
    get_args(kind.model_fields["kind"].annotation)[0]: kind for kind in get_args(Order)
}
_R = TypeVar("_R", bound=PageRequest)


def read(kind: type[_R], data: object) -> _R:
    """Return a request of the page.

    Raises
    ------
    FieldError
        If it cannot be used, with a message for each field.
    """
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        problems: dict[str, str] = {}
        for detail in error.errors(include_url=False):
            loc = detail["loc"][1:] if detail["loc"][:1] and detail["loc"][0] in _PARTS else detail["loc"]
            name = ".".join(map(str, loc[: 2 if loc and loc[0] in _BY_PLACE else 1]))[:40]
            problems.setdefault(
                name or "request", _SENTENCES.get(detail["type"]) or requests.expected(detail)
            )
        raise FieldError(problems) from None


_SENTENCES = {
    "missing": "required.",
    "extra_forbidden": "unknown field.",
    "model_type": "expected an object.",
    "too_long": "too many entries.",
    "too_short": "expected at least one.",
    "string_too_long": "too long.",
    "string_too_short": "choose one from the list, or drop a file.",
    "string_pattern_mismatch": "expected ids of GPUs, nodes or racks.",
}


def read_order(data: object) -> Order:
    """Return the job requested by the page.

    Raises
    ------
    FieldError
        If it cannot be used, with a message for each field.
    """
    kind = data.get("kind") if isinstance(data, dict) else None
    if not isinstance(kind, str) or kind not in ORDERS:
        raise FieldError({"kind": f"expected {', '.join(map(str, ORDERS))}."})
    return read(ORDERS[kind], data)
