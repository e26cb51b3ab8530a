"""Options that several commands share, and what is made of them; heavy packages are imported in functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

import typer

from topology.base.errors import InputError, input_name

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cost.experts.loads import ExpertLoads
    from cost.inputs.deployment import Deployment
    from cost.model import Model
    from cost.money.prices import PriceBook
    from placement.plan import Plan
    from topology.cluster import Cluster


def opt(names: str, help: str, metavar: str | None = None, **more: Any) -> Any:  # noqa: A002 - typer's word
    """Return an option for an annotation: its ``names`` with spaces between them."""
    return typer.Option(*names.split(), help=help, metavar=metavar, **more)


def length(name: str, help: str) -> Any:  # noqa: A002 - typer's word
    """Return an option for a length in tokens, which may be written ``8k``."""
    from topology.base.units import parse_length

    def read(given: str | int) -> int:
        return parse_length(str(given), name)  # typer passes the default, a number, too

    return opt(name, f"{help} 8k is 8,192.", "N", parser=read)


def arg(metavar: str, help: str, **more: Any) -> Any:  # noqa: A002 - typer's word
    """Return an argument for an annotation."""
    return typer.Argument(metavar=metavar, help=help, **more)


def _models(incomplete: str) -> list[str]:
    from cost.resolve import model_names

    return [name for name in model_names() if name.startswith(incomplete.lower())]


def _clusters(incomplete: str) -> list[str]:
    from topology.catalog import cluster_names

    return [name for name in cluster_names() if name.startswith(incomplete.lower())]


INTERRUPTED = 130
"""Exit code after Ctrl-C."""

CONTEXT = 4096
"""Tokens in each sequence where nobody says."""
DEFAULT_LOADS = "lognormal:0.63"
"""The spread of eight real DeepSeek-V3 workloads."""
_LONG_BYTES = 2**24
LEAST_GPU_W, MOST_GPU_W = 20.0, 50e3
"""All-in powers of one GPU beyond which a given one is in another unit, or of a whole rack."""

PlanFile = Annotated[Path, arg("PLAN", "A plan.json, or the folder of one.")]
Target = Annotated[str, arg("C", "Catalog name, in any spelling, name@GPUS or a YAML file.")]
ModelName = Annotated[
    str,
    opt("--model", "Catalog name, Hugging Face id, or path of a config.json.", "M", autocompletion=_models),
]
ClusterName = Annotated[
    str, opt("--cluster", "Catalog name, name@GPUS or a YAML file.", "C", autocompletion=_clusters)
]
ObjectiveName = Annotated[str, opt("--objective", "Over several --loads: the mean or the worst of them.")]
SplitName = Annotated[
    str, opt("--split", "How the engine splits an expert's tokens: even, source, lp, rank, rank-tpN.")
]
Phase = Annotated[str, opt("--phase", "decode or prefill.")]
SparseAttention = Annotated[
    str,
    opt(
        "--sparse-attention",
        "What if attention read the cache of the square root of the context, or of at most N tokens.",
        "sqrt|N",
        show_default=False,
    ),
]
Loads = Annotated[
    list[str] | None,
    opt(
        "--loads",
        "Tokens per expert: SGLang's .pt or .json, TensorRT-LLM's folder, vLLM's .jsonl, .npy, .npz, .csv, "
        "or lognormal:SIGMA, zipf:S, uniform; repeatable.",
        "FILE",
    ),
]
Routing = Annotated[
    list[str] | None,
    opt(
        "--routing",
        "Experts that each token chose: .npy [tokens, layers, k], SGLang's per_token .pt, answers of vLLM or SGLang "
        "(.json, .jsonl); repeatable.",
        "TRACE",
    ),
]
Seed = Annotated[int, opt("--seed", "Seed of synthetic loads and of the search.")]
Settings = Annotated[
    list[str] | None,
    opt(
        "--set",
        "A figure of your own: gb200.hbm_bytes_per_s=2x, nvlink5.link_bytes_per_s=100 GB/s, gpu.hbm_bytes=+10%; "
        "repeatable.",
        "PART.FIGURE=VALUE",
    ),
]
JsonFlag = Annotated[bool, opt("--json", "Print one JSON object on standard output.")]
Isl = Annotated[int | None, length("--isl", "With --osl: tokens of a prompt; pools of both phases.")]
Osl = Annotated[int | None, length("--osl", "With --isl: tokens of an answer.")]
Written = Annotated[
    Path | None,
    opt("-o --output", "Write the result as .json or .html, or both into a folder.", "FILE|DIR"),
]
OutputFolder = Annotated[
    Path | None,
    opt(
        "-o --output",
        "Folder for the results, or the page alone. [below out/]",
        "DIR|FILE.html",
        show_default=False,
    ),
]


class Group:
    """Options that belong together: a dataclass whose fields are options; :func:`flat` gives them to a command.

    The first line of its docstring up to a colon is what its section of the help is called.
    """


@dataclass(frozen=True, kw_only=True)
class Length(Group):
    """What is served: the phase and its size."""

    phase: Phase = "decode"
    context: Annotated[
        int, length("--context", "Tokens already in each sequence; prefill: of each prompt.")
    ] = CONTEXT


@dataclass(frozen=True, kw_only=True)
class Serving(Length):
    """What is served: the phase and its size."""

    batch: Annotated[
        int,
        opt(
            "--batch",
            "Sequences per GPU in use; 0: the most that fit and are fast enough (prefill: 8,192 tokens in all).",
        ),
    ] = 0


@dataclass(frozen=True, kw_only=True)
class Speed(Group):
    """How fast each user is served: one limit, which has two spellings."""

    tpot_ms: Annotated[
        str | None,
        opt("--tpot-ms", "Longest time per output token; none: no limit. [50]", "X|none", show_default=False),
    ] = None
    tok_s_user: Annotated[
        str | None,
        opt("--tok-s-user", "The same limit as a speed: 20 tok/s per user are 50 ms.", "X|none"),
    ] = None

    @property
    def tpot_s(self) -> float | Literal["none"] | None:
        """The limit in seconds per token; ``none`` as such, None where nothing was given.

        Raises
        ------
        InputError
            If both spellings were given, or one is neither a number above 0 nor none.
        """
        if self.tok_s_user is None:
            return limit_s(self.tpot_ms, "--tpot-ms")
        if self.tpot_ms is not None:
            raise InputError(
                f"--tok-s-user {self.tok_s_user}: it is the same limit as --tpot-ms {self.tpot_ms}; leave one out."
            )
        none = self.tok_s_user.strip().lower() == "none"
        return "none" if none else 1 / above_0(self.tok_s_user, "--tok-s-user")


@dataclass(frozen=True, kw_only=True)
class Limits(Speed):
    """How fast requests are served."""

    ttft_ms: Annotated[
        str | None,
        opt(
            "--ttft-ms",
            "Longest prefill and transfer of the cache, without waiting; none: no limit. [2000]",
            "Y|none",
            show_default=False,
        ),
    ] = None

    @property
    def limits_s(self) -> tuple[float | None, float | None]:
        """Both limits in seconds, the usual ones where nothing was given; None: no limit.

        Raises
        ------
        InputError
            If one cannot be used.
        """
        from cost.serving.pools import TTFT_LIMIT
        from placement.options import USUAL_TPOT

        ttft_s = limit_s(self.ttft_ms, "--ttft-ms")
        both = ((self.tpot_s, USUAL_TPOT), (ttft_s, TTFT_LIMIT))
        tpot_s, ttft_s = (
            None if limit == "none" else usual.value if limit is None else limit for limit, usual in both
        )
        return tpot_s, ttft_s

    @property
    def usual(self) -> frozenset[str]:
        """The names of the limits that were not given (:func:`cost.serving.limits.relax_default_limits`)."""
        given = {"tpot_s": self.tpot_s, "ttft_s": self.ttft_ms}
        return frozenset(name for name, limit in given.items() if limit is None)


@dataclass(frozen=True, kw_only=True)
class Money(Group):
    """What GPUs cost and draw: options of every command that prints dollars or megawatts."""

    price_basis: Annotated[
        str | None,
        opt("--price-basis", "Whose price of a GPU-hour: owner, neocloud, rental or list. [rental]", "BASIS"),
    ] = None
    price: Annotated[
        list[str] | None,
        opt("--price", "Your price of a GPU-hour in USD, like gb200=3.10; repeatable.", "GPU=USD"),
    ] = None
    power: Annotated[
        list[str] | None,
        opt(
            "--power", "Your all-in power of a GPU, like gb200=1900 (W) or gb200=1.9kW; repeatable.", "GPU=W"
        ),
    ] = None

    def book(self, *clusters: Cluster, kept: PriceBook | None = None) -> PriceBook:
        """Return the prices and powers to count with; those given are of GPUs of ``clusters``.

        ``kept`` is what a plan keeps: it stands where nothing is given.

        Raises
        ------
        InputError
            If one is of no GPU of theirs, is a duplicate, or is no number above 0.
        """
        from cost.money.network import NETWORK
        from cost.money.prices import PriceBook, gpu_named

        def read(texts: Sequence[str] | None, field: str, unit: str, example: str) -> dict[str, float]:
            found: dict[str, float] = {}
            for text in texts or ():
                name, equals, given = text.partition("=")
                if not (name.strip() and equals and given.strip()):
                    raise InputError(
                        f"expected a GPU and its figure, like {example}.", field=field, value=text
                    )
                try:
                    gpu = name.strip() if name.strip() in NETWORK else gpu_named(name.strip(), clusters)
                except InputError as error:
                    raise InputError(str(error), field=field, value=text) from None
                if gpu in found:
                    raise InputError(f"duplicate {gpu}; leave one out.", field=field, value=text)
                found[gpu] = amount(given.strip(), f"{input_name(field)} {text}", unit)
                if not math.isfinite(found[gpu]) or found[gpu] <= 0:
                    raise InputError(f"expected a number above 0, like {example}.", field=field, value=text)
            return found

        prices = read(self.price, "prices", "USD/h", "gb200=3.10")
        powers = read(self.power, "powers", "W", "gb200=1900")
        for gpu, watts in powers.items():
            if gpu not in NETWORK and not LEAST_GPU_W <= watts <= MOST_GPU_W:
                raise InputError(
                    f"no GPU draws {watts:g} W, its share of host and cooling included; give the watts of one GPU, "
                    "like 1900 or 1.9kW.",
                    field="powers",
                    value=f"{gpu}={watts:g}",
                )
        kept = kept or PriceBook()
        basis = kept.basis if self.price_basis is None else self.price_basis.strip().lower()
        book = PriceBook(basis, {**kept.prices, **prices}, {**kept.powers, **powers})
        for cluster in clusters:
            book.check(cluster)
        return book

    def priced(self, plan: Plan, *others: Cluster) -> Plan:
        """Return a plan at the prices and powers given (of its GPUs, or of ``others``), else at its own.

        Raises
        ------
        InputError
            As :meth:`book`.
        """
        deployment = plan.deployment
        prices = self.book(deployment.cluster, *others, kept=deployment.prices)
        return replace(plan, deployment=replace(deployment, prices=prices))


@dataclass(frozen=True, kw_only=True)
class Pricing(Money):
    """How a step is priced: an option here is one of every command that prices a workload."""

    weights: Annotated[str | None, opt("--weights", "Format of the weights.", "DTYPE")] = None
    kv_dtype: Annotated[str, opt("--kv-dtype", "Format of the KV cache.", "DTYPE")] = "bf16"
    draft_tokens: Annotated[
        int, opt("--draft-tokens", "Tokens that each sequence drafts in a step.", "K")
    ] = 0
    accept_length: Annotated[
        float | None,
        opt(
            "--accept-length",
            "Tokens that a step yields on average, drafts included: 1 to K + 1. [as fitted to served requests, "
            "for 1 to 3 drafts]",
            "A",
        ),
    ] = None
    overlap: Annotated[
        bool, opt("--overlap/--no-overlap", "Two half batches take turns at computing and sending.")
    ] = False
    sparse_attention: SparseAttention = ""
    engine: Annotated[
        str, opt("--engine", "Engine whose fixed delays count; default: between those measured.", "NAME")
    ] = ""
    settings: Settings = None

    def deployment(
        self, model: str | Model, cluster: str | Cluster, serving: Serving, *others: Cluster
    ) -> Deployment:
        """Return what is priced; what a step yields is as given, else as measured for so many drafts.

        A ``cluster`` by name has the figures of ``settings``; one that is made already is taken as it is, as a model
        is whose weights nobody asks for in another format. Prices and
        powers may be of GPUs of ``others`` too.

        Raises
        ------
        InputError
            If the options cannot be used together, nobody measured so many drafts, or a name means nothing.
        """
        from cost.calibration.serving import accept_length
        from cost.config.build import model_from_config
        from cost.inputs.deployment import Deployment
        from cost.inputs.workload import Workload
        from cost.resolve import resolve_model

        work = Workload(
            context=serving.context,
            batch=serving.batch,
            kv_dtype=self.kv_dtype,
            phase=serving.phase,
            draft_tokens=self.draft_tokens,
            accept_length=accept_length(self.draft_tokens)
            if self.accept_length is None
            else self.accept_length,
            overlap=self.overlap,
            sparse_attention=self.sparse_attention,
        )
        resolved = resolve_model(model, weights=self.weights) if isinstance(model, str) else model
        if resolved is model and self.weights is not None:
            resolved = model_from_config(resolved.config, name=resolved.name, weights=self.weights)
        where = given_clusters([cluster], self.settings)[0] if isinstance(cluster, str) else cluster
        return Deployment(where, resolved, work, engine=self.engine, prices=self.book(where, *others))


def flat(command: Callable[..., None], *more: Parameter) -> Callable[..., None]:
    """Return ``command`` as typer reads it: a parameter that is a group becomes the group's options.

    ``more`` are options that are answered before the command is called.
    """
    groups: dict[str, tuple[Callable[..., Group], list[Parameter]]] = {}
    options: list[Parameter] = []
    for one in _typed(command):
        found = [one]
        if isinstance(one.annotation, type) and issubclass(one.annotation, Group):
            found = _typed(one.annotation)
            groups[one.name] = one.annotation, found
        options += found
    options += more

    @wraps(command)
    def called(**given: object) -> None:
        for one in more:
            given.pop(one.name, None)
        for name, (group, fields) in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in fields})
        command(**given)

    called.__annotations__ = {one.name: one.annotation for one in options}
    called.__signature__ = Signature(options)  # type: ignore[attr-defined]
    called.sections = {  # type: ignore[attr-defined]
        field.name: _section(hint) for hint, fields in groups.values() for field in fields
    }
    return called


def groups_of(command: Callable[..., object] | None) -> dict[str, str]:
    """Return the section of the help that each option of a group stands in, by the option's parameter."""
    found: dict[str, str] = getattr(command, "sections", {})
    return found


def _section(group: Callable[..., Group]) -> str:
    return (group.__doc__ or "").split("\n")[0].partition(":")[0].rstrip(".")


def _typed(of: Callable[..., object]) -> list[Parameter]:
    """Return the parameters of a function or a dataclass, by name, with their annotations as objects."""
    hints = get_type_hints(of, include_extras=True)
    return [
        one.replace(annotation=hints[one.name], kind=Parameter.KEYWORD_ONLY)
        for one in signature(of).parameters.values()
    ]


def model_loads(
    model: Model,
    texts: Sequence[str | NDArray[Any]],
    seed: int,
    routing: Sequence[str] | None = None,
    windows: int | None = None,
) -> ExpertLoads | None:
    """Return the loads for ``model``: the user's, or the default synthetic ones; None without experts.

    ``texts`` are as :func:`cost.experts.loads.read_loads` takes them.
    Traces of ``routing`` say which experts are chosen together, and imply the loads where none are given.
    ``windows`` is the largest number of scenarios that one recording becomes, None for the usual one.

    Raises
    ------
    InputError
        If a file cannot be used, or loads are given for a model without experts.
    """
    from cost.experts.loads import read_loads, routed_loads
    from cost.experts.traces.counts import Wanted
    from cost.experts.traces.windows import MOST_WINDOWS

    moe = model.moe
    if moe is None:
        for field, given in (("loads", texts), ("routing", routing or ())):
            if given:
                first = given[0] if isinstance(given[0], str) else "an array"
                raise InputError(
                    f"{model.name} has no routed experts; leave it out.", field=field, value=first
                )
        return None
    loads = None
    if texts or not routing:
        with reading_progress(text for text in texts if isinstance(text, str)) as on_progress:
            loads = read_loads(
                list(texts) or [DEFAULT_LOADS],
                moe_layers=model.moe_layers,
                layers=len(model.layers),
                experts=moe.experts,
                seed=seed,
                windows=MOST_WINDOWS if windows is None else windows,
                on_progress=on_progress,
            )
    if not routing:
        return loads
    from cost.experts.traces.open import read_routing

    wanted = Wanted(tuple(model.moe_layers), len(model.layers), moe.experts, moe.top_k)
    with reading_progress(routing) as on_progress:
        return routed_loads(read_routing(routing, wanted, on_progress=on_progress), loads)


@contextmanager
def reading_progress(texts: Iterable[str]) -> Iterator[Callable[[str, float], None] | None]:
    """Yield what draws how much of a file was read, on a terminal; None where all of ``texts`` are short."""
    from rackplan.progress import progress

    if not any(_bytes_below(Path(text)) > _LONG_BYTES for text in texts):
        yield None
        return
    with progress() as reporter:
        reporter.stage("opening recordings")
        yield lambda path, fraction: reporter.stage(f"reading {Path(path).name}, {fraction:.0%}")


def _bytes_below(path: Path) -> int:
    """Return the size of a file, or of the files in a folder; 0 where there is none."""
    try:
        files = list(path.iterdir()) if path.is_dir() else [path]
        return sum(file.stat().st_size for file in files if file.is_file())
    except (OSError, ValueError):
        return 0


def name_and_share(text: str) -> tuple[str, float | None]:
    """Split ``NAME:SHARE``; None where no share is given."""
    name, colon, share = text.rpartition(":")
    try:
        return (name, float(share)) if colon and name else (text, None)
    except ValueError:
        return text, None


def speeds(text: str) -> list[float]:
    """Parse ``25,50,100``: speeds per user to compare at.

    Raises
    ------
    InputError
        If it is not numbers above 0 with commas between them.
    """
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        values = []
    if not values or any(not math.isfinite(value) or value <= 0 for value in values):
        raise InputError(f"--tok-s-user {text}: expected numbers above 0 with commas, like 25,50,100.")
    return values


def amount(text: str, flag: str, unit: str = "byte") -> float:
    """Parse a quantity in the SI unit ``unit``, the unit written or not: bytes are ``2e11`` or ``200 GB``."""
    from topology.base.units import parse_quantity

    try:
        return float(text)
    except ValueError:
        return parse_quantity(text, unit, flag)


_THOUSANDS = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "b": 1e9}


def tokens_per_s(text: str, flag: str = "--tok-s") -> float:
    """Parse tokens per second: ``200e6``, ``200M``, ``128k``, ``1.5B``.

    Raises
    ------
    InputError
        If it is not a number above 0.
    """
    from topology.base.units import plain_number

    number = text.strip().lower().removesuffix("tok/s").strip().replace("_", "")
    suffix = number[-1:] if number[-1:] in _THOUSANDS else ""
    value = (plain_number(number.removesuffix(suffix)) or math.nan) * _THOUSANDS[suffix]
    if not math.isfinite(value) or value <= 0:
        raise InputError(
            f"{flag} {text}: expected output tokens per second above 0, like 200e6, 200M or 128k."
        )
    return value


def seconds(milliseconds: float, flag: str) -> float:
    """Return milliseconds in seconds.

    Raises
    ------
    InputError
        If they are not above 0.
    """
    if not math.isfinite(milliseconds) or milliseconds <= 0:
        raise InputError(f"{flag} {milliseconds:g}: expected a number above 0.")
    return milliseconds / 1e3


def limit_s(text: str | None, flag: str) -> float | Literal["none"] | None:
    """Return a limit given in milliseconds, in seconds; ``none`` as such, None where nothing was given.

    Raises
    ------
    InputError
        If it is neither a number above 0 nor none.
    """
    if text is None:
        return None
    return "none" if text.strip().lower() == "none" else above_0(text, flag) / 1e3


def above_0(text: str, flag: str) -> float:
    """Return a limit that was given as a number above 0.

    Raises
    ------
    InputError
        If it is none.
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value <= 0:
        raise InputError(f"{flag} {text}: expected a number above 0, or none.")
    return value


def given_clusters(names: Sequence[str], settings: Sequence[str] | None) -> list[Cluster]:
    """Resolve clusters, each with those figures of ``settings`` whose part it has.

    Raises
    ------
    InputError
        If one cannot be built, a setting cannot be read or used, or none has the part that it is of.
    """
    from topology.files.resolve import resolve_cluster

    found = [resolve_cluster(name) for name in names]
    if not settings:
        return found
    from topology.changes.overrides import overrides

    return overrides(found, settings)


def read_noted(path: Path) -> Plan:
    """Read a plan; sequences that are longer than its model was made for are noted, as where they are asked for.

    Raises
    ------
    InputError
        If it cannot be read.
    """
    from placement.plans.reading import read_plan
    from rackplan.output import note

    plan = read_plan(path)
    note(plan.deployment.model.beyond(plan.deployment.workload.context))
    return plan


def with_settings(plan: Plan, settings: Sequence[str] | None) -> Plan:
    """Return a plan scored with the figures of ``settings`` on its cluster.

    Raises
    ------
    InputError
        If a setting cannot be read or used.
    InfeasibleError
        If the plan's batch no longer fits in HBM.
    """
    if not settings:
        return plan
    from placement.scoring import on_cluster
    from topology.changes.overrides import overrides

    return on_cluster(plan, overrides([plan.deployment.cluster], settings)[0])


def equal_clusters(
    names: Sequence[str], gpus: int | None, settings: Sequence[str] | None = None
) -> list[Cluster]:
    """Resolve clusters to compare, those named without ``@GPUS`` at the common count (``gpus``, else the largest).

    Each has those figures of ``settings`` whose part it has.

    Raises
    ------
    InputError
        If one cannot be built, or has another number of GPUs than asked for.
    """
    from topology.catalog import cluster_names
    from topology.files.resolve import cluster_called, resolve_cluster

    names = [cluster_called(name) for name in names]
    sides = [resolve_cluster(name) for name in names]
    count = gpus if gpus is not None else max(len(side.gpus) for side in sides)
    sized = [
        f"{name}@{count}" if name in cluster_names() and len(side.gpus) != count else name
        for name, side in zip(names, sides, strict=True)
    ]
    equal = given_clusters(sized, settings)
    for name, side in zip(names, equal, strict=True):
        if gpus is not None and len(side.gpus) != gpus:
            raise InputError(
                f"--gpus {gpus}: {name} has {len(side.gpus)} GPUs; leave --gpus or its @GPUS out."
            )
    return equal
