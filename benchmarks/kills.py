"""Kill every writing command at every file event, and look at what is left.

``python benchmarks/kills.py [CASE...] [--with KILL|INT|TERM|ENOSPC|EIO|FULL] [--every N] [--keep FOLDER]``

Each command runs once to count its file events: files opened for writing, writes, fsync, folders made, renames,
links, removals, truncations below its folder and that of temporary files. Then it runs once for each event and is
stopped just before that one: by SIGKILL, SIGINT or SIGTERM, or the event fails (ENOSPC, EIO), or from there on
nothing more can be written (FULL). Looked at is

* at once: every file under its final name is that of before or the new one, byte for byte; Ctrl-C, SIGTERM and
  failures end with one line, their exit code and nothing left over;
* after another command that only reads, in the same folder: all files of before or all new ones, nothing left over;
* after the same command again: all new ones, nothing left over.

The last two are looked at once for each distinct state of the folders that stops leave. Processes are forked from
one that has imported everything, so that a kill takes milliseconds. What a study has on disk may lie between old and
new: no row that was there is lost, none stands twice (benchmarks/kills_study.py; benchmarks/study_kills.py kills real
ones at random moments).
"""

from __future__ import annotations

import argparse
import builtins
import errno
import importlib
import io
import os
import re
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, NoReturn

MODEL, CLUSTER = "model.json", "hgx-h100"
PLAN = ("plan", "--model", MODEL, "--cluster", CLUSTER, "--time-limit", "0")
SLURM = "SwitchName=s1 Nodes=n[1-4]\n"
READS = ("catalog", "hgx-h100")
"""A command that writes nothing: it is started after each kill."""


@dataclass(frozen=True)
class Case:
    """A command, and what it finds where results of before are there.

    Attributes
    ----------
    command:
        Its words, which write ``out`` (or what ``out`` begins).
    before:
        Commands that make what it reads.
    old:
        The command that made what it writes over; None: it never writes over anything.
    """

    command: tuple[str, ...]
    before: tuple[tuple[str, ...], ...] = ()
    old: tuple[str, ...] | None = None
    exists: bool = False
    """Whether it refuses what is there already: a run that was killed after it counted is complete."""
    reads: tuple[str, ...] = READS
    grows: bool = False
    """Whether it keeps what it has when it is stopped, as studies do, and goes on with it."""


def _engine(name: str, *more: str) -> Case:
    ending = {"trtllm": "yaml"}.get(name, "json")
    command = ("export", "plan", "--to", name, "-o", f"out.{ending}", *more)
    return Case(command, ((*PLAN, "--redundant", "8", "-o", "plan"),), None, exists=True)


PLANNED = (*PLAN, "-o", "plan")
SWEEP = ("sweep", "--model", MODEL, "--cluster", CLUSTER)
COMPARE = ("compare", "hgx-h100", "hgx-h200", "--model", MODEL)
FLEET = ("fleet", "--model", MODEL, "--cluster", "hgx-h100@16")
REPLAN = ("replan", "plan", "--loads", "zipf:1", "-o", "out")
REPLAY = ("replay", "--model", MODEL, "--cluster", CLUSTER, "--loads", "loads.npy", "--policy", "static")
STUDY = ("study", "study.yaml", "-o", "out")
_SETTLES = ("small reader",)
CASES: Mapping[str, Case] = {
    "small set": Case(("small", "set", "new"), (), ("small", "set", "old"), reads=_SETTLES),
    "small file": Case(("small", "file", "new"), (), ("small", "file", "old"), reads=_SETTLES),
    "small once": Case(("small", "once", "new"), exists=True, reads=_SETTLES),
    "plan": Case((*PLAN, "-o", "out"), (), (*PLAN, "--context", "1000", "-o", "out")),
    "plan page": Case((*PLAN, "-o", "out.html"), (), (*PLAN, "--context", "1000", "-o", "out.html")),
    "plan deep": Case((*PLAN, "-o", "out/a/b"), (), None),
    "plan over a re-plan": Case((*PLAN, "-o", "out"), (PLANNED,), REPLAN),
    "replan": Case(REPLAN, (PLANNED,), (*REPLAN[:3], "zipf:0.5", *REPLAN[4:])),
    "score": Case(
        ("score", "plan", "-o", "out"), (PLANNED,), ("score", "plan", "--loads", "zipf:1", "-o", "out")
    ),
    "explain": Case(("explain", "plan", "-o", "out"), (PLANNED,), None),
    "what-if": Case(("what-if", "plan", "-o", "out"), (PLANNED,), None),
    "diff": Case(("diff", "plan", "plan", "-o", "out"), (PLANNED,), None),
    "draw": Case(("draw", CLUSTER, "-o", "out.svg"), (), ("draw", "hgx-h200", "-o", "out.svg")),
    "draw graph": Case(("draw", CLUSTER, "-o", "out.json"), (), ("draw", "hgx-h200", "-o", "out.json")),
    "draw picture": Case(("draw", CLUSTER, "-o", "out.png"), (), ("draw", "hgx-h200", "-o", "out.png")),
    "traffic": Case(
        ("traffic", CLUSTER, "-o", "out"), (), ("traffic", CLUSTER, "--pattern", "ring", "-o", "out")
    ),
    "sweep": Case((*SWEEP, "-o", "out"), (), (*SWEEP, "--context", "1000", "-o", "out")),
    "sweep rows": Case((*SWEEP, "-o", "out.csv"), (), (*SWEEP, "--context", "1000", "-o", "out.csv")),
    "size": Case(
        ("size", "--model", MODEL, "--cluster", CLUSTER, "--tok-s", "20k", "-o", "out"),
        (),
        ("size", "--model", MODEL, "--cluster", CLUSTER, "--tok-s", "90k", "-o", "out"),
    ),
    "compare": Case((*COMPARE, "-o", "out"), (), (*COMPARE, "--context", "1000", "-o", "out")),
    "fleet": Case((*FLEET, "-o", "out"), (), (*FLEET, "--context", "1000", "-o", "out")),
    "replay": Case((*REPLAY, "-o", "out"), (), (*REPLAY, "--seed", "3", "-o", "out")),
    "replay rows": Case((*REPLAY, "-o", "out.csv"), (), (*REPLAY, "--seed", "3", "-o", "out.csv")),
    "export": _engine("sglang"),
    "export trtllm": _engine("trtllm"),
    "export vllm": _engine("vllm"),
    "export vllm-ascend": _engine("vllm-ascend"),
    "export --launch lws": _engine("sglang", "--launch", "lws"),
    "export --launch dynamo": _engine("sglang", "--launch", "dynamo"),
    "export --launch slurm": _engine("sglang", "--launch", "slurm"),
    "import-plan": Case(
        ("import-plan", "e.json", "--from", "sglang", "--model", MODEL, "--cluster", CLUSTER, "-o", "out"),
        ((*PLAN, "--redundant", "8", "-o", "plan"), ("export", "plan", "--to", "sglang", "-o", "e.json")),
        (*PLAN, "--context", "1000", "-o", "out"),
    ),
    "import": Case(
        ("import", "topology.conf", "--gpu", "hgx-h100", "-o", "out.yaml"),
        (),
        ("import", "topology.conf", "--gpu", "hgx-h200", "-o", "out.yaml"),
    ),
    "study": Case(STUDY, (), ("study", "before.yaml", "-o", "out"), grows=True),
    "study goes on": Case(("study", "out"), (("study", "before.yaml", "-o", "out"),), None, grows=True),
    "study --report": Case((*STUDY, "--report"), (), STUDY, grows=True),
    "study page": Case(
        ("study", "out", "--report", "-o", "page.html"),
        (STUDY, ("study", "before.yaml", "-o", "before")),
        ("study", "before", "--report", "-o", "page.html"),
    ),
    "study --optimize": Case(("study", "tune.yaml", "--optimize", "-o", "out"), (), None, grows=True),
}
"""Every way of writing, by the command's name (its first word) and what is different about it."""
_READS = {"ENOSPC": errno.ENOSPC, "EIO": errno.EIO, "FULL": errno.ENOSPC}
_SIGNALS = {"KILL": signal.SIGKILL, "INT": signal.SIGINT, "TERM": signal.SIGTERM}
_NAMED = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.truncate", "os.symlink")
_CREATES = ("open", "write", "os.mkdir", "os.link", "os.symlink", "fsync")


_MEMORY = Path("/dev/shm")  # noqa: S108 - a folder of its own is made there
"""Where there is no disk to wait for."""


class Events:
    """Counts file events of this process below some folders, and stops it before one of them."""

    def __init__(self, below: tuple[Path, ...], number: int, how: str) -> None:
        self.below = tuple(str(path) for path in below)
        self.number, self.how, self.seen = number, how, 0
        self.names: Counter[str] = Counter()

    def came(self, name: str, path: object) -> None:
        """One more event."""
        if isinstance(path, int):
            try:
                path = Path(f"/proc/self/fd/{path}").readlink()
            except OSError:
                return
        if not isinstance(path, str | bytes | os.PathLike):
            return
        where = str(Path(os.fsdecode(path)).absolute())
        if not where.startswith(self.below):
            return
        self.seen += 1
        self.names[name] += 1
        due = self.seen == self.number or (
            self.how == "FULL" and 0 < self.number <= self.seen and name in _CREATES
        )
        if not due:
            return
        if self.how in _SIGNALS:
            os.kill(os.getpid(), _SIGNALS[self.how])
        else:
            code = _READS[self.how]
            raise OSError(code, os.strerror(code), where)

    def watch(self) -> None:
        """Hear of events from now on."""

        def heard(event: str, args: tuple[Any, ...]) -> None:
            if event == "open":
                if isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR):
                    self.came(event, args[0])
            elif event in _NAMED:
                self.came(event, args[0])

        sys.addaudithook(heard)
        opened = io.open

        def fsync(
            handle: int,
        ) -> None:  # what a kill leaves does not depend on it, and a busy disk takes long
            self.came("fsync", handle)

        def open_(file: Any, mode: str = "r", buffering: int = -1, *more: Any, **named: Any) -> Any:
            if "b" in mode and "r" not in mode:
                raw = _Torn(file, mode.replace("b", ""), self.came, **named)
                if not buffering:
                    return raw
                return io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
            return opened(file, mode, buffering, *more, **named)

        os.fsync = fsync
        io.open = builtins.open = open_  # type: ignore[assignment]


class _Torn(io.FileIO):
    """A file whose writes come in two parts."""

    def __init__(self, file: Any, mode: str, came: Callable[[str, object], None], **named: Any) -> None:
        super().__init__(file, mode, **{k: v for k, v in named.items() if k in ("closefd", "opener")})
        self._came, self._torn = came, False

    def write(self, data: Any) -> int:
        self._came("write", self.fileno())
        if self._torn or len(data) < 2:
            return super().write(data)
        self._torn = True
        return super().write(memoryview(data)[: len(data) // 2])

    def truncate(self, size: int | None = None) -> int:
        self._came("truncate", self.fileno())
        return super().truncate(size)


@dataclass
class Ended:
    """How a process ended: exit code (negative: signal), what it said, its file events."""

    code: int
    said: str
    events: int = 0
    names: dict[str, int] = field(default_factory=dict)
    modules: list[str] = field(default_factory=list)


def started(words: tuple[str, ...], place: Place, number: int = 0, how: str = "KILL") -> Ended:
    """Run a command in a forked process, stopped before its file event ``number``; 0: never."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(read)
        _child(words, place, number, how, write)
    os.close(write)
    with os.fdopen(read, encoding="utf-8") as told:
        tail = told.read().split("\n")
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    said = place.errors.read_text(encoding="utf-8", errors="replace")
    if len(tail) < 3:
        return Ended(code, said)
    names = dict(Counter(tail[1].split()))
    return Ended(code, said, int(tail[0]), names, tail[2].split())


def _child(words: tuple[str, ...], place: Place, number: int, how: str, told: int) -> NoReturn:
    code = 1
    try:
        os.environ["TMPDIR"] = str(place.temporary)
        tempfile.tempdir = None
        os.chdir(place.folder)
        for stream, path in ((1, place.said), (2, place.errors)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
        sys.argv = ["rackplan", *words]
        import atexit

        if words[0] == "study":
            importlib.import_module("kills_study").prepare()
        main = _SMALL.get(words[0]) or importlib.import_module("rackplan.cli").main
        atexit._clear()  # noqa: SLF001 - what the parent registered is the parent's
        events = Events((place.folder, place.temporary), number, how)
        events.watch()
        try:
            main()
            code = 0
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 0
            try:
                atexit._run_exitfuncs()  # noqa: SLF001 - os._exit runs none
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
        events.how, events.number = "", 0
        os.write(
            told, f"{events.seen}\n{' '.join(events.names.elements())}\n{' '.join(sys.modules)}".encode()
        )
    except BaseException as error:  # noqa: BLE001 - shown, whatever it is
        import traceback

        traceback.print_exception(error)
        sys.stderr.flush()
    os._exit(code)


def _small() -> None:
    """Write a set of files, a file, or files over which nothing is written."""
    from rackplan.output import results_folder, write_together
    from topology.files import write_all, write_whole

    _, kind, word = sys.argv[1:]
    text = word * 100
    if kind == "set":
        with results_folder(Path("out")) as folder:
            plan = f'{{"schema_version": 1, "{text}": 0}}'
            write_together(folder, {"a": text, "sub/b": text, "plan.json": plan})
    elif kind == "file":
        write_whole(Path("out.csv"), text.encode())
    else:
        write_all({Path(name): text.encode() for name in ("out.json", "out.yaml")}, new=True)


def _small_reader() -> None:
    """Begin as every command does."""
    from topology.staging import settle

    settle([])


def _ending(run: Callable[[], None]) -> Callable[[], None]:
    """Let a function end as commands do."""

    def ended() -> None:
        from topology.errors import RackplanError
        from topology.interrupts import EndedError, ending_by_signal

        try:
            with ending_by_signal():
                run()
        except (RackplanError, KeyboardInterrupt, EndedError) as error:
            sys.stderr.write(f"rackplan: {error}\n")
            number = getattr(error, "number", signal.SIGINT)
            raise SystemExit(getattr(error, "exit_code", 128 + number)) from None

    return ended


_SMALL: dict[str, Callable[[], None]] = {"small": _ending(_small), "small reader": _ending(_small_reader)}
"""What stands for commands where only the way of writing is looked at."""


@dataclass(frozen=True)
class Place:
    """Where a command runs: its folder, that of temporary files, and what it said."""

    root: Path

    @property
    def folder(self) -> Path:
        """Return the working folder."""
        return self.root / "work"

    @property
    def temporary(self) -> Path:
        """Return the folder of temporary files."""
        return self.root / "tmp"

    @property
    def said(self) -> Path:
        """Return the file of standard output."""
        return self.root / "out.txt"

    @property
    def errors(self) -> Path:
        """Return the file of standard error."""
        return self.root / "err.txt"

    def files(self) -> dict[str, bytes]:
        """Return what lies there by name; folders end with a slash."""
        found = {}
        for top, mark in ((self.folder, ""), (self.temporary, "TMPDIR/")):
            for path in top.rglob("*"):
                name = f"{mark}{path.relative_to(top)}"
                folder = path.is_dir() and not path.is_symlink()
                data = b"" if folder or path.is_symlink() else path.read_bytes()
                if path.suffix in (".parquet", ".journal"):
                    data = importlib.import_module("kills_study").comparable(name, data)
                found[f"{name}/" if folder else name] = data
        return found

    def again(self, start: Place) -> None:
        """Become what another place is."""
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.copytree(start.root, self.root)


def made(root: Path, *, small: bool = False) -> Place:
    """Return a new place with what commands read."""
    place = Place(root)
    for path in (place.folder, place.temporary):
        path.mkdir(parents=True)
    if small:
        return place
    import json

    import numpy as np
    import yaml

    catalog = Path(importlib.import_module("cost").__file__ or "").parent / "catalog/models/mixtral-8x7b.yaml"
    config = {**yaml.safe_load(catalog.read_text(encoding="utf-8"))["config"], "num_hidden_layers": 2}
    (place.folder / MODEL).write_text(json.dumps(config))
    (place.folder / "topology.conf").write_text(SLURM)
    for name, text in importlib.import_module("kills_study").FILES.items():
        (place.folder / name).write_text(text)
    np.save(place.folder / "loads.npy", np.random.default_rng(0).lognormal(0, 0.6, (4, 2, 8)))
    return place


@dataclass
class Found:
    """What was found over all kills of a case."""

    stops: int = 0
    mixed: int = 0
    litter: int = 0
    wrong: list[str] = field(default_factory=list)
    mended: set[bytes] = field(default_factory=set)
    """Digests of what stops left that the next start made right."""
    rows: set[str] = field(default_factory=set)
    """Rows of a study that were on disk at some stop."""


def tried(case: Case, scratch: Path, *, over: bool, how: str, every: int, first: int = 1) -> Found:
    """Stop a case before each of its file events and look at what is left."""
    start, place = made(scratch / "start", small=case.command[0] in _SMALL), Place(scratch / "place")
    for words in (*case.before, *((case.old,) if over and case.old else ())):
        ended = started(words, start)
        if ended.code:
            return Found(wrong=[f"{' '.join(words)}: {ended.code}: {ended.said}"])
    place.again(start)
    old = start.files()
    whole = started(case.command, place)
    if whole.code:
        return Found(wrong=[f"{' '.join(case.command)}: {whole.code}: {whole.said}"])
    for name in whole.modules:
        if name not in sys.modules and not name.startswith(("_", "pytest")):
            try:
                importlib.import_module(name)
            except Exception:  # noqa: BLE001, S112 - it is imported where it is needed
                continue
    new = place.files()
    found = Found()
    for number in range(first, whole.events + 1, every):
        place.again(start)
        ended = started(case.command, place, number, how)
        found.stops += 1
        _look(found, f"event {number} of {whole.events}", case, place, ended, old, new, how)
    return found


def _look(
    found: Found,
    where: str,
    case: Case,
    place: Place,
    ended: Ended,
    old: Mapping[str, bytes],
    new: Mapping[str, bytes],
    how: str,
) -> None:
    def state() -> str:
        """Say what lies there: old, new, mixed, and whether anything more does."""
        return _state(place.files(), old, new, grows=case.grows)

    now = place.files()
    found.wrong += [f"{where}: {what}" for what in _at_once(found, case, place, now, old, new, ended.code)]
    found.wrong += [f"{where}: {what}" for what in _ending_of(ended, how, grows=case.grows)]
    if how in ("INT", "TERM") and state() not in _FINE:
        found.wrong.append(f"{where}: at once {state()}")
    digest = sha256(repr((how == "KILL", sorted(now.items()))).encode()).digest()
    if digest in found.mended:
        return
    before = len(found.wrong)
    reading = started(case.reads, place)
    after = state()
    found.mixed += after.startswith("mixed")
    found.litter += "[" in after
    if after not in _FINE or reading.code:
        found.wrong.append(f"{where}: after a reader {after} {reading.code} {reading.said[-300:]}")
    whole = after.startswith("new") and case.exists
    again = started(case.command, place)
    last = state()
    if (again.code, last) != (2 if whole else 0, "new"):
        found.wrong.append(f"{where}: after {after}, and once more {last} {again.code} {again.said[-600:]}")
    if len(found.wrong) == before:
        found.mended.add(digest)


_FINE = ("old", "new", "between")
_OF_A_STUDY = re.compile(
    r"out/(journal|study\.json|optuna\.journal|report\.html|results/(part-\d{5}\.parquet)?)?"
)


def _state(
    now: Mapping[str, bytes], old: Mapping[str, bytes], new: Mapping[str, bytes], *, grows: bool
) -> str:
    more = {name for name in now if name not in old and name not in new}
    if grows:
        more = {name for name in more if not _OF_A_STUDY.fullmatch(name)}
    kept = {name: data for name, data in now.items() if name not in more}
    word = "new" if kept == new else "old" if kept == old else "between" if grows else "mixed"
    if word == "mixed" and set(kept) - set(old) and all(name.endswith("/") for name in set(kept) ^ set(old)):
        word, more = "old", more | (set(kept) - set(old))  # folders made for results
    return f"{word}, {sorted(more)[:3]}" if more else word


def _at_once(
    found: Found,
    case: Case,
    place: Place,
    now: Mapping[str, bytes],
    old: Mapping[str, bytes],
    new: Mapping[str, bytes],
    code: int,
) -> Iterator[str]:
    """Yield what is wrong with what lies there when the process has just been stopped."""
    if case.grows:
        try:
            rows = importlib.import_module("kills_study").on_disk(place.folder / "out")
        except Exception as error:  # noqa: BLE001 - shown, whatever it is
            yield f"rows: {error!r}"
        else:
            if found.rows - rows:
                yield f"{len(found.rows - rows)} rows lost"
            found.rows |= rows if code else set()  # one that met a fault and came to its end has all of them
        return
    torn = [n for n, data in now.items() if data not in (old.get(n), new.get(n)) and (n in old or n in new)]
    lost = [n for n in old if n in new and n not in now]
    if torn or lost:
        yield f"torn {torn}, lost {lost}"


def _ending_of(ended: Ended, how: str, *, grows: bool) -> Iterator[str]:
    """Yield what is wrong with how a process that was stopped ended."""
    if how == "KILL":
        if ended.code != -signal.SIGKILL:
            yield f"it was not killed ({ended.code}): {ended.said[-300:]}"
        return
    code = {"INT": (130,), "TERM": (130, 143) if grows else (143,)}.get(how, (2,))
    lines = ended.said.splitlines()
    if ended.code not in (0, *code) or len(lines) > 1 or any(not x.startswith("rackplan: ") for x in lines):
        yield f"{ended.code}: {ended.said[-600:]}"
    if ended.code in code and not lines and not grows:
        yield f"{ended.code} without a word"


def main() -> None:
    """Try the cases that were asked for and print what was found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", nargs="*", help="names of cases; all")
    parser.add_argument("--with", dest="how", choices=[*_SIGNALS, *_READS], default="KILL")
    parser.add_argument("--every", type=int, default=1, help="stop before each N-th event only")
    parser.add_argument("--show", type=int, default=3, help="wrong ones of a case that are printed")
    parser.add_argument("--small", action="store_true", help="the way of writing alone, without commands")
    asked = parser.parse_args()
    unknown = set(asked.cases) - set(CASES)
    if unknown:
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    total = Found()
    for name, case in CASES.items():
        chosen = name.startswith("small") if asked.small else not asked.cases or name in asked.cases
        if not chosen:
            continue
        for over in (False, True) if case.old else (False,):
            with tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as scratch:
                found = tried(case, Path(scratch), over=over, how=asked.how, every=asked.every)
            print(
                f"{name}{' over old' if over else ''}: {found.stops} stops, {found.mixed} mixed, "
                f"{found.litter} left something, {len(found.wrong)} wrong",
                flush=True,
            )
            for line in found.wrong[: asked.show]:
                print("   ", line)
            total.stops += found.stops
            total.mixed += found.mixed
            total.litter += found.litter
            total.wrong += found.wrong
    print(
        f"{asked.how}: {total.stops} stops, {total.mixed} mixed after the next start, {total.litter} left something "
        f"after it, {len(total.wrong)} wrong"
    )
    sys.stdout.flush()
    os._exit(bool(total.wrong))  # threads of libraries that were forked from do not always let a process end


if __name__ == "__main__":
    main()
