"""What SGLang, TensorRT-LLM and vLLM write: the same counts out of every form, and what is missing is said."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from cost.experts.loads import ExpertLoads, read_loads
from cost.experts.traces.counts import Wanted
from cost.experts.traces.open import open_counts
from topology.base.errors import InputError

MOE, LAYERS, EXPERTS, SLOTS, PASSES, RANKS = (1, 2), 3, 4, 6, 5, 2
# slot j of a layer holds this expert; copies of 0 and 3
SLOT_MAP = np.array([[0, 1, 2, 3, 0, 3], [3, 2, 1, 0, 3, 0], [0, 0, 3, 3, 1, 2]])
RNG = np.random.default_rng(0)
BY_SLOT = RNG.integers(1, 20, (RANKS, PASSES, LAYERS, SLOTS)).astype(np.int32)
BY_SLOT[:, :, 0] = 0
BY_SLOT[:, 2] = 0  # a pass that nobody had tokens in
# expert by expert, as the definition says
COUNTS = np.array(
    [
        [[int(BY_SLOT[:, p, row, SLOT_MAP[row] == e].sum()) for e in range(EXPERTS)] for row in range(LAYERS)]
        for p in range(PASSES)
    ]
)
KEPT = COUNTS[[0, 1, 3, 4]][:, 1:]


def read(path: Path, **options: Any) -> ExpertLoads:
    return read_loads([str(path)], Wanted(MOE, LAYERS, EXPERTS), seed=0, **options)


def refused(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        read(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def passes(rank: int, **changes: Any) -> dict[str, Any]:
    common = {"rank": rank, "gatherer_key": "primary"}
    records = [
        common | {"forward_pass_id": 10 + p, "global_physical_count": BY_SLOT[rank, p]} for p in range(PASSES)
    ]
    return {"records": records, "last_physical_to_logical_map": SLOT_MAP, **changes}


def rank_file(folder: Path, rank: int, time: float = 1700000000.25) -> Path:
    return folder / f"expert_distribution_recorder_{time + rank / 100}_{rank}.pt"


def stats_line(p: int, **changes: Any) -> str:
    record = {"record_type": "eplb_load_stats", "version": 1, "step": p, "num_ranks": RANKS}
    load = BY_SLOT[:, p, 1:].sum(axis=0).tolist()
    return json.dumps(record | {"expert_load": load, "p2l_map": SLOT_MAP[1:].tolist()} | changes)


def test_stat(tmp_path: Path, torch_save: Callable[..., Path]) -> None:
    ring = np.zeros((9, LAYERS, EXPERTS), np.int32)
    ring[:PASSES] = COUNTS
    value = {"rank": 0, "logical_count": ring, "average_utilization_rate_over_window": None}
    path = torch_save(tmp_path / "expert_distribution_recorder_1.5.pt", value)
    loads = read(path)
    assert (loads.tokens == KEPT).all()
    assert f"{path.name}: 5 of 9 windows dropped (empty)" in loads.notes
    assert (read(tmp_path).tokens == KEPT).all()  # the folder, with the one file in it
    flat = torch_save(tmp_path / "flat.pt", {"logical_count": COUNTS.sum(axis=0)})
    assert (read(flat).tokens[0] == KEPT.sum(axis=0)).all()


def test_files_of_each_rank(tmp_path: Path, torch_save: Callable[..., Path]) -> None:
    files = [torch_save(rank_file(tmp_path, rank), passes(rank)) for rank in range(RANKS)]
    for path in (tmp_path, *files):
        loads = read(path)
        assert (loads.tokens == KEPT).all()
        assert loads.names[0] == f"{path.name}#pass 10"
        assert f"{path.name}: summed over 2 ranks, 0 to 1" in loads.notes
        assert f"{path.name}: 1 of 5 windows dropped (empty)" in loads.notes
    assert open_counts(str(tmp_path)).experts == EXPERTS
    # the same counts as slots of tokens: one choice a token, padded with -1
    for rank, file in enumerate(files):
        data = passes(rank)
        for record in data["records"]:
            counts = record.pop("global_physical_count")
            slots = np.full((LAYERS, max(1, int(counts.sum(axis=1).max())), 2), -1, np.int32)
            for row in range(LAYERS):
                slots[row, : counts[row].sum(), 0] = np.repeat(np.arange(SLOTS), counts[row])
            record["topk_ids_of_layer"] = slots
        torch_save(file, data)
    assert (read(tmp_path).tokens == KEPT).all()


def test_ranks_that_are_missing_are_said(tmp_path: Path, torch_save: Callable[..., Path]) -> None:
    alone = torch_save(rank_file(tmp_path, 0), passes(0))
    assert f"{alone.name}: rank 0 only, no other rank" in read(alone).notes
    data = passes(1)
    del data["records"][1]
    records = [record | {"rank": 3} for record in data["records"]]
    torch_save(rank_file(tmp_path, 3), data | {"records": records})
    notes = " ".join(read(tmp_path).notes)
    assert "no file of rank 1, 2: their tokens are missing" in notes
    assert "rank 3: some passes of other ranks missing, counted as 0" in notes


def test_passes_of_a_draft_model_and_of_overlapping_batches(
    tmp_path: Path, torch_save: Callable[..., Path]
) -> None:
    data = passes(0)
    empty = np.zeros_like(BY_SLOT[0, 0])
    # a draft model counts its own passes from 1, here up to 10, and is not recorded; pass 11 came in two halves
    drafts = [
        {"forward_pass_id": n, "rank": 0, "gatherer_key": "primary", "global_physical_count": empty}
        for n in range(1, 11)
    ]
    half = data["records"][1]["global_physical_count"] // 2
    rest = data["records"][1]["global_physical_count"] - half
    other = {**data["records"][1], "gatherer_key": "child_b", "global_physical_count": rest}
    data["records"][1] = {**data["records"][1], "gatherer_key": "child_a", "global_physical_count": half}
    torch_save(rank_file(tmp_path, 0), {**data, "records": [*drafts, *data["records"], other]})
    torch_save(rank_file(tmp_path, 1), passes(1))
    loads = read(tmp_path)
    assert (loads.tokens == KEPT).all()
    assert any("2 of 14 passes have several records of a rank" in note for note in loads.notes)


def test_an_unused_slot_counts_for_no_expert(tmp_path: Path, torch_save: Callable[..., Path]) -> None:
    for rank in range(RANKS):
        data = passes(
            rank, last_physical_to_logical_map=np.pad(SLOT_MAP, ((0, 0), (1, 0)), constant_values=-1)
        )
        for record in data["records"]:
            record["global_physical_count"] = np.pad(record["global_physical_count"], ((0, 0), (1, 0)))
        torch_save(rank_file(tmp_path, rank), data)
    assert (read(tmp_path).tokens == KEPT).all()


def test_ranks_that_do_not_fit(tmp_path: Path, torch_save: Callable[..., Path]) -> None:
    torch_save(rank_file(tmp_path, 0), passes(0))
    other = rank_file(tmp_path, 1)
    torch_save(other, passes(1, last_physical_to_logical_map=SLOT_MAP[:, ::-1].copy()))
    assert "map of slots differs" in refused(tmp_path)
    torch_save(other, passes(0))
    assert "forward pass 10 of rank 0 is also in another file" in refused(tmp_path)
    data = passes(1)
    data["records"][0]["global_physical_count"] = BY_SLOT[1, 0, :, :5].copy()
    torch_save(other, data)
    assert "forward pass 10: counts [3, 5] but a slot map of [3, 6]" in refused(tmp_path)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"physical_to_logical_map": SLOT_MAP}, "holds a plan"),
        ({"weights": COUNTS}, "no logical_count and no records, as SGLang dumps them, but weights"),
        ({"logical_count": COUNTS.astype(np.uint8).astype(bool)}, "holds bool, not numbers"),
        ({"logical_count": COUNTS[..., :3]}, r"shape [5, 3, 3]; the model needs [2, 4] or [3, 4]"),
        (passes(0, records=[]), "no forward pass recorded"),
        (passes(0, records={}), "has no list of records"),
        (passes(0, last_physical_to_logical_map=None), "has no last_physical_to_logical_map"),
        (passes(0, last_physical_to_logical_map=SLOT_MAP[0]), "not [layers, slots]"),
        (passes(0, records=[{"forward_pass_id": "1", "rank": 0}]), "record 0 has no forward_pass_id"),
        (passes(0, last_physical_to_logical_map=SLOT_MAP + 1), "experts 0..4; the model has 0..3"),
        (passes(0, last_physical_to_logical_map=SLOT_MAP - 2), "the invalid expert -2"),
        (passes(0, last_physical_to_logical_map=np.full_like(SLOT_MAP, -1)), "the invalid expert -1"),
        (passes(0, last_physical_to_logical_map=SLOT_MAP + 15), "the invalid expert 18"),
        (passes(0, records=passes(0)["records"] + [
            {"forward_pass_id": 99, "rank": 1, "global_physical_count": BY_SLOT[0, 0]}
        ]), "records of ranks [0, 1]"),
        (passes(0, records=[
            {"forward_pass_id": 1, "rank": 0, "topk_ids_of_layer": np.full((3, 2, 2), 6, np.int32)}
        ]), "a token went to slot 6"),
        (passes(0, records=[
            {"forward_pass_id": 1, "rank": 0, "topk_ids_of_layer": np.full((2, 2, 2), 0, np.int32)}
        ]), "not [layers, tokens, choices]"),
    ],
)  # fmt: skip
def test_pt_files_that_are_no_recording(
    tmp_path: Path, torch_save: Callable[..., Path], value: Any, words: str
) -> None:
    path = torch_save(tmp_path / "x.pt", value)
    assert words in refused(path)
    assert str(path) in refused(path)


def statistics(folder: Path, layers: tuple[int, ...] = MOE, first: int = 100) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "meta_info.json").write_text(json.dumps({"num_experts": EXPERTS, "num_experts_per_token": 2}))
    part = COUNTS // 3
    for rank, counts in enumerate((COUNTS - part, part)):
        arrays = {f"{first + p}_{layer}": counts[p, min(layer, 2)] for p in range(PASSES) for layer in layers}
        save_file(arrays, folder / f"rank{rank}.safetensors")
    return folder


def test_trtllm_folder(tmp_path: Path) -> None:
    folder = statistics(tmp_path / "stats")
    loads = read(folder)
    assert (loads.tokens == KEPT).all()
    assert loads.names[0] == "stats#iteration 100"
    assert loads.notes[:2] == ("stats: summed over 2 ranks, 0 to 1", "stats: 1 of 5 windows dropped (empty)")
    assert open_counts(str(folder)).layer_ids == MOE


def test_trtllm_what_is_missing_is_said(tmp_path: Path) -> None:
    folder = statistics(tmp_path / "s", layers=(1, 2, 3))  # layer 3 drafts tokens
    (folder / "rank0.safetensors").rename(folder / "rank4.safetensors")
    (folder / "rank0_raw.safetensors").write_bytes(b"")
    (folder / "meta_info.json").unlink()
    save_file({"107_1": COUNTS[0, 1]}, folder / "rank0.safetensors")
    notes = " / ".join(read(folder, windows=1).notes)
    assert "no file of rank 2, 3: their tokens are missing" in notes
    assert "iterations 100 to 107 are not contiguous: 6 are present" in notes
    assert "rank 0, 1, 4: some layers or iterations of other ranks missing" in notes
    assert "meta_info.json is missing" in notes
    assert "layer 3 is beyond the model's 3" in notes


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda f: (f / "meta_info.json").write_text("{"), "not valid JSON"),
        (lambda f: (f / "meta_info.json").write_text('{"num_experts": 5}'), "each of 5 experts"),
        (lambda f: save_file({"1_1": -np.ones(4, int)}, f / "rank1.safetensors"), "not a token count"),
        (lambda f: save_file({"a": np.ones(4, int)}, f / "rank1.safetensors"), "not ITERATION_LAYER"),
        (
            lambda f: save_file({"1_01": np.ones(4, int), "1_1": np.ones(4, int)}, f / "rank1.safetensors"),
            "duplicate counts of 1_",
        ),
        (lambda f: [file.unlink() for file in f.glob("rank*")], "no rank0.safetensors"),
    ],
)
def test_trtllm_folders_that_are_broken(tmp_path: Path, change: Callable[[Path], object], words: str) -> None:
    folder = statistics(tmp_path / "s")
    assert "give the folder" in refused(folder / "rank0.safetensors")
    change(folder)
    assert words in refused(folder)


def test_a_safetensors_header_that_lies(tmp_path: Path) -> None:
    folder = statistics(tmp_path / "s")
    whole = (folder / "rank1.safetensors").read_bytes()
    for size in range(0, len(whole), 7):
        (folder / "rank1.safetensors").write_bytes(whole[:size])
        assert "not a whole safetensors file" in refused(folder)
    (folder / "rank1.safetensors").write_bytes(whole.replace(b"[0,32]", b"[0,99]", 1))
    assert "not a whole safetensors file" in refused(folder)
    header = json.dumps({"1_1": {"dtype": "I64", "shape": [10**9], "data_offsets": [0, 8 * 10**9]}}).encode()
    (folder / "rank1.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(8))
    assert "not a whole safetensors file" in refused(folder)


@pytest.mark.parametrize("name", ["x.jsonl", "x.json", "x.ndjson"])
def test_vllm_lines(tmp_path: Path, name: str) -> None:
    lines = ['{"record_type": "session_metadata", "version": 1}', *map(stats_line, range(PASSES)), ""]
    (tmp_path / name).write_text("\n".join(lines))
    loads = read(tmp_path / name)
    assert (loads.tokens == KEPT).all()
    assert loads.names[0] == f"{name}#step 0"
    assert f"{name}: 1 lines of type session_metadata skipped" in loads.notes


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"record_type": "bench_run_start"}', "no line of type 'eplb_load_stats' in it ('bench_run_start')"),
        (stats_line(0) + "\n" + stats_line(1)[:50], "line 2: column"),
        (stats_line(0, version=2), "version 2; only 1"),
        (stats_line(0, expert_load=None), "null, which is not a number"),
        (stats_line(0, expert_load=[[True] * 6] * 2), "true, which is not a number"),
        (stats_line(0, expert_load=[[1] * 5] * 2), "counts [2, 5] but a slot map of [2, 6]"),
        (stats_line(0, expert_load=[1] * 6), "is [6], not [layers, slots]"),
        (stats_line(0, expert_load=[[-1] * 6] * 2), "not a token count"),
        (stats_line(0, p2l_map=[[9] * 6] * 2), "experts 0..9; the model has 0..3"),
        (stats_line(0) + "\n" + stats_line(1, expert_load=[[1] * 6], p2l_map=SLOT_MAP[:1].tolist()),
         "loads [1, 6], and [2, 6] before"),
    ],
)  # fmt: skip
def test_vllm_lines_that_are_broken(tmp_path: Path, line: str, words: str) -> None:
    (tmp_path / "x.jsonl").write_text(line)
    assert words in refused(tmp_path / "x.jsonl")


def test_what_is_no_recording_or_too_large(
    tmp_path: Path, torch_save: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cost.experts.traces.text_files.MAX_BYTES", 100)
    lines = tmp_path / "lines"
    lines.mkdir()
    (lines / "x.jsonl").write_text(stats_line(0))
    assert "line 1: longer than" in refused(lines / "x.jsonl")
    (lines / "x.json").write_text(json.dumps({"logical_count": COUNTS.tolist()}))
    assert "read in pieces" in refused(lines / "x.json")
    assert "a folder without SGLang's" in refused(tmp_path)
    for name in ("a.pt", "b.pt"):
        torch_save(tmp_path / name, {"logical_count": COUNTS})
    assert "do not all belong to one recording" in refused(tmp_path)


def test_without_a_model_the_recording_says_its_own_shape(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text(stats_line(0))
    recording = open_counts(str(tmp_path / "x.jsonl"))
    assert (recording.rows, recording.experts, recording.windows) == (2, EXPERTS, 1)
    table = "scenario,layer,expert,tokens\n" + "\n".join(
        f"day,{layer},{e},{e + 1}" for layer in (4, 7) for e in range(3)
    )
    (tmp_path / "x.csv").write_text(table)
    assert open_counts(str(tmp_path / "x.csv")).layer_ids == (4, 7)
    (tmp_path / "y.csv").write_text(table + "\nday,4,900000000,1")
    with pytest.raises(InputError, match=r"\[1, 2, 900000001\] scenarios, layers and experts are too many"):
        open_counts(str(tmp_path / "y.csv"))


def ranked(folder: Path, rank: int, table: np.ndarray, time: str = "_timestamp1744347750.25") -> Path:
    """Write a table of SGLang's first recorder: layers 1 and 2, without the experts that no token chose."""
    path = folder / f"expert_distribution_rank{rank}{time}.csv"
    rows = [f"{layer},{e},{n}" for layer in MOE for e, n in enumerate(table[layer - 1].tolist()) if n]
    path.write_text("\n".join(["layer_id,expert_id,count", *rows, ""]))
    return path


def test_tables_of_the_first_recorder(tmp_path: Path) -> None:
    """Ranks of the same dump are summed, those that saw the same tokens count once, what is left out is zero."""
    own = np.array([[[5, 0, 2, 3], [0, 4, 3, 2]], [[2, 2, 0, 3], [1, 3, 3, 1]]])
    files = [ranked(tmp_path, rank, own[rank % 2], f"_timestamp174434775{rank}.5") for rank in range(4)]
    for path in (tmp_path, *files):
        loads = read(path)
        assert (loads.tokens[0] == own.sum(axis=0)).all()
        assert f"{path.name}: summed over 4 ranks, 0 to 3" in loads.notes
        assert f"{path.name}: 2 of them repeat another rank's counts, left out" in loads.notes
    later = ranked(tmp_path, 1, own[0], "_timestamp1744347999.5")
    assert (read(later).tokens[0] == own[0]).all()  # of another dump, where no other rank is
    assert "several files of rank 1, so of several dumps" in refused(tmp_path)
    renamed = ranked(tmp_path, 0, own[0], "").rename(tmp_path / "monday.csv")
    assert (read(renamed).tokens[0] == own[0]).all()
    counts = open_counts(str(renamed))
    assert (counts.layer_ids, counts.experts) == (MOE, EXPERTS)
    assert "2 of 8 counts of experts are left out, read as 0" in counts.notes


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (["1,0,5", "1,4,5"], "row 3, column expert_id: expert 4, but the model has 0..3"),
        (["1,0,5", "1,0,5"], "layer 1, expert 0"),
        (["5,0,5", "6,0,5"], "has 2 layers from 5 to 6; the model needs its MoE layers 1 to 2"),
        ([], "no loads"),
    ],
)
def test_tables_that_cannot_be(tmp_path: Path, rows: list[str], words: str) -> None:
    path = tmp_path / "expert_distribution_rank0.csv"
    path.write_text("\n".join(["layer_id,expert_id,count", *rows]))
    assert words in refused(path)
