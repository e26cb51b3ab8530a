"""Entry point of ``rackplan`` and ``python -m rackplan``."""

from __future__ import annotations

import os
import sys

ROOT = os.path.dirname(os.path.dirname(__file__))  # noqa: PTH120 - nothing is imported before this
if __name__ == "__main__" and not getattr(sys.flags, "safe_path", False) and sys.path[0] != ROOT:
    del sys.path[0]  # the working folder, where `python -m` looks first: nothing in it is to be run

import signal  # noqa: E402
from collections.abc import Callable  # noqa: E402


def main() -> None:
    """Run the command line; if an import fails, name the package and how to install it."""
    if sys.version_info < (3, 11):  # noqa: UP036 - a checkout can be run by any
        raise SystemExit(f"rackplan: Python 3.11 or newer is needed; this is {sys.version.split()[0]}.")
    os.environ["PYTHONSAFEPATH"] = "1"  # nor do processes that are started look there
    try:
        _command_line()()
    except ImportError as error:
        raise SystemExit(
            f"rackplan: {' '.join(str(error).split())}; pip install rackplan installs its dependencies."
        ) from None
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


if __name__ == "__main__":
    main()
