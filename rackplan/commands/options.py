"""Requests as typer commands, and options that only the command line has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from rackplan.commands.output import Run, print_error
from rackplan.requests import Option, Request, Spelled, default_of, make, options_of, parts_of, section_of
from topology.base.errors import InputError

INTERRUPTED = 130
"""Exit code after Ctrl-C."""
_RUN = {"output", "time_limit_s", "seed", "details", "json", "help", "help_all"}
_INPUTS = {"plan", "study", "loads", "routing", "to", "kind", "model", "models", "cluster", "clusters"}
_PLAIN = {bool: bool, int: int, float: float, Path: Path}

C = TypeVar("C", bound=Callable[..., None])

JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]
DetailsFlag = Annotated[bool, typer.Option("--details", help="Print all details after the summary.")]
WRITTEN = "Write the result as .json or .html, or both into a folder."
WRITTEN_ROWS = "Write the result as .json, .html or .csv, or all into a folder."
FOLDER = "Folder for the results, or the report only. [under out/]"


def command(
    request: type[Request],
    output: str = "",
    metavar: str = "FILE|DIR",
    *,
    details: bool = False,
    json: bool = True,
) -> Callable[[C], C]:
    """Mark a function as a command: it takes a request, and a :class:`Run` with the options that are named here.

    ``output`` is the help of that option.
    """
    path = typer.Option("-o", "--output", help=output, metavar=metavar, show_default=False)
    options: dict[str, tuple[Any, bool | None]] = {}
    options |= {"output": (Annotated[Path | None, path], None)} if output else {}
    options |= {"details": (DetailsFlag, False)} if details else {}
    options |= {"json": (JsonFlag, False)} if json else {}

    def marked(run: C) -> C:
        run.request = request  # type: ignore[attr-defined]
        run.shown = [  # type: ignore[attr-defined]
            Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=kind)
            for name, (kind, default) in options.items()
        ]
        return run

    return marked


def exit_if_interrupted(came: bool, text: str = "") -> None:
    """End with the exit code of Ctrl-C if it came, and say what there is.

    Raises
    ------
    typer.Exit
        If it came.
    """
    if came:
        if text:
            print_error(f"interrupted{text}")
        raise typer.Exit(INTERRUPTED)


def typed(run: Any, *ignored: Parameter) -> Callable[..., None]:
    """Return a typer command with the options of its request, its own options, and those that are ``ignored``."""
    of: type[Request] = run.request
    shown: list[Parameter] = run.shown
    hints = get_type_hints(run, include_extras=True)
    request_parameters = [
        _parameter(of, name, option, hint)
        for name, (option, hint) in options_of(of).items()
        if not option.python
    ]
    command_parameters = [
        parameter.replace(annotation=hints[parameter.name], kind=Parameter.KEYWORD_ONLY)
        for parameter in list(signature(run).parameters.values())[2:]
    ]
    options = [*request_parameters, *command_parameters, *shown, *ignored]

    @wraps(run)
    def called(**values: Any) -> None:
        if str(values.get("output")) == "-":
            raise InputError(
                "results are written to files; give a file name, or leave it out: --json prints on standard output.",
                field="output",
                value="-",
            )
        fields = {parameter.name: values.pop(parameter.name, None) for parameter in request_parameters}
        for parameter in ignored:
            values.pop(parameter.name, None)
        request = make(of, **{name: value for name, value in fields.items() if value is not None})
        run(request, Run(**{parameter.name: values.pop(parameter.name) for parameter in shown}), **values)

    called.__annotations__ = {parameter.name: parameter.annotation for parameter in options}
    called.__signature__ = Signature(options)  # type: ignore[attr-defined]
    return called


def _parameter(of: type[Request], name: str, option: Option, hint: Any) -> Parameter:
    """Return a field as a parameter of typer."""
    kinds = list(parts_of(hint))
    spelled = str in kinds or any(isinstance(part, Spelled) for part in kinds)
    several = option.repeatable or (not spelled and not {tuple, Mapping, Sequence}.isdisjoint(kinds))
    if several:
        kind: Any = list[str]
    elif spelled:
        kind = str
    else:
        kind = next((_PLAIN[part] for part in kinds if part in _PLAIN), str)
    default = default_of(of, name)
    required = default is ...
    if several or not isinstance(default, str | int | float):
        default = None
    look: dict[str, Any] = {"help": option.documented, "metavar": option.metavar or None}
    if complete := _COMPLETED.get(name):
        look["autocompletion"] = complete
    if option.default:
        default = None
    if default in (None, ""):
        look["show_default"] = False
    if option.argument:
        info: Any = typer.Argument(**look)
    else:
        info = typer.Option(*(option.flags or option.flag(name)).split(), **look)
    annotation: Any = Annotated[kind if required or default is not None else kind | None, info]
    return Parameter(
        name, Parameter.KEYWORD_ONLY, default=Parameter.empty if required else default, annotation=annotation
    )


def _models(incomplete: str) -> list[str]:
    from cost.resolve import model_names

    return [name for name in model_names() if name.startswith(incomplete.lower())]


def _clusters(incomplete: str) -> list[str]:
    from topology.catalog import cluster_names

    return [name for name in cluster_names() if name.startswith(incomplete.lower())]


_COMPLETED = {"model": _models, "cluster": _clusters}


def section(request: type[Request], name: str) -> str:
    """Return the help section of an option of a command."""
    if name in _RUN:
        return "Run and output"
    if name in _INPUTS:
        return "Inputs"
    return section_of(request, name) if name in options_of(request) else "Options"
