"""``rackplan loads``: what a recording of expert loads holds."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from rackplan.commands.options import JsonFlag, Windows

NAME = "loads"


def run(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...",
            help="SGLang's .pt or .json, TensorRT-LLM's or SGLang's folder, vLLM's .jsonl, .npy, .npz, .csv.",
        ),
    ],
    model: Annotated[
        str | None,
        typer.Option("--model", metavar="M", help="Check that the recording fits this model too."),
    ] = None,
    windows: Windows = None,
    json: JsonFlag = False,
) -> None:
    """Describe recordings of expert loads. Layers, experts, windows, skew per layer, drift between windows."""
    from pathlib import Path

    from rackplan.inputs import reading_progress
    from rackplan.loads_summary import describe, loads_json, loads_summary
    from rackplan.output import print_json, print_text
    from rackplan.validate_summary import file_names

    with reading_progress(files) as on_progress:
        found = [describe(file, model, windows, on_progress) for file in files]
    names = file_names([Path(file) for file in files])
    if json:
        print_json({"files": {name: loads_json(one) for name, one in zip(names, found, strict=True)}})
    else:
        encoding = getattr(sys.stdout, "encoding", None) or "ascii"
        texts = (loads_summary(name, one, encoding) for name, one in zip(names, found, strict=True))
        print_text("\n\n".join(texts))
