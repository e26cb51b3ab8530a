"""SGLang's recordings: ``.pt`` of ``stat``; ``per_pass``, ``per_token`` and older tables have a file of each rank."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cost.experts.traces.counts import TokenCounts, Wanted, experts_of_map, of_array, rank_notes, to_experts
from cost.experts.traces.routing import RoutedTokens
from cost.experts.traces.text_files import read_tables
from cost.experts.traces.torch_file import load_torch_file
from topology.base.errors import InputError
from topology.base.npy import whole_numbers

_SAME_DUMP_S = 60.0
"""Ranks write their files on request, each with its own time in the name; in one dump they differ by this at most."""
_RANK_FILES = {
    ".pt": re.compile(r"expert_distribution_recorder_(?P<time>\d+(?:\.\d+)?)_(?P<rank>\d{1,6})\.pt"),
    ".csv": re.compile(
        r"expert_distribution_rank(?P<rank>\d{1,6})(?:_timestamp(?P<time>\d+(?:\.\d+)?))?\.csv"
    ),
}
"""Names of files that have one for each rank, by suffix."""
TABLE = ("layer_id", "expert_id", "count")
"""Columns of the first recorder's tables."""
_COUNT, _TOPK = "global_physical_count", "topk_ids_of_layer"
_MAPPED = "slots are mapped to experts by the map at the end of the recording"


_Record = tuple[NDArray[Any] | None, NDArray[Any] | None]
"""Counts of slots, and the slots of each token, ``[layers, tokens, choices]``; one may be None."""


@dataclass(frozen=True)
class _Rank:
    """The records of one rank by forward pass.

    A pass has several where batches overlap (a ``gatherer_key`` each), and where a draft model runs, which counts its
    own passes from 1 and records no tokens.
    """

    path: Path
    rank: int
    passes: dict[int, list[_Record]]
    slots: NDArray[Any]


def read_counts(path: Path, model: Wanted | None) -> TokenCounts:
    """Open a file, whose other ranks are looked for beside it, or a folder of one recording."""
    files = _files(path)
    if files[0].suffix == ".csv":
        return _tables(path, files, model)
    data = load_torch_file(files[0])
    dump = data if isinstance(data, dict) else {}
    if len(files) == 1 and isinstance(dump.get("logical_count"), np.ndarray):
        return of_array(str(files[0]), "SGLang stat", dump["logical_count"], model)
    if len(files) > 1 or "records" in dump:
        return _passes(str(path), [_rank(file) for file in files], model)
    if "physical_to_logical_map" in dump:
        raise InputError(f"{path}: holds a plan (physical_to_logical_map), not a recording.")
    kind = "a single tensor" if isinstance(data, np.ndarray) else f"a {type(data).__name__}"
    if isinstance(data, dict):
        kind = ", ".join(str(key)[:30] for key in list(data)[:8]) or "nothing"
    raise InputError(f"{path}: holds no logical_count and no records, as SGLang dumps them, but {kind}.")


def read_tokens(path: Path, model: Wanted | None) -> RoutedTokens:
    """Return the tokens of ``per_token`` records, pass by pass, their slots as logical experts."""
    ranks = [_rank(file) for file in _files(path)]
    slots, experts = _map(ranks, model)
    chosen = [
        (f"{rank.path}, forward pass {number}", array)
        for number in sorted({number for rank in ranks for number in rank.passes})
        for rank in ranks
        for _, array in rank.passes.get(number, ())
        if array is not None
    ]
    if not chosen:
        raise InputError(
            f"{path}: a recording of counts, without the experts that each token chose; record with "
            "--expert-distribution-recorder-mode per_token."
        )
    k = chosen[0][1].shape[2]
    for where, array in chosen:
        if array.shape[2] != k:
            raise InputError(f"{where}: {_TOPK} is {list(array.shape)}, with {k} choices of a token before.")
    numbers = sorted({rank.rank for rank in ranks})
    of = f"rank {numbers[0]} only"
    if len(numbers) > 1:
        of = f"{len(numbers)} ranks, {numbers[0]} to {numbers[-1]}"
    return RoutedTokens(
        str(path),
        "SGLang per_token",
        sum(array.shape[1] for _, array in chosen),
        len(slots),
        k,
        lambda: (_logical(where, slots, array).swapaxes(0, 1) for where, array in chosen if array.size),
        experts,
        notes=(f"tokens of {of}; {_MAPPED}",),
    )


def _tables(path: Path, files: Sequence[Path], model: Wanted | None) -> TokenCounts:
    """Sum the tables of ranks of the first recorder (sglang#4435), which leave out experts that no token chose.

    Each rank counts the tokens that its router saw: with data-parallel attention its own ones, with
    tensor-parallel attention the same as others, which count once.
    """
    ranks = [rank for file, (_, rank) in _named(files[0].parent, ".csv").items() if file in files]
    if len(set(ranks)) < len(ranks):
        twice = max(ranks, key=ranks.count)
        raise InputError(
            f"{path}: several files of rank {twice}, so of several dumps; name one of the dump to read."
        )
    _, layers, counts = read_tables(files, TABLE, model)
    absent = int(np.isnan(counts).all(axis=0).sum())
    counts = np.nan_to_num(counts, posinf=np.inf)
    apart = np.unique(counts, axis=0)
    notes = rank_notes(dict.fromkeys(ranks, 1), 1, "tables") if ranks else []
    if len(apart) < len(counts):
        notes.append(f"{len(counts) - len(apart)} of them repeat another rank's counts, left out")
    if absent:
        notes.append(f"{absent:,} of {counts[0].size:,} counts of experts are left out, read as 0")
    if not model:
        notes.append(f"{counts.shape[2]} experts, by the largest expert_id")
    counted = of_array(str(path), "SGLang table", apart.sum(axis=0), model)
    return replace(counted, layer_ids=layers, notes=tuple(notes))


def _logical(where: str, slots: NDArray[Any], chosen: NDArray[Any]) -> NDArray[Any]:
    """Return the experts of the slots ``chosen [layers, tokens, k]``; -1 stays."""
    width = slots.shape[1]
    if chosen.size and not (chosen.min() >= -1 and chosen.max() < width):
        slot = int(chosen.max()) if chosen.max() >= width else int(chosen.min())
        raise InputError(
            f"{where}: a token went to slot {slot}; there are 0..{width - 1} (a fused shared expert cannot be "
            "recorded)."
        )
    layer = np.arange(len(slots))[:, None, None]
    experts: NDArray[Any] = np.pad(slots, ((0, 0), (0, 1)), constant_values=-1)[layer, chosen]
    empty = (experts < 0) & (chosen >= 0)
    if empty.any():
        raise InputError(f"{where}: a token went to slot {int(chosen[empty][0])}, which is empty.")
    return experts


def _counted(where: str, record: _Record, slots: NDArray[Any], experts: int) -> NDArray[np.float64]:
    """Return the tokens of each expert, ``[layers, experts]``."""
    counts, chosen = record
    if counts is not None or chosen is None:
        return to_experts(where, np.asarray(counts), slots, experts)
    layers = _logical(where, slots, chosen)
    return np.array([np.bincount(layer[layer >= 0], minlength=experts) for layer in layers], dtype=np.float64)


def _files(path: Path) -> list[Path]:
    """Return the files of a recording: all of a folder, or a rank's with the nearest in time of the others."""
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix == ".pt" and file.is_file())
        files = files or [*_named(path, ".csv")]
        if not files:
            raise InputError(
                f"{path}: a folder without SGLang's *.pt or TensorRT-LLM's rank0.safetensors; give one, or a file."
            )
        if len(files) > 1 and files != [*_named(path, files[0].suffix)]:
            raise InputError(
                f"{path}: holds {len(files)} .pt files that do not all belong to one recording "
                f"({files[0].name[:60]}, ...); name the file."
            )
        return files
    named = _named(path.parent, path.suffix)
    if path not in named:
        return [path]
    time, own_rank = named[path]
    near: dict[int, list[tuple[float, Path]]] = {}
    for file, (file_time, rank) in named.items():
        if rank != own_rank and abs(file_time - time) <= _SAME_DUMP_S:
            near.setdefault(rank, []).append((abs(file_time - time), file))
    return [path, *(min(files)[1] for _, files in sorted(near.items()))]


def _named(folder: Path, suffix: str) -> dict[Path, tuple[float, int]]:
    """Return time and rank of the files in a folder that have the name of a rank's, sorted."""
    matches = {
        file: _RANK_FILES[suffix].fullmatch(file.name) for file in sorted(folder.iterdir()) if file.is_file()
    }
    return {file: (float(named["time"] or 0), int(named["rank"])) for file, named in matches.items() if named}


def _rank(path: Path) -> _Rank:
    """Take a rank's file apart; every part is checked, no count is read."""
    data = load_torch_file(path)
    if not isinstance(data, dict) or not isinstance(data.get("records"), list):
        raise InputError(f"{path}: has no list of records, as SGLang's per_pass and per_token dumps have.")
    slots = data.get("last_physical_to_logical_map")
    if not isinstance(slots, np.ndarray):
        raise InputError(f"{path}: has no last_physical_to_logical_map, so the experts of slots are unknown.")
    passes: dict[int, list[_Record]] = {}
    ranks = set()
    for i, record in enumerate(data["records"]):
        fields = record if isinstance(record, dict) else {}
        number, rank = fields.get("forward_pass_id"), fields.get("rank")
        if type(number) is not int or type(rank) is not int or rank < 0:
            raise InputError(f"{path}: record {i} has no forward_pass_id and rank.")
        counts, chosen = fields.get(_COUNT), fields.get(_TOPK)
        arrays = [array for array in (counts, chosen) if array is not None]
        if not arrays or not all(
            isinstance(array, np.ndarray) and array.dtype.kind in "iu" for array in arrays
        ):
            raise InputError(f"{path}: record {i} has no whole numbers under {_COUNT} or {_TOPK}.")
        if chosen is not None and (len(chosen.shape) != 3 or chosen.shape[:1] != slots.shape[:1]):
            raise InputError(
                f"{path}: record {i}: {_TOPK} is {list(chosen.shape)}, not [layers, tokens, choices]."
            )
        passes.setdefault(number, []).append((counts, chosen))
        ranks.add(rank)
    if len(ranks) > 1:
        raise InputError(
            f"{path}: holds records of ranks {sorted(ranks)[:8]}; SGLang writes one file a rank."
        )
    _, named = _named(path.parent, path.suffix).get(path, (0.0, 0))
    return _Rank(path, ranks.pop() if ranks else named, passes, slots)


def _map(ranks: Sequence[_Rank], model: Wanted | None) -> tuple[NDArray[Any], int]:
    """Return the map of slots, the same of all ranks, and its experts."""
    first_rank = ranks[0]
    experts = experts_of_map(str(first_rank.path), first_rank.slots, model)
    for rank in ranks:
        if not np.array_equal(rank.slots, first_rank.slots):
            raise InputError(f"{rank.path}: its map of slots differs from that of {first_rank.path.name}.")
    return whole_numbers(first_rank.slots), experts


def _passes(name: str, ranks: Sequence[_Rank], model: Wanted | None) -> TokenCounts:
    """Sum over ranks by forward pass, each pass a window."""
    slots, experts = _map(ranks, model)
    passes: set[tuple[int, int]] = set()
    for rank in ranks:
        for number in rank.passes:
            if (number, rank.rank) in passes:
                raise InputError(
                    f"{rank.path}: forward pass {number} of rank {rank.rank} is also in another file."
                )
            passes.add((number, rank.rank))
    numbers = sorted({number for number, _ in passes})
    if not numbers:
        raise InputError(
            f"{name}: no forward pass recorded; start the recording, send requests, stop it, then dump."
        )

    def sums() -> Iterator[NDArray[np.float64]]:
        for number in numbers:
            tables = (
                _counted(f"{rank.path}, forward pass {number}", record, slots, experts)
                for rank in ranks
                for record in rank.passes.get(number, ())
            )
            yield sum(tables, np.zeros((len(slots), experts)))[None]

    recorded = {rank.rank: sum(of == rank.rank for _, of in passes) for rank in ranks}
    notes = [*rank_notes(recorded, len(numbers), "passes"), _MAPPED]
    if several := {number for rank in ranks for number, records in rank.passes.items() if len(records) > 1}:
        notes.append(
            f"{len(several)} of {len(numbers)} passes have several records of a rank (batches that overlap, or a "
            "draft model), summed"
        )
    records = [
        record for rank in ranks for records_of_pass in rank.passes.values() for record in records_of_pass
    ]
    per_token = any(chosen is not None for _, chosen in records)
    return TokenCounts(
        name,
        "SGLang per_token" if per_token else "SGLang per_pass",
        len(numbers),
        len(slots),
        experts,
        sums,
        names=tuple(f"pass {number}" for number in numbers),
        notes=tuple(notes),
        per_token=per_token,
    )
