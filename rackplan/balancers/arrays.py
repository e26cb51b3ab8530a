"""Conversion of engine arrays: tensors in, tensors out; NumPy in, NumPy out. Torch is not imported here."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placement.arrays import Floats, Ints, first_bad
from topology.base.errors import InputError
from topology.base.npy import whole_numbers


def is_tensor(value: object) -> bool:
    """Whether ``value`` is a torch tensor (never, if torch is not loaded)."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def loads_of(value: Any, name: str, axes: tuple[str, ...]) -> Floats:
    """Return token counts as float64; ``name`` and ``axes`` are used in messages.

    Raises
    ------
    InputError
        If it has other axes, one of length 0, or holds anything but finite numbers that are not negative.
    """
    table = _numbers(value, name)
    _require_axes(table, name, axes)
    loads = table.astype(np.float64)
    position = first_bad(loads)
    if position:
        where = ", ".join(f"{axis.removesuffix('s')} {i}" for axis, i in zip(axes, position, strict=True))
        raise InputError(
            f"{name}, {where}: {loads[position]} is not a token count; give finite, non-negative numbers."
        )
    return loads


def ids_of(value: Any, name: str, axes: tuple[str, ...]) -> Ints:
    """Return expert ids as int64.

    Raises
    ------
    InputError
        If it has other axes, one of length 0, or holds anything but whole numbers.
    """
    table = _numbers(value, name)
    if table.dtype.kind not in "iu":
        raise InputError(f"{name} holds {table.dtype}, not integers: give expert ids.")
    _require_axes(table, name, axes)
    return whole_numbers(table)


def whole(value: Any, name: str, least: int = 1) -> int:
    """Return a count as a plain int.

    Raises
    ------
    InputError
        If it is no whole number, or below ``least``.
    """
    try:
        number = int(value.__index__())
    except (AttributeError, TypeError):
        raise InputError(f"{name} {value!r}: expected an integer.") from None
    if isinstance(value, bool) or number < least:
        raise InputError(f"{name} {value!r}: expected an integer of at least {least}.")
    return number


def as_given(table: NDArray[Any], sample: object, device: Any = "cpu") -> Any:
    """Return ``table`` in the kind of ``sample``: a tensor on ``device``, or the array itself."""
    if not is_tensor(sample):
        return table
    tensor = sys.modules["torch"].from_numpy(np.ascontiguousarray(table))
    return tensor.to(device)


def of_type(table: Any, sample: Any) -> Any:
    """Return a tensor or array with the dtype of ``sample``, if it has one."""
    if is_tensor(sample):
        return table.to(sample.dtype)
    return table.astype(sample.dtype) if isinstance(sample, np.ndarray) else table


@contextmanager
def refusing() -> Iterator[None]:
    """Turn an :class:`InputError` into the ValueError that an engine's own checks would raise.

    Raises
    ------
    ValueError
        With the message of the error.
    """
    try:
        yield
    except InputError as error:
        message = f"rackplan: {error}"
        raise ValueError(message) from None


def _numbers(value: Any, name: str) -> NDArray[Any]:
    if is_tensor(value):
        tensor = value.detach().cpu()
        # NumPy has no bfloat16, and every narrower float fits into float32 exactly
        table: NDArray[Any] = (
            tensor.float() if tensor.is_floating_point() and tensor.itemsize < 4 else tensor
        ).numpy()
    else:
        try:
            table = np.asarray(value)
        except ValueError:
            raise InputError(f"{name}: rows have different lengths.") from None
    if table.dtype.kind not in "biuf":
        raise InputError(f"{name} holds {table.dtype}, not numbers.")
    return table


def _require_axes(table: NDArray[Any], name: str, axes: tuple[str, ...]) -> None:
    if table.ndim != len(axes) or 0 in table.shape:
        raise InputError(
            f"{name} has shape {list(table.shape)}: expected [{', '.join(axes)}], none of them 0."
        )
