"""From a path to the reader of what is there: counts by expert, or the experts that each token chose."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cost.experts.traces import sglang
from cost.experts.traces.answers import KEY, read_answers
from cost.experts.traces.counts import TokenCounts, Wanted, npz_archive, npz_array, of_array
from cost.experts.traces.counts import pieces as pieces_of
from cost.experts.traces.routing import (
    MOST_EXPERTS,
    RoutedTokens,
    RoutingTrace,
    collect_routing,
    repeated_ids,
)
from cost.experts.traces.text_files import read_csv, read_json, read_vllm_lines
from cost.experts.traces.torch_file import load_torch_file
from cost.experts.traces.trtllm import is_statistics, read_statistics
from topology.base.errors import InputError
from topology.base.npy import load_npy, whole_numbers

_COUNTS_HEAD, _ROUTING_HEAD = 4096, 2**24
"""Bytes of JSON that are looked through for the type of vLLM's records, and for the key of routed experts."""
FORMS = (
    ".npy [tokens, layers, k], .npz (key routed_experts), SGLang's per_token .pt or their folder, .json or .jsonl "
    "answers of vLLM or SGLang"
)


def open_counts(text: str, wanted: Wanted | None = None) -> TokenCounts:
    """Open the file or folder ``text``, without reading its counts where they can wait.

    ``wanted`` is what a model needs, for messages and for checks of the number of experts.

    Raises
    ------
    InputError
        If there is none, it cannot be read, or is nothing that we know; the message is one line.
    """
    with _in_one_line(text, "expert loads"):
        path = Path(text)
        suffix = path.suffix.lower()
        if path.is_dir() and suffix not in _COUNTS:
            return (read_statistics if is_statistics(path) else sglang.read_counts)(path, wanted)
        if suffix == ".safetensors":
            raise InputError(
                f"{text}: counts of one rank; give the folder with all ranks and meta_info.json."
            )
        if suffix not in _COUNTS:
            raise InputError(
                f"{text}: loads are read from .pt, .json, .jsonl, .npy, .npz and .csv files and TensorRT-LLM's "
                f"folder, and this one's suffix is {suffix or 'absent'}; or give lognormal:SIGMA, zipf:S or uniform."
            )
        _require_file(path, "a file of expert loads")
        if suffix == ".json" and _head_holds(path, b'"record_type"', _COUNTS_HEAD):
            suffix = ".jsonl"  # lines under another name
        return _COUNTS[suffix](path, wanted)


def read_routing(
    texts: Sequence[str],
    wanted: Wanted | None = None,
    on_progress: Callable[[str, float], None] | None = None,
) -> tuple[RoutingTrace, ...]:
    """Read each of ``texts``, a file or a folder, as a routing trace; arguments as for :func:`collect_routing`.

    Raises
    ------
    InputError
        If one cannot be read, is no trace, or does not fit the model; the message is one line.
    """
    return tuple(collect_routing(open_routing(text, wanted), wanted, on_progress) for text in texts)


def open_routing(text: str, wanted: Wanted | None = None) -> RoutedTokens:
    """Open the file or folder ``text``, without reading its tokens where they can wait.

    Raises
    ------
    InputError
        As :func:`read_routing`.
    """
    with _in_one_line(text, "a routing trace"):
        path = Path(text)
        suffix = path.suffix.lower()
        if path.is_dir():
            return sglang.read_tokens(path, wanted)
        if suffix not in _ROUTING:
            raise InputError(
                f"{text}: routing traces are {FORMS}; this one's suffix is {suffix or 'absent'}."
            )
        _require_file(path, f"a routing trace: {FORMS}")
        return _ROUTING[suffix](path, wanted)


def is_routing(text: str) -> bool:
    """Return whether ``text`` is a routing trace and not counts; of an ``.npy``, which may be either, by its numbers.

    Ids of experts are whole numbers; no token has one twice; and there are at least as many of them as experts. A
    recording that holds both (SGLang's ``per_token``) is not a trace for this purpose.

    Raises
    ------
    InputError
        If it cannot be read, or is an ``.npy`` or ``.npz`` that is not whole.
    """
    with _in_one_line(text, "a routing trace"):
        path = Path(text)
        suffix = path.suffix.lower()
        if not path.is_file() or suffix not in _ROUTING:
            return False
        if suffix in (".json", ".jsonl", ".ndjson"):
            return _head_holds(path, f'{KEY}"'.encode(), _ROUTING_HEAD)
        if suffix == ".npz":
            with npz_archive(path) as archive:
                return f"{KEY}.npy" in archive.namelist()
        return suffix == ".npy" and _holds_ids(load_npy(path, text))


def _holds_ids(array: NDArray[Any]) -> bool:
    if array.dtype.kind not in "iu" or len(array.shape) not in {2, 3} or not array.size:
        return False
    first = whole_numbers(next(pieces_of(array)))
    twice, _ = repeated_ids(first)
    most = int(first.max()) + 1
    return bool(first.min() >= -1 and not twice.any() and 0 < most <= min(first.size, MOST_EXPERTS))


@contextmanager
def _in_one_line(text: str, what: str) -> Iterator[None]:
    """Say in one line what the machine cannot read."""
    try:
        yield
    except OSError as error:  # in the middle of a file it has no name
        raise InputError(f"{text}: cannot be read ({error.strerror or error}).") from error
    except RecursionError as error:
        raise InputError(f"{text}: nested too deeply to be {what}.") from error
    except MemoryError as error:
        raise InputError(f"{text}: needs more memory than available.") from error


def _require_file(path: Path, what: str) -> None:
    if not path.is_file():
        problem = "is not a regular file" if path.exists() else "there is no such file"
        raise InputError(f"{path}: {problem}; give {what}.")


def _head_holds(path: Path, text: bytes, most: int) -> bool:
    with path.open("rb") as file:
        return text in file.read(most)


def _routed(path: Path, kind: str, array: NDArray[Any]) -> RoutedTokens:
    """Return the tokens of ``[tokens, layers, k]``, or of ``[tokens, k]`` for one layer."""
    if array.dtype.kind not in "iu":
        raise InputError(
            f"{path}: holds {array.dtype}; a routing trace holds ids of experts, whole numbers [tokens, layers, k]."
        )
    if len(array.shape) not in {2, 3}:
        raise InputError(
            f"{path}: has shape {list(array.shape)}; a routing trace is [tokens, layers, k], or [tokens, k] of one "
            "layer."
        )
    one_layer = len(array.shape) == 2
    tokens = array[:, None] if one_layer else array
    count, rows, k = tokens.shape
    return RoutedTokens(str(path), kind, count, rows, k, lambda: pieces_of(tokens), one_layer=one_layer)


def _counted_in_csv(path: Path, wanted: Wanted | None) -> TokenCounts:
    with path.open("rb") as file:
        of_sglang = sglang.TABLE[0].encode() in file.readline(_COUNTS_HEAD)
    return sglang.read_counts(path, wanted) if of_sglang else read_csv(path, wanted)


def _routed_in_pt(path: Path, wanted: Wanted | None) -> RoutedTokens:
    data = load_torch_file(path)
    array = data.get(KEY) if isinstance(data, dict) else data
    if isinstance(array, np.ndarray):
        return _routed(path, "tensor of routed experts", array)
    return sglang.read_tokens(path, wanted)


_COUNTS: dict[str, Callable[[Path, Wanted | None], TokenCounts]] = {
    ".npy": lambda path, wanted: of_array(str(path), "NumPy array", load_npy(path, str(path)), wanted),
    ".npz": lambda path, wanted: of_array(str(path), "NumPy archive", npz_array(path, "loads"), wanted),
    ".json": read_json,
    ".jsonl": read_vllm_lines,
    ".ndjson": read_vllm_lines,
    ".csv": _counted_in_csv,
    ".pt": sglang.read_counts,
}
_ROUTING: dict[str, Callable[[Path, Wanted | None], RoutedTokens]] = {
    ".npy": lambda path, _: _routed(path, "NumPy array of routed experts", load_npy(path, str(path))),
    ".npz": lambda path, _: _routed(path, "NumPy archive of routed experts", npz_array(path, KEY)),
    ".pt": _routed_in_pt,
    ".json": read_answers,
    ".jsonl": read_answers,
    ".ndjson": read_answers,
}
