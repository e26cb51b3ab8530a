"""A recording as every reader gives it, and what a model needs of one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from cost.traces.file_array import FileArray
from topology.errors import InputError

_MOST_CELLS = 2**23


@dataclass(frozen=True)
class Wanted:
    """The rows and columns that the model needs."""

    moe_layers: tuple[int, ...]
    layers: int
    experts: int

    @property
    def words(self) -> str:
        """The shapes that can be used, for error messages."""
        moe = f"[{len(self.moe_layers)}, {self.experts}]"
        whole = f" or [{self.layers}, {self.experts}]" if self.layers != len(self.moe_layers) else ""
        return f"{moe}{whole} (MoE layers, or all layers with the dense ones zero; windows may come first)"


@dataclass(frozen=True, eq=False)
class Recording:
    """Tokens per expert in ``windows`` (steps, passes, scenarios), read anew by each call of ``pieces``.

    ``pieces()`` yields arrays ``[some windows, rows, experts]`` in order, of any dtype. ``layer_ids`` are the
    rows' absolute layers where the file says them; else rows are the MoE layers, or all layers, in order.
    ``filled`` says of each window whether it holds tokens, or is empty where that is not known yet.
    ``names`` has a label for each window, or is empty. ``windows`` is None where it takes a reading to know.
    """

    path: str
    kind: str
    rows: int
    experts: int
    pieces: Callable[[], Iterator[NDArray[Any]]]
    windows: int | None
    layer_ids: tuple[int, ...] | None = None
    names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    filled: tuple[bool, ...] = ()

    def __post_init__(self) -> None:
        if self.rows * self.experts > _MOST_CELLS:
            raise InputError(
                f"{self.path}: has {self.rows:,} layers of {self.experts:,} experts, more than any model; "
                "is it a recording?"
            )

    @property
    def shape(self) -> list[int]:
        """Windows where known and not one, rows, experts."""
        first = [] if self.windows in {None, 1} else [self.windows]
        return [*(n for n in first if n is not None), self.rows, self.experts]


def of_array(path: str, kind: str, array: FileArray | NDArray[Any], wanted: Wanted | None) -> Recording:
    """Return the recording of ``[rows, experts]`` or ``[windows, rows, experts]``.

    Raises
    ------
    InputError
        If the array has other axes, no window, or does not hold numbers.
    """
    if array.dtype.kind not in "iuf":
        raise InputError(f"{path}: holds {array.dtype}, not numbers; give counts of tokens.")
    shape = list(array.shape)
    if len(shape) not in {2, 3}:
        needs = (
            f"the model needs {wanted.words}" if wanted else "loads have [layers, experts] or windows before"
        )
        raise InputError(f"{path}: has shape {shape}; {needs}.")
    if shape[0] == 0:
        raise InputError(f"{path}: has shape {shape}: no scenario in it; give at least one.")

    def pieces() -> Iterator[NDArray[Any]]:
        from cost.traces.file_array import FileArray

        flat = array.pieces() if isinstance(array, FileArray) else iter([array])
        if len(shape) == 3:
            yield from flat
        else:
            import numpy as np

            yield np.concatenate(list(flat))[None] if isinstance(array, FileArray) else array[None]

    windows = shape[0] if len(shape) == 3 else 1
    return Recording(path, kind, shape[-2], shape[-1], pieces, windows)


def one_line(error: BaseException) -> str:
    """Return the message of ``error`` on one line, not too long."""
    return printable(str(error))[:120] or type(error).__name__


def printable(text: str) -> str:
    """Return ``text`` on one line, without what a hostile name in a file could do to a terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in " ".join(text.split()))
