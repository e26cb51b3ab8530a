"""The command line in this process: arguments in, exit code and both streams out."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@dataclass(frozen=True)
class Result:
    """What one run of a command left behind."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """Standard output as the one JSON object that it must be, in strict JSON."""

        def no_constant(text: str) -> NoReturn:
            raise AssertionError(f"{text} is not JSON")

        found = json.loads(self.out, parse_constant=no_constant)
        assert isinstance(found, dict)
        return found

    @property
    def error_line(self) -> str:
        """The one line on standard error; nothing on standard output."""
        assert self.out == ""
        lines = self.err.splitlines()
        assert len(lines) == 1, self.err
        assert lines[0].startswith("rackplan: ")
        assert "Traceback" not in self.err
        return lines[0]


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Callable[..., Result]:
    """Run ``rackplan ARGS...`` in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def call(*args: object) -> Result:
        from rackplan.cli import main

        monkeypatch.setattr(sys, "argv", ["rackplan", *map(str, args)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        code = ended.value.code
        return Result(code if isinstance(code, int) else 0, out, err)

    return call
