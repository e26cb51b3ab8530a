"""One pool or two: how far off the throughput of each is on measured runs, and how often the better one is named.

``python benchmarks/calibration/ways.py SILICON.csv [AMD.csv SINCE.csv]``. Measured throughput is that of a closed
loop: requests in flight x tokens of an answer / (time to the first token + answer x time per token). Where one model,
chip, format and lengths was measured both ways, each way's best at a speed per user is compared with what ``sweep``
says of as many GPUs, with the drafts that ran.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from inferencex import read_inferencex
from silicon import read_silicon

from cost.calibration.correction import shipped_correction
from cost.calibration.serving import accept_length
from cost.inputs.deployment import Deployment
from cost.inputs.workload import Workload
from cost.serving.lengths import Lengths
from cost.serving.serving import ONE_POOL, TWO_POOLS, Serving
from cost.validation.predict import gpus_of, group_points, values_of
from cost.validation.read import Point
from topology.files.resolve import resolve_cluster

WAYS = {"aggregated": ONE_POOL, "disaggregated": TWO_POOLS}
SPEEDS = (20.0, 30.0, 50.0, 75.0, 100.0)
Question = tuple[str, str, str, str, int, int]


@dataclass(frozen=True)
class Run:
    """A measured run: its point, and tokens per second of a user and of a GPU."""

    point: Point
    tok_s_user: float
    tok_s_per_gpu: float


def measured(files: Sequence[Path]) -> list[Run]:
    """Return the runs that give both times and did not saturate."""

    def read(quantity: str) -> Iterable[Point]:
        yield from read_silicon(files[0], quantity)
        for path in files[1:]:
            yield from read_inferencex(path, quantity)

    first = {_run(point): point.measured / 1e3 for point in read("ttft_ms")}
    runs = []
    for point in read("tpot_ms"):
        if point.phase in WAYS and _run(point) in first and not point.saturated:
            seconds = first[_run(point)] + point.osl * point.measured / 1e3
            rate = point.concurrency * point.osl / seconds / gpus_of(point)
            if np.isfinite(rate):
                runs.append(Run(point, 1e3 / point.measured, rate))
    return runs


def _run(point: Point) -> Point:
    return replace(point, quantity="", measured=1.0, token_kind="", pair="", notes="")


def biases(runs: Sequence[Run]) -> None:
    """Print the median of predicted over measured throughput by chip and way."""
    kind = {"token_kind": "output"}
    asked = [replace(run.point, quantity="tok_s_per_gpu", **kind) for run in runs]
    over = values_of(asked, shipped_correction()) / np.array([run.tok_s_per_gpu for run in runs])
    print(f"{'chip':14}{'one pool':>18}{'two pools':>18}{'apart':>8}")
    for cluster in sorted({run.point.cluster for run in runs}):
        found = [
            over[[run.point.cluster == cluster and run.point.phase == phase for run in runs]]
            for phase in WAYS
        ]
        cells = [f"{np.nanmedian(one) - 1:+.1%} of {len(one)}" if len(one) else "-" for one in found]
        apart = f"{np.nanmedian(found[1]) / np.nanmedian(found[0]) - 1:+.1%}" if all(map(len, found)) else "-"
        print(f"{cluster:14}{cells[0]:>18}{cells[1]:>18}{apart:>8}")


def winners(runs: Sequence[Run]) -> None:
    """Print for each question measured both ways at how many speeds the better way is named."""
    groups: dict[Question, dict[str, list[Run]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        one = run.point
        key = one.model, one.cluster, one.weights, one.experts_dtype, one.isl, one.osl
        groups[key][one.phase].append(run)
    named = counted = 0
    for key, both in sorted(groups.items()):
        if len(both) < len(WAYS):
            continue
        said, right = _named(key, both)
        print(f"{' '.join(map(str, key)):60} {right} of {said} speeds")
        named, counted = named + (2 * right > said > 0), counted + (said > 0)
    print(f"the better way is named at most speeds in {named} of {counted} groups")


def _named(key: Question, both: Mapping[str, Sequence[Run]]) -> tuple[int, int]:
    """Speeds at which both ways were measured, and those at which the better one is named."""
    every = [run.point for runs in both.values() for run in runs]
    gpus = max(8, -(-int(max(map(gpus_of, every))) // 8) * 8)
    group = group_points([every[0]])[0][0]
    drafts = {min(point.draft_tokens, 3) for point in every}
    best: dict[str, list[tuple[np.ndarray, np.ndarray]]] = defaultdict(list)
    for number in sorted(drafts):
        work = Workload(
            kv_dtype=group.workload.kv_dtype, draft_tokens=number, accept_length=accept_length(number)
        )
        where = resolve_cluster(f"{key[1]}@{gpus}")
        for name, found in (
            Serving.of(Deployment(where, group.model, work), Lengths.of(*key[4:])).ways().items()
        ):
            best[name].append((found.tok_s_per_user, found.output_tok_s_per_gpu))
    said = right = 0
    for speed in SPEEDS:
        ran = [
            max((r.tok_s_per_gpu for r in both[way] if r.tok_s_user >= speed), default=0.0) for way in WAYS
        ]
        if min(ran) > 0:
            ours = [
                max((rate[fast >= speed].max(initial=0.0) for fast, rate in best[way]), default=0.0)
                for way in WAYS.values()
            ]
            print(f"    {speed:g}: {ran[0]:,.0f} / {ran[1]:,.0f} ran, {ours[0]:,.0f} / {ours[1]:,.0f} ours")
            said, right = said + 1, right + ((ran[0] > ran[1]) == (ours[0] > ours[1]))
    return said, right


if __name__ == "__main__":
    RUNS = measured([Path(name) for name in sys.argv[1:]])
    biases(RUNS)
    winners(RUNS)
