"""The command line: parse, call, print. Heavy packages are imported by the commands that need them."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import wraps
from importlib import import_module
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rackplan import __version__
from rackplan.commands import COMMANDS
from rackplan.commands.output import print_error, steady_streams
from rackplan.progress import working
from topology.base.errors import InputError, RackplanError, printable, shortened, spelling
from topology.base.files import recording_written
from topology.base.interrupts import CtrlC, EndedError, ending_by_signal, signal_behind

if TYPE_CHECKING:
    from rackplan.commands.help import Commands
    from rackplan.requests import Request

BAD_INPUT = 2
SIGNALLED = 128
"""Offset that shells add to a signal number in an exit code."""
# typer carries its own click; the base of its public exception is the one for every mistake on a command line
_UsageError: type[BaseException] = typer.BadParameter.__base__ or typer.BadParameter

OLD_NAMES = {"check": "import-plan --check", "diff": "score", "fleet": "plan"}
"""What is typed in place of a command that is gone, before the words that followed it."""


class _InterruptedError(RackplanError):
    """Ctrl-C, or a signal to end, where there is no result to keep."""

    def __init__(self, text: str, number: int = signal.SIGINT) -> None:
        super().__init__(text)
        self.exit_code = SIGNALLED + number


def _unless_interrupted(came: bool) -> None:
    if came:
        raise KeyboardInterrupt


def _guarded(run: Callable[..., None], begun: list[str], ctrl_c: CtrlC) -> Callable[..., None]:
    """Return a command that says so where it is interrupted (typer ends it without a word), and that it works."""

    @wraps(run)
    def wrapped(**options: object) -> None:
        begun.append(run.__name__)
        with recording_written() as written:
            try:
                with working(run.__name__.rstrip("_").replace("_", "-")):
                    run(**options)
                sys.stdout.flush()
                _unless_interrupted(ctrl_c.came)
            except BrokenPipeError:
                # the reader of a pipe left (| head): not an error of ours, and typer would make it one
                _discard_output()
            except (RackplanError, typer.Exit):
                raise
            except BaseException as error:
                number = signal_behind(error)
                if number is None:
                    raise
                how = (
                    "interrupted"
                    if number == signal.SIGINT
                    else f"terminated by {signal.Signals(number).name}"
                )
                names = ", ".join(map(str, written))
                result = f"{names}: written completely" if names else "nothing was written"
                raise _InterruptedError(f"{how}; {result}.", number) from None

    return wrapped


def function_of(name: str) -> Callable[..., None]:
    """Return the function of a command."""
    module = import_module(f"rackplan.commands.{COMMANDS[name].module}")
    function = name.replace("-", "_")
    run: Callable[..., None] = getattr(module, function if hasattr(module, function) else f"{function}_")
    return run


def request_of(name: str) -> type[Request]:
    """Return the request type of a command."""
    request: type[Request] = function_of(name).request  # type: ignore[attr-defined]
    return request


def make_app(begun: list[str] | None = None, ctrl_c: CtrlC | None = None) -> Commands:
    """Return the command line; commands that start add their names to ``begun``.

    A command is interrupted too where ``ctrl_c`` came and nothing of it was heard.
    """
    from rackplan.commands.help import HELP_ALL, Command, Commands

    begun, ctrl_c = [] if begun is None else begun, ctrl_c or CtrlC()
    look: dict[str, Any] = {"rich_markup_mode": None, "pretty_exceptions_enable": False}
    help_options = {"help_option_names": ["-h", "--help"]}

    def make(name: str) -> Any:
        from rackplan.commands.options import typed

        app, run = typer.Typer(**look, add_completion=False), function_of(name)
        extra = [HELP_ALL] if request_of(name).FIRST else []
        text = f"{COMMANDS[name].text}\n\n{run.__doc__}"
        app.command(name=name, cls=Command, help=text)(_guarded(typed(run, *extra), begun, ctrl_c))
        return typer.main.get_command(app)

    app = typer.Typer(
        **look,
        name="rackplan",
        cls=Commands,
        no_args_is_help=True,
        context_settings=help_options,
        callback=_root,
    )
    group: Any = typer.main.get_command(app)
    group.commands = dict.fromkeys(COMMANDS)  # typer offers the nearest of these
    group.make = make
    commands: Commands = group
    return commands


def _version(show: bool) -> None:
    if show:
        from rackplan.commands.installed import version_text

        typer.echo(version_text(__version__))
        raise typer.Exit


def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Print the versions in use and exit."
        ),
    ] = False,
) -> None:
    """Plan inference of large models on GPU clusters: experts to GPUs, layers to racks, and what a step costs."""


def _one_blas_thread() -> None:
    """Keep products of small matrices on one thread, unless the caller says otherwise, before NumPy is imported.

    More threads wait for each other on a busy machine (seven times slower, measured), and may change last bits.
    """
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")


def _discard_output() -> None:
    """Send what is left in the buffer nowhere, or Python fails to write it when it ends."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _refuse_empty(words: Sequence[str]) -> None:
    """Reject words of nothing, which a path would take for the working folder.

    Raises
    ------
    InputError
        If there is one, with what stands before it.
    """
    for previous, word in pairwise(words):
        name, equals, value = word.partition("=") if word.startswith("--") else (previous, "", "")
        if not (value if equals else word).strip():
            where = name if name.startswith("-") else "an argument"
            raise InputError(f"{where} is empty; is a shell variable unset?")


def _usage(error: BaseException) -> str:
    """Return what is wrong with a command line, and what to type: another limit, or an example."""
    from rackplan.requests import flag_of, in_plain_words

    request: type[Request] | None = getattr(
        getattr(getattr(error, "ctx", None), "command", None), "request", None
    )
    flag, step = str(getattr(error, "option_name", "")), "see --help."
    if request is not None and (why := request.INSTEAD.get(flag.strip("-").replace("-", "_"))):
        return InputError(f"{flag}: {why}.").text(flag_of)
    if request is not None and type(error).__name__ == "MissingParameter":
        step = f"for example: {request.EXAMPLES[0]}"
    text = str(getattr(error, "format_message", error.__str__)())
    # with no arguments at all the message is the help
    return text if "\n" in text else f"{in_plain_words(text).rstrip('.')}; {step}"


def _flag_of(name: str) -> str:
    from rackplan.requests import flag_of

    return flag_of(name)


def main() -> None:
    """Run the command line; user errors print one line on standard error and set the exit code."""
    steady_streams()
    _one_blas_thread()
    try:
        with ending_by_signal() as ctrl_c, spelling(_flag_of):
            _refuse_empty(sys.argv)
            command = next(iter(sys.argv[1:]), "")
            if command in OLD_NAMES:
                words, name = sys.argv[2:], OLD_NAMES[command]
                if command == "fleet" and any(word.partition("=")[0] == "--tok-s" for word in words):
                    name = "size"  # a demand
                typed = " ".join(filter(None, ("rackplan", name, shlex.join(words))))
                raise InputError(f"{command} has another name; type: {typed}")
            begun: list[str] = []
            code = make_app(begun, ctrl_c)(prog_name="rackplan", standalone_mode=False) or 0
            # while options are read typer ends without a word
            _unless_interrupted(code == SIGNALLED + signal.SIGINT and not begun)
            raise SystemExit(code)
    except _UsageError as error:
        text = _usage(error)
        if "\n" in text:
            sys.stderr.write("\n".join(map(printable, shortened(text).split("\n"))) + "\n")
        else:
            print_error(text)
        raise SystemExit(BAD_INPUT) from None
    except RackplanError as error:
        with suppress(OSError):  # a terminal that was closed
            print_error(error.text(_flag_of))
        raise SystemExit(error.exit_code) from None
    except (KeyboardInterrupt, typer.Abort):
        print_error("interrupted; nothing was written.")
        raise SystemExit(SIGNALLED + signal.SIGINT) from None
    except EndedError as error:
        raise SystemExit(SIGNALLED + error.number) from None
    except BrokenPipeError:
        _discard_output()
        raise SystemExit(0) from None
    except OSError as error:
        # a name too long to look up, a disk that is full
        where = "standard output" if error.filename is None else error.filename
        print_error(f"{where}: {error.strerror}.")
        if error.filename is None:
            _discard_output()
        raise SystemExit(BAD_INPUT) from None
    except MemoryError:
        print_error("out of memory; try a smaller cluster.")
        raise SystemExit(1) from None
