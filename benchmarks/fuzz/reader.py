"""What a reader is to the fuzzer: whole inputs to begin with, and what reads one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Seed:
    """A whole input: what its file is called, the form that mutations follow, and its bytes."""

    file: str
    form: str
    data: bytes


@dataclass(frozen=True)
class Reader:
    """One way in for what others wrote.

    Attributes
    ----------
    seeds:
        Makes whole inputs.
    read:
        Reads the file (of form ``folder`` the folder) and uses what it gets a little; errors for people are raised.
    enters:
        Functions of the packages that bring text or bytes in, as ``module:name``; a test calls the seeds and looks.
    share:
        How often it is tried beside others: about thousandths of a second that an input costs, upside down.
    writes:
        Whether it may write, and then below the folder of the input alone.
    """

    name: str
    seeds: Callable[[], list[Seed]]
    read: Callable[[Path], object]
    enters: tuple[str, ...]
    share: int = 10
    writes: bool = False


def texts(file: str, form: str, *contents: str | bytes) -> list[Seed]:
    """Return a seed for each content."""
    return [Seed(file, form, one if isinstance(one, bytes) else one.encode()) for one in contents]
