"""From a path to the routed experts in it: NumPy arrays, SGLang's recordings, answers of servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cost.experts.traces.arrays import npy_array, npz_array, npz_names
from cost.experts.traces.arrays import pieces as pieces_of
from cost.experts.traces.counts import Wanted, experts_of_map
from cost.experts.traces.routing import MOST_EXPERTS, MOST_TOKENS, RoutedTokens, RoutingTrace, collect_routing
from cost.experts.traces.routing_answers import KEY, read_answers
from cost.experts.traces.sglang import Rank, sglang_ranks
from cost.experts.traces.torch_file import load_torch_file
from topology.base.errors import InputError

_HEAD = 2**24
"""Bytes of JSON that are looked through for the key of routed experts."""
FORMS = (
    ".npy [tokens, layers, k], .npz (key routed_experts), SGLang's per_token .pt or their folder, .json or .jsonl "
    "answers of vLLM or SGLang"
)


def read_routing(
    texts: Sequence[str],
    wanted: Wanted | None = None,
    *,
    most: int = MOST_TOKENS,
    on_progress: Callable[[str, float], None] | None = None,
) -> tuple[RoutingTrace, ...]:
    """Read each of ``texts``, a file or a folder, as a routing trace; arguments as for :func:`collect_routing`.

    Raises
    ------
    InputError
        If one cannot be read, is no trace, or does not fit the model; the message is one line.
    """
    return tuple(
        collect_routing(open_routing(text, wanted), wanted, most=most, on_progress=on_progress)
        for text in texts
    )


def open_routing(text: str, wanted: Wanted | None = None) -> RoutedTokens:
    """Open the file or folder ``text``, without reading its tokens where they can wait.

    Raises
    ------
    InputError
        As :func:`read_routing`.
    """
    try:
        return _opened(Path(text), wanted)
    except OSError as error:
        raise InputError(f"{text}: cannot be read ({error.strerror or error}).") from error
    except RecursionError as error:
        raise InputError(f"{text}: nested too deeply to be a routing trace.") from error
    except MemoryError as error:
        raise InputError(f"{text}: asks for more memory than there is.") from error


def is_routing(text: str, wanted: Wanted | None = None) -> bool:
    """Say whether ``text`` is a routing trace and not counts; of an ``.npy``, which may be either, by its numbers.

    Ids of experts are whole numbers; no token has one twice; and there are at least as many of them as experts. A
    recording that holds both (SGLang's ``per_token``) is not a trace for this purpose.

    Raises
    ------
    InputError
        If it cannot be read, or is an ``.npy`` or ``.npz`` that is not whole.
    """
    try:
        return _is_routing(Path(text), wanted)
    except OSError as error:  # in the middle of a file it has no name
        raise InputError(f"{text}: cannot be read ({error.strerror or error}).") from error


def _is_routing(path: Path, wanted: Wanted | None) -> bool:
    suffix = path.suffix.lower()
    if not path.is_file() or suffix not in _READERS:
        return False
    if suffix in (".json", ".jsonl", ".ndjson"):
        with path.open("rb") as file:
            return f'{KEY}"'.encode() in file.read(_HEAD)
    if suffix == ".npz":
        return KEY in npz_names(path)
    return suffix == ".npy" and _holds_ids(npy_array(path), wanted)


def _holds_ids(array: NDArray[Any], wanted: Wanted | None) -> bool:
    if array.dtype.kind not in "iu" or len(array.shape) not in {2, 3} or not array.size:
        return False
    if wanted is not None and wanted.top_k != wanted.experts:
        return int(array.shape[-1]) == wanted.top_k
    first = next(pieces_of(array))
    ordered = np.sort(first, axis=-1)
    twice = (ordered[..., 1:] == ordered[..., :-1]) & (ordered[..., 1:] >= 0)
    most = int(first.max()) + 1
    return bool(first.min() >= -1 and not twice.any() and 0 < most <= min(first.size, MOST_EXPERTS))


def _opened(path: Path, wanted: Wanted | None) -> RoutedTokens:
    suffix = path.suffix.lower()
    if path.is_dir():
        return _read_sglang(path, sglang_ranks(path), wanted)
    if suffix not in _READERS:
        raise InputError(f"{path}: routing traces are {FORMS}; this one's suffix is {suffix or 'absent'}.")
    if not path.is_file():
        what = "is not a regular file" if path.exists() else "there is no such file"
        raise InputError(f"{path}: {what}; give a routing trace: {FORMS}.")
    return _READERS[suffix](path, wanted)


def _of_array(path: Path, kind: str, array: NDArray[Any]) -> RoutedTokens:
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
    tokens, k = array.shape[0], array.shape[-1]
    one_layer = len(array.shape) == 2
    rows = 1 if one_layer else array.shape[1]

    def pieces() -> Iterator[NDArray[Any]]:
        for piece in pieces_of(array):
            yield piece.reshape(len(piece), rows, k)

    return RoutedTokens(str(path), kind, tokens, rows, k, pieces, one_layer=one_layer)


def _read_npy(path: Path, wanted: Wanted | None) -> RoutedTokens:  # noqa: ARG001 - as every reader
    return _of_array(path, "NumPy array of routed experts", npy_array(path))


def _read_npz(path: Path, wanted: Wanted | None) -> RoutedTokens:  # noqa: ARG001 - as every reader
    return _of_array(path, "NumPy archive of routed experts", npz_array(path, KEY))


def _read_pt(path: Path, wanted: Wanted | None) -> RoutedTokens:
    data = load_torch_file(path)
    array = data.get(KEY) if isinstance(data, dict) else data
    if isinstance(array, np.ndarray):
        return _of_array(path, "tensor of routed experts", array)
    return _read_sglang(path, sglang_ranks(path), wanted)


def _read_sglang(path: Path, ranks: Sequence[Rank], wanted: Wanted | None) -> RoutedTokens:
    """Return the tokens of SGLang's ``per_token`` records, pass by pass, their slots as logical experts."""
    chosen = [
        (rank, number, array)
        for number in sorted({number for rank in ranks for number in rank.chosen})
        for rank in ranks
        for array in rank.chosen.get(number, ())
    ]
    if not chosen:
        raise InputError(
            f"{path}: a recording of counts, which do not say which experts a token chose; record with "
            "--expert-distribution-recorder-mode per_token."
        )
    slots = chosen[0][0].slots
    experts = experts_of_map(str(chosen[0][0].path), slots, wanted.experts if wanted else None)
    k = chosen[0][2].shape[-1] if chosen[0][2].shape else 0
    for rank, number, array in chosen:
        if rank.slots.shape != slots.shape or (rank.slots != slots).any():
            raise InputError(f"{rank.path}: its map of slots differs from that of {chosen[0][0].path.name}.")
        if array.dtype.kind not in "iu" or len(array.shape) != 3 or array.shape[::2] != (len(slots), k):
            raise InputError(
                f"{rank.path}, forward pass {number}: topk_ids_of_layer is {array.dtype} {list(array.shape)}, not "
                f"whole numbers [{len(slots)}, tokens, {k}]."
            )

    def pieces() -> Iterator[NDArray[Any]]:
        for rank, number, array in chosen:
            layers = []
            for first, piece in _numbered(pieces_of(array)):
                where = f"{rank.path}, forward pass {number}"
                layers += [_logical(where, slots[first + i], layer) for i, layer in enumerate(piece)]
            if layers and layers[0].size:
                yield np.stack(layers, axis=1)

    found = sorted({rank.rank for rank in ranks})
    said = f"{len(found)} ranks, {found[0]} to {found[-1]}" if len(found) > 1 else f"rank {found[0]} only"
    notes = (f"tokens of {said}; slots are mapped to experts as they were at the end of the recording",)
    tokens = sum(array.shape[1] for _, _, array in chosen)
    return RoutedTokens(str(path), "SGLang per_token", tokens, len(slots), k, pieces, experts, notes=notes)


def _numbered(pieces: Iterator[NDArray[Any]]) -> Iterator[tuple[int, NDArray[Any]]]:
    first = 0
    for piece in pieces:
        yield first, piece
        first += len(piece)


def _logical(where: str, slots: NDArray[Any], chosen: NDArray[Any]) -> NDArray[Any]:
    """Return experts for the slots of one layer, ``[tokens, k]``; -1 stays."""
    if chosen.size and not (chosen.min() >= -1 and chosen.max() < len(slots)):
        wrong = int(chosen.max()) if chosen.max() >= len(slots) else int(chosen.min())
        raise InputError(
            f"{where}: a token went to slot {wrong}; there are 0..{len(slots) - 1} (a fused shared expert cannot be "
            "recorded)."
        )
    experts: NDArray[Any] = np.append(slots, -1)[chosen]  # the last is that of -1
    empty = (experts < 0) & (chosen >= 0)
    if empty.any():
        raise InputError(f"{where}: a token went to slot {int(chosen[empty][0])}, which is empty.")
    return experts


_READERS: dict[str, Callable[[Path, Wanted | None], RoutedTokens]] = {
    ".npy": _read_npy,
    ".npz": _read_npz,
    ".pt": _read_pt,
    ".json": read_answers,
    ".jsonl": read_answers,
    ".ndjson": read_answers,
}
