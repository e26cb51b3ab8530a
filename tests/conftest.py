"""What all tests share: one thread for products of small matrices, as under the command line, and text as in a pipe.

More threads wait for each other on a busy machine; set before anything imports NumPy.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Generator

import pytest
from hypothesis import settings

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

# Workers of pytest-xdist have it, and whoever runs the tests may: text would then be as wide as it says.
os.environ.pop("COLUMNS", None)

# Jobs in the background are begun with Ctrl-C ignored, and tests raise it.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A busy machine makes no test fail: what takes long is a benchmark. Examples are the same everywhere: a commit is
# green or it is not; `--hypothesis-profile new` draws others each time.
settings.register_profile("new", deadline=None)
settings.register_profile("same", deadline=None, derandomize=True, max_examples=20)
settings.load_profile("same")


from toys import nine_tenths, torch_save, torch_writer, toy  # noqa: E402 - after the threads are set

__all__ = ["nine_tenths", "short", "torch_save", "torch_writer", "toy"]


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let re-plans search little, where the way from plan to plan is tested and not how good it is."""
    monkeypatch.setattr("placement.migrate.search._PASS", (20, 20))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail what a browser or Ray is missing for where they must be there: the workflows set STRICT."""
    report = yield
    needed = item.get_closest_marker("browser") or item.get_closest_marker("ray")
    if os.environ.get("STRICT") and needed and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = (
            f"STRICT: {report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr}"
        )
    return report
