"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = [
    "INTERRUPTED",
    "Context",
    "JsonFlag",
    "KvDtype",
    "Loads",
    "ModelName",
    "OutputFolder",
    "Phase",
    "Seed",
    "Weights",
]

INTERRUPTED = 130
"""Exit code after Ctrl-C."""

ModelName = Annotated[
    str, typer.Option("--model", metavar="M", help="Catalog name, or path of a Hugging Face config.json.")
]
Context = Annotated[int, typer.Option("--context", help="Tokens already in each sequence.")]
Phase = Annotated[str, typer.Option("--phase", help="decode (prefill is not modelled yet).")]
Loads = Annotated[
    list[str] | None,
    typer.Option(
        "--loads",
        metavar="FILE",
        help="Tokens per expert: .npy, .npz, SGLang's .json, .csv, or lognormal:SIGMA, zipf:S, uniform; repeatable.",
    ),
]
Weights = Annotated[str | None, typer.Option("--weights", metavar="DTYPE", help="Format of the weights.")]
KvDtype = Annotated[str, typer.Option("--kv-dtype", metavar="DTYPE", help="Format of the KV cache.")]
Seed = Annotated[int, typer.Option("--seed", help="Seed of synthetic loads and of the search.")]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]
OutputFolder = Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="Folder for the results.")]
