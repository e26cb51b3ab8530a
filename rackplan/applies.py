"""Which options apply: those that cannot are refused before anything is computed, one table for all commands.

What applies and is odd all the same (a sequence longer than the model was made for) is noted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from inspect import Parameter
from typing import TYPE_CHECKING, Any

from rackplan.asked import require_64_bits
from topology.base.errors import InputError

if TYPE_CHECKING:
    from cost.model import Model

_NOTHING: tuple[object, ...] = ([], "none")
"""Values that ask for nothing: an option that was not repeated, a limit that there is not."""


@dataclass(frozen=True)
class Asked:
    """What a command was asked: the options that differ from their defaults, and the value of each."""

    values: Mapping[str, Any]
    given: Mapping[str, str]
    """By parameter, how each that differs from its default was typed: ``--ep 4``."""

    @cached_property
    def models(self) -> list[Model]:
        """The models that were named; a share of the traffic (``NAME:0.7``) is passed over."""
        from cost.resolve import resolve_model
        from rackplan.options import name_and_share

        named = self.values.get("model")
        texts = [named] if isinstance(named, str) else [name_and_share(text)[0] for text in named or ()]
        return [resolve_model(text, weights=self.values.get("weights")) for text in texts]

    @property
    def dense(self) -> str:
        """Why nothing can be asked of experts; empty where a model has some."""
        if not self.models or any(model.moe is not None for model in self.models):
            return ""
        return f"{self.models[0].name} is dense, it has no routed experts"

    @property
    def prefill(self) -> str:
        """Why nothing can be asked of tokens that follow; empty where some do."""
        prefills = self.values.get("phase") == "prefill"
        return (
            "prefill makes the first token alone, so there is no time or speed of those that follow"
            * prefills
        )

    @property
    def recordings(self) -> list[str]:
        """The loads that were given as files."""
        from cost.experts.loads import is_generator

        return [text for text in self.values.get("loads") or () if not is_generator(text)]

    @property
    def one_load(self) -> str:
        """Why no load can be worse than others; empty where there may be several, as in a recording or a plan."""
        single = "model" in self.values and len(self.values.get("loads") or ()) <= 1 and not self.recordings
        return "there is one synthetic load, which is the mean and the worst" * single

    @property
    def one_copy(self) -> str:
        """Why nothing can be split; empty where an expert may have several copies."""
        return "each expert has one copy, for --redundant is 0" * (self.values.get("redundant") in (0, "0"))

    @property
    def one_length(self) -> str:
        """Why one length says nothing; empty where both are given."""
        return "prompts and answers have a length each" * (("isl" in self.given) != ("osl" in self.given))

    @property
    def lengths(self) -> str:
        """Why no other length or phase applies; empty where requests are not given by their lengths."""
        given = "--lengths is" if "lengths" in self.given else "--isl and --osl are" * ("isl" in self.given)
        return f"{given} of both phases, each at its own length" * bool(given)

    @property
    def no_lengths(self) -> str:
        """Why nothing can be asked of whole requests; empty where their lengths are given, or nothing takes any."""
        wanted = "isl" in self.values and not {"isl", "lengths"} & self.given.keys()
        others = " or --lengths" * ("lengths" in self.values)
        return f"nothing is prefilled without lengths of requests: only with --isl and --osl{others}" * wanted

    @property
    def mixed(self) -> str:
        """Why no one length applies; empty where requests are not a mix of them."""
        return "--lengths has the prompts and answers of all requests" * ("lengths" in self.given)

    def without(self, name: str, why: str) -> str:
        """Why an option means nothing without another; empty where that is given."""
        return "" if name in self.given else f"{why} without --{name.replace('_', '-')}"

    @property
    def planned(self) -> str:
        """Why nothing can be asked of a plan that a replay would make; empty where none is given."""
        replays = "policy" in self.values and self.values.get("plan") is not None
        return "the plan is given, with all of that in it" * replays


@dataclass(frozen=True)
class Rule:
    """Why some options cannot apply.

    Attributes
    ----------
    options:
        Parameters of commands, with spaces between them.
    why:
        The reason; empty where they can. It is asked for only where one of them is given.
    remedy:
        What to do instead; empty: leave the option out.
    """

    options: str
    why: Callable[[Asked], str]
    remedy: str = ""


RULES: tuple[Rule, ...] = (
    Rule(
        "output",
        lambda asked: (
            "results are files, and no file of that name is meant" * (str(asked.values["output"]) == "-")
        ),
        "name one, or leave it out: --json prints on standard output",
    ),
    Rule(
        "ep redundant loads routing spread split objective",
        lambda asked: asked.dense,
    ),
    Rule("tpot_ms tok_s_user", lambda asked: asked.prefill),
    Rule("objective", lambda asked: asked.one_load * (asked.values["objective"] == "worst")),
    Rule("split", lambda asked: asked.one_copy * (asked.values["split"] != "even")),
    Rule("isl osl", lambda asked: asked.one_length, "give both, or neither"),
    Rule("isl osl", lambda asked: asked.mixed),
    Rule("context phase", lambda asked: asked.lengths),
    Rule("ttft_ms prefill_cluster", lambda asked: asked.no_lengths),
    Rule(
        "accept_length",
        lambda asked: asked.without("draft_tokens", "a step yields one token"),
        "give --draft-tokens too",
    ),
    Rule("weights", lambda asked: asked.planned),
)


_WORDS = frozenset(
    {"domains", "engine", "goal", "kind", "level", "objective", "pattern", "phase"}
    | {"price_basis", "sparse_attention", "split", "spread", "to"}
)
"""Parameters that take one of a few words; some take a file too (``FILE.npy``)."""


def in_lower_case(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a command was asked with its words in lower case; files and names stay as they are."""
    return {
        name: value.lower() if name in _WORDS and isinstance(value, str) and "." not in value else value
        for name, value in values.items()
    }


def check_options(parameters: Sequence[Parameter], values: Mapping[str, Any]) -> list[str]:
    """Refuse options that cannot apply to what else was asked; return what is odd about the others.

    Raises
    ------
    InputError
        With the reason; if a name means nothing.
    """
    given = {
        one.name: typed
        for one in parameters
        if one.name in values and (typed := _typed(one, values[one.name]))
    }
    for name, typed in given.items():
        require_64_bits(values[name], typed.split()[0])
    asked = Asked(values, given)
    for rule in RULES:
        for name in rule.options.split():
            reason = rule.why(asked) if name in given else ""
            if reason:
                remedy = rule.remedy or f"leave {given[name].split()[0]} out"
                raise InputError(f"{given[name]}: {reason}; {remedy}.")
    return [*_taken_as(values), *_too_long(asked)]


def _taken_as(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield what each cluster was taken as that was called by another name than its own."""
    for name in ("cluster", "prefill_cluster", "clusters"):
        given = values.get(name)
        for text in given if isinstance(given, list) else [given] if isinstance(given, str) else []:
            from topology.files.resolve import cluster_remark

            if remark := cluster_remark(text):
                yield remark


def _too_long(asked: Asked) -> Iterator[str]:
    """Yield a note for each model whose own limit the longest sequences are beyond."""
    isl, osl, tokens, mix = (asked.values.get(name) for name in ("isl", "osl", "context", "lengths"))
    if mix is not None:
        from cost.serving.lengths import read_lengths

        requests = read_lengths(mix)
        tokens = max(map(sum, zip(requests.isl, requests.osl, strict=True)))
    elif isinstance(isl, int) and isinstance(osl, int):
        tokens = isl + osl
    if isinstance(tokens, int) and "model" in asked.values:
        yield from filter(None, (model.beyond(tokens) for model in asked.models))


def _typed(parameter: Parameter, value: object) -> str:
    """Return how an option was typed, empty where it is an argument, has its default or asks for nothing."""
    flag = _flag(parameter)
    default = None if parameter.default is Parameter.empty else parameter.default
    if not flag or value is None or value in _NOTHING or value == default:
        return ""
    if isinstance(value, bool):
        return flag.split("/")[0 if value else -1]
    first = value[0] if isinstance(value, list) else value
    return f"{flag} {first:g}" if isinstance(first, float) else f"{flag} {first}"


def _flag(parameter: Parameter) -> str:
    """Return the long flag of an option (``--overlap/--no-overlap``), empty of an argument."""
    for part in getattr(parameter.annotation, "__metadata__", ()):
        # typer takes the first of the names inside Annotated for a default
        for name in (getattr(part, "default", None), *(getattr(part, "param_decls", None) or ())):
            if isinstance(name, str) and name.startswith("--"):
                return name
    return ""
