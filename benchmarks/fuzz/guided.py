"""Inputs that libFuzzer chooses by the code they reach: atheris, where it is installed, on one reader."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from random import Random

from mutations import FORMS
from reader import Reader
from watched import PACKAGES, Watch


def guide(name: str, inputs: int, seed: int, keep: Path | None) -> None:
    """Fuzz a reader by coverage of the packages; the process ends with it, at the first finding.

    Mutations are half libFuzzer's own, half those of the reader's form. What is found is written to ``keep``.
    """
    try:
        import atheris
    except ImportError:
        sys.exit(
            "--guided needs atheris: pip install atheris (in an environment of its own; Linux and macOS)."
        )
    with atheris.instrument_imports(include=list(PACKAGES)):
        reader = _named(name)
        seeds = reader.seeds()
        for one in seeds:  # what is imported on the way is instrumented too
            _quietly(reader, one.file, one.data)
    folder = Path(tempfile.mkdtemp())
    corpus = folder / "corpus"
    corpus.mkdir()
    for number, one in enumerate(seeds):
        (corpus / f"seed{number}").write_bytes(one.data)
    os.chdir(folder)
    watch = Watch(folder)
    form, file = seeds[0].form, seeds[0].file

    def once(data: bytes) -> None:
        _, found = watch.look(reader, watch.put(file, data))
        wrong = [one for one in found if one.kind not in ("long", "large")]
        if wrong:
            if keep is not None:
                keep.mkdir(parents=True, exist_ok=True)
                (keep / f"guided-{reader.name}-{file}").write_bytes(data)
            raise AssertionError(f"{wrong[0].kind}: {wrong[0].where}\n{wrong[0].words}")

    def mutate(data: bytes, most: int, number: int) -> bytes:
        random = Random(number)
        if random.random() < 0.5:
            return bytes(atheris.Mutate(data, most))
        return FORMS[form](data, random)[:most]

    asked = [
        sys.argv[0],
        str(corpus),
        f"-atheris_runs={inputs}",
        f"-seed={seed or 1}",
        "-max_len=65536",
        "-rss_limit_mb=6000",
        "-timeout=60",
    ]
    atheris.Setup(asked, once, custom_mutator=mutate)
    atheris.Fuzz()


def _named(name: str) -> Reader:
    import readers_commands
    import readers_files
    import readers_topology

    every = (*readers_topology.READERS, *readers_files.READERS, *readers_commands.READERS)
    return next(one for one in every if one.name == name)


def _quietly(reader: Reader, file: str, data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        reader.read(Watch(Path(folder)).put(file, data))
