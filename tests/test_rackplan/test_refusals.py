"""What the command line refuses, all of it in one table: exit code, the reason in one line, and nothing written."""

from __future__ import annotations

import json
import pickle
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from cost.resolve import resolve_model
from helpers import Run, planned, write_plan

SWEEP = ("sweep", "--model", "Qwen3-8B", "--cluster", "hgx-h100")
LONG = "x" * 300  # no file can have this name
TRACE = "timestamp,input_length,output_length\n"
POINTS = "id,quantity,measured,phase,model,cluster\n"
FILES = {
    "a-file": "",
    "broken.yaml": "domains: [{part: hgx-h100",
    "plan.json": "{}",
    "order.csv": f"{TRACE}2,5,5\n1,5,5\n",
    "measured.csv": f"{POINTS}one,tpot_ms,fast,decode,deepseek-v3,hgx-h100\n",
    "topology.conf": "SwitchName=core Switches=leaf[1-2]\nSwitchName=leaf1 Nodes=n1\nSwitchName=leaf2 Nodes=n2\n",
    "study.yaml": "kind: score\nfixed: {model: mixtral-8x7b, cluster: hgx-h100}\ngrid: {batch: [1]}\n",
    "x.lws.yaml": "mine",
    "map.json": json.dumps({"physical_to_logical_map": [[slot % 8 for slot in range(16)]] * 32}),
}
ARRAYS = {
    "nan.npy": np.where(np.arange(256).reshape(32, 8) == 28, np.nan, 1.0),
    "shape.npy": np.ones((31, 8)),
    "all.npy": np.tile(np.array([[100.0] + [1.0] * 7]), (32, 1)),
    "square.npy": np.ones((8, 8)),
    "three.npy": np.zeros((5, 32, 3), dtype=int),
    "strange.npy": np.tile([0, 8], (5, 32, 1)),
}
MIXTRAL = {"model": "mixtral-8x7b", "cluster": "hgx-h100", "batch": 4}
PLANS = {
    "PLAN": {**MIXTRAL, "redundant": 8},
    "UNEVEN": {**MIXTRAL, "redundant": 3},
    "LLAMA": {"model": "llama-3.1-8b", "cluster": "hgx-h100", "isl": 2000, "osl": 100},
    "WIDE": {**MIXTRAL, "cluster": "hgx-h100@16", "redundant": 8, "ep": 16, "stages": 1},
    "FIRST": {**MIXTRAL, "redundant": 8, "phase": "prefill", "ep": 8, "stages": 1},
}


@pytest.fixture(scope="session")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """``shelf(WORDS)``: a folder with files of a user, most of them broken, and the plans that a command names."""
    folder = tmp_path_factory.mktemp("shelf")
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8")
    for name, array in ARRAYS.items():
        np.save(folder / name, array)
    config = {
        key: value for key, value in resolve_model("mixtral-8x7b").config.items() if key != "hidden_size"
    }
    (folder / "no-key").mkdir()
    (folder / "no-key/config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "pickle.pt").write_bytes(pickle.dumps(print))

    def with_plans(words: str) -> Path:
        for name in set(PLANS) & set(re.findall("[A-Z]+", words)):
            if not (folder / name).exists():
                write_plan(folder / name, planned(**PLANS[name]))
        return folder

    return with_plans


LACKS = ("--set b200.hbm_bytes_per_s=2x", "--set b200.hbm_bytes_per_s=2x")
REFUSED = {
    "": [
        ("frobnicate", "frobnicate"),
        ("replay no.json --loads no.npy --weights fp8", "the plan already sets it"),
        ("diff one other", "diff has another name; type: rackplan score one other"),
        ("import topology.conf -o c.yaml", "--nic RATE (like '400 Gb/s') or --fabric NAME"),
        ("validate measured.csv", "row 2, column measured: 'fast' must be a number"),
        ("loads pickle.pt", "pickle.pt: "),
        ("what-if plan.json", "not a plan"),
        ("score PLAN --loads shape.npy", "shape.npy"),
        ("score PLAN --loads all.npy", "all.npy: scenario 0, layer 0, expert 0 has 93.5% of the choices"),
        ("draw hgx-h100@16 --plan PLAN/plan.json -o x.svg", "which has other GPUs than hgx-h100@16"),
        ("traffic PLAN --matrix x.csv", "ends in .json or .npy"),
    ],
    "plan --cluster hgx-h100 --time-limit 0 -o new/plan": [
        ("--model no-key/config.json", "hidden_size"),
        ("--model mixtral-8x7b --model mixtral-8x7b", "--model mixtral-8x7b: duplicate"),
        ("--model mixtral-8x7b:0.5 --model olmoe-1b-7b", "--model olmoe-1b-7b: give every model a share"),
    ],
    "plan --model mixtral-8x7b --cluster hgx-h100 --time-limit 0 -o new/plan": [
        ("--cluster broken.yaml", "broken.yaml"),
        ("--loads nan.npy", "nan.npy"),
        ("--routing three.npy", "three.npy"),
        ("--routing strange.npy", "strange.npy"),
        ("--redundant 1000", "--redundant 1000"),
        ("--quota-slots 1", "only --split quota"),
        ("--split quota --quota-slots 0", "1 slot or more"),
        ("--split quota --phase decode --ep 1", "no expert has copies"),
        ("--price h100=2500", "too large for the price of one GPU-hour"),
        ("--power h100=0.7", "too small for the power of one GPU"),
        ("-o a-file", "a-file"),
        (f"--loads {LONG}.npy", LONG[:190]),
    ],
    "plan --model olmoe-1b-7b --cluster hgx-h100": [
        ("--objective worst", "--objective worst: there is only one synthetic load"),
        ("--split lp --redundant 0", "--split lp: each expert has one copy"),
        ("--tpot-ms fast", "--tpot-ms fast: expected a number above 0, or none"),
        ("--phase decode --goal latency --batch 4", "--goal latency and --batch 4:"),
        ("--price gb200=3", "no GPU here is named 'gb200'; "),
        ("--price-basis spot", "--price-basis 'spot': expected owner, neocloud, rental or list"),
        ("--batch 5", "--batch 5: whole requests take the batches that keep the limits"),
    ],
    "plan --model Qwen3-8B --cluster hgx-h100": [
        ("--accept-length 1.5", "--accept-length 1.5: without --draft-tokens a step yields one token"),
        ("--phase prefill --tpot-ms 30", "--tpot-ms 30: prefill yields only the first token"),
        ("--ep 4", "--ep 4: qwen3-8b is dense and has no routed experts"),
    ],
    "sweep --model mixtral-8x7b --cluster hgx-h100": [
        ("--context 5 --ttft-ms 5", "--ttft-ms 5: --context asks for one phase only"),
        ("--phase decode --prefill-cluster h200", "--prefill-cluster h200: --phase asks for one"),
        ("--isl 0 --osl 10", "--isl 0"),
        ("--prefix-hit 0.5 --phase decode", "applies only to prefill"),
        ("-o a.txt", ".csv, .json or .html"),
    ],
    "compare --model mixtral-8x7b": [
        ("hgx-h100 --gpus 12", "hgx-h100@8 or hgx-h100@16"),
        ("hgx-h100 --gpus 8 --mw 1", "--gpus already sets the basis of the comparison"),
        ("hgx-h100 gb200 H100", "clusters hgx-h100@72: duplicate"),
        ("hgx-h100@16 hgx-h200@8 --gpus 16", "hgx-h200@8 has 8 GPUs"),
        ("mi350x --mw 1", "no all-in power"),
        ("hgx-h20 hgx-h100 --usd-h 20", "set one with --price h20-sxm=2.50"),
    ],
    "size --model mixtral-8x7b --cluster hgx-h100": [
        ("--tok-s many", "like 200e6, 200M or 128k"),
        ("", "one of --req-s, --tok-s, --users, --gpus, --mw, --usd-h"),
        ("--req-s 5 --context 4096", "decode only has no requests"),
        ("--gpus 8 --context 4096 --ttft-p99-ms 500", "--ttft-p99-ms 500: one phase only has no requests"),
    ],
    "size --model mixtral-8x7b --cluster hgx-h20": [("--mw 20", "set one with --power h20-sxm=1900")],
    "traffic hgx-h100": [
        ("--output -", "-: results are written to files"),
        ("--pattern shape.npy", "(31, 8) must be (8, 8)"),
        ("--pattern square.npy --bytes-per-gpu 1", "already sets the bytes"),
        ("--gpus 5", "like 0-7"),
        ("-o t.csv", "the file suffix sets the format: .json or .html"),
        ("-o plan.json", "it holds another result"),
        LACKS,
    ],
    "draw": [
        ("hgx-h100 -o t.svg --level d1", "no such domain"),
    ],
    "catalog hgx-h200": [LACKS],
    "replan PLAN/plan.json --time-limit 0": [
        ("--max-moves -3 -o next", "--max-moves"),
        ("-o PLAN", "would be overwritten"),
    ],
    "simulate LLAMA -o s": [
        ("", "no load was given"),
        ("--req-s 1 --speed 2", "--speed 2: it applies only to --trace"),
        ("--req-s 1 --isl 4000000", "does not fit the KV cache"),
        ("--trace t.csv --osl 5", "--trace already sets the lengths"),
        ("--trace order.csv", "order.csv, line 3: timestamp 1 is before 2"),
    ],
    "simulate --model x": [("--req-s 1", "--cluster is missing: give a PLAN")],
    "export": [
        ("LLAMA --to sglang -o x.json", "no routed experts"),
        ("UNEVEN --to sglang -o x.json", "1 to 2 slots"),
        ("PLAN --to sglang -o map.json", "will not be overwritten"),
        ("WIDE --to trtllm -o x.yaml --launch lws", "its 16 ranks are MPI tasks"),
        ("WIDE --to vllm-ascend -o x.json --launch dynamo", "it runs sglang, vllm, trtllm"),
    ],
    "export WIDE --to sglang -o x.json": [
        ("--launch lws --hosts a,b,c", "has 3 names, the cluster has 2 hosts and the plan uses 2"),
        ("--launch lws", "x.lws.yaml: it exists and will not be overwritten"),
        ("--launch slurm --image x", "--image: scripts run software installed on the hosts"),
    ],
    "import-plan map.json --check --from sglang --model mixtral-8x7b": [
        ("", "--cluster is missing: give a cluster, or --check with --ep"),
        ("--ep 8 -o out", "a check writes nothing"),
    ],
    "import-plan --model mixtral-8x7b --cluster hgx-h100 --batch 4 -o back": [
        ("pickle.pt --from sglang", "pickle.pt"),
    ],
    "study study.yaml -o out": [
        ("--optimize", "has no `optimize`"),
        ("--engine ray --address 127.0.0.1:1", "Connection refused); expected HOST:PORT of the head"),
    ],
}
OUT_OF_REACH = {
    "plan --cluster hgx-h100": [("--model deepseek-v3", "HBM capacity binds: deepseek-v3 on hgx-h100 needs")],
    "plan --model mixtral-8x7b --cluster hgx-h100 --time-limit 0 -o new/plan": [
        ("--ep 5", "--ep 5 on hgx-h100: groups of 5 GPUs do not divide nodes of 8. What fits: --ep 4 "),
        ("--phase decode --batch 1000000", "HBM capacity binds: --batch 1,000,000"),
        ("--context 512 --tpot-ms 0.5", "is out of reach on hgx-h100: the fastest layout takes"),
        ("--context 512 --ttft-ms 0.5", "--ttft-ms 0.5 is out of reach on hgx-h100: a prompt of 512"),
        (
            "--loads zipf:1.5 --tpot-ms none --ttft-ms 150 --tolerance 99",
            "with experts placed under these loads",
        ),
    ],
    "": [
        ("replan PLAN --lost d0 -o next", "none remain"),
        ("score PLAN --set gpu.hbm_bytes=0.01x", "HBM capacity binds: batch 4 needs"),
    ],
}
ROWS = [
    (code, f"{command} {words}".strip(), reason)
    for code, refused in ((2, REFUSED), (3, OUT_OF_REACH))
    for command, rows in refused.items()
    for words, reason in rows
]


@pytest.mark.parametrize(("code", "words", "reason"), ROWS, ids=lambda value: str(value)[-50:])
def test_what_cannot_be_is_refused_with_the_reason_and_leaves_nothing(
    run: Run,
    shelf: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
    code: int,
    words: str,
    reason: str,
) -> None:
    monkeypatch.chdir(folder := shelf(words))
    before = {path: path.lstat().st_mtime_ns for path in folder.rglob("*")}
    result = run(*shlex.split(words))
    assert result.code == code
    assert reason in result.error_line
    assert {path: path.lstat().st_mtime_ns for path in folder.rglob("*")} == before


@pytest.mark.parametrize("word", ["y", "y z ", "7", "é"])
def test_no_message_repeats_a_long_value(run: Run, word: str) -> None:
    long = word * 2000
    asked = [
        *((*SWEEP, option, long) for option in ("--batch", "--weights", "--set", "--engine")),
        (*SWEEP, "--set", f"{long}=2x"),
        (*SWEEP, f"--{long}"),
        *((*SWEEP[:-1], cluster) for cluster in (long, f"{long}.yaml", f"hgx-h100@{long}")),
        ("score", long),
        ("plan", *SWEEP[1:], "--loads", long, "-o", long),
        (long,),
    ]
    for words in asked:
        result = run(*words)
        assert result.code == 2, words
        assert word * (200 // len(word) + 1) not in result.error_line, words
