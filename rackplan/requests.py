"""All requests: each option once, with type, unit, default, bounds and help.

A request is what one function of :mod:`rackplan.answers` is asked. Command line, Python's functions, study files, the
page and schemas derive from these classes: an option is a field with an :class:`Option`, and the first line of the
docstring of the class that has it names its section of the help.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, field, fields, replace
from functools import cache, cached_property
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Literal,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    ValidationError,
    model_validator,
)
from pydantic.dataclasses import dataclass
from pydantic_core import CoreSchema, ErrorDetails, PydanticCustomError

from placement.engines import NAMES
from topology.base.errors import InputError, input_name
from topology.base.reading import nearest, shown
from topology.base.units import amount, parse_length, plain_number
from topology.base.values import plain


@dataclass(frozen=True)
class Named:
    """What Python's help calls a type that is another when it runs, and what it takes beside texts and files."""

    text: str
    more: str = ""


if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cost.experts.dispatch import DispatchPolicy
    from cost.experts.loads import ExpertLoads
    from cost.model import Model
    from cost.queueing.requests import Requests as Recorded
    from cost.queueing.sessions import Sessions
    from cost.serving.lengths import Lengths
    from placement.budget import Cancel
    from placement.options import Goal, Objective, Spread
    from placement.plan import Plan
    from placement.progress import Progress
    from topology.cluster import Cluster

    ModelLike = str | Path | Model | Mapping[str, object]
    """A name or ``config.json``, a model, or the content of such a file."""
    ClusterLike = str | Path | Cluster | Mapping[str, object]
    """A name or YAML file, a cluster, or the content of such a file."""
    PlanLike = Plan | str | Path
    """A plan, its ``plan.json``, or the folder of one."""
    Loads = str | Path | NDArray[Any] | ExpertLoads | Sequence[str | Path | NDArray[Any]]
    """Files and generators, or tokens ``[layers, experts]`` or ``[scenarios, layers, experts]``."""
    Clusters = Sequence[ClusterLike]
    Models = ModelLike | Mapping[str, float] | Sequence[str]
    Lines = Sequence[str] | Mapping[str, str | float]
    """``PART.FIGURE=VALUE``; when it is read, a tuple of them."""
    Hear = Callable[[Progress], object]
else:  # heavy packages are imported by what reads these, and words are checked there
    ModelLike = Annotated[Any, Named("ModelLike", "Or a Model, or the content of such a file.")]
    ClusterLike = Annotated[Any, Named("ClusterLike", "Or a Cluster, or the content of such a file.")]
    PlanLike = Annotated[Any, Named("PlanLike", "Or a Plan.")]
    Loads = Annotated[
        Any, Named("Loads", "Or an array [layers, experts] or [scenarios, layers, experts], or several.")
    ]
    Clusters = Annotated[Any, Named("Sequence[ClusterLike]", "Or Clusters, or the content of such files.")]
    Models = Annotated[Any, Named("ModelLike | Mapping[str, float] | Sequence[str]")]
    Hear = Annotated[Any, Named("Callable[[Progress], object]")]
    Cancel = Annotated[Any, Named("threading.Event | Callable[[], bool]")]
    Lines = Annotated[Sequence[str], Named("Mapping[str, float | str] | Sequence[str]")]
    DispatchPolicy = Goal = Objective = Spread = str

CONTEXT = 4096
"""Tokens in each sequence by default."""
ISL, OSL = 8192, 1024
"""Tokens of prompts and answers by default: those of most published runs."""
DEFAULT_LOADS = "lognormal:0.63"
"""The default synthetic loads: the spread of eight real DeepSeek-V3 workloads."""
NO_LIMIT: Literal["none"] = "none"
Recipe = Literal["checkpoint", "usual"]
Arrivals = Literal["poisson", "constant", "bursty"]
Router = Literal["least", "round", "prefix"]
PREFILL_ONLY = "prefill yields only the first token, so a limit on later tokens has no effect"
NOT_SIMULATED = (
    f"requests are not simulated here, so none waits; give {input_name('ttft_ms')}, or simulate the choice"
)
LISTED = "Claude Sonnet 4.5's price list (Anthropic, September 2025)"
DEFAULT_BYTES = "1 GB"
"""What each GPU sends by default."""
ENGINES = f"{', '.join(NAMES[:-1])} or {NAMES[-1]}"


@dataclass(frozen=True)
class Option:
    """Spelling, help and default text of a field.

    Attributes
    ----------
    help:
        What it is, for the help of a command and the documentation of a function; a form takes its first sentence:
        ``TITLE: HINT.``, with any of ``,:;`` between them.
    metavar:
        What stands for a value in the help; empty: the field's name.
    flags:
        Of the command line, where it is not the field's name.
    default:
        How the help shows the default; empty: as it is.
    argument:
        Whether the command line takes it without a flag.
    repeatable:
        Whether the command line takes it several times, as it does what is a list or a mapping.
    python:
        Whether it is Python's alone.
    """

    help: str
    metavar: str = ""
    flags: str = ""
    default: str = ""
    argument: bool = False
    repeatable: bool = False
    python: bool = False

    def flag(self, name: str) -> str:
        """Return the long flag of the field ``name``."""
        long = (flag for flag in self.flags.partition("/")[0].split() if flag.startswith("--"))
        return next(long, f"--{name.replace('_', '-')}")

    @property
    def documented(self) -> str:
        """The help, including the default if it has a text."""
        return f"{self.help} [{self.default}]" if self.default else self.help

    @property
    def label(self) -> tuple[str, str]:
        """The title and the hint of a field of a form."""
        sentence = self.help.partition(". ")[0].removesuffix(".").removesuffix("; repeatable")
        title, *hint = re.split("[,:;] ", sentence, maxsplit=1)
        return title, "".join(hint)


def opt(
    default: Any, says: str, /, metavar: str = "", flags: str = "", *, kw_only: bool = True, **settings: Any
) -> Any:
    """Return a field with a default and an :class:`Option` whose help ``says`` what it is."""
    return field(
        default=default, kw_only=kw_only, metadata={"option": Option(says, metavar, flags, **settings)}
    )


class Spelled(BeforeValidator):
    """Parser for a value given as text."""

    def __get_pydantic_core_schema__(self, source_type: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return the schema of the value, which in JSON may be a text too."""
        validator = BeforeValidator(self.func, json_schema_input_type=source_type | str)
        return validator.__get_pydantic_core_schema__(source_type, handler)


def _wrong(expected: str) -> PydanticCustomError:
    return PydanticCustomError("expected", "{expected}", {"expected": expected})


def _whole(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong("expected a whole number")
    if abs(value) >= 2**63:
        raise _wrong("a whole number must fit in 64 bits")
    return value


def _number(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong("expected a number")
    if not abs(value) <= sys.float_info.max:  # NaN too, and whole numbers have no end
        raise _wrong("expected a finite number")
    return float(value)


def _text(value: Any) -> Any:
    if not isinstance(value, str):
        raise _wrong("expected text")
    return value


def _word(value: Any) -> Any:
    return value.strip().lower() if isinstance(value, str) else _text(value)


def _pattern(value: Any) -> Any:
    """Read a word, or the name of a file as it is."""
    return value if "." in _text(value) else _word(value)


def _flag(value: Any) -> Any:
    if not isinstance(value, bool):
        raise _wrong("expected true or false")
    return value


def _tokens(value: Any) -> Any:
    if isinstance(value, str):
        try:
            return parse_length(value, "")
        except InputError:
            raise _wrong("expected a whole number of tokens, like 8192 or 8k (8,192)") from None
    return _whole(value)


def _above_0(value: Any, detail: str = "") -> float:
    number = plain_number(value.strip()) if isinstance(value, str) else value
    if (
        isinstance(number, bool)
        or not isinstance(number, int | float)
        or not 0 < number <= sys.float_info.max
    ):
        raise _wrong(f"expected a number above 0{detail}")
    return float(number)


def _limit(value: Any) -> Any:
    if isinstance(value, str) and value.strip().lower() == NO_LIMIT:
        return NO_LIMIT
    return _above_0(value, ", or none")


def _speeds(value: Any) -> Any:
    """Read ``25,50,100``, a number, numbers, or none."""
    if isinstance(value, str):
        if value.strip().lower() == NO_LIMIT:
            return NO_LIMIT
        value = value.split(",")
    several = value if isinstance(value, Sequence) or hasattr(value, "tolist") else [value]
    try:
        return tuple(_above_0(item) for item in several)
    except PydanticCustomError:
        raise _wrong("expected numbers above 0 with commas, like 25,50,100, or none") from None


def _sizes(value: Any) -> Any:
    """Read ``1,64,2400``, a number, or numbers."""
    try:
        sizes = _speeds(value)
    except PydanticCustomError:
        sizes = NO_LIMIT
    if sizes == NO_LIMIT:
        raise _wrong("expected numbers above 0 with commas, like 1,64,2400")
    return sizes


def _share(value: Any) -> Any:
    """Read a percentage as a fraction; a number is one."""
    if isinstance(value, str):
        percent = plain_number(value.strip().removesuffix("%").strip())
        value = math.nan if percent is None else percent / 100
        if not 0 <= value < 1:
            raise _wrong("expected percent, 0 or more and below 100, like 2%")
    if not 0 <= _number(value) < 1:
        raise _wrong("expected a fraction, 0 or more and below 1")
    return float(value)


def _copies(value: Any) -> Any:
    if isinstance(value, str):
        if value.strip().lower() == "auto":
            return "auto"
        value = plain_number(value.strip())
    try:
        return _whole(value)
    except PydanticCustomError:
        raise _wrong("expected a number of extra copies, 0 or more, or auto") from None


_THOUSANDS = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "b": 1e9}


def _amount(value: Any) -> Any:
    """Read a rate or money: ``200e6``, ``200M``, ``128k``, ``1.5B``."""
    if isinstance(value, str):
        number = value.strip().lower().removesuffix("tok/s").strip().replace("_", "")
        suffix = number[-1:] if number[-1:] in _THOUSANDS else ""
        value = (plain_number(number.removesuffix(suffix)) or math.nan) * _THOUSANDS[suffix]
    try:
        return _above_0(value)
    except PydanticCustomError:
        raise _wrong("expected a number above 0, like 200e6, 200M or 128k") from None


def _price_step(value: Any) -> Any:
    """Read ``USD@CONTEXT``, like ``6@200k``, or both numbers."""
    parts = value.split("@") if isinstance(value, str) else value
    if not isinstance(parts, Sequence) or len(parts) != 2:
        raise _wrong("expected USD@TOKENS, like 6@200k")
    return tuple(map(_amount, parts))


def _bytes(value: Any) -> Any:
    try:
        return _number(amount(value, "") if isinstance(value, str) else value)
    except InputError as error:
        raise _wrong(str(error).removeprefix(": ").rstrip(".")) from None


def _texts(value: Any) -> Any:
    several = [value] if isinstance(value, str | Path) else value
    if not isinstance(several, Sequence) or not all(isinstance(item, str | Path) for item in several):
        raise _wrong("expected text, or a list of texts")
    return tuple(map(str, several))


def _lines(value: Any) -> Any:
    """Read settings: ``PART.FIGURE=VALUE``, several of them, or a mapping."""
    return _texts(
        [f"{part}={figure}" for part, figure in value.items()] if isinstance(value, Mapping) else value
    )


def _by_gpu(value: Any) -> Any:
    """Read figures by GPU: ``GPU=FIGURE``, several of them, or a mapping."""
    if isinstance(value, Mapping):
        return {str(gpu): str(number) for gpu, number in value.items()}
    figures: dict[str, str] = {}
    for text in _texts(value):
        gpu, _, figure = (part.strip() for part in text.partition("="))
        if not (gpu and figure):
            raise _wrong("expected a mapping of GPUs to figures, or GPU=FIGURE, like gb200=3.10")
        if gpu in figures:
            raise _wrong(f"duplicate {gpu}; leave one out")
        figures[gpu] = figure
    return figures


def _clusters(value: Any) -> Any:
    """Read a cluster, or several: a list of them."""
    several = [_named(cluster) for cluster in (value if isinstance(value, list | tuple) else [value])]
    if not several:
        raise _wrong("expected one or more clusters")
    return several


def _named(value: Any) -> Any:
    """Read a model or a cluster: a path is its text."""
    if value is None:
        raise _wrong("expected a name, a file, file content, or an object")
    return str(value) if isinstance(value, Path) else value


Count = Annotated[int, BeforeValidator(_whole)]
Number = Annotated[float, BeforeValidator(_number)]
Text = Annotated[str, BeforeValidator(_text)]
Flag = Annotated[bool, BeforeValidator(_flag)]
Tokens = Annotated[int, Spelled(_tokens)]
Milliseconds = Annotated[float | Literal["none"], Spelled(_limit)]
Word = BeforeValidator(_word)
Texts = Annotated[Sequence[str], BeforeValidator(_texts), Named("str | Sequence[str]")]
ByGpu = Annotated[Mapping[str, str | float], BeforeValidator(_by_gpu), Named("Mapping[str, float | str]")]
Amount = Annotated[float, Spelled(_amount)]

T = TypeVar("T")
CONFIG = ConfigDict(extra="forbid", arbitrary_types_allowed=True, defer_build=True)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
class Request:
    """Base class of all requests: each is a frozen dataclass whose fields are checked.

    Attributes
    ----------
    FIRST:
        Fields that ``--help`` shows where there are more than a dozen; empty: all. ``EXAMPLES`` are two commands to
        copy.
    QUOTED:
        Whether a field in backquotes is an option wherever a message has it. Keys of files have the names of other
        fields too: of those messages say ``option `fabric```.
    INSTEAD:
        Limits that do not apply, and why and what to give instead.
    """

    FIRST: ClassVar[str] = ""
    EXAMPLES: ClassVar[tuple[str, ...]] = ()
    QUOTED: ClassVar[bool] = True
    INSTEAD: ClassVar[Mapping[str, str]] = {}

    def __init_subclass__(cls) -> None:
        """Make a dataclass of the request."""
        dataclass(cls, frozen=True, kw_only=True, config=CONFIG)

    def given(self, name: str) -> bool:
        """Whether a field was given, that is, differs from its default."""
        value, default = getattr(self, name, None), getattr(type(self), name, None)
        if value is None or (isinstance(value, tuple | Mapping) and not value):
            return False
        return default is None or bool(value != default)

    def refuse(self, name: str, why: str, instead: str = "") -> InputError:
        """Return the error of a field that does not apply."""
        return InputError(
            f"{why}; {instead or f'leave {input_name(name)} out'}.",
            field=name,
            value=as_typed(getattr(self, name)),
        )

    def refuse_given(self, names: Iterable[str], why: str) -> None:
        """Reject the first of these fields that was given.

        Raises
        ------
        InputError
            If there is one.
        """
        for name in filter(self.given, names):
            raise self.refuse(name, why)

    def as_options(self, kind: Callable[..., T], **settings: Any) -> T:
        """Return options of another ``kind``: its own ``settings``, and those that have the name of a field here."""
        names = [option.name for option in fields(kind) if hasattr(self, option.name)]  # type: ignore[arg-type]
        return kind(**{name: getattr(self, name) for name in names} | settings)

    @property
    def sources(self) -> list[str]:
        """Names of models, clusters, loads and plans as given; some are files."""
        names: list[str] = []
        for name in ("plan", "file", "model", "models", "cluster", "loads", "routing"):
            value = getattr(self, name, None)
            several = value if isinstance(value, list | tuple | Mapping) else [value]
            texts = [str(item) for item in several if isinstance(item, str | Path)]
            names += [split_share(text)[0] for text in texts] if name == "models" else texts
        return names

    def check(self) -> None:
        """Reject options that cannot be combined.

        Raises
        ------
        InputError
            With the reason, and what to do.
        """

    @model_validator(mode="after")
    def _checked(self) -> Any:
        self.check()
        return self


def split_share(text: str) -> tuple[str, float | None]:
    """Split ``NAME:SHARE``; None without a share."""
    name, colon, share = text.rpartition(":")
    try:
        return (name, float(share)) if colon and name else (text, None)
    except ValueError:
        return text, None


def as_typed(value: object) -> str:
    """Return a value as typed on the command line."""
    scalar = value[0] if isinstance(value, tuple | list) and value else value
    return f"{scalar:g}" if isinstance(scalar, float) else str(scalar)


ModelName = Annotated[
    ModelLike,
    BeforeValidator(_named),
    Option("Catalog name, Hugging Face id, or path of a config.json.", "M"),
]
ClusterName = Annotated[
    ClusterLike, BeforeValidator(_named), Option("Catalog name, name@GPUS or a YAML file.", "C")
]


class Placed(Request):
    """Inputs."""

    model: ModelName = field(kw_only=False)
    cluster: ClusterName = field(kw_only=False)


class Loaded(Request):
    """Inputs."""

    loads: Loads | None = opt(
        None,
        "Tokens per expert: SGLang's .pt or .json, TensorRT-LLM's folder, vLLM's .jsonl, .npy, .npz, .csv, "
        "or lognormal:SIGMA, zipf:S, uniform; repeatable.",
        "FILE",
        default=f"{DEFAULT_LOADS}; of a plan its own",
        repeatable=True,
    )
    routing: Texts = opt(
        (),
        "Experts that each token chose: .npy [tokens, layers, k], SGLang's per_token .pt, answers of vLLM or "
        "SGLang (.json, .jsonl); repeatable.",
        "TRACE",
    )


class Watched(Request):
    """Progress and cancellation."""

    on_progress: Hear | None = opt(
        None,
        "Called with a placement.progress.Progress at each stage, and several times a second while experts are "
        "placed.",
        python=True,
    )
    cancel: Cancel | None = opt(
        None,
        "A threading.Event, or a function returning bool, that stops the search: the best plan so far is completed "
        "with `interrupted` set; if there is none yet, placement.budget.CancelledError is raised.",
        python=True,
    )


TierFigures = Annotated[
    Lines,
    BeforeValidator(_lines),
    Option(
        "Set a figure of a cache tier: ddr5.usd_per_h=0.02 USD/h, flash.bytes_per_s=7 GB/s, or of a GPU's link, "
        "host.bytes_per_s=55 GB/s; repeatable.",
        "TIER.FIGURE=VALUE",
        "--tier",
    ),
]


class Batch(Request):
    """Workload: phase and sizes."""

    phase: Annotated[str, Word] = opt("decode", "decode or prefill.")
    context: Tokens = opt(
        CONTEXT, "Tokens already in each sequence; prefill: prompt tokens. 8k is 8,192.", "N"
    )
    batch: Number = opt(
        0,
        "Sequences per GPU in use (one on TP 8: 0.125); 0: the most within limits (prefill: 8,192 tokens a group).",
    )


class Whole(Request):
    """Workload: whole requests by their lengths."""

    isl: Tokens | None = opt(None, "Tokens per prompt; 8k is 8,192.", "N", default=f"{ISL}")
    osl: Tokens | None = opt(None, "Tokens per answer.", "N", default=f"{OSL}")
    prefix_hit: Number = opt(
        0.0,
        "Fraction of each prompt already in the cache, 0 to below 1.",
        "F",
        default="0; of conversations what caches keep",
    )
    sessions: Text | None = opt(
        None,
        "Conversations: turns=8,isl=4k,new=500,osl=300,think=30s (also system=, tool=, tools=, open; new=20% of the "
        "prompt), or a file of them.",
        "FILE|SPEC",
    )
    kv_tier: Texts = opt(
        (),
        "Memory for caches of prompts below HBM: host=1TB,ssd=8TB of each host, pool=100TB behind the fabric; auto, "
        "of a size: what costs least.",
        "NAME=SIZE",
        "--kv-tier --kv-tiers",
    )
    tiers: TierFigures = ()

    def check(self) -> None:
        """Reject single lengths combined with a mix or with conversations, and tiers that nothing would be in."""
        super().check()
        if self.given("lengths"):
            why = f"{input_name('lengths')} already sets all prompt and answer lengths"
            self.refuse_given(("isl", "osl"), why)
        if self.sessions is not None:
            why = f"{input_name('sessions')} already sets the lengths and phases of all requests"
            self.refuse_given(("isl", "osl", "lengths", "phase", "context"), why)
        elif self.kv_tier and getattr(self, "trace", None) is None:
            raise self.refuse(
                "kv_tier", "no prompt begins like another", f"give {input_name('sessions')} too"
            )
        if "auto" in self.kv_tier and not isinstance(self, SizeRequest):
            raise self.refuse("kv_tier", "only a size looks for the cheapest", "give sizes, like host=1TB")

    @cached_property
    def conversations(self) -> Sessions | None:
        """The conversations; None where requests come alone.

        Raises
        ------
        InputError
            If a file cannot be read, or what is given is none.
        """
        from cost.queueing.sessions import sessions_of

        return None if self.sessions is None else sessions_of(self.sessions)

    @property
    def whole(self) -> Lengths | None:
        """Lengths of whole requests (default ones if not given); None for one phase only.

        Raises
        ------
        InputError
            If a file of lengths cannot be read.
        """
        from cost.serving.lengths import read_lengths

        mix, conversations = getattr(self, "lengths", None), self.conversations
        if conversations is not None:
            lengths = conversations.lengths
            return replace(lengths, prefix_hit=self.prefix_hit) if self.given("prefix_hit") else lengths
        lengths = lengths_of(self.isl, self.osl) if mix is None else read_lengths(mix)
        return replace(lengths, prefix_hit=self.prefix_hit)


def lengths_of(isl: int | None = None, osl: int | None = None) -> Lengths:
    """Return lengths of whole requests, default ones where not given."""
    from cost.serving.lengths import Lengths

    return Lengths.of(ISL if isl is None else isl, OSL if osl is None else osl)


class Requests(Whole):
    """Workload: whole requests by their lengths, or one phase alone."""

    DECODE_HAS_TTFT: ClassVar[bool] = False
    """Whether a limit on the first token is one of decode alone too."""

    phase: Annotated[str, Word] | None = opt(
        None, "Model one phase only, not whole requests: decode or prefill.", default="both"
    )
    context: Tokens | None = opt(
        None,
        "With one phase only: tokens already in each sequence, or per prompt.",
        "N",
        default=f"{CONTEXT}",
    )

    def check(self) -> None:
        """Reject request lengths, and other options without effect, for one phase only."""
        super().check()
        if not self.alone:
            return
        for length in filter(self.given, ("lengths", "isl", "osl")):
            self.refuse_given(
                ("context", "phase"), f"{input_name(length)} asks for whole requests, with both phases"
            )
        why = f"{input_name('phase' if self.given('phase') else 'context')} asks for one phase only"
        self.refuse_given(["prefill_cluster"], why)
        if self.phase != "prefill" and not self.DECODE_HAS_TTFT:
            self.refuse_given(["ttft_ms"], f"{why}, decode, which has no first token")

    @property
    def alone(self) -> bool:
        """Whether only one phase is requested."""
        return self.phase not in (None, "both") or self.context is not None

    @property
    def whole(self) -> Lengths | None:
        """Lengths of whole requests; None for one phase only."""
        return None if self.alone else super().whole


class Speed(Request):
    """Speed per user: one limit, given as a time or as a rate."""

    tpot_ms: Milliseconds | None = opt(
        None, "Maximum time per output token in ms; none: no limit.", "X|none", default="50"
    )
    tok_s_user: Milliseconds | None = opt(
        None, "The same limit as a rate: 20 tok/s per user is 50 ms.", "X|none"
    )

    def check(self) -> None:
        """Reject both spellings together, and either one for prefill."""
        super().check()
        if self.tpot_ms is not None and self.tok_s_user is not None:
            raise self.refuse(
                "tok_s_user",
                f"it is the same limit as {input_name('tpot_ms')} {as_typed(self.tpot_ms)}",
                "leave one out",
            )
        if getattr(self, "phase", "decode") == "prefill":
            self.refuse_given(("tpot_ms", "tok_s_user"), PREFILL_ONLY)

    @property
    def tpot_s(self) -> float | Literal["none"] | None:
        """The limit in seconds per token; ``none`` unchanged, None if not given."""
        if self.tok_s_user is not None:
            return NO_LIMIT if isinstance(self.tok_s_user, str) else 1 / self.tok_s_user
        return self.tpot_ms if isinstance(self.tpot_ms, str | None) else self.tpot_ms / 1e3

    @property
    def usual_tpot_s(self) -> float | None:
        """The limit in seconds per token (default if not given); None: no limit."""
        from placement.options import USUAL_TPOT

        tpot_s = USUAL_TPOT.value if self.tpot_s is None else self.tpot_s
        return None if isinstance(tpot_s, str) else tpot_s

    @property
    def limits_s(self) -> tuple[float | None, float | None]:
        """The limits per output token and to the first token in seconds (defaults if not given); None: no limit."""
        return self.usual_tpot_s, usual_ttft_s(getattr(self, "ttft_ms", None))

    @property
    def usual(self) -> frozenset[str]:
        """The names of the limits that were not given (:func:`cost.serving.limits.relax_default_limits`)."""
        limits = {"tpot_s": self.tpot_s, "ttft_s": getattr(self, "ttft_ms", None)}
        return frozenset(name for name, limit in limits.items() if limit is None)


def limit_s(limit_ms: float | Literal["none"] | None, usual_s: float | None = None) -> float | None:
    """Return a limit in seconds (the usual one if it was not given); None: no limit."""
    if limit_ms is None:
        return usual_s
    return None if isinstance(limit_ms, str) else limit_ms / 1e3


def usual_ttft_s(limit_ms: float | Literal["none"] | None) -> float | None:
    """Return a limit on the time to first token in seconds (default if not given); None: no limit."""
    from cost.serving.pools import TTFT_LIMIT

    return limit_s(limit_ms, TTFT_LIMIT.value)


class FirstToken(Request):
    """Latency limits."""

    ttft_ms: Milliseconds | None = opt(
        None,
        "Maximum time for prefill and cache transfer in ms, queueing excluded; prefill alone: of a step, no default; "
        "none: no limit.",
        "Y|none",
        default="2000",
    )

    @property
    def ttft_s(self) -> float | None:
        """The limit in seconds (default if not given); None: no limit."""
        return usual_ttft_s(self.ttft_ms)

    @property
    def prefill_s(self) -> float | None:
        """The limit in seconds of prefill alone, which has no default; None: no limit."""
        return limit_s(self.ttft_ms)


class UnderLoad(Request):
    """Latency under load."""

    ttft_p99_ms: Milliseconds | None = opt(
        None,
        "Maximum p99 time to first token in ms, queueing included (simulated); none: no limit.",
        "Y|none",
    )

    def check(self) -> None:
        """Reject the limit without whole requests, or when searching for a speed."""
        super().check()
        if self.ttft_p99_s is None:
            return
        if getattr(self, "alone", False):
            raise self.refuse("ttft_p99_ms", "one phase only has no requests, so none can queue")
        if getattr(self, "usd_m", None) is not None:
            raise self.refuse("usd_m", "searching for a speed by price would take too many simulations")

    @property
    def ttft_p99_s(self) -> float | None:
        """The limit in seconds; None: no limit."""
        return limit_s(self.ttft_p99_ms)


class Money(Request):
    """Prices and power."""

    price_basis: Annotated[str, Word] | None = opt(
        None, "Price basis of a GPU-hour: owner, neocloud, rental or list.", "BASIS", default="rental"
    )
    prices: ByGpu | None = opt(
        None, "Your price of a GPU-hour in USD, like gb200=3.10; repeatable.", "GPU=USD", "--price"
    )
    powers: ByGpu | None = opt(
        None,
        "Your all-in power of a GPU, like gb200=1900 (W) or gb200=1.9kW; repeatable.",
        "GPU=W",
        "--power",
    )


class Set(Request):
    """Custom figures."""

    settings: Annotated[Lines, BeforeValidator(_lines)] = opt(
        (),
        "Override a figure: gb200.hbm_bytes_per_s=2x, nvlink5.link_bytes_per_s=100 GB/s, gpu.hbm_bytes=+10%; "
        "repeatable.",
        "PART.FIGURE=VALUE",
        "--set",
    )


SparseAttention = Annotated[
    str | int,
    BeforeValidator(lambda value: str(value).lower()),
    Option(
        "What-if: attention reads only sqrt(context) cached tokens, or at most N.",
        "sqrt|N",
    ),
]


class Pricing(Money, Set):
    """Cost model."""

    recipe: Annotated[Recipe, Word] = opt(
        "checkpoint",
        "Defaults for formats, drafts and overlap: those of the checkpoint, or those of published runs of "
        "the chip and model.",
        "checkpoint|usual",
    )
    weights: Text | None = opt(
        None,
        "Weight format, also per class: experts=nvfp4,attention=fp8.",
        "DTYPE",
        default="the checkpoint's",
    )
    kv_dtype: Annotated[str, Word] | None = opt(None, "KV cache format.", "DTYPE", default="by recipe: bf16")
    draft_tokens: Count | None = opt(None, "Draft tokens per sequence and step.", "K", default="by recipe: 0")
    accept_length: Number | None = opt(
        None,
        "Average tokens per step, accepted drafts included: 1 to K + 1.",
        "A",
        default="fitted to measured runs, for 1 to 3 drafts",
    )
    overlap: Flag | None = opt(
        None,
        "Overlap compute and communication of two half-batches.",
        flags="--overlap/--no-overlap",
        default="by recipe: no-overlap",
    )
    sparse_attention: SparseAttention = ""
    engine: Annotated[str, Word] = opt(
        "",
        "Serving engine, optionally with its version (sglang==0.5.9); default: a blend of the measured engines.",
        "NAME[==VERSION]",
    )
    mem_util: Annotated[Number, Field(gt=0, le=1)] | None = opt(
        None,
        "Part of a GPU's memory that the engine may use (vLLM gpu_memory_utilization, SGLang "
        "mem_fraction_static, TensorRT-LLM free_gpu_memory_fraction).",
        "X",
        default="the engine's",
    )
    max_seqs: Annotated[Count, Field(ge=1, le=1_000_000)] | None = opt(
        None,
        "Most sequences that an attention group runs at a time (vLLM max_num_seqs).",
        "N",
        default="the engine's",
    )
    runs: Path | None = opt(
        None,
        "Your own measured runs as a CSV of points (docs/trust.md); they correct nearby predictions.",
        "FILE.csv",
    )
    physics: Flag = opt(False, "Use the bare model, without the built-in correction by measured runs.")
    any_shape: Flag = opt(
        False, "Allow layouts with any number of GPUs and stages, not only quarter, half or whole nodes."
    )

    def check(self) -> None:
        """Reject an accept length without draft tokens."""
        super().check()
        if self.given("accept_length") and not self.draft_tokens and self.recipe == "checkpoint":
            drafts = input_name("draft_tokens")
            raise self.refuse(
                "accept_length", f"without {drafts} a step yields one token", f"give {drafts} too"
            )


class Layouts(Request):
    """Layout."""

    ep: Count | None = opt(
        None, "Expert-parallel width: GPUs that share a layer's experts.", default="the best"
    )
    tp: Count | None = opt(None, "Tensor-parallel width.", default="the best")
    stages: Count | None = opt(None, "Pipeline stages.", default="the best")


class Contexts(Request):
    """Layout."""

    dcp: Annotated[Count, Field(ge=1)] | None = opt(
        None,
        "Decode context parallelism: GPUs of a TP group that split each sequence's cache.",
        default="the best from 32k tokens, else 1",
    )
    pcp: Annotated[Count, Field(ge=1)] | None = opt(
        None,
        "Prefill context parallelism, of pools that only prefill: GPUs of a TP group that split each prompt.",
        default="the best from 32k tokens, else 1",
    )

    def check(self) -> None:
        """Reject that of the phase which is not priced."""
        super().check()
        asked = getattr(self, "phase", None)
        if getattr(self, "alone", asked is not None):
            phase, other = ("prefill", "dcp") if asked == "prefill" else ("decode", "pcp")
            self.refuse_given([other], f"{phase} alone is priced")


OfPlan = Annotated[
    Loads | None,
    Option("Tokens per expert, as for `rackplan plan`; repeatable.", "FILE", repeatable=True),
]
LengthsFile = Annotated[
    Any,
    Named("Path | str | Lengths"),
    Option("Mix of request lengths: a CSV file with columns isl, osl and share.", "FILE.csv"),
]
Seed = Annotated[Count, Option("Random seed for synthetic loads and the search.")]
PlanFile = Annotated[
    PlanLike,
    BeforeValidator(_named),
    Option("A plan.json, or the folder that holds it.", "PLAN", argument=True),
]


class AttentionApart(Request):
    """Layout."""

    afd: Annotated[str, Word] = opt(
        "off",
        "Attention apart from the experts of a decode pool (attention-FFN disaggregation): off; auto, where it is "
        "better; or GPUs of attention and of experts, like 48:24.",
        "off|auto|M:N",
    )

    def check(self) -> None:
        """Reject what no layout with attention apart has."""
        super().check()
        if self.afd == "off":
            return
        if isinstance(self, SweepRequest) and not self.alone:
            why = "ratios are swept of decode alone; a plan serves whole requests with them"
            raise self.refuse("afd", why, f"give {input_name('phase')} decode")
        from placement.layouts.apart import asked_ratio

        asked_ratio(self.afd)
        asked = {name: getattr(self, name, None) for name in ("phase", "redundant", "goal")}
        wrong = {
            "phase": ("prefill", "both"),
            "redundant": ("auto",),
            "goal": ("latency", "gpus", "usd", "power"),
        }
        for name, values in wrong.items():
            if asked[name] in values:
                raise self.refuse(
                    name, f"with {input_name('afd')} ratios are compared for decode, by its rate"
                )
        if getattr(self, "alone", False) and limit_s(getattr(self, "ttft_ms", None)) is not None:
            raise self.refuse("ttft_ms", f"with {input_name('afd')} these GPUs prefill nothing")


class DeploymentRequest(Pricing, Batch, Placed):
    """A model on a cluster under a workload."""


class PlanRequest(Watched, AttentionApart, Layouts, Contexts, Speed, FirstToken, Loaded, Pricing, Requests):
    """Planning options."""

    model: Annotated[
        Models,
        Option(
            "Catalog name, Hugging Face id or config.json; of several models each with its share of the requests; "
            "repeatable.",
            "M[:SHARE]",
            "--model",
            repeatable=True,
        ),
    ] = field(kw_only=False)
    cluster: ClusterName = field(kw_only=False)
    batch: Number = opt(
        0,
        "With one phase only: sequences per GPU in use (one on TP 8: 0.125); 0: the most within limits (prefill: "
        "8,192 tokens a group).",
    )
    goal: Annotated[Goal, Word] = opt(
        "throughput",
        "Optimize for throughput, gpus (fewest), usd or power (per token); one phase only: latency too.",
        "GOAL",
    )
    ttft_ms: Milliseconds | None = opt(
        None,
        "Maximum time to first token in ms, queueing excluded; one phase only: of prefill's step, or of one prompt "
        "on the GPUs that decode, no default; none: no limit.",
        "Y|none",
        default="2000",
    )
    tolerance: Annotated[float, Spelled(_share)] = opt(
        0.02,
        "Choose the simplest layout, or one layout a pool, within this share of the best, like 2%; 0: the best.",
        "P",
        default="2%",
    )
    redundant: Annotated[int | Literal["auto"], Spelled(_copies)] | None = opt(
        None,
        "Extra expert copies per layer; default: the fewest that divide evenly, or one or two slots more on each GPU "
        "where they pay; auto: one phase only, best throughput of more numbers.",
        "N|auto",
    )
    objective: Annotated[Objective, Word] = opt("mean", "With several loads: optimize the mean or the worst.")
    spread: Annotated[Spread, Word] = opt(
        "gpu", "Keep copies of an expert on different GPUs, nodes or racks: gpu, node or rack."
    )
    split: Annotated[DispatchPolicy, Word] = opt(
        "even",
        "How the engine splits an expert's tokens over its copies: even, source, lp, quota, rank, rank-tpN.",
    )
    quota_slots: Count | None = opt(
        None,
        "With --split quota: slots of each GPU that are filled with copies of hot experts in every micro-batch.",
        "K",
        default="1 with --split quota",
    )
    time_limit_s: Number | None = opt(
        None,
        "Search time in seconds; 0: fast path only; default: depends on the remaining gap.",
        "S",
        "--time-limit",
    )
    seed: Seed = 0

    INSTEAD: ClassVar[Mapping[str, str]] = {"ttft_p99_ms": NOT_SIMULATED}
    FIRST = "model cluster isl osl phase context tpot_ms ttft_ms loads details output json"
    EXAMPLES = (
        "rackplan plan --model deepseek-v3 --cluster gb200-nvl72",
        "rackplan plan --model deepseek-v3:0.7 --model qwen3-235b-a22b:0.3 --cluster gb200-nvl72@144",
    )
    DECODE_HAS_TTFT = True

    def check(self) -> None:
        """Reject options for several loads with only one, splits without redundant copies, and those of one phase."""
        super().check()
        if self.objective == "worst" and self.loads is None and not self.routing:
            raise self.refuse("objective", "there is only one synthetic load, so mean and worst are the same")
        if self.quota_slots is not None and self.split != "quota":
            raise self.refuse("quota_slots", f"only {input_name('split')} quota fills slots", "leave it out")
        if self.quota_slots == 0:
            raise self.refuse("quota_slots", "a quota needs 1 slot or more")
        if self.split not in ("even", "quota") and self.redundant == 0:
            raise self.refuse("split", f"each expert has one copy, since {input_name('redundant')} is 0")
        if not self.alone:
            fix = f"give {input_name('phase')} decode for one phase only"
            if self.batch:
                raise self.refuse("batch", "whole requests take the batches that keep the limits", fix)
            if self.goal == "latency":
                raise self.refuse(
                    "goal", "whole requests are planned for throughput or cost within limits", fix
                )


class ReplanRequest(Watched, Loaded):
    """Re-plan options."""

    plan: PlanFile = field(kw_only=False)
    lost: Texts = opt(
        (),
        "Failed GPU, node, rack, domain, NIC, switch or link (d0.n3.g1, d0.n3, d0.n3.g1.nic, f.p0.l1, "
        "d0.n3.g1->f.p0.l1); repeatable.",
        "ID",
    )
    cluster: ClusterLike | None = opt(
        None, "The cluster in its present state: the plan's, with a different `broken` list.", "FILE.yaml"
    )
    pool: Count | None = opt(
        None,
        "Of a plan of several pools the one to re-plan: 0 is the first in the file.",
        "N",
        default="the one that lost GPUs, else 0",
    )
    max_moves: Count | None = opt(None, "Maximum number of copies to move, over all layers.", "N")
    max_bytes: Annotated[float, Spelled(_bytes)] | None = opt(
        None, 'Maximum bytes to move, also as "200 GB".', "N"
    )
    horizon_s: Number | None = opt(
        None,
        "Serving time ahead in seconds: make every move that saves more time than it costs.",
        "S",
        "--horizon",
    )
    time_limit_s: Number = opt(0.0, "Search time in seconds; 0: one deterministic pass.", "S", "--time-limit")
    seed: Seed = 0

    FIRST = "plan lost cluster loads max_moves max_bytes horizon_s time_limit_s seed details output json"
    EXAMPLES = (
        "rackplan replan out --lost d0.n3.g1 -o out-without",
        "rackplan replan out --loads zipf:0.4 --max-moves 200 -o out-moved",
    )


class ScoreRequest(Money, Set, Loaded):
    """Scoring options."""

    plan: PlanFile = field(kw_only=False)
    sparse_attention: SparseAttention = ""
    details: Flag = opt(False, "Also print each part of the step, the memory, and the underlying figures.")

    EXAMPLES = ("rackplan score out --loads zipf:0.4 --details", "rackplan score out out-moved")


class WhatIfRequest(Watched, Set):
    """What-if options."""

    plan: PlanFile = field(kw_only=False)
    pool: Count = opt(0, "Of a plan of several pools the one to change: 0 is the first in the file.", "N")

    EXAMPLES = ("rackplan what-if out", "rackplan what-if out --set gb200.hbm_bytes_per_s=2x")


class SweepRequest(AttentionApart, Pricing, Contexts, Speed, FirstToken, UnderLoad, Requests, Placed):
    """Sweep options."""

    prefill_cluster: ClusterLike | None = opt(None, "Cluster for prefill; default: part of --cluster.", "C")

    FIRST = "model cluster isl osl phase context tpot_ms ttft_ms prefill_cluster weights output json"
    EXAMPLES = (
        "rackplan sweep --model deepseek-v3 --cluster gb200-nvl72",
        "rackplan sweep --model deepseek-v3 --cluster hgx-h200@32 --phase decode --context 8k -o sweep.csv",
    )

    @property
    def limit_s(self) -> float | None:
        """Of one phase: the limit in seconds per output token (default if not given), or of a prefill step."""
        return self.prefill_s if self.phase == "prefill" else self.usual_tpot_s

    @property
    def speeds(self) -> tuple[float, ...]:
        """The speed per user of the given limit, at which each layout is priced at its exact batch."""
        return (1 / self.tpot_s,) if isinstance(self.tpot_s, float) else ()


class Demanded(Request):
    """Demand and spares."""

    utilization: Number = opt(
        1.0, "Mean traffic over peak traffic, above 0 to 1; the fleet is sized for the peak.", "U"
    )
    spares: Count = opt(0, "Spare domains, in addition to those that serve.", "N")

    def check(self) -> None:
        """Reject prefill only."""
        super().check()
        if getattr(self, "phase", None) == "prefill":
            raise self.refuse("phase", "demand is in output tokens, and prefill alone yields none")


Several = Annotated[
    Clusters,
    BeforeValidator(_clusters),
    Named("ClusterLike | Sequence[ClusterLike]", "Or Clusters, or the content of such files."),
    Option("Catalog name, name@GPUS or a YAML file; repeat to compare.", "C", repeatable=True),
]


class SizeRequest(Watched, Demanded, Pricing, Contexts, Speed, FirstToken, UnderLoad, Requests):
    """Demand or budget: one of the first six."""

    model: ModelName = field(kw_only=False)
    cluster: Several = field(kw_only=False)
    req_s: Amount | None = opt(None, "Requests per second on average: 500, 1.5k.", "N")
    tok_s: Amount | None = opt(None, "Output tokens per second on average: 200e6, 200M, 128k.", "N")
    users: Amount | None = opt(
        None, "Concurrent users; each sends a request, waits for the answer, then thinks.", "N"
    )
    gpus: Amount | None = opt(None, "Budget: maximum GPUs.", "N")
    mw: Amount | None = opt(None, "Budget: maximum megawatts.", "X")
    usd_h: Amount | None = opt(None, "Budget: maximum USD per hour.", "X")
    think_s: Number = opt(0.0, "Think time of a user between answer and next request, in seconds.", "S")
    usd_m: Amount | None = opt(
        None, "Target price in USD per million output tokens; finds the fastest speed at that price.", "X"
    )
    lengths: LengthsFile = None

    FIRST = "model cluster req_s tok_s users gpus mw usd_h isl osl tpot_ms json"
    EXAMPLES = (
        "rackplan size --model deepseek-v3 --cluster gb200-nvl72 --tok-s 1M",
        "rackplan size --model kimi-k2 --cluster hgx-h200 --cluster gb200-nvl72 --mw 1 --isl 4000 --osl 1000",
    )

    def check(self) -> None:
        """Reject a token price combined with a speed, since it determines the speed."""
        super().check()
        if self.usd_m is not None and self.tpot_s is not None:
            name = "tok_s_user" if self.tpot_ms is None else "tpot_ms"
            raise self.refuse(name, f"{input_name('usd_m')} already determines the speed")


class RooflineRequest(Pricing):
    """The blackboard."""

    model: ModelName = field(kw_only=False)
    cluster: Several = field(kw_only=False)
    phase: Annotated[str, Word] = opt("decode", "decode or prefill.")
    context: Tokens = opt(CONTEXT, "Tokens in each sequence; prefill: prompt tokens. 8k is 8,192.", "N")
    batches: Annotated[tuple[float, ...], Spelled(_sizes)] | None = opt(
        None,
        "Tokens of a step that are priced, of all GPUs of a domain: 1,64,2400.",
        "LIST",
        "--batch",
        default="1 to 65536",
    )
    stages: Count = opt(0, "Pipeline stages, each on a domain; 0: the fewest that hold the weights.")
    req_s: Amount = opt(
        20_000.0, "Requests per second that fill a batch (the lecture: 2,000 in 100 ms).", "N"
    )
    tok_s: Amount = opt(200e6, "Output tokens per second that are wanted of all domains.", "N")

    FIRST = "model cluster context batches phase stages weights kv_dtype output json"
    EXAMPLES = (
        "rackplan roofline --model deepseek-v3 --cluster lecture-72",
        "rackplan roofline --model kimi-k2 --cluster hgx-h100 --cluster gb200-nvl72 --cluster rubin-576 -o board",
    )

    def check(self) -> None:
        """Reject a phase that is none, and batches and stages that cannot be."""
        super().check()
        if self.phase not in ("decode", "prefill"):
            raise self.refuse(
                "phase", "choose decode or prefill", "whole requests have no batch of their own"
            )
        if self.stages < 0:
            raise self.refuse("stages", "expected 0 or more")


class EconomicsRequest(Pricing):
    """Prices, and the deployment behind them."""

    model: ModelName | None = opt(
        None,
        "Catalog name, Hugging Face id, or path of a config.json.",
        "M",
        default="deepseek-v3, with the lecture's 100 B active weights and 2 kB of cache a token",
    )
    cluster: ClusterName = opt("gb200-nvl72", "Catalog name, name@GPUS or a YAML file.", "C")
    context: Tokens = opt(CONTEXT, "Tokens in each sequence. 8k is 8,192.", "N")
    price_in: Amount = opt(3.0, "USD per million prompt tokens.", "USD", default=f"3, of {LISTED}")
    price_out: Amount = opt(15.0, "USD per million output tokens.", "USD", default="15, of the same")
    price_cached: Amount = opt(
        0.3, "USD per million prompt tokens read from a cache.", "USD", default="0.30, of the same"
    )
    price_long: Annotated[tuple[float, float], Spelled(_price_step)] = opt(
        (6.0, 200_000.0),
        "USD per million prompt tokens from a context on: 6@200k.",
        "USD@N",
        default="6@200k, of the same",
    )
    active: Amount | None = opt(
        None, "Weights that a token uses, behind the prices: 100B.", "N", default="the model's"
    )
    tok_s: Amount = opt(
        40e6, "Output tokens per second that a model serves.", "N", default="40 M, one model's share"
    )
    months: Amount = opt(2.0, "Months that it serves them.", "N")
    tiers: TierFigures = ()

    FIRST = "model cluster price_in price_out price_cached price_long active tok_s months tiers output json"
    EXAMPLES = (
        "rackplan economics",
        "rackplan economics --model kimi-k2 --cluster hgx-h200 --price-in 0.6 --price-out 2.5 --price-cached 0.15",
    )


class CompareRequest(Watched, Pricing, Contexts, FirstToken, UnderLoad, Requests):
    """Clusters to compare for one model."""

    clusters: Annotated[
        Clusters, Option("Catalog names, name@GPUS or YAML files.", "C...", argument=True, repeatable=True)
    ] = field(kw_only=False)
    model: ModelName = field(kw_only=False)
    gpus: Count | None = opt(None, "GPUs per cluster.", default="the largest cluster given")
    mw: Annotated[float, Spelled(_above_0)] | None = opt(
        None, "Compare at equal power: X megawatts of whole domains of each.", "X"
    )
    usd_h: Annotated[float, Spelled(_above_0)] | None = opt(
        None, "Compare at equal cost: X USD per hour of whole domains of each.", "X"
    )
    tok_s_user: Annotated[tuple[float, ...] | Literal["none"], Spelled(_speeds)] | None = opt(
        None,
        "Speeds per user to compare at: 25,50,100 (tok/s); none: the largest batch that fits.",
        "LIST|none",
        default="20",
    )
    loads: OfPlan = None
    seed: Seed = 0

    INSTEAD: ClassVar[Mapping[str, str]] = {
        "tpot_ms": f"clusters are compared at speeds; give {input_name('tok_s_user')}, the same limit as a rate"
    }
    FIRST = "clusters model gpus mw usd_h tok_s_user isl osl phase ttft_ms prices output json"
    EXAMPLES = (
        "rackplan compare hgx-h100 gb200-nvl72 --model deepseek-v3",
        "rackplan compare gb200-nvl72 vr-nvl72 --model deepseek-v3 --mw 1 --tok-s-user 20,50 -o report.html",
    )

    @property
    def budget(self) -> str:
        """The budget of each cluster in words; empty if they have equal numbers of GPUs."""
        return f"{self.mw:g} MW" if self.mw else f"{self.usd_h:g} USD/h" if self.usd_h else ""

    def check(self) -> None:
        """Require a list of clusters; reject two budgets, and loads if no experts are placed."""
        super().check()
        if isinstance(self.clusters, str | Path | Mapping) or not isinstance(self.clusters, Sequence):
            raise InputError(
                f"`clusters` {shown(self.clusters)}: expected a list, like ['hgx-h200', 'gb200-nvl72']; the model is "
                "the second argument."
            )
        if not self.clusters:
            raise InputError("`clusters`: empty; name at least one.")
        if self.phase == "prefill":
            self.refuse_given(["tok_s_user"], PREFILL_ONLY)
        budgets = [name for name in ("gpus", "mw", "usd_h") if self.given(name)]
        if len(budgets) > 1:
            why = f"{input_name(budgets[0])} already sets the basis of the comparison"
            raise self.refuse(budgets[1], why, "give one of them")
        if self.given("loads") and not self.alone:
            phase = f"give {input_name('phase')} decode too"
            raise self.refuse("loads", "whole requests are priced at the default expert imbalance", phase)


class PlanOrModel(Request):
    """Inputs."""

    plan: PlanLike | None = opt(
        None, "A plan.json, or the folder that holds it.", "PLAN", argument=True, kw_only=False
    )
    model: ModelLike | None = opt(None, "Without a plan: catalog name, Hugging Face id or config.json.", "M")
    cluster: ClusterLike | None = opt(None, "Without a plan: catalog name, name@GPUS or a YAML file.", "C")

    def check(self) -> None:
        """Require a plan, or both a model and a cluster."""
        super().check()
        lacks = [name for name in ("model", "cluster") if not self.given(name)]
        if self.plan is None and lacks:
            names = f"{input_name('model')} and {input_name('cluster')}"
            raise InputError(f"{input_name(lacks[0])} is missing: give a PLAN, or {names}.")


class ReplayRequest(Watched, Set, PlanOrModel):
    """Replay options."""

    loads: Annotated[
        Loads,
        Option(
            "Recorded windows in order, at least two over all files; repeatable.", "FILE", repeatable=True
        ),
    ]
    policies: Texts = opt(
        (),
        "static, vllm, sglang, rackplan[:BUDGET] (rackplan:5%, rackplan:0, rackplan:none) or "
        "rackplan-linear[:BUDGET] (from the engine's own placement, without stored loads); repeatable.",
        "NAME",
        "--policy",
        default="all",
    )
    scenarios: Loads | None = opt(
        None, "Loads known in advance, in the forms of a plan's loads.", python=True
    )
    weights: Text | None = opt(None, "Weight format.", "DTYPE")
    seed: Seed = 0

    EXAMPLES = (
        "rackplan replay out --loads windows.npy",
        "rackplan replay out --loads windows.npy --policy vllm --policy rackplan:5% -o replay.html",
    )

    def check(self) -> None:
        """Reject options that the plan already sets."""
        super().check()
        if self.plan is not None:
            self.refuse_given(["weights"], "the plan already sets it")


class SimulateRequest(Watched, Layouts, Pricing, Contexts, Speed, Whole, PlanOrModel):
    """Traffic and deployment: a plan, or a model on a cluster; one of three loads."""

    req_s: Annotated[float, Spelled(_amount), Field(ge=1e-6, le=1e6)] | None = opt(
        None, "Arrival rate in requests per second: 2, 1.5k.", "N"
    )
    trace: Path | None = opt(
        None,
        "Recorded requests, JSON lines or CSV: timestamp (ms), input_length, output_length, hash_ids.",
        "FILE",
    )
    concurrency: Annotated[Count, Field(ge=1, le=100_000)] | None = opt(
        None, "Concurrent users; each sends its next request when the answer is complete.", "N"
    )
    lengths: LengthsFile = None
    cv: Annotated[Number, Field(ge=0, le=10)] = opt(
        0.0, "Coefficient of variation of the lengths (log-normal).", "X"
    )
    arrivals: Annotated[Arrivals, Word] = opt(
        "poisson", "Arrival process: poisson, constant, or bursty (four times the variance)."
    )
    speed: Annotated[Number, Field(ge=1e-6, le=1e6)] = opt(
        1.0, "Replay speed relative to the recorded trace.", "X"
    )
    router: Annotated[Router, Word] | None = opt(
        None,
        "Routing policy: least (fewest requests), round (round-robin), prefix (the replica that "
        "caches most of the prompt).",
        default="least; of conversations prefix",
    )
    batch: Number = opt(
        0,
        "With a layout: the most sequences per GPU at a time (one on TP 8: 0.125); 0: as many as fit.",
    )
    ttft_p99_ms: Milliseconds | None = opt(
        None,
        "Maximum p99 time to first token in ms, queueing included; none: no limit.",
        "Y|none",
        default="2000",
    )
    seed: Annotated[Count, Field(ge=0)] = opt(0, "Random seed for the requests.")

    INSTEAD: ClassVar[Mapping[str, str]] = {
        "ttft_ms": f"requests wait in a simulation; give {input_name('ttft_p99_ms')}, which counts that"
    }
    FIRST = "plan model cluster req_s concurrency sessions isl osl tpot_ms ttft_p99_ms details output json"
    EXAMPLES = (
        "rackplan simulate --model llama-3.1-70b --cluster hgx-h100 --req-s 2 --ttft-p99-ms 4000",
        "rackplan simulate out --trace requests.jsonl --router prefix -o simulated",
    )

    def check(self) -> None:
        """Require exactly one load, and reject options that a plan or a load already sets."""
        super().check()
        loads = [name for name in ("req_s", "trace", "concurrency") if self.given(name)]
        if len(loads) != 1 and not (self.sessions is not None and not loads):
            names = ", ".join(map(input_name, ("req_s", "trace", "concurrency")))
            raise InputError(
                f"give one of {names}: {'only one load is allowed' if loads else 'no load was given'}."
            )
        if not 0 <= self.prefix_hit < 1:
            hit = as_typed(self.prefix_hit)
            raise InputError(
                "expected a fraction of the prompt, 0 to below 1.", field="prefix_hit", value=hit
            )
        if self.plan is not None:
            of_layout = ("batch", *Layouts.__annotations__, *Contexts.__annotations__)
            of_plan = (
                "model",
                "cluster",
                "kv_tier",
                "tiers",
                *Pricing.__annotations__,
                *Money.__annotations__,
            )
            self.refuse_given(of_layout, "the plan already sets it")
            self.refuse_given(of_plan, "the plan already sets it")
        if self.trace is None:
            self.refuse_given(["speed"], f"it applies only to {input_name('trace')}")
        else:
            of_trace = ("isl", "osl", "lengths", "cv", "arrivals", "prefix_hit", "sessions")
            why = f"{input_name('trace')} already sets the lengths and times of all requests"
            self.refuse_given(of_trace, why)
        if self.concurrency is not None:
            why = f"{input_name('concurrency')} sends each request when the previous answer is complete"
            self.refuse_given(["arrivals"] if self.sessions is None else [], why)
        if self.given("lengths"):
            self.refuse_given(["cv"], f"{input_name('lengths')} already sets the spread")

    @property
    def ttft_ms(self) -> float | Literal["none"] | None:
        """The limit to the first token as given."""
        return self.ttft_p99_ms

    @property
    def ttft_s(self) -> float | None:
        """The limit in seconds (default if not given); None: no limit."""
        return usual_ttft_s(self.ttft_p99_ms)

    @cached_property
    def recorded(self) -> Recorded | None:
        """The requests of the trace; None where none is given.

        Raises
        ------
        InputError
            If it cannot be read.
        """
        from cost.queueing.traces import read_trace

        return None if self.trace is None else read_trace(self.trace, self.speed)

    @property
    def whole(self) -> Lengths | None:
        """Lengths of the requests, those of the trace where one is given."""
        return super().whole if self.recorded is None else self.recorded.lengths


class LayoutRequest(Layouts, Contexts, Speed, DeploymentRequest):
    """One layout with its experts balanced, over the whole cluster."""

    redundant: Count | None = opt(None, "Extra expert copies per layer.", "N")


class ImportPlanRequest(Contexts, DeploymentRequest):
    """Placement file of an engine."""

    file: Annotated[Path, Option("An engine's placement file, or phy2log.npy.", "FILE", argument=True)] = (
        field(kw_only=False)
    )
    cluster: ClusterLike = opt(
        None, "Catalog name, name@GPUS or a YAML file; --check takes --ep in its place.", "C"
    )
    kind: Annotated[str, Word, Option(f"npy, {ENGINES}.", "KIND", "--from --for")]
    only_check: Flag = opt(
        False,
        "Only say whether the engine loads the file; exit code 2 if not. Nothing is written.",
        flags="--check",
    )
    loads: OfPlan = None
    ep: Count | None = opt(None, "GPUs in the EP group.", flags="--ep --gpus", default="all GPUs / stages")
    tp: Count = opt(1, "Tensor-parallel width.")
    stages: Count = opt(1, "Pipeline stages.")
    seed: Seed = 0

    FIRST = "file kind model cluster only_check loads batch ep tp stages output json"
    EXAMPLES = (
        "rackplan import-plan sglang.json --from sglang --model deepseek-v3 --cluster gb200-nvl72 -o out",
        "rackplan import-plan sglang.json --check --from sglang --model deepseek-v3 --ep 72",
    )

    def check(self) -> None:
        """Require a cluster, or for a check the GPUs of an EP group."""
        super().check()
        if not self.given("cluster") and (self.ep is None or not self.only_check):
            cluster, ep, only = (input_name(name) for name in ("cluster", "ep", "only_check"))
            raise InputError(f"{cluster} is missing: give a cluster, or {only} with {ep}.")


class ExportRequest(Request):
    """Export options."""

    plan: PlanFile
    to: Annotated[str, Word, Option(f"{ENGINES}.", "ENGINE")]
    output: Path | None = opt(
        None,
        "Output file; an existing file is not overwritten.",
        "FILE",
        "-o --output",
        default="standard output; with --launch ENGINE.json",
    )
    model_path: Text = opt(
        "", "Checkpoint for the engine: a Hugging Face id or a path.", "ID", default="the catalog's id"
    )
    launch: Text = opt(
        "shell",
        "Also write a launch file: lws (Kubernetes), kueue, kai, grove, rbg, dynamo, llm-d, slurm or mpi; "
        "shell prints the commands.",
        "KIND",
    )
    hosts: Text | None = opt(
        None, "With --launch, --ranks: host names in the order of the plan: node[001-018].", "HOSTLIST"
    )
    image: Text = opt("", "With --launch: container image.", "IMAGE", default="a placeholder")
    ranks: Flag = opt(False, "Also write host, GPU and NICs of each rank to ENGINE.ranks.csv.")

    QUOTED = False
    EXAMPLES = (
        "rackplan export out --to sglang -o sglang.json",
        "rackplan export out --to trtllm -o trtllm.yaml",
    )


class DrawRequest(Set):
    """Drawing options."""

    clusters: Annotated[
        Clusters,
        Option(
            "Catalog name, in any spelling, name@GPUS or a YAML file; several: one domain of each, to one scale.",
            "C...",
            argument=True,
            repeatable=True,
        ),
    ]
    output: Path | None = opt(
        None,
        "Drawing as .svg, .png or .pdf; graph as .graphml or .json; bill of cables as .csv.",
        "FILE",
        "-o --output",
        default="SVG on standard output",
    )
    plan: Path | None = opt(None, "Show stages, experts and loads of this plan.", "PLAN")
    traffic: Annotated[str, BeforeValidator(_pattern)] | None = opt(
        None, "Show link utilization under a pattern (see rackplan traffic) or FILE.npy.", "PATTERN"
    )
    level: Annotated[str, Word] = opt(
        "auto", "Level of detail: auto, fabric, domain, gpu, or one domain, like d3."
    )
    form: Text | None = opt(None, "Write the topology for slurm or topograph.", "FORMAT", "--format")

    EXAMPLES = (
        "rackplan draw gb200-nvl72 --plan out -o planned.png",
        "rackplan draw hgx-h100 gb200-nvl72 rubin-576 -o generations.svg",
    )


class TrafficRequest(Set):
    """Traffic options."""

    cluster: Annotated[
        Text,
        Option(
            "Catalog name, in any spelling, name@GPUS, a YAML file, or a plan (ranks of its first replica).",
            "C",
            argument=True,
        ),
    ]
    pattern: Annotated[str, BeforeValidator(_pattern)] = opt(
        "all-to-all",
        "all-to-all, all-reduce, all-gather, reduce-scatter, ring, incast, permutation, zipf:S, or a .npy of "
        "[gpus, gpus] bytes.",
        "PATTERN",
    )
    bytes_per_gpu: Text | None = opt(
        None,
        'Total bytes that each GPU sends, or the size of a collective, also as "64 MB".',
        "N",
        default=DEFAULT_BYTES,
    )
    gpus: Text | None = opt(None, "Only GPUs A to B, counted from 0.", "A-B", default="all")
    matrix: Path | None = opt(
        None,
        "Write the seconds needed to send --bytes-per-gpu between each pair of GPUs (ranks) on idle links; .json, as "
        "SGLang's --eplb-topology reads it, also has bytes/s.",
        "FILE.npy|.json",
    )
    no_fair: Flag = opt(False, "Print only the bound, without the time under max-min fair sharing.")

    EXAMPLES = (
        "rackplan traffic out/plan.json --matrix cost.json",
        "rackplan traffic gb200-nvl72@144 --pattern ring --bytes-per-gpu '64 MB'",
    )


class ImportRequest(Request):
    """Details missing from the imported files."""

    files: Annotated[
        Texts,
        Option(
            "Files that describe one cluster; HOSTS=FILE assigns a node's dump to hosts.",
            "FILE...",
            argument=True,
        ),
    ]
    kind: Annotated[str, Word] | None = opt(None, "Kind of the files, if not detected.", "KIND", "--from")
    gpu: Text | None = opt(None, "GPU or system from the catalog.", "NAME")
    gpus_per_node: Annotated[Count, Field(ge=1, le=1024)] | None = opt(None, "GPUs per host.", "N")
    fabrics: Texts = opt(
        (), "Fabric from the catalog for scale-up links or NICs; repeatable.", "NAME", "--fabric"
    )
    nic: Text | None = opt(None, "Rate of one NIC, like '400 Gb/s'.", "RATE")
    oversubscription: Number | None = opt(
        None, "Downlink over uplink rate of a leaf, if the files do not show it.", "R"
    )
    join_leaves: Text | None = opt(
        None, "Uplink rate from each switch to a common root, if no file connects them.", "RATE"
    )
    pcie: Text | None = opt(None, "PCIe rate per GPU, if NVLink does not connect all GPUs.", "RATE")
    socket_link: Text | None = opt(None, "Rate of the link between the sockets of a host.", "RATE")
    hbm: Text | None = opt(None, "Memory of a GPU that is not in the catalog.", "BYTES")
    domains: Annotated[str, Word] | None = opt(
        None, "Hosts that share a scale-up domain: leaf or node.", "HOW"
    )
    hosts: Text | None = opt(None, "Hosts with GPUs, like n[1-64], if not all have them.", "LIST")

    FIRST = (
        "files kind gpu gpus_per_node fabrics nic oversubscription domains join_leaves hosts name output json"
    )
    QUOTED = False
    EXAMPLES = (
        "rackplan import topo.txt -o cluster.yaml",
        "rackplan import 'n[1-16]=nccl.xml' topology.conf --gpu h100-sxm -o cluster.yaml",
    )


class StudyRequest(Request):
    """Study options."""

    study: Annotated[
        Any,
        Named("Path | str | Mapping", "Or the content of such a file."),
        Option("Study file, or the folder of a study to resume.", "STUDY.yaml|DIR", argument=True),
    ] = field(kw_only=False)
    folder: Path | None = opt(
        None, "Folder for results and report.", "DIR", "-o --output", kw_only=False, default="under out/"
    )
    optimize: Flag = opt(False, "Search the ranges under `optimize` with Optuna instead of a grid or sample.")
    engine: Literal["local", "ray"] = opt(
        "local", "local: processes on this machine; ray: tasks on a Ray cluster."
    )
    address: Text | None = opt(
        None, "Address of the Ray cluster; default: start one on this machine.", "HOST:PORT"
    )
    workers: Annotated[Count, Field(ge=1)] | None = opt(
        None, "Points priced in parallel.", "N", default="all cores"
    )

    QUOTED = False
    EXAMPLES = (
        "rackplan study study.yaml -o out",
        "rackplan study study.yaml --engine ray --address 10.0.0.1:6379 -o out",
    )

    def check(self) -> None:
        """Reject an address without Ray."""
        super().check()
        if self.engine != "ray":
            self.refuse_given(("address",), f"only {input_name('engine')} ray has one")


class LoadsRequest(Request):
    """Recordings to summarize."""

    files: Annotated[
        Texts,
        Option(
            "SGLang's .pt or .json, TensorRT-LLM's or SGLang's folder, vLLM's .jsonl, .npy, .npz, .csv; or a routing "
            "trace.",
            "FILE...",
            argument=True,
        ),
    ]

    EXAMPLES = ("rackplan loads recording.pt", "rackplan loads windows.npy --json")


class CatalogRequest(Set):
    """A list of the catalog, or one entry."""

    what: Text | None = opt(
        None,
        "What to list, or one entry to show with its figures.",
        "[gpus|clusters|models|NAME]",
        argument=True,
    )

    EXAMPLES = ("rackplan catalog clusters", "rackplan catalog gb200-nvl72")


class ValidateRequest(Request):
    """Measured points to predict."""

    points: Texts = opt(
        (),
        "CSV of measured points (docs/trust.md); default: those shipped.",
        "[POINTS.csv ...]",
        argument=True,
        kw_only=False,
    )
    details: Flag = opt(False, "Print every row (default for long files: the 20 with the largest errors).")
    physics: Flag = opt(False, "Use the bare model, without the correction by measured runs.")
    frontier: Flag = opt(
        False, "Compare the best measured runs at each speed with the layouts that rackplan chooses."
    )

    memory: Path | None = opt(
        None, "Predict weights, room and tokens of the cache of engines' start logs instead.", "LOGS.csv"
    )

    EXAMPLES = ("rackplan validate", "rackplan validate points.csv --details")

    def check(self) -> None:
        """Start logs are predicted alone."""
        if self.memory and (self.points or self.frontier or self.physics):
            raise InputError("start logs are predicted alone; leave the other inputs out.", field="memory")


class SchemaRequest(Request):
    """Schema options."""

    name: Text | None = opt(
        None,
        "A command, a request like plan-request, or a file like plan.json; default: list all.",
        "[COMMAND|REQUEST|FILE]",
        argument=True,
    )

    EXAMPLES = ("rackplan schema plan", "rackplan schema plan-request")


class ServeRequest(Request):
    """Server options."""

    plan: Path | None = opt(
        None, "A plan.json, the folder that holds it, or a folder of such folders.", "PLAN|DIR", argument=True
    )
    port: Annotated[Count, Field(ge=0, le=65_535)] = opt(
        8710, "Port on the loopback interface; 0: any free port."
    )

    EXAMPLES = ("rackplan serve", "rackplan serve out --port 0")


R = TypeVar("R", bound=Request)


def options_of(request: type[Request]) -> Mapping[str, tuple[Option, Any]]:
    """Return the options of a request by the field, each with the type of its values, in the order of the fields."""
    return _options_of(request)  # type: ignore[arg-type] # a class can be hashed


@cache
def _options_of(request: type[Request]) -> Mapping[str, tuple[Option, Any]]:
    options: dict[str, tuple[Option, Any]] = {}
    hints = get_type_hints(request, include_extras=True)
    for entry in fields(request):  # type: ignore[arg-type]
        hint = hints[entry.name]
        option = entry.metadata.get("option") or next(
            of for of in hint.__metadata__ if isinstance(of, Option)
        )
        options[entry.name] = option, hint
    return options


@cache
def flags(*, quoted: bool = False) -> Mapping[str, str]:
    """Return the flag of each option by field and by option name; optionally only those quoted in messages."""
    by_name = {"path": "-o", "output": "-o"}
    for request in [
        kind for kind in globals().values() if isinstance(kind, type) and issubclass(kind, Request)
    ]:
        if hasattr(request, "__dataclass_fields__") and (request.QUOTED or not quoted):
            for name, (option, _) in options_of(request).items():
                if not (option.argument or option.python):
                    flag = option.flag(name)
                    by_name.setdefault(name, flag)
                    by_name.setdefault(flag.strip("-").replace("-", "_"), flag)
    return by_name


def flag_of(name: str) -> str:
    """Return the flag of an input that Python calls ``name``."""
    return flags().get(name) or f"--{name.replace('_', '-')}"


def default_of(request: type[Request], name: str) -> Any:
    """Return the default of a field; ``...`` if it is required."""
    entry = next(entry for entry in fields(request) if entry.name == name)  # type: ignore[arg-type]
    return ... if entry.default is MISSING else entry.default


def section_of(request: type[Request], name: str) -> str:
    """Return the help section of a field, which is that of the class that defines it."""
    owner = next(base for base in request.__mro__ if name in vars(base).get("__annotations__", {}))
    return (owner.__doc__ or "").split("\n")[0].partition(":")[0].rstrip(".")


def parts_of(hint: Any) -> Iterator[Any]:
    """Yield the plain types of an annotation and what reads them, None apart."""
    if get_origin(hint) is Annotated:
        inner, *metadata = get_args(hint)
        yield from metadata
        yield from parts_of(inner)
    elif get_origin(hint) in (Union, UnionType):
        for member in get_args(hint):
            yield from parts_of(member)
    elif hint is not NoneType:
        yield get_origin(hint) or hint


def named_type(hint: Any) -> Named:
    """Return the type of a field as Python's users give it: ``int | str`` where a text is read too."""
    named = [part for part in parts_of(hint) if isinstance(part, Named)]
    words = _type_words(hint).removesuffix(" | None")
    return replace(named[-1], text=words) if named else Named(words)


def _type_words(hint: Any) -> str:
    kinds = get_args(hint)
    if get_origin(hint) is Annotated:
        named = [kind.text for kind in kinds[1:] if isinstance(kind, Named)]
        words = named[-1] if named else _type_words(kinds[0])
        spelled = not named and '"' not in words and any(isinstance(kind, Spelled) for kind in kinds)
        return words + " | str" * spelled
    if get_origin(hint) in (Union, UnionType):
        return " | ".join(map(_type_words, kinds))
    if get_origin(hint) is Literal:
        return " | ".join(f'"{kind}"' for kind in kinds)
    if hint is Path:
        return "Path | str"
    return (
        "None"
        if hint is NoneType
        else "..."
        if hint is ...
        else getattr(hint, "__name__", str(hint))
        + (f"[{', '.join(map(_type_words, kinds))}]" if kinds else "")
    )


def make(request: type[R], *args: Any, **values: Any) -> R:
    """Return a request from values given by Python, a file or the page; NumPy numbers are converted.

    Raises
    ------
    InputError
        If there is no such field, or a value cannot be: its name, the value and what it must be.
    """
    try:
        return request(*map(plain, args), **{name: plain(value) for name, value in values.items()})
    except ValidationError as error:
        raise refused(error.errors(include_url=False)[0], request) from None


def refused(error: ErrorDetails, request: type[Request]) -> InputError:
    """Convert a pydantic error."""
    place = error["loc"][0] if error["loc"] else ""
    names = [entry.name for entry in fields(request)]  # type: ignore[arg-type]
    positional = [entry.name for entry in fields(request) if not entry.kw_only]  # type: ignore[arg-type]
    name = positional[place] if isinstance(place, int) and place < len(positional) else str(place)
    if error["type"] in ("unexpected_keyword_argument", "unexpected_positional_argument"):
        if name in request.INSTEAD:
            return InputError(f"{request.INSTEAD[name]}.", field=name, value=shown(error["input"]))
        return InputError(f"there is no keyword `{name}`; {nearest(name, names)}")
    if error["type"].startswith("missing"):
        return InputError("it is missing.", field=name)
    value = error["input"]
    return InputError(expected(error), field=name, value=value if isinstance(value, str) else shown(value))


def expected(error: ErrorDetails) -> str:
    """Return the expectation of pydantic as a sentence."""
    return in_plain_words(error["msg"])


def in_plain_words(message: str) -> str:
    """Reword a pydantic message."""
    short = (
        message.split(", unable to parse", maxsplit=1)[0].replace("Input should be", "expected").rstrip(".")
    )
    return f"{short.replace('a valid integer', 'a whole number').replace('a valid number', 'a number')}."
