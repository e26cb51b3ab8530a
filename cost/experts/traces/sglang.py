"""SGLang's ``.pt`` recordings: ``stat`` from one file, ``per_pass`` and ``per_token`` from a file of each rank."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cost.experts.traces.arrays import pieces as pieces_of
from cost.experts.traces.counts import Recording, Wanted, experts_of_map, of_array, to_experts
from cost.experts.traces.torch_file import load_torch_file
from topology.base.errors import InputError

SAME_DUMP_S = 60.0
"""Ranks write their files when they are told to, each with its own time in the name; this far apart at most."""
_RANK_FILE = re.compile(r"expert_distribution_recorder_(\d+(?:\.\d+)?)_(\d{1,6})\.pt")
_COUNT, _TOPK = "global_physical_count", "topk_ids_of_layer"


@dataclass(frozen=True)
class Rank:
    """The records of one rank by forward pass: counts of slots, or the slots of each token.

    A pass has several records where batches overlap (a ``gatherer_key`` each), and where a draft model runs,
    which counts its own passes from 1 and records no tokens. ``chosen`` are the slots of each token,
    ``[layers, tokens, choices]``, of the passes that recorded them.
    """

    path: Path
    rank: int
    passes: dict[int, list[NDArray[Any]]]
    slots: NDArray[Any]
    chosen: dict[int, list[NDArray[Any]]]


def read_sglang_pt(path: Path, wanted: Wanted | None) -> Recording:
    """Open a ``.pt``; the files of other ranks are looked for beside it.

    Raises
    ------
    InputError
        If it is no whole ``.pt``, not one of SGLang's recordings, or the ranks do not fit together.
    """
    data = load_torch_file(path)
    if isinstance(data, dict) and isinstance(data.get("logical_count"), np.ndarray):
        return of_array(str(path), "SGLang stat", data["logical_count"], wanted)
    if isinstance(data, dict) and "records" in data:
        others = _beside(path)
        return _passes(str(path), [_rank(path, data), *(_rank(file) for file in others)], wanted)
    if isinstance(data, dict) and "physical_to_logical_map" in data:
        raise InputError(f"{path}: holds a plan (physical_to_logical_map), not a recording.")
    if isinstance(data, dict):
        keys = ", ".join(str(key)[:30] for key in list(data)[:8])
    else:
        keys = "a tensor alone" if isinstance(data, np.ndarray) else f"a {type(data).__name__}"
    raise InputError(
        f"{path}: holds no logical_count and no records, as SGLang dumps them, but: {keys or 'nothing'}."
    )


def read_sglang_folder(path: Path, wanted: Wanted | None) -> Recording:
    """Open the files of all ranks in a folder, or the one ``stat`` file in it.

    Raises
    ------
    InputError
        As `read_sglang_pt`, and if there are several recordings.
    """
    files = sorted(file for file in path.iterdir() if file.suffix == ".pt" and file.is_file())
    if not files:
        raise InputError(
            f"{path}: a folder without SGLang's *.pt or TensorRT-LLM's rank0.safetensors; give one, or a file."
        )
    detailed = [file for file in files if _RANK_FILE.fullmatch(file.name)]
    if not detailed and len(files) == 1:
        return read_sglang_pt(files[0], wanted)
    if len(detailed) != len(files):
        raise InputError(
            f"{path}: holds {len(files)} .pt files that are not all ranks of one recording "
            f"({files[0].name[:60]}, ...); name the file."
        )
    return _passes(str(path), [_rank(file) for file in detailed], wanted)


def sglang_ranks(path: Path) -> list[Rank]:
    """Return the ranks of a ``per_pass`` or ``per_token`` recording: a folder of them, or a file and those beside it.

    Raises
    ------
    InputError
        If some file is no whole ``.pt`` of such a recording.
    """
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if _RANK_FILE.fullmatch(file.name) and file.is_file())
        if not files:
            raise InputError(f"{path}: a folder without SGLang's expert_distribution_recorder_TIME_RANK.pt.")
        return [_rank(file) for file in files]
    return [_rank(file) for file in (path, *_beside(path))]


def _beside(path: Path) -> list[Path]:
    """Return the other ranks' files of the same dump: in each rank the nearest in time."""
    own = _RANK_FILE.fullmatch(path.name)
    if own is None:
        return []
    nearest: dict[int, tuple[float, Path]] = {}
    for file in sorted(path.parent.iterdir()):
        found = _RANK_FILE.fullmatch(file.name)
        if found is None or int(found[2]) == int(own[2]) or not file.is_file():
            continue
        apart = abs(float(found[1]) - float(own[1]))
        if apart <= SAME_DUMP_S and (int(found[2]) not in nearest or apart < nearest[int(found[2])][0]):
            nearest[int(found[2])] = (apart, file)
    return [file for _, (_, file) in sorted(nearest.items())]


def _rank(path: Path, data: object = None) -> Rank:
    """Take a rank's file apart; every part is checked, no count is read."""
    data = load_torch_file(path) if data is None else data
    if not isinstance(data, dict) or not isinstance(data.get("records"), list):
        raise InputError(f"{path}: has no list of records, as SGLang's per_pass and per_token dumps have.")
    slots = data.get("last_physical_to_logical_map")
    if not isinstance(slots, np.ndarray):
        raise InputError(
            f"{path}: has no last_physical_to_logical_map, so nobody knows which slot held what."
        )
    passes: dict[int, list[NDArray[Any]]] = {}
    chosen: dict[int, list[NDArray[Any]]] = {}
    ranks = set()
    for i, record in enumerate(data["records"]):
        number, rank = (
            record.get(key) if isinstance(record, dict) else None for key in ("forward_pass_id", "rank")
        )
        if type(number) is not int or type(rank) is not int or rank < 0:
            raise InputError(f"{path}: record {i} has no forward_pass_id and rank.")
        counts = record.get(_COUNT, record.get(_TOPK))
        if not isinstance(counts, np.ndarray) or counts.dtype.kind not in "iu":
            raise InputError(f"{path}: record {i} has no whole numbers under {_COUNT} or {_TOPK}.")
        passes.setdefault(number, []).append(counts)
        if isinstance(record.get(_TOPK), np.ndarray):
            chosen.setdefault(number, []).append(record[_TOPK])
        ranks.add(rank)
    if len(ranks) > 1:
        raise InputError(
            f"{path}: holds records of ranks {sorted(ranks)[:8]}; SGLang writes one file a rank."
        )
    named = _RANK_FILE.fullmatch(path.name)
    rank = ranks.pop() if ranks else int(named[2]) if named else 0
    return Rank(path, rank, passes, slots, chosen)


def _passes(name: str, files: Sequence[Rank], wanted: Wanted | None) -> Recording:
    """Sum over ranks by forward pass, each pass a window."""
    first = files[0]
    experts = experts_of_map(str(first.path), first.slots, wanted.experts if wanted else None)
    seen: set[tuple[int, int]] = set()
    for file in files:
        if file.slots.shape != first.slots.shape or (file.slots != first.slots).any():
            raise InputError(f"{file.path}: its map of slots differs from that of {first.path.name}.")
        for number in file.passes:
            if (number, file.rank) in seen:
                raise InputError(
                    f"{file.path}: forward pass {number} of rank {file.rank} is in another file too."
                )
            seen.add((number, file.rank))
    numbers = sorted({number for number, _ in seen})
    if not numbers:
        raise InputError(
            f"{name}: no forward pass in it; start the recording, send requests, stop it, then dump."
        )

    def pieces() -> Iterator[NDArray[np.float64]]:
        for number in numbers:
            total = np.zeros((len(first.slots), experts))
            for file in files:
                where = f"forward pass {number}"
                for record in file.passes.get(number, ()):
                    counts = _counts(file, where, record)
                    total += to_experts(str(file.path), where, counts, first.slots, experts)
            yield total[None]

    per_token = any(file.chosen for file in files)
    kind = "SGLang per_token" if per_token else "SGLang per_pass"
    labels = tuple(f"pass {number}" for number in numbers)
    rows, windows = len(first.slots), len(numbers)
    notes = _notes(files, numbers)
    return Recording(name, kind, rows, experts, pieces, windows, None, labels, notes, per_token=per_token)


def _counts(file: Rank, where: str, array: NDArray[Any]) -> NDArray[Any]:
    """Return counts ``[layers, slots]``: as they are, or counted from the slots of each token (-1: none)."""
    if len(array.shape) == 2:
        return array
    if len(array.shape) != 3 or array.shape[0] != len(file.slots):
        raise InputError(
            f"{file.path}, {where}: {_TOPK} is {list(array.shape)}, not [layers, tokens, choices]."
        )
    slots = file.slots.shape[1]
    counts = []
    for piece in pieces_of(array):
        if piece.size and not (-1 <= int(piece.min()) <= int(piece.max()) < slots):
            raise InputError(
                f"{file.path}, {where}: a token went to slot {int(piece.max())} or {int(piece.min())}; "
                f"there are 0..{slots - 1} (a fused shared expert cannot be recorded)."
            )
        counts += [np.bincount(layer[layer >= 0].ravel(), minlength=slots) for layer in piece]
    return np.array(counts) if counts else np.zeros(file.slots.shape)


def _notes(files: Sequence[Rank], numbers: Sequence[int]) -> tuple[str, ...]:
    ranks = sorted({file.rank for file in files})
    one = "rank 0 only" if ranks == [0] else f"rank {ranks[0]} only"
    said = (
        f"summed over {len(ranks)} ranks, {ranks[0]} to {ranks[-1]}"
        if len(ranks) > 1
        else f"{one}, no other beside it"
    )
    notes = [said, "slots are mapped to experts as they were at the end of the recording"]
    if several := {n for file in files for n, records in file.passes.items() if len(records) > 1}:
        notes.append(
            f"{len(several)} of {len(numbers)} passes have several records of a rank (batches that overlap, or a "
            "draft model), summed"
        )
    if absent := sorted(set(range(ranks[-1])) - set(ranks)):
        notes.append(f"no file of rank {', '.join(map(str, absent[:8]))}: its tokens are missing")
    lacking = [
        str(rank)
        for rank in ranks
        if sum(len(file.passes) for file in files if file.rank == rank) < len(numbers)
    ]
    if lacking:
        notes.append(f"rank {', '.join(lacking[:8])} lacks some of the {len(numbers)} passes, counted as 0")
    return tuple(notes)
