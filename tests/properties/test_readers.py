"""Damaged input is read or refused in one line: no traceback, no warning, nothing written beside it."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from helpers import script
from topology.base.errors import RackplanError

if TYPE_CHECKING:
    from pathlib import Path

readers = script("tests/properties/readers.py")


@pytest.mark.parametrize("reader", readers.READERS, ids=lambda reader: reader.name)
def test_whole_inputs_are_read(reader: readers.Reader, tmp_path: Path) -> None:
    for number, seed in enumerate(reader.seeds()):
        (tmp_path / str(number)).mkdir()
        reader.read(reader.put(tmp_path / str(number), seed))


@pytest.mark.parametrize("reader", readers.READERS, ids=lambda reader: reader.name)
@settings(max_examples=8, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32))
def test_damaged_inputs_are_read_or_refused(
    reader: readers.Reader, tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    random, folder = Random(seed), tmp_path_factory.mktemp("input")
    path = reader.put(folder, random.choice(reader.seeds()), random)
    try:
        reader.read(path)
    except RackplanError as refused:
        words = str(refused)
    else:
        words = "read"
    assert 0 < len(words) < 3000
    assert [one.name for one in folder.iterdir()] == [path.name]
