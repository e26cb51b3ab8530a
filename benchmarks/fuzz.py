"""Many damaged inputs through every reader: ``python benchmarks/fuzz.py [--inputs N] [--seed N] [--only NAME ...]``.

The readers and the ways to damage their inputs are those of ``tests/properties/readers.py``. A finding is an error
that is not ours, a warning, or more than five seconds of CPU; each prints its reader and number, which
``--only NAME --first NUMBER --inputs 1`` repeats. ``--atheris NAME`` lets libFuzzer choose the inputs of one reader
by the code that they reach (``pip install atheris``).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "properties"))
from readers import READERS, Reader

from topology.base.errors import RackplanError

SLOW_S = 5.0


def main() -> int:
    """Try the inputs; return 1 where something was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=1000, help="of each reader")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=[one.name for one in READERS])
    parser.add_argument("--atheris", metavar="NAME")
    options = parser.parse_args()
    warnings.simplefilter("error")
    if options.atheris:
        guided(next(one for one in READERS if one.name == options.atheris), options.inputs)
    found: dict[str, int] = {}
    for reader in (one for one in READERS if one.name in options.only):
        begin, refused = time.process_time(), 0
        for number in range(options.first, options.first + options.inputs):
            outcome = attempt(reader, Random(f"{options.seed} {reader.name} {number}"))
            refused += outcome == "refused"
            if outcome not in ("read", "refused") and outcome not in found:
                found[outcome] = number
                print(f"{reader.name} {number}: {outcome}", flush=True)
        seconds = time.process_time() - begin
        print(
            f"{reader.name}: {options.inputs} inputs, {refused} refused, {seconds:.1f} s of CPU", flush=True
        )
    return 1 if found else 0


def attempt(reader: Reader, random: Random) -> str:
    """Read one damaged input; return ``read``, ``refused``, or what was found."""
    with tempfile.TemporaryDirectory() as folder:
        path = reader.put(Path(folder), random.choice(reader.seeds()), random)
        begin = time.process_time()
        try:
            reader.read(path)
            outcome = "read"
        except RackplanError:
            outcome = "refused"
        except Exception as error:  # noqa: BLE001 - that is what is looked for
            where = traceback.extract_tb(error.__traceback__)[-1]
            return f"{type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})"[:300]
        return "slow" if time.process_time() - begin > SLOW_S else outcome


def guided(reader: Reader, inputs: int) -> None:
    """Let libFuzzer choose; the process ends at the first finding."""
    import atheris

    def once(data: bytes) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / reader.file
            path.write_bytes(data)
            try:
                reader.read(path)
            except RackplanError:
                return

    with tempfile.TemporaryDirectory() as corpus, atheris.instrument_imports():
        for number, seed in enumerate(reader.seeds()):
            reader.put(Path(corpus), seed).rename(Path(corpus) / str(number))
        atheris.Setup([sys.argv[0], corpus, f"-atheris_runs={inputs}", "-timeout=60"], once)
        atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
