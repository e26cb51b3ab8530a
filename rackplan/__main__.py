"""Where the command ``rackplan`` and ``python -m rackplan`` begin."""

from __future__ import annotations

import os
import sys

ROOT = os.path.dirname(os.path.dirname(__file__))  # noqa: PTH120 - nothing is imported before this
if __name__ == "__main__" and not getattr(sys.flags, "safe_path", False) and sys.path[0] != ROOT:
    del sys.path[0]  # the working folder, where `python -m` looks first: nothing in it is to be run

import signal  # noqa: E402
from collections.abc import Callable  # noqa: E402


def main() -> None:
    """Run the command line; where a package cannot be imported, say so: ``doctor`` needs none, and says the rest."""
    if sys.version_info < (3, 11):  # noqa: UP036 - a checkout can be run by any
        raise SystemExit(f"rackplan: Python 3.11 or newer is needed; this is {sys.version.split()[0]}.")
    os.environ["PYTHONSAFEPATH"] = "1"  # nor do processes that are started look there
    try:
        _command_line()()
    except ImportError as error:
        raise SystemExit(_without(error)) from None
    except KeyboardInterrupt:
        sys.stderr.write("rackplan: interrupted; nothing was written.\n")
        raise SystemExit(130) from None
    finally:
        _end_by_exit_code()


def _end_by_exit_code() -> None:
    """Let Python end by its exit code where Ctrl-C came: all is said, and nothing is left to interrupt.

    It would end by SIGINT if Ctrl-C had come in text that was run, as dataclasses do, and no other was run since.
    """
    eval("0")  # noqa: S307
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _command_line() -> Callable[[], None]:
    """Return what runs the command line.

    Raises
    ------
    ImportError
        If a package that it needs is missing or broken.
    """
    try:
        from rackplan.cli import main as run
    except Exception as error:
        if isinstance(error.__cause__ or error.__context__, KeyboardInterrupt):  # in a compiled module
            raise KeyboardInterrupt from None
        raise ImportError(f"{type(error).__name__}: {error}") from error
    return run


def _without(error: ImportError) -> int:
    """Answer ``doctor`` and nothing else; return the exit code."""
    try:
        from rackplan.doctor.examine import examine
        from rackplan.output import print_error, show, steady_streams
        from rackplan.views.doctor import doctor_view
    except ImportError:
        sys.stderr.write(f"rackplan: files of rackplan itself are missing ({error}); install it anew.\n")
        return 1
    steady_streams()
    if sys.argv[1:2] == ["doctor"]:
        show(doctor_view(examine()), json="--json" in sys.argv)
    else:
        print_error(f"{error}; rackplan doctor says what is missing.")
    return 1


if __name__ == "__main__":
    main()
