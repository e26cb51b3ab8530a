"""Broken and hostile input for every reader: each is read or refused in one line, soon, and nothing in it is run.

``python benchmarks/fuzz [--inputs N] [--seed S] [--reader NAME ...] [--jobs J] [--keep DIR]``: whole inputs, made
here, are changed by their structure (keys, cells, opcodes, headers) and by their bytes. An input is known by its
reader, seed and number, and made again by ``--only NUMBER``. Found is: any error but those for people, a warning,
more than 5 s of CPU or 500 MB for what is refused, a file written or a program started, a message that is not one
printable line. ``--guided`` has libFuzzer (atheris) choose by what code is reached, where it is installed.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]

from mutations import FORMS
from reader import Reader, Seed
from watched import SCRATCH, Finding, Watch

ROUND = 200
"""Inputs of a reader in a row: a reader's caches stay warm."""
_ADDRESS_SPACE = 6 * 2**30


def all_readers() -> tuple[Reader, ...]:
    """Return every reader."""
    import readers_commands
    import readers_files
    import readers_topology

    return (*readers_topology.READERS, *readers_files.READERS, *readers_commands.READERS)


def made(reader: Reader, seeds: list[Seed], seed: int, number: int) -> tuple[str, bytes]:
    """Return file name and bytes of an input; the first ones are whole."""
    if number < len(seeds):
        return seeds[number].file, seeds[number].data
    random = Random(f"{seed}/{reader.name}/{number}")
    one = random.choice(seeds)
    data = FORMS[one.form](one.data, random)
    while random.random() < 0.25:
        data = FORMS[one.form](data, random)
    return one.file, data[:1_000_000]


def schedule(readers: tuple[Reader, ...], inputs: int) -> list[tuple[int, int, int]]:
    """Return (reader, first number, count) in turns, as many inputs in all as asked for."""
    total = sum(reader.share for reader in readers)
    left = [max(1, round(inputs * reader.share / total)) for reader in readers]
    done = [0] * len(readers)
    found: list[tuple[int, int, int]] = []
    while any(left):
        for place, reader in enumerate(readers):
            if count := min(left[place], max(1, ROUND * reader.share // 10)):
                found.append((place, done[place], count))
                done[place] += count
                left[place] -= count
    return found


def work(orders: Any, answers: Any, place: Any, seed: int, names: list[str]) -> None:
    """Read inputs until there are no more orders."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_AS, (_ADDRESS_SPACE, _ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    readers = {reader.name: reader for reader in all_readers() if reader.name in names}
    seeds: dict[str, list[Seed]] = {}
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        os.chdir(folder)
        (Path(folder) / SCRATCH).mkdir()
        tempfile.tempdir = str(Path(folder) / SCRATCH)
        watch = Watch(Path(folder))
        while (order := orders.get()) is not None:
            name, first, count = order
            reader = readers[name]
            if name not in seeds:
                seeds[name] = reader.seeds()
            outcomes: Counter[str] = Counter()
            found: list[tuple[Finding, int, str, bytes]] = []
            start = time.process_time()
            for number in range(first, first + count):
                place.value = number
                file, data = made(reader, seeds[name], seed, number)
                outcome, wrong = watch.look(reader, watch.put(file, data))
                outcomes[outcome] += 1
                if outcome != "read" and number < len(seeds[name]):
                    wrong.append(Finding("seed", name, f"the whole input {number} is not read"))
                found += [(one, number, file, data) for one in wrong]
            answers.put((name, first, count, outcomes, found, time.process_time() - start))


class Run:
    """Workers, what they are at, and what was found."""

    def __init__(
        self, readers: tuple[Reader, ...], seed: int, jobs: int, keep: Path | None, quiet: bool = False
    ) -> None:
        self.names = [reader.name for reader in readers]
        self.readers, self.seed, self.jobs, self.keep, self.quiet = readers, seed, jobs, keep, quiet
        self.context = multiprocessing.get_context("fork")
        self.count: Counter[str] = Counter()
        self.outcomes: dict[str, Counter[str]] = {name: Counter() for name in self.names}
        self.cpu: Counter[str] = Counter()
        self.findings: dict[tuple[str, str], tuple[int, str]] = {}

    def note(self, name: str, finding: Finding, number: int, file: str, data: bytes) -> None:
        """Keep the first input of each finding."""
        key = (finding.kind, finding.where)
        times = self.findings.get(key, (0, ""))[0]
        again = f"--reader {name} --seed {self.seed} --only {number}"
        self.findings[key] = (times + 1, self.findings[key][1] if times else f"{again}\n{finding.words}")
        if times == 0:
            if not self.quiet:
                sys.stdout.write(f"{finding.kind}: {finding.where} ({again})\n{_indented(finding.words)}\n")
                sys.stdout.flush()
            if self.keep is not None:
                folder = self.keep / f"{finding.kind}-{name}-{self.seed}-{number}"
                folder.mkdir(parents=True, exist_ok=True)
                (folder / file).write_bytes(data)
                (folder / "found.txt").write_text(
                    f"{finding.where}\n{again}\n{finding.words}\n", encoding="utf-8"
                )

    def go(self, inputs: int, deadline: float = float("inf")) -> None:
        """Read so many inputs."""
        pending = [
            (self.names[place], first, count) for place, first, count in schedule(self.readers, inputs)
        ][::-1]
        workers = [_Worker(self) for _ in range(min(self.jobs, len(pending)))]
        said = time.monotonic()
        while pending or any(worker.order for worker in workers):
            for worker in workers:
                if worker.order is None and pending and time.monotonic() < deadline:
                    worker.give(pending.pop())
                elif time.monotonic() >= deadline:
                    pending.clear()
                worker.look(pending)
            time.sleep(0.005)
            if time.monotonic() - said > 60 and not self.quiet:
                said = time.monotonic()
                sys.stdout.write(f"{sum(self.count.values()):,} inputs, {len(self.findings)} findings\n")
                sys.stdout.flush()
        for worker in workers:
            worker.end()


class _Worker:
    """A process that reads, and is replaced where it hangs or dies."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.order: tuple[str, int, int] | None = None
        self._begin()

    def _begin(self) -> None:
        context = self.run.context
        self.orders, self.answers, self.place = (
            context.SimpleQueue(),
            context.SimpleQueue(),
            context.Value("q", -1, lock=False),
        )
        self.process = context.Process(
            target=work, args=(self.orders, self.answers, self.place, self.run.seed, self.run.names)
        )
        self.process.start()
        self.seen = (-2, 0.0)

    def give(self, order: tuple[str, int, int]) -> None:
        """Give it inputs to read."""
        self.order = order
        self.orders.put(order)

    def look(self, pending: list[tuple[str, int, int]]) -> None:
        """Take its answer; replace it where it hangs in code that no signal reaches, or died."""
        run = self.run
        if self.order is None:
            return
        if not self.answers.empty():
            name, _, count, outcomes, found, cpu = self.answers.get()
            run.count[name] += count
            run.outcomes[name] += outcomes
            run.cpu[name] += cpu
            for one in found:
                run.note(name, *one)
            self.order = None
            return
        number = self.place.value
        if number != self.seen[0]:
            self.seen = (number, _cpu_s(self.process.pid))
        dead = not self.process.is_alive()
        if dead or _cpu_s(self.process.pid) - self.seen[1] > 60:
            name, first, count = self.order
            kind = f"died ({self.process.exitcode})" if dead else "hang"
            self.process.kill()
            self.process.join()
            number = max(number, first)
            run.note(
                name,
                Finding(kind, f"{name} in code that is not Python", "the process was ended"),
                number,
                "number",
                str(number).encode(),
            )
            run.count[name] += number - first + 1
            if number + 1 < first + count:
                pending.append((name, number + 1, first + count - number - 1))
            self._begin()
            self.order = None

    def end(self) -> None:
        """Let it end."""
        self.orders.put(None)
        self.process.join(5)
        if self.process.is_alive():
            self.process.kill()


def _cpu_s(pid: int | None) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except OSError:
        return 0.0


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines()[-14:])


def again(reader: Reader, seed: int, number: int) -> None:
    """Read one input without watch, so that its traceback is seen; the input stays in ``fuzz-input``."""
    seeds = reader.seeds()
    file, data = made(reader, seeds, seed, number)
    folder = Path("fuzz-input")
    folder.mkdir(exist_ok=True)
    path = Watch(folder.resolve()).put(file, data)
    sys.stdout.write(f"{path}, {len(data)} bytes:\n{data[:600]!r}\n")
    sys.stdout.flush()
    start = time.process_time()
    try:
        reader.read(path.resolve())
    finally:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        sys.stdout.write(f"{time.process_time() - start:.2f} s of CPU, {peak:,.0f} MB at most\n")


def main() -> int:
    """Fuzz as asked."""
    parser = argparse.ArgumentParser(
        prog="python benchmarks/fuzz", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--inputs", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--reader", action="append", help="by name, or the beginning of names; repeatable")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--keep", type=Path, help="folder for the first input of each finding")
    parser.add_argument("--only", type=int, metavar="NUMBER", help="read one input, with its traceback")
    parser.add_argument("--guided", action="store_true", help="by coverage, with atheris, one --reader")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--json", type=Path, help="file for the counts")
    given = parser.parse_args()
    if given.guided:
        from guided import guide

        guide(
            (given.reader or ["cluster-yaml"])[0],
            given.inputs,
            given.seed,
            given.keep and given.keep.resolve(),
        )
        return 0
    wanted = given.reader or [""]
    readers = tuple(one for one in all_readers() if any(one.name.startswith(name) for name in wanted))
    if not readers:
        parser.error(f"no reader {given.reader}; --list names them")
    if given.list:
        sys.stdout.write("\n".join(f"{one.name}: {', '.join(one.enters)}" for one in readers) + "\n")
        return 0
    if given.only is not None:
        again(readers[0], given.seed, given.only)
        return 0
    run = Run(readers, given.seed, given.jobs, given.keep)
    start = time.monotonic()
    run.go(given.inputs, start + given.minutes * 60)
    return report(run, time.monotonic() - start, given.json)


def report(run: Run, seconds: float, file: Path | None) -> int:
    """Print a line a reader, and what was found; 1 where there is a defect."""
    for name in run.names:
        outcomes, count = run.outcomes[name], max(1, run.count[name])
        sys.stdout.write(
            f"{name:24} {run.count[name]:9,} inputs  {outcomes['read']:9,} read  {outcomes['refused']:9,} refused  "
            f"{run.cpu[name] / count * 1e3:8.2f} ms\n"
        )
    defects = {key: what for key, what in run.findings.items() if key[0] not in ("long", "large")}
    sys.stdout.write(
        f"{sum(run.count.values()):,} inputs, seed {run.seed}, {seconds:,.0f} s, {sum(run.cpu.values()):,.0f} s of CPU, {len(defects)} findings\n"
    )
    for (kind, where), (times, words) in sorted(run.findings.items()):
        sys.stdout.write(f"{times:6} x {kind}: {where} ({words.splitlines()[0]})\n")
    if file is not None:
        file.write_text(
            json.dumps(
                {
                    "seed": run.seed,
                    "count": dict(run.count),
                    "findings": [[*key, *what] for key, what in run.findings.items()],
                },
                indent=1,
            ),
            encoding="utf-8",
        )
    return 1 if defects else 0


if __name__ == "__main__":
    sys.exit(main())
