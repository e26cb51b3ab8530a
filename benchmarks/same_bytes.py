"""Whether every command writes and prints the same bytes in other circumstances; what differs is named.

``python benchmarks/same_bytes.py [--only NAME]... [--python EXE]... [--quick] [--together] [FOLDER]`` runs
:data:`COMMANDS` under each of the circumstances (hash seed, locale, time zone, cores, threads, umask, user, folder,
CPU features, and each interpreter given with the dependencies), and compares standard output and all files
with those of a first run, byte for byte. All is under FOLDER, a temporary one by default.
It ends with 1 if anything differs. What this machine does not have (a locale, ``taskset``) is said and left out.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

COMMANDS: Mapping[str, str] = {
    "plan": "plan --model mixtral-8x7b --cluster hgx-h100@16 --redundant 8 --loads lognormal:1.2 -o plan",
    "plan again": "plan --model mixtral-8x7b --cluster hgx-h100@16 --redundant 8 --loads lognormal:1 "
    "--time-limit 0 --json -o other",
    "score": "score plan --json",
    "explain": "explain plan",
    "replan": "replan plan --loads lognormal:0.9 --seed 3 -o moved",
    "diff": "diff plan other",
    "what-if": "what-if plan --json",
    "export": "export plan --to sglang -o expert_location.json",
    "export trtllm": "export plan --to trtllm -o trtllm.yaml",
    "export ascend": "export plan --to vllm-ascend --launch lws -o ascend.json",
    "check": "check expert_location.json --for sglang --model mixtral-8x7b --gpus 16",
    "import plan": "import-plan expert_location.json --from sglang --model mixtral-8x7b "
    "--cluster hgx-h100@16 -o read",
    "draw": "draw hgx-h100@16 --plan plan -o drawn.svg",
    "draw png": "draw hgx-h100@16 -o drawn.png",
    "draw pdf": "draw hgx-h100@16 --plan plan -o drawn.pdf",
    "graph": "draw hgx-h100@16 -o graph.graphml",
    "import": "import topology.conf --gpu h100-sxm --fabric ib-ndr400 --oversubscription 1 -o imported.yaml",
    "traffic": "traffic hgx-h100@16 --json",
    "sweep": "sweep --model mixtral-8x7b --cluster hgx-h100 -o rows.csv",
    "sweep page": "sweep --model mixtral-8x7b --cluster hgx-h100 -o rows.html",
    "compare": "compare hgx-h100 hgx-h200 --model mixtral-8x7b -o compared",
    "size": "size --model mixtral-8x7b --cluster hgx-h100 --tok-s 50000 --json",
    "fleet": "fleet --model mixtral-8x7b --cluster hgx-h100@16 -o served",
    "plan by work": "plan --model olmoe-1b-7b --cluster hgx-h100@16 --redundant 32 --loads lognormal:1.2 "
    "--work 700000 -o worked",
    "replan by work": "replan worked --loads loads.csv --work 500000 -o reworked",
    "fleet by work": "fleet --model mixtral-8x7b --cluster hgx-h100@16 --work 900000 --json",
    "study": "study grid.yaml -o studied --json",
    "loads": "loads loads.csv --json",
    "catalog": "catalog --json",
    "validate": "validate --json",
    "schema": "schema plan",
}
"""Command lines by name, run in this order in one folder: later ones read what earlier ones wrote."""
INPUTS: Mapping[str, str] = {
    "grid.yaml": "kind: plan\nfixed: {model: olmoe-1b-7b, cluster: hgx-h100@8}\n"
    "grid: {loads: ['lognormal:1.2', 'zipf:0.8'], redundant: [0, 16]}\n",
    "topology.conf": "SwitchName=leaf1 Nodes=n[1-4]\n"
    "SwitchName=leaf2 Nodes=n[5-8]\n"
    "SwitchName=top Switches=leaf[1-2]\n",
    "loads.csv": "scenario,layer,expert,tokens\n"
    + "".join(
        f"{scenario},{layer},{expert},{1000 + (97 * scenario + 31 * layer + 13 * expert**2 * (layer + 1)) % 701}\n"
        for scenario in range(2)
        for layer in range(16)
        for expert in range(64)
    ),
}
"""Files that lie in the folder before the first command."""
QUICK = ("plan", "score", "replan", "export", "draw", "traffic", "sweep")
"""Those that a quick look runs."""


@dataclass(frozen=True)
class Circumstance:
    """What one run has different: variables, what stands before the command, folder, umask, interpreter."""

    name: str
    variables: Mapping[str, str] = field(default_factory=dict)
    before: Sequence[str] = ()
    folder: str = "run"
    umask: int = 0o022
    python: str = sys.executable
    linked: bool = False


_AVX512 = (
    "X86_V4 AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR"  # NumPy 2.0 to 2.5: each knows its own
)
_NO_AVX = {
    "NPY_DISABLE_CPU_FEATURES": f"{_AVX512} X86_V3 AVX512F AVX512CD AVX2 FMA3 AVX F16C",
    "OPENBLAS_CORETYPE": "Prescott",
    "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX,-AVX2,-FMA,-FMA4,-AVX512F,-AVX512VL",
}
PROCESSORS: Mapping[str, Mapping[str, str]] = {
    "no AVX, AVX2, AVX-512 nor FMA": _NO_AVX,
    "no AVX-512": {"NPY_DISABLE_CPU_FEATURES": _AVX512, "OPENBLAS_CORETYPE": "Haswell"},
    "matrices as on Skylake": {
        "NPY_DISABLE_CPU_FEATURES": "AVX512_ICL AVX512_SPR",
        "OPENBLAS_CORETYPE": "SkylakeX",
    },
}
"""Processors that this one can play: which of its instructions NumPy, OpenBLAS and the C library leave unused."""
FIRST = Circumstance("first", {"PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8", "TZ": "UTC", "COLUMNS": "100"})


def circumstances(pythons: Sequence[str]) -> Iterator[Circumstance]:
    """Yield all but the first."""
    yield Circumstance("hash seed 1, LC_ALL=C", {"PYTHONHASHSEED": "1", "LC_ALL": "C"})
    yield Circumstance("hash seed by chance, Turkish", {"PYTHONHASHSEED": "random", "LC_ALL": "tr_TR.UTF-8"})
    yield Circumstance("German, Kathmandu", {"LC_ALL": "de_DE.UTF-8", "TZ": "Asia/Kathmandu"})
    yield Circumstance(
        "no locale, no UTF-8 mode", {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    )
    yield Circumstance("one core, one thread", {"OMP_NUM_THREADS": "1"}, before=("taskset", "-c", "0"))
    yield Circumstance("two threads", {"OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2"})
    yield Circumstance("umask 077, another user", {"USER": "someone", "LOGNAME": "someone"}, umask=0o077)
    yield Circumstance("spaces and umlauts", folder="Ördner mit  Räumen/日本")
    yield Circumstance("through a link", folder="real", linked=True)
    for name, variables in PROCESSORS.items():
        yield Circumstance(name, variables)
    yield Circumstance("another day", {"SOURCE_DATE_EPOCH": "1", "FAKETIME": "2031-02-03"})
    for python in pythons:
        yield Circumstance(f"{python}", python=python)


def together(pythons: Sequence[str]) -> Iterator[Circumstance]:
    """Yield a few that differ in much at once: the first look, one by one where they differ."""
    yield Circumstance(
        "German, Kathmandu, umlauts, two threads, umask 077, another user, hash seed by chance",
        {
            "PYTHONHASHSEED": "random",
            "LC_ALL": "de_DE.UTF-8",
            "TZ": "Asia/Kathmandu",
            "OMP_NUM_THREADS": "2",
            "OPENBLAS_NUM_THREADS": "2",
            "USER": "someone",
            "LOGNAME": "someone",
        },
        folder="Ördner mit  Räumen/日本",
        umask=0o077,
    )
    yield Circumstance(
        "no locale, no UTF-8 mode, no AVX nor FMA, one core, through a link, another day",
        {
            "LC_ALL": "POSIX",
            "PYTHONUTF8": "0",
            "PYTHONCOERCECLOCALE": "0",
            **_NO_AVX,
            "OMP_NUM_THREADS": "1",
            "SOURCE_DATE_EPOCH": "1",
        },
        before=("taskset", "-c", "0"),
        folder="real",
        linked=True,
    )
    for python in pythons:
        yield Circumstance(f"{python}, Turkish", {"LC_ALL": "tr_TR.UTF-8"}, python=python)


def lacking(one: Circumstance) -> str:
    """Say what this machine lacks for a circumstance; empty where it lacks nothing."""
    if one.before and shutil.which(one.before[0]) is None:
        return f"no {one.before[0]}"
    if not shutil.which(one.python):
        return f"no {one.python}"
    wanted = one.variables.get("LC_ALL", "C")
    if wanted not in {"C", "POSIX", "C.UTF-8"}:
        known = subprocess.run(["locale", "-a"], capture_output=True, text=True, check=False).stdout  # noqa: S607
        if wanted.lower().replace("-", "") not in known.lower():
            return f"no locale {wanted}"
    return ""


def digests(one: Circumstance, under: Path, names: Sequence[str]) -> dict[str, str]:
    """Run the commands; return the digest of what each printed, and of each file."""
    base = under / hashlib.sha256(one.name.encode()).hexdigest()[:8]
    folder = base / one.folder
    folder.mkdir(parents=True)
    if one.linked:
        (base / "link").symlink_to(folder, target_is_directory=True)
        folder = base / "link"
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LD_LIBRARY_PATH") if name in os.environ}
    variables = {**kept, "PYTHONPATH": str(ROOT), **FIRST.variables, **one.variables}
    for name, text in INPUTS.items():
        (folder / name).write_text(text, encoding="ascii", newline="\n")
    found: dict[str, str] = {}
    for name in names:
        words = [*one.before, one.python, "-m", "rackplan", *COMMANDS[name].split()]
        ran = subprocess.run(  # noqa: S603 - this program
            words, cwd=folder, env=variables, umask=one.umask, capture_output=True, check=False
        )
        if ran.returncode:
            found[
                f"{name}: ended with {ran.returncode}: {ran.stderr.decode(errors='replace').strip()[-200:]}"
            ] = one.name
        said = ran.stdout
        if name == "study" and not ran.returncode:  # its rows have times
            said = json.loads(said)["rows_sha256"].encode()
        found[f"{name}: standard output"] = hashlib.sha256(said).hexdigest()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "studied" not in path.parts:
            found[str(path.relative_to(folder))] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def differing(first: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    """Return what two runs do not have alike, in order."""
    return [name for name in {**first, **other} if first.get(name) != other.get(name)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, compare, and print a line for each circumstance."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--only", action="append", default=[], help="a circumstance, by a part of its name")
    parser.add_argument(
        "--python", action="append", default=[], help="another interpreter with the dependencies"
    )
    parser.add_argument("--quick", action="store_true", help="a few commands")
    parser.add_argument("--together", action="store_true", help="what differs in much at once")
    asked = parser.parse_args(arguments)
    names = QUICK if asked.quick else tuple(COMMANDS)
    found: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory() as made:
        under = (asked.folder or Path(made)).resolve()
        first = digests(FIRST, under, names)
        broken = [name for name, by in first.items() if by == FIRST.name]
        print(f"{len(names)} commands, {len(first)} outputs", *broken, sep="\n  ", flush=True)
        for one in (together if asked.together else circumstances)(asked.python):
            if asked.only and not any(part in one.name for part in asked.only):
                continue
            if lack := lacking(one):
                print(f"{one.name}: left out, {lack}", flush=True)
                continue
            found[one.name] = differing(first, digests(one, under, names))
            print(f"{one.name}: {'; '.join(found[one.name]) or 'the same'}", flush=True)
    print(json.dumps({"differ": {name: what for name, what in found.items() if what}}))
    return 1 if broken or any(found.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
