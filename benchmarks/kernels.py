"""What the GPU at hand reaches in the kernels that the cost model prices, beside its data sheet and the fitted model.

``python benchmarks/kernels.py [--gpu ID] [--output FILE.csv]`` needs PyTorch and one NVIDIA or AMD GPU; it takes a
minute or two and 10 GB of GPU memory. Times are medians of single calls between two events, after a warm-up, with
weights that no cache holds. Work is counted as the cost model counts it: flop, and bytes of weights or of the KV
cache; activations are left out, a few percent where reading binds. A fraction of the data sheet is the time at the
catalog's peaks (the longer of computing and reading) over the time taken, and one of the model the same over the
seconds that the model gives such a kernel: in steps that decode, and for prompts beside them. The model was fitted to
served requests: it counts some of what engines lose around kernels as the kernels' own.
"""

from __future__ import annotations

import argparse
import csv
import datetime as dt
import importlib
import io
import math
import re
import statistics
import sys
import textwrap
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from cost.calibration.serving import calibrated
from cost.dtypes import wider_units
from cost.inputs.machine import Efficiency, Unit
from cost.terms.work import Work, filling, kernel_seconds
from topology.base.errors import InputError
from topology.base.files import require_place, write_whole
from topology.catalog import gpu_names, load_gpu
from topology.catalog.spelled import find_gpu
from topology.spec import GpuSpec

HIDDEN, HEADS, KV_HEADS, HEAD = 8192, 64, 8, 128
DENSE = {"qkv": (HIDDEN, (HEADS + 2 * KV_HEADS) * HEAD), "down": (28_672, HIDDEN)}
"""Llama 3.1 70B on one GPU, as its config has it: inputs and outputs of two projections of a layer."""
EXPERTS, INNER, EXPERT_HIDDEN = 32, 2048, 7168
"""DeepSeek-V3, as its config has it: gate and up of 32 of its 256 experts, those of one GPU of eight."""
BYTES = {"bf16": 2, "fp8": 1}
CACHED = 2**19
"""Tokens in the cache of all sequences that decode: 2 GB, many times a cache of the chip."""
BUFFER = 2**32
ROTATED = 2**30
"""Bytes of the copies of a weight that calls take in turn."""
WARM, REPEATS, AHEAD = 10, 30, 20_000_000
"""Calls before those timed, calls timed, and cycles that the GPU waits before them while Python queues them."""
KEYS = ("kernel", "size", "dtype", "rows", "way", "us", "tflop_s", "tb_s")
FRACTIONS = ("of_data_sheet", "model_decode", "model_prompts", "coefficient")
"""Columns of the printed table, after which the CSV has why a kernel was not measured, and where and when."""
LACKING = (AttributeError, ImportError, RuntimeError, TypeError, ValueError)
"""What PyTorch raises where its version, the GPU or its memory lacks something."""
Row = dict[str, Any]


class NotMeasuredError(Exception):
    """The GPU or PyTorch lacks a kernel, for the reason given."""


@dataclass(frozen=True)
class Kernel:
    """A kernel at one size, its work and the coefficients of the cost model behind it.

    Attributes
    ----------
    rows:
        Rows of a dense GEMM, tokens an expert, tokens of a prompt or in the cache of a sequence.
    shape:
        What else its tensors need: inputs and outputs, after the number of experts; sequences; bytes.
    flop, read:
        Flop, and bytes of weights, of the cache or of a buffer.
    fraction, hbm, columns:
        Coefficients of computing and of reading, and the columns by which the model derates narrow weights.
    phases:
        Steps that run such a kernel.
    """

    name: str
    size: str
    dtype: str
    rows: int
    shape: tuple[int, ...]
    flop: float
    read: float
    fraction: str
    hbm: str
    columns: float = math.inf
    phases: tuple[str, ...] = ("decode", "prompts")


def dense(size: str, dtype: str, rows: int) -> Kernel:
    """Return a projection of ``rows`` tokens."""
    inputs, outputs = DENSE[size]
    weights = inputs * outputs
    work = 2 * weights * rows, weights * BYTES[dtype], f"gemm.{dtype}", "hbm.weights", HIDDEN
    return Kernel("dense", f"{size} {inputs}x{outputs}", dtype, rows, (inputs, outputs), *work)


def experts(dtype: str, tokens: int) -> Kernel:
    """Return gate and up of experts with ``tokens`` tokens each."""
    shape = EXPERTS, EXPERT_HIDDEN, 2 * INNER
    weights = math.prod(shape)
    work = 2 * weights * tokens, weights * BYTES[dtype], f"experts.{dtype}", "hbm.experts", INNER
    return Kernel("experts", "x".join(map(str, shape)), dtype, tokens, shape, *work)


def prompt(tokens: int) -> Kernel:
    """Return causal attention of one prompt: half of all pairs of tokens; its keys were just computed, so no read."""
    work = 2 * HEADS * HEAD * tokens**2, 0, "attention.prefill", "hbm.cache", math.inf
    return Kernel("prompt", f"{HEADS} heads", "bf16", tokens, (1,), *work, phases=("prompts",))


def decode(context: int) -> Kernel:
    """Return attention of one query of each sequence over ``context`` tokens, whose cache groups of heads share."""
    read = 2 * KV_HEADS * HEAD * BYTES["bf16"] * CACHED
    work = 4 * HEADS * HEAD * CACHED, read, "attention.decode.bf16", "hbm.cache", math.inf
    size, shape = f"{HEADS}/{KV_HEADS} heads, {CACHED // context} sequences", (CACHED // context,)
    return Kernel("decode", size, "bf16", context, shape, *work, phases=("decode",))


def memory(way: str) -> Kernel:
    """Return the sum of a buffer, or the copy of its first half to its second: both move each byte once."""
    work = 0, BUFFER, "gemm.bf16", "hbm.weights"
    return Kernel("memory", f"{way} of {BUFFER >> 30} GiB", "bf16", 1, (BUFFER,), *work, phases=("decode",))


def kernels() -> list[Kernel]:
    """Return all kernels to time."""
    rows = [2**power for power in range(14)]
    return [
        *map(memory, ("sum", "copy")),
        *(dense(size, dtype, many) for size in DENSE for dtype in BYTES for many in rows),
        *(experts(dtype, many) for dtype in BYTES for many in rows if many <= 512),
        *map(prompt, (1024, 2048, 4096, 8192, 16_384)),
        *map(decode, (1024, 8192, 65_536)),
    ]


def gpu_of(device: str) -> GpuSpec | None:
    """Return the catalog's GPU that drivers call ``device``, None where it has none; parts of GPUs (MIG) are none."""
    # a whole GPU in a virtual machine, and a board of B300
    name = find_gpu(re.sub(r"( VF| SXM6 AC)$", "", device))
    return load_gpu(name) if name else None


@cache
def efficiencies(gpu: GpuSpec) -> Mapping[str, Efficiency]:
    """Return the fitted coefficients in steps that decode, and for prompts beside them."""
    known = calibrated(gpu)
    return {"decode": known, "prompts": known.on_prompts(mixed=True)}


def fractions(kernel: Kernel, seconds: float, gpu: GpuSpec) -> Row:
    """Return a kernel's fractions, and the coefficient of what binds it at peak."""
    peak, hbm = gpu.dense_flop_per_s(kernel.dtype), gpu.hbm_bytes_per_s
    compute_s, read_s = kernel.flop / peak, kernel.read / hbm
    kind, columns = kernel.fraction.partition(".")[0], filling(kernel.columns, peak, hbm)
    units = [unit for unit in wider_units(kernel.dtype) if gpu.multiplies(unit)]
    wider = tuple((f"{kind}.{unit}", gpu.dense_flop_per_s(unit) / peak) for unit in units)
    work = Work(kernel.name, (Unit(kernel.fraction, wider),), kernel.hbm, compute_s, read_s, columns=columns)
    least = max(compute_s, read_s)
    found: Row = {"of_data_sheet": least / seconds}
    for phase in kernel.phases:
        known = efficiencies(gpu)[phase]
        found[f"model_{phase}"] = least / float(kernel_seconds(*work.seconds(known), known))
    return found | {"coefficient": kernel.fraction if compute_s >= read_s else kernel.hbm}


Timer = Callable[[Kernel], tuple[str, float]]
"""Returns the way that a kernel ran, and its seconds."""


def measure(kernel: Kernel, timer: Timer, gpu: GpuSpec | None) -> Row:
    """Return the row of a kernel: rates, fractions where the catalog has the GPU, or why it was not measured."""
    row: Row = {"kernel": kernel.name, "size": kernel.size, "dtype": kernel.dtype, "rows": kernel.rows}
    if gpu and not gpu.multiplies(kernel.dtype):
        return row | {"not_measured": f"the catalog has no {kernel.dtype.upper()} units of {gpu.name}"}
    try:
        way, seconds = timer(kernel)
    except NotMeasuredError as error:
        return row | {"not_measured": str(error)}
    rates = {"tflop_s": kernel.flop / seconds / 1e12 or None, "tb_s": kernel.read / seconds / 1e12 or None}
    return row | {"way": way, "us": seconds * 1e6} | rates | (fractions(kernel, seconds, gpu) if gpu else {})


def shown(value: object) -> str:
    """Return a cell of a printed table."""
    if isinstance(value, float):
        return f"{value:,.1f}" if value >= 10 else f"{value:.2f}"
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def print_row(cells: Iterable[object]) -> None:
    """Print a row of a table."""
    print(f"| {' | '.join(map(shown, cells))} |", flush=True)


def report(about: Mapping[str, object], timer: Timer, gpu: GpuSpec | None, path: Path) -> None:
    """Time all kernels, print a row for each, the best beside each coefficient and what is missing; write the CSV."""
    print(", ".join(f"{name} {value}" for name, value in about.items()), end="\n\n")
    printed = (*KEYS, *FRACTIONS) if gpu else KEYS
    print_row(printed)
    print_row(["---"] * len(printed))
    rows, missing, best = [], defaultdict(list), defaultdict[str, float](float)
    for kernel in kernels():
        rows.append(row := measure(kernel, timer, gpu))
        if reason := row.get("not_measured"):
            missing[f"{kernel.name} {kernel.size} {kernel.dtype}", reason].append(f"{kernel.rows:,}")
            continue
        print_row(row.get(name) for name in printed)
        if gpu:
            best[row["coefficient"]] = max(best[row["coefficient"]], row["of_data_sheet"])
    if gpu:
        print()
        print_row(["coefficient", "best measured", "fitted, decode", "fitted, prompts"])
        print_row(["---"] * 4)
        for name, value in best.items():
            print_row([name, value, *(known[name] for known in efficiencies(gpu).values())])
    for (what, reason), many in missing.items():
        print(f"\nNot measured: {what}, rows {', '.join(many)}: {reason}.")
    text = io.StringIO()
    writer = csv.DictWriter(text, [*KEYS, *FRACTIONS, "not_measured", *about], lineterminator="\n")
    writer.writeheader()
    writer.writerows({**row, **about} for row in rows)
    write_whole(path, text.getvalue().encode())
    print(f"\nWritten to {path}.")


def first_line(error: Exception) -> str:
    """Return the beginning of what PyTorch says, which may go on with a stack."""
    text = (str(error).strip() or type(error).__name__).splitlines()[0]
    return textwrap.shorten(text, 200, placeholder=" ...").rstrip(".")


Ways = dict[str, Callable[[int], object]]
"""Kernels of PyTorch that compute the same, by name; each is called with the number of the call."""


class Torch:
    """PyTorch's own kernels on its current GPU: called with a kernel, the way that ran and its seconds."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        old = torch.version.hip and torch.cuda.get_device_properties().gcnArchName.startswith("gfx94")
        self._types = {"bf16": "bfloat16", "fp8": "float8_e4m3fnuz" if old else "float8_e4m3fn"}
        self._key, self._held = "", list[Any]()

    def __call__(self, kernel: Kernel) -> tuple[str, float]:
        """Return the fastest kernel of attention, else the first that works, and its seconds."""
        found, reasons = dict[str, float](), []
        try:
            ways: Ways = getattr(self, f"_{kernel.name}")(kernel)
        except LACKING as error:
            raise NotMeasuredError(first_line(error)) from None
        for way, call in ways.items():
            try:
                found[way] = self._seconds(call)
            except LACKING as error:
                reasons.append(f"{way}: {first_line(error)}")
            if found and kernel.name == "experts":
                break
        if not found:
            raise NotMeasuredError("; ".join(reasons))
        return min(found.items(), key=lambda one: one[1])

    def _seconds(self, call: Callable[[int], object]) -> float:
        cuda = self.torch.cuda
        for number in range(WARM):
            call(number)
        events = [[cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(REPEATS)]
        cuda.synchronize()
        cuda._sleep(AHEAD)  # noqa: SLF001 - else a short kernel ends before Python asks for the next
        for number, (start, end) in enumerate(events):
            start.record()
            call(number)
            end.record()
        cuda.synchronize()
        ms: float = statistics.median(start.elapsed_time(end) for start, end in events)
        return ms / 1e3

    def _random(self, dtype: str, *shape: int) -> Any:
        """Normal numbers: chips run cooler and faster on equal ones."""
        found = self.torch.randn(*shape, dtype=self.torch.bfloat16, device="cuda")
        return found.to(getattr(self.torch, self._types[dtype]))

    def _weights(self, kernel: Kernel, *shape: int) -> Callable[[int], Any]:
        """Weights that calls take in turn, kept for the next rows of the same."""
        key = f"{kernel.name} {kernel.size} {kernel.dtype}"
        if key != self._key:
            self._key, self._held = "", []
            self.torch.cuda.empty_cache()
            many = math.ceil(ROTATED / kernel.read)
            self._held, self._key = [self._random(kernel.dtype, *shape) for _ in range(many)], key
        held = self._held
        return lambda number: held[number % len(held)].transpose(-2, -1)

    def _ones(self, *shape: int) -> Any:
        return self.torch.ones(shape, dtype=self.torch.float32, device="cuda")

    def _dense(self, kernel: Kernel) -> Ways:
        torch, (inputs, outputs), one = self.torch, kernel.shape, self._ones()
        weights = self._weights(kernel, outputs, inputs)
        x = self._random(kernel.dtype, kernel.rows, inputs)
        if kernel.dtype == "bf16":
            return {"torch.mm": lambda number: torch.mm(x, weights(number))}
        how = {"scale_a": one, "scale_b": one, "out_dtype": torch.bfloat16, "use_fast_accum": True}
        return {"torch._scaled_mm": lambda number: torch._scaled_mm(x, weights(number), **how)}  # noqa: SLF001

    def _experts(self, kernel: Kernel) -> Ways:
        torch, (many, inputs, outputs) = self.torch, kernel.shape
        weights = self._weights(kernel, many, outputs, inputs)
        x = self._random(kernel.dtype, many * kernel.rows, inputs)
        ends = (torch.arange(1, many + 1, device="cuda") * kernel.rows).to(torch.int32)
        if kernel.dtype == "bf16":
            apart = x.view(many, kernel.rows, inputs)
            return {
                "torch._grouped_mm": lambda number: torch._grouped_mm(x, weights(number), offs=ends),  # noqa: SLF001
                "torch.bmm": lambda number: torch.bmm(apart, weights(number)),
            }
        scales = self._ones(many * kernel.rows), self._ones(many, outputs)
        how = {"offs": ends, "out_dtype": torch.bfloat16, "use_fast_accum": True}
        return {
            "torch._scaled_grouped_mm": lambda number: torch._scaled_grouped_mm(  # noqa: SLF001
                x, weights(number), *scales, **how
            )
        }

    def _attention(self, query: Any, key: Any, value: Any, *, causal: bool) -> Ways:
        kinds, attend = self.torch.nn.attention, self.torch.nn.functional.scaled_dot_product_attention

        def way(backend: Any) -> Callable[[int], object]:
            def call(_: int) -> object:
                with kinds.sdpa_kernel(backend):
                    return attend(query, key, value, is_causal=causal)

            return call

        names = ("FLASH_ATTENTION", "CUDNN_ATTENTION", "EFFICIENT_ATTENTION")
        return {f"sdpa {n.partition('_')[0].lower()}": way(getattr(kinds.SDPBackend, n)) for n in names}

    def _prompt(self, kernel: Kernel) -> Ways:
        """Keys and values once a query head: not every backend shares them, and reading does not bind."""
        tensors = (self._random("bf16", 1, HEADS, kernel.rows, HEAD) for _ in range(3))
        return self._attention(*tensors, causal=True)

    def _decode(self, kernel: Kernel) -> Ways:
        """Query heads of a group as queries of their key head: the same scores, each key read once."""
        self._key, self._held = "", []
        query = self._random("bf16", *kernel.shape, KV_HEADS, HEADS // KV_HEADS, HEAD)
        cached = (self._random("bf16", *kernel.shape, KV_HEADS, kernel.rows, HEAD) for _ in range(2))
        return self._attention(query, *cached, causal=False)

    def _memory(self, kernel: Kernel) -> Ways:
        buffer = self._ones(kernel.shape[0] // 4)
        first, second = buffer.chunk(2)
        if kernel.size.startswith("copy"):
            return {"copy_": lambda _: second.copy_(first)}
        return {"torch.sum": lambda _: buffer.sum()}


def refuse(why: str) -> int:
    """Say on stderr what is not done; return the exit code where that is all."""
    print(why, file=sys.stderr)
    return 2


def main(given: Sequence[str] | None = None) -> int:
    """Measure the GPU at hand; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpu", metavar="ID", help="GPU of the catalog that it is")
    parser.add_argument("--output", type=Path, metavar="FILE", help="CSV to write (kernels-GPU-DATE.csv)")
    asked = parser.parse_args(given)
    try:
        torch: Any = importlib.import_module("torch")
    except (ImportError, OSError):
        return refuse("kernels.py times kernels of PyTorch, which is not installed here (pip install torch).")
    if not torch.cuda.is_available():
        return refuse("kernels.py needs an NVIDIA or AMD GPU, and PyTorch finds none on this machine.")
    device, day = torch.cuda.get_device_name(), dt.datetime.now(dt.UTC).date()
    try:
        gpu = load_gpu(find_gpu(asked.gpu) or asked.gpu) if asked.gpu else gpu_of(device)
        name = gpu.name if gpu else re.sub(r"\W+", "-", device.lower())
        path = asked.output or Path(f"kernels-{name}-{day}.csv")
        require_place(path)  # before minutes of work
        if not gpu:
            known = ", ".join(one for one in gpu_names() if load_gpu(one).vendor in {"NVIDIA", "AMD"})
            refuse(f"The catalog has no {device}: rates alone; --gpu ID compares with one of {known}.")
        hip, modules = torch.version.hip, Path("/sys/module")
        version = modules / ("amdgpu" if hip else "nvidia") / "version"
        about = {
            "gpu": gpu.name if gpu else "unknown",
            "device": device,
            "date": day,
            "torch": torch.__version__,
            "runtime": f"ROCm {hip}" if hip else f"CUDA {torch.version.cuda}",
            "driver": version.read_text(encoding="utf-8").strip() if version.is_file() else "unknown",
        }
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of attention kernels that do not apply
            report(about, Torch(torch), gpu, path)
    except InputError as error:
        return refuse(str(error))
    return 0


if __name__ == "__main__":
    sys.exit(main())
