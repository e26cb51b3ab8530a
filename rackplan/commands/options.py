"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

INTERRUPTED = 130
"""Exit code after Ctrl-C."""

ENGINES = "sglang, trtllm, vllm-ascend or vllm"
"""Engines of :mod:`placement.engines.registry`, in words."""

ModelName = Annotated[
    str, typer.Option("--model", metavar="M", help="Catalog name, or path of a Hugging Face config.json.")
]
ClusterName = Annotated[
    str, typer.Option("--cluster", metavar="C", help="Catalog name, name@GPUS or a YAML file.")
]
ObjectiveName = Annotated[
    str, typer.Option("--objective", help="Over several --loads: the mean or the worst of them.")
]
SplitName = Annotated[
    str, typer.Option("--split", help="How the engine splits an expert's tokens: even, source or lp.")
]
Context = Annotated[
    int, typer.Option("--context", help="Tokens already in each sequence; prefill: of each prompt.")
]
Batch = Annotated[
    int,
    typer.Option(
        "--batch",
        help="Sequences per GPU in use; 0: the largest that fits (prefill: prompts of 8,192 tokens in all).",
    ),
]
Phase = Annotated[str, typer.Option("--phase", help="decode or prefill.")]
DraftTokens = Annotated[
    int, typer.Option("--draft-tokens", metavar="K", help="Tokens that each sequence drafts in a step.")
]
AcceptLength = Annotated[
    float | None,
    typer.Option(
        "--accept-length",
        metavar="A",
        help="Tokens that a step yields on average, drafts included: 1 to K + 1. [as fitted to served requests, "
        "for 1 to 3 drafts]",
    ),
]
Overlap = Annotated[
    bool, typer.Option("--overlap/--no-overlap", help="Two half batches take turns at computing and sending.")
]
SparseAttention = Annotated[
    str,
    typer.Option(
        "--sparse-attention",
        metavar="sqrt|N",
        help="What if attention read the cache of the square root of the context, or of at most N tokens.",
        show_default=False,
    ),
]
Engine = Annotated[
    str,
    typer.Option(
        "--engine", metavar="NAME", help="Engine whose fixed delays count; default: between those measured."
    ),
]
Loads = Annotated[
    list[str] | None,
    typer.Option(
        "--loads",
        metavar="FILE",
        help="Tokens per expert: SGLang's .pt or .json, TensorRT-LLM's folder, vLLM's .jsonl, .npy, .npz, .csv, "
        "or lognormal:SIGMA, zipf:S, uniform; repeatable.",
    ),
]
Windows = Annotated[
    int | None,
    typer.Option(
        "--windows",
        metavar="N",
        help="Scenarios that a recording becomes at most: more windows are merged. [32]",
        show_default=False,
    ),
]
Weights = Annotated[str | None, typer.Option("--weights", metavar="DTYPE", help="Format of the weights.")]
KvDtype = Annotated[str, typer.Option("--kv-dtype", metavar="DTYPE", help="Format of the KV cache.")]
Seed = Annotated[int, typer.Option("--seed", help="Seed of synthetic loads and of the search.")]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]
OutputFolder = Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="Folder for the results.")]
