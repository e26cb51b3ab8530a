"""The command line: parse, call, print. Heavy packages are imported by the commands that need them."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import wraps
from inspect import signature
from itertools import pairwise
from typing import Annotated

import typer

from rackplan import __version__
from rackplan.commands import (
    clusters,
    data,
    engines,
    fleet,
    online,
    plan,
    schema,
    serve,
    size,
    study,
    sweep,
)
from rackplan.help import COMMON, HELP_ALL, Command, Commands
from rackplan.options import flat
from rackplan.output import print_error, steady_streams, told_interrupted
from rackplan.progress import working
from rackplan.render.text import flag_of
from topology.base.errors import InputError, RackplanError, printable
from topology.base.files import PLACED
from topology.base.interrupts import CAME, EndedError, ending_by_signal, signal_behind

BAD_INPUT = 2
SIGNALLED = 128
"""What shells add to the number of a signal in an exit code."""
# typer carries its own click; the base of its public exception is the one for every mistake on a command line
_UsageError: type[BaseException] = typer.BadParameter.__base__ or typer.BadParameter

app = typer.Typer(
    name="rackplan",
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


_BEGUN: list[str] = []
"""The command that runs; empty while options are read."""


class _InterruptedError(RackplanError):
    """Ctrl-C, or a signal to end, where there is no result to keep."""

    def __init__(self, text: str, number: int = signal.SIGINT) -> None:
        super().__init__(text)
        self.exit_code = SIGNALLED + number


def _unless_interrupted(came: object) -> None:
    if came:
        raise KeyboardInterrupt


def _saying_interrupted(run: Callable[..., None]) -> Callable[..., None]:
    """Typer ends an interrupted command without a word; this one says so."""

    @wraps(run)
    def wrapped(*args: object, **kwargs: object) -> None:
        since = len(PLACED)
        _BEGUN.append(run.__name__)
        try:
            run(*args, **kwargs)
            sys.stdout.flush()
            _unless_interrupted(CAME)
        except BrokenPipeError:
            # the reader of a pipe left (| head): not an error of ours, and typer would make it one
            _discard_output()
        except (RackplanError, typer.Exit):
            raise
        except BaseException as error:
            number = signal_behind(error)
            if number is None:
                raise
            how = "interrupted" if number == signal.SIGINT else f"ended by {signal.Signals(number).name}"
            raise _InterruptedError(told_interrupted(how, since), number) from None

    return wrapped


def _applying(run: Callable[..., None]) -> Callable[..., None]:
    """Let words of options be read in any case and checked against each other first (:mod:`rackplan.applies`)."""

    @wraps(run)
    def wrapped(**given: object) -> None:
        from rackplan.applies import check_options, in_lower_case
        from rackplan.output import note_all

        given = in_lower_case(given)
        note_all(check_options(list(signature(run).parameters.values()), given))
        with working(run.__name__.rstrip("_").replace("_", "-")):
            run(**given)

    return wrapped


COMMANDS: dict[str, Callable[..., None]] = {
    "plan": plan.plan,
    "replan": plan.replan,
    "score": plan.score,
    "what-if": plan.what_if,
    "diff": plan.diff,
    "draw": clusters.draw,
    "traffic": clusters.traffic,
    "sweep": sweep.sweep,
    "size": size.size,
    "compare": sweep.compare,
    "fleet": fleet.fleet,
    "replay": online.replay,
    "study": study.study,
    "export": engines.export,
    "import-plan": engines.import_plan,
    "check": engines.check,
    "import": clusters.import_,
    "loads": data.loads,
    "catalog": data.catalog,
    "validate": data.validate,
    "schema": schema.schema,
    "serve": serve.serve,
}
for name, command in COMMANDS.items():
    app.command(name=name, cls=Command)(
        _saying_interrupted(_applying(flat(command, *([HELP_ALL] if name in COMMON else []))))
    )


def _version(show: bool) -> None:
    if show:
        from rackplan.installed import version_text

        typer.echo(version_text(__version__))
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Print the versions in use and exit."
        ),
    ] = False,
) -> None:
    """Place a large model on a real cluster: layers to racks, experts to GPUs, and what a step costs."""


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
    """Refuse words of nothing, which a path would take for the working folder.

    Raises
    ------
    InputError
        If there is one, with what stands before it.
    """
    for before, word in pairwise(words):
        name, equals, value = word.partition("=") if word.startswith("--") else (before, "", "")
        if not (value if equals else word).strip():
            where = name if name.startswith("-") else "an argument"
            raise InputError(f"{where}: is empty; a variable of the shell may have no value.")


def main() -> None:
    """Run the command line; errors for people end with one line on standard error and their exit code."""
    steady_streams()
    _one_blas_thread()
    try:
        with ending_by_signal():
            _refuse_empty(sys.argv)
            code = app(prog_name="rackplan", standalone_mode=False) or 0
            # while options are read typer ends without a word
            _unless_interrupted(code == SIGNALLED + signal.SIGINT and not _BEGUN)
            raise SystemExit(code)
    except _UsageError as error:
        # with no arguments at all the message is the help
        text = str(getattr(error, "format_message", error.__str__)())
        if "\n" in text:
            sys.stderr.write("\n".join(map(printable, text.split("\n"))) + "\n")
        else:
            print_error(f"{text.rstrip('.')}; see --help.")
        raise SystemExit(BAD_INPUT) from None
    except RackplanError as error:
        with suppress(OSError):  # a terminal that was closed
            print_error(error.text(flag_of))
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
