"""Read expert loads: NumPy files, SGLang's JSON, CSV, and the names of generators.

A file becomes one scenario or several. Its rows are the MoE layers in order, or all layers of the model with
the dense ones all zero, which are dropped and noted.
"""

from __future__ import annotations

import csv
import json
import struct
import tokenize
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cost.load_tables import table_of_cells
from cost.loads import ExpertLoads
from cost.synthetic_loads import is_generator, synthetic_loads
from topology.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

__all__ = ["read_loads"]

# What NumPy and its zip reader raise on files that are cut short or are something else.
_BROKEN = (
    ValueError,
    EOFError,
    KeyError,
    IndexError,
    TypeError,
    MemoryError,
    NotImplementedError,
    SyntaxError,
    struct.error,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)
_KEY = "loads"


@dataclass(frozen=True)
class _Wanted:
    """The rows and columns that the model needs."""

    moe_layers: tuple[int, ...]
    layers: int
    experts: int

    @property
    def words(self) -> str:
        """The shapes that can be used, for error messages."""
        moe = f"[{len(self.moe_layers)}, {self.experts}]"
        whole = f" or [{self.layers}, {self.experts}]" if self.layers != len(self.moe_layers) else ""
        return f"{moe}{whole} (MoE layers, or all layers with the dense ones zero; scenarios may come first)"


@dataclass(frozen=True, eq=False)
class _Raw:
    """What a file holds: ``[scenarios, rows, experts]`` of any dtype, and what was done to it."""

    values: NDArray[Any]
    names: tuple[str, ...] = ()
    summed: bool = False  # the first axis is steps, to be summed
    notes: tuple[str, ...] = ()


def read_loads(
    texts: Sequence[str], *, moe_layers: Sequence[int], layers: int, experts: int, seed: int
) -> ExpertLoads:
    """Read each of ``texts``, a file or a generator, into one or more scenarios.

    Parameters
    ----------
    texts:
        Paths of ``.npy``, ``.npz`` (key ``loads``), SGLang ``.json`` or ``.csv`` files, or
        ``lognormal:SIGMA``, ``zipf:S``, ``uniform``.
    moe_layers, layers, experts:
        Absolute ids of the model's MoE layers, its number of layers, and experts a layer.
    seed:
        For generators.

    Raises
    ------
    InputError
        If a file cannot be read, has another shape than the model needs, holds anything but finite numbers
        that are not negative, or a row of a MoE layer is all zero. The message names file, place and value.
    """
    wanted = _Wanted(tuple(moe_layers), layers, experts)
    if not wanted.moe_layers:
        raise InputError(
            "the model has no MoE layers, so expert loads mean nothing for it: leave --loads out."
        )
    if not texts:
        raise InputError("no expert loads given: name a file or a generator such as lognormal:0.63.")
    tokens: list[NDArray[np.float64]] = []
    names: list[str] = []
    notes: list[str] = []
    for draw, text in enumerate(texts):
        if is_generator(text):
            drawn = synthetic_loads(text, layers=len(moe_layers), experts=experts, seed=seed, draw=draw)
            tokens.append(drawn[None])
            names.append(f"{text} (synthetic, seed {seed})")
            continue
        raw = _read_file(text, wanted)
        table, more = _check(text, raw, wanted)
        tokens.append(table)
        stem = Path(text).name
        several = raw.names or tuple(str(i) for i in range(table.shape[0]))
        names += [stem] if table.shape[0] == 1 else [f"{stem}#{name}" for name in several]
        notes += [f"{stem}: {note}" for note in (*raw.notes, *more)]
    synthetic = any(is_generator(text) for text in texts)
    return ExpertLoads(np.concatenate(tokens), tuple(names), synthetic, tuple(notes))


def _read_file(text: str, wanted: _Wanted) -> _Raw:
    path = Path(text)
    suffix = path.suffix.lower()
    readers: dict[str, Callable[[Path, _Wanted], _Raw]] = {
        ".npy": _read_npy,
        ".npz": _read_npz,
        ".json": _read_json,
        ".csv": _read_csv,
    }
    if suffix not in readers:
        raise InputError(
            f"{text}: loads are read from .npy, .npz, .json and .csv files, and this one's suffix is "
            f"{suffix or 'absent'}; or give lognormal:SIGMA, zipf:S or uniform."
        )
    try:
        if not path.is_file():
            what = "is not a regular file" if path.exists() else "there is no such file"
            raise InputError(f"{text}: {what}; give a file of expert loads.")
        return readers[suffix](path, wanted)
    except OSError as error:
        raise InputError(f"{text}: cannot be read ({error.strerror or error}).") from error
    except RecursionError as error:
        raise InputError(f"{text}: nested too deeply to be expert loads.") from error


def _read_npy(path: Path, _: _Wanted) -> _Raw:
    # Opened here: NumPy leaves a file that it opened itself open when it turns out broken.
    with path.open("rb") as file:
        try:
            values = np.load(file, allow_pickle=False)
        except _BROKEN as error:
            raise InputError(f"{path}: not a whole .npy file of numbers ({_one_line(error)}).") from error
        if not isinstance(values, np.ndarray):
            values.close()
            raise InputError(f"{path}: holds a zip archive, not one array; name it .npz if it is one.")
    return _Raw(values)


def _read_npz(path: Path, _: _Wanted) -> _Raw:
    with path.open("rb") as file:
        try:
            archive = np.load(file, allow_pickle=False)
            if isinstance(archive, np.ndarray):
                return _Raw(archive)
            with archive:
                if _KEY not in archive.files:
                    keys = ", ".join(archive.files) or "nothing"
                    raise InputError(f"{path}: has no array {_KEY!r}, only {keys}; save it under that key.")
                return _Raw(np.asarray(archive[_KEY]))
        except _BROKEN as error:
            raise InputError(f"{path}: not a whole .npz file of numbers ({_one_line(error)}).") from error


def _read_json(path: Path, wanted: _Wanted) -> _Raw:
    try:
        data = json.loads(path.read_text(encoding="utf-8-sig"))
    except ValueError as error:
        raise InputError(f"{path}: not JSON ({_one_line(error)}).") from error
    if not isinstance(data, dict) or "logical_count" not in data:
        raise InputError(
            f'{path}: has no key "logical_count", as SGLang writes it: {{"logical_count": [[...]]}}.'
        )
    count = data["logical_count"]
    _only_numbers(path, count)
    try:
        values = np.asarray(count)
    except ValueError:
        raise InputError(f"{path}: rows of unequal length; the model needs {wanted.words}.") from None
    if values.dtype == object:  # whole numbers beyond 64 bits
        raise InputError(f"{path}: logical_count holds numbers too large for a count of tokens.")
    if values.ndim == 3:
        return _Raw(values, summed=True, notes=(f"{values.shape[0]} steps summed, as SGLang does",))
    return _Raw(values)


def _only_numbers(path: Path, value: object) -> None:
    """Refuse what NumPy would turn into a number on its own: true, null, text."""
    for inner in value if isinstance(value, list) else [value]:
        if isinstance(inner, list):
            _only_numbers(path, inner)
        elif isinstance(inner, bool) or not isinstance(inner, int | float):
            raise InputError(f"{path}: logical_count holds {json.dumps(inner)[:40]}, which is not a number.")


def _read_csv(path: Path, wanted: _Wanted) -> _Raw:
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            reader = csv.DictReader(lines)
            cells = [(reader.line_num, row) for row in reader]
            header = reader.fieldnames or []
    except (csv.Error, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not a CSV file ({_one_line(error)}).") from error
    values, names, notes = table_of_cells(
        str(path), header, cells, moe_layers=wanted.moe_layers, layers=wanted.layers, experts=wanted.experts
    )
    return _Raw(values, names=names, notes=notes)


def _check(text: str, raw: _Raw, wanted: _Wanted) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    """Return float64 ``[scenarios, MoE layers, experts]`` and notes, or say what is wrong."""
    values = raw.values
    if values.dtype.kind not in "iuf":
        raise InputError(f"{text}: holds {values.dtype}, not numbers; give counts of tokens.")
    shape = values.shape
    if values.ndim not in {2, 3} or shape[-2:] not in {
        (len(wanted.moe_layers), wanted.experts),
        (wanted.layers, wanted.experts),
    }:
        raise InputError(f"{text}: has shape {list(shape)}; the model needs {wanted.words}.")
    with np.errstate(over="ignore"):  # a wider float that does not fit becomes inf, and is refused as that
        tokens = values.astype(np.float64).reshape(-1, *shape[-2:])
    if tokens.shape[0] == 0:
        raise InputError(f"{text}: has shape {list(shape)}: no scenario in it; give at least one.")
    bad = ~np.isfinite(tokens) | (tokens < 0)
    if bad.any():
        scenario, row, expert = (int(i) for i in np.argwhere(bad)[0])
        raise InputError(
            f"{text}: scenario {scenario}, row {row}, expert {expert}: {tokens[scenario, row, expert]} "
            "is not a count of tokens; give finite numbers that are not negative."
        )
    if raw.summed:
        with np.errstate(over="ignore"):
            tokens = tokens.sum(axis=0, keepdims=True)
        if not np.isfinite(tokens).all():
            raise InputError(f"{text}: the sum over its steps is too large for a count of tokens.")
    return _moe_rows(text, tokens, wanted)


def _moe_rows(
    text: str, tokens: NDArray[np.float64], wanted: _Wanted
) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    """Drop dense rows, which must be zero, and refuse MoE rows that are."""
    notes: tuple[str, ...] = ()
    moe = list(wanted.moe_layers)
    if tokens.shape[1] == wanted.layers and wanted.layers != len(moe):
        dense = sorted(set(range(wanted.layers)) - set(moe))
        used = tokens[:, dense].any(axis=2)
        if used.any():
            scenario, row = (int(i) for i in np.argwhere(used)[0])
            raise InputError(
                f"{text}: scenario {scenario}, row {dense[row]}: that layer of the model has no experts, "
                "but its loads are not zero; are these loads of another model?"
            )
        tokens = tokens[:, moe]
        notes = (f"{len(dense)} rows of dense layers, all zero, dropped",)
    dead = ~tokens.any(axis=2)
    if dead.any():
        scenario, row = (int(i) for i in np.argwhere(dead)[0])
        raise InputError(
            f"{text}: scenario {scenario}, layer {moe[row]} of the model (MoE layer {row} from 0): "
            "all loads are 0; measure for longer, or drop the scenario."
        )
    return tokens, notes


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:120] or type(error).__name__
