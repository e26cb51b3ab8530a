"""``benchmarks/kernels.py`` without a GPU: work by hand, fractions of a faked timer, what is missing."""

import csv
import math
import sys
from types import SimpleNamespace

import pytest

from cost.inputs.deployment import Deployment
from cost.inputs.layout import StageSpec
from cost.inputs.machine import stage_rates
from cost.inputs.workload import Workload
from cost.resolve import resolve_model
from cost.terms.dense import dense_work
from cost.terms.work import kernel_seconds
from helpers import ROOT, script
from topology import resolve_cluster
from topology.catalog import load_gpu

pytestmark = pytest.mark.skipif(
    not (ROOT / "benchmarks").is_dir(), reason="the benchmarks are not part of this copy"
)
H200, A100 = (load_gpu(name) for name in ("h200-sxm", "a100-sxm"))


@pytest.fixture(scope="module")
def bench():
    return script("benchmarks/kernels.py", "kernel_benchmark")


def at_half(kernel):
    """Twice the seconds at the peaks of an H200, which are 989.5 and 1,979 Tflop/s and 4.8 TB/s."""
    peak = {"bf16": 989.5e12, "fp8": 1979e12}[kernel.dtype]
    return "faked", 2 * max(kernel.flop / peak, kernel.read / 4.8e12)


def by_name(rows, name, /, **known):
    return [row for row in rows if row["kernel"] == name and all(row[key] == known[key] for key in known)]


def gpu_of_torch(monkeypatch, device, *, there=True):
    """A PyTorch that finds a GPU of that name, or none, and can do no more."""
    cuda = SimpleNamespace(is_available=lambda: there, get_device_name=lambda: device)
    version = SimpleNamespace(hip=None, cuda="12.8")
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda, version=version, __version__="2.9"))


# work


@pytest.mark.parametrize(
    ("made", "flop", "read"),
    [
        (("dense", "qkv", "bf16", 1), 2 * 8192 * 10_240, 2 * 8192 * 10_240),
        (("dense", "down", "fp8", 4096), 2 * 28_672 * 8192 * 4096, 28_672 * 8192),
        (("experts", "bf16", 16), 2 * 32 * 16 * 7168 * 4096, 2 * 32 * 7168 * 4096),
        (("experts", "fp8", 1), 2 * 32 * 7168 * 4096, 32 * 7168 * 4096),
        (("prompt", 4096), 4 * 64 * 128 * 4096 * 4096 / 2, 0),
        (("decode", 8192), 4 * 64 * 128 * 64 * 8192, 2 * 8 * 128 * 2 * 64 * 8192),
        (("memory", "sum"), 0, 2**32),
    ],
)
def test_work_of_a_kernel_by_hand(bench, made, flop, read):
    name, *size = made
    kernel = getattr(bench, name)(*size)
    assert (kernel.flop, kernel.read) == (flop, read)


def test_sizes_are_those_of_the_catalog_s_models(bench):
    llama, deepseek = (resolve_model(name) for name in ("llama-3.1-70b", "deepseek-v3"))
    attention, moe = llama.layers[0].attention, deepseek.layers[-1].ffn
    assert bench.DENSE["down"] == (llama.layers[0].ffn.params // 3 // llama.hidden, llama.hidden)
    assert math.prod(bench.DENSE["qkv"]) == attention.matmul_params - llama.hidden**2
    assert bench.decode(1024).flop == 512 * attention.decode_flop(1024)
    assert bench.decode(1024).read == 512 * attention.read_bytes(1024, 2)
    assert bench.prompt(4096).flop == pytest.approx(4096 * attention.prefill_flop(4096), rel=3e-4)
    assert bench.experts("fp8", 1).read == 32 * moe.expert_params * 2 / 3  # gate and up of three matrices
    assert (moe.columns, moe.experts) == (bench.INNER, 8 * bench.EXPERTS)


def test_rows_go_from_1_to_8192_and_tokens_of_an_expert_to_512(bench):
    made = bench.kernels()
    powers = [2**power for power in range(14)]
    for dtype in ("bf16", "fp8"):
        dense = [one.rows for one in made if one.name == "dense" and one.dtype == dtype and "qkv" in one.size]
        assert dense == powers
        assert [one.rows for one in made if one.name == "experts" and one.dtype == dtype] == powers[:10]


# fractions


@pytest.mark.parametrize("dtype", ["bf16", "fp8"])
def test_fractions_of_the_model_are_those_of_its_own_steps(bench, dtype):
    deployment = Deployment(resolve_cluster("hgx-h200"), resolve_model("llama-3.1-70b"), Workload())
    machine = deployment.machine(StageSpec(tuple(range(8)), range(80)))
    weights = {"bf16": "bf16", "fp8": "fp8-row"}[dtype]
    rates = stage_rates(deployment.cluster, range(8), [weights])
    for rows in (1, 256, 8192):
        kernel = bench.dense("down", dtype, rows)
        found = bench.fractions(kernel, 1.0, H200)
        for phase, known in (("decode", machine.efficiency), ("prompts", machine.of_prompts.efficiency)):
            work = dense_work(
                kernel.read / bench.BYTES[dtype], tokens=rows, tp=1, hidden=8192, weights=weights, rates=rates
            )
            seconds = kernel_seconds(*work.seconds(known), known)
            assert found[f"model_{phase}"] == pytest.approx(found["of_data_sheet"] / seconds)


def test_a_run_at_half_of_the_data_sheet(bench, tmp_path, capsys):
    path = tmp_path / "half.csv"
    bench.report({"gpu": "h200-sxm", "driver": "570.1"}, at_half, H200, path)
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(bench.kernels())
    assert [float(row["of_data_sheet"]) for row in rows] == pytest.approx([0.5] * len(rows))
    assert {row["driver"] for row in rows} == {"570.1"}
    known = bench.efficiencies(H200)["decode"]
    (summed, copied) = by_name(rows, "memory")
    assert (
        float(summed["model_decode"]) == float(copied["model_decode"]) == pytest.approx(known["hbm.weights"])
    )
    assert summed["tflop_s"] == summed["model_prompts"] == ""
    assert float(summed["tb_s"]) == pytest.approx(2.4)
    # scores of prompts take .55 of their time, but never more than .75 of the peak
    (prompt,) = by_name(rows, "prompt", rows="4096")
    assert known["attention.prefill"] / 0.55 > 0.75
    assert (float(prompt["model_prompts"]), prompt["model_decode"]) == (pytest.approx(0.75), "")
    assert float(prompt["tflop_s"]) == pytest.approx(989.5 / 2)
    out = capsys.readouterr().out
    assert out.count("| faked |") == len(rows)
    assert f"| gemm.fp8 | 0.50 | {known['gemm.fp8']:.2f} | {known['gemm.fp8'] / 0.7:.2f} |" in out
    assert "Not measured" not in out


@pytest.mark.parametrize(("phase", "share"), [("decode", 1.0), ("prompts", 1.5)])
def test_what_the_model_takes_for_experts_by_hand(bench, phase, share):
    kernel, known = bench.experts("fp8", 256), bench.efficiencies(H200)["decode"]
    compute_s, read_s = kernel.flop / 1979e12, kernel.read / 4.8e12
    reached = max(known["experts.fp8"], known["experts.bf16"] / 2) / share
    narrow = known["columns.experts"] / (2048 * 300 * 4.8e12 / 1979e12)
    seconds = math.hypot(compute_s * (1 / reached + narrow), read_s / known["hbm.experts"])
    found = bench.fractions(kernel, 1.0, H200)
    assert found[f"model_{phase}"] == pytest.approx(max(compute_s, read_s) / seconds)
    assert found["coefficient"] == "experts.fp8"


def test_the_model_multiplies_fp8_in_bf16_where_that_is_faster(bench):
    gpu = load_gpu("l40s")
    known = bench.efficiencies(gpu)["decode"]
    peak, bf16, hbm = (gpu.figure(f"{name}_per_s").value for name in ("fp8_flop", "bf16_flop", "hbm_bytes"))
    assert known["gemm.bf16"] * bf16 > known["gemm.fp8"] * peak
    kernel = bench.dense("down", "fp8", 8192)
    narrow = known["columns.gemm"] * peak / (8192 * 300 * hbm)
    compute_s = kernel.flop * (1 / (known["gemm.bf16"] * bf16) + narrow / peak)
    seconds = math.hypot(compute_s, kernel.read / hbm / known["hbm.weights"])
    assert bench.fractions(kernel, 1.0, gpu)["model_decode"] == pytest.approx(kernel.flop / peak / seconds)


def test_what_binds_changes_where_an_h200_has_as_many_flop_a_byte(bench):
    # 1,979 Tflop/s over 4.8 TB/s are 412 flop a byte: 206 tokens of an expert in FP8
    binds = [bench.fractions(bench.experts("fp8", tokens), 1.0, H200)["coefficient"] for tokens in (206, 207)]
    assert binds == ["hbm.experts", "experts.fp8"]


# what is missing


def test_formats_that_a_gpu_lacks_are_listed_and_not_tried(bench, tmp_path, capsys):
    tried = []

    def timer(kernel):
        tried.append(kernel.dtype)
        return "faked", 1.0

    bench.report({"gpu": A100.name}, timer, A100, tmp_path / "a100.csv")
    assert set(tried) == {"bf16"}
    out = capsys.readouterr().out
    assert "Not measured: dense qkv 8192x10240 fp8, rows 1, 2, 4, 8, " in out
    assert out.count("the catalog has no FP8 units of a100-sxm.") == 3
    assert "gemm.fp8" not in out


def test_a_kernel_that_pytorch_lacks_is_a_row_with_the_reason(bench, tmp_path, capsys):
    def timer(kernel):
        if kernel.name == "decode":
            raise bench.NotMeasuredError("sdpa flash: No available kernel")
        return at_half(kernel)

    path = tmp_path / "some.csv"
    bench.report({"gpu": H200.name}, timer, H200, path)
    with path.open(encoding="utf-8", newline="") as file:
        rows = by_name(csv.DictReader(file), "decode")
    assert [row["not_measured"] for row in rows] == ["sdpa flash: No available kernel"] * 3
    assert {row["us"] for row in rows} == {""}
    assert "decode 64/8 heads, 64 sequences bf16, rows 8,192: sdpa flash: No" in capsys.readouterr().out


class Clock:
    """Events of a GPU whose calls take the seconds that they return."""

    def __init__(self):
        self.now = 0.0
        self.synchronize = self.empty_cache = lambda: None
        self._sleep = lambda _: None
        self.get_device_properties = lambda: SimpleNamespace(gcnArchName="gfx942:sramecc+")

    def Event(self, **_):  # noqa: N802 - PyTorch's name
        event = SimpleNamespace()
        event.record = lambda: setattr(event, "at", self.now)
        event.elapsed_time = lambda end: (end.at - event.at) * 1e3
        return event


@pytest.fixture
def timed(bench):
    """PyTorch's timer with ways of our own, each some seconds or an error."""
    clock = Clock()
    timer = bench.Torch(SimpleNamespace(cuda=clock, version=SimpleNamespace(hip="6.3")))

    def with_ways(kernel, **ways):
        def call(number, takes):
            if isinstance(takes, Exception):
                raise takes
            clock.now += takes * 10.0 ** (number % 3 - 1)

        made = {way: lambda number, takes=takes: call(number, takes) for way, takes in ways.items()}
        setattr(timer, f"_{kernel.name}", lambda _: made)
        return timer(kernel)

    return with_ways


def test_the_median_of_the_timed_calls(bench, timed):
    assert timed(bench.dense("qkv", "bf16", 1), mm=0.25) == ("mm", pytest.approx(0.25))


def test_attention_takes_the_fastest_way_and_experts_the_first_that_works(bench, timed):
    no = RuntimeError("needs 9.0.\nStack: many lines")
    assert timed(bench.prompt(1024), flash=0.5, cudnn=0.25, efficient=no)[0] == "cudnn"
    assert timed(bench.experts("bf16", 1), grouped=0.5, bmm=0.25)[0] == "grouped"
    assert timed(bench.experts("bf16", 1), grouped=no, bmm=0.25)[0] == "bmm"
    with pytest.raises(bench.NotMeasuredError, match=r"^grouped: needs 9\.0; bmm: needs 9\.0$"):
        timed(bench.experts("bf16", 1), grouped=no, bmm=no)


def test_no_call_finds_its_weights_in_a_cache(bench):
    """Copies of a weight of 84 MB are taken in turn, 1 GiB of others between two reads of one, for all rows."""
    made = []

    def randn(*shape, **_):
        number = len(made)
        made.append(SimpleNamespace(transpose=lambda *_: number))
        return SimpleNamespace(to=lambda _: made[number])

    torch = SimpleNamespace(
        cuda=Clock(), version=SimpleNamespace(hip=None), randn=randn, bfloat16=None, float8_e4m3fn=None
    )
    timer = bench.Torch(torch)
    weights = timer._weights(bench.dense("qkv", "fp8", 1), 10_240, 8192)
    assert [weights(call) for call in range(14)] == [*range(13), 0]
    assert 13 * 8192 * 10_240 > 2**30 > 12 * 8192 * 10_240
    assert timer._weights(bench.dense("qkv", "fp8", 2), 10_240, 8192)(0) == 0
    assert timer._weights(bench.dense("qkv", "bf16", 2), 10_240, 8192)(0) == 13


@pytest.mark.parametrize(
    ("hip", "name"), [("6.3", "float8_e4m3fnuz"), (None, "float8_e4m3fn")], ids=["mi300x", "nvidia"]
)
def test_fp8_of_each_chip(bench, hip, name):
    made = bench.Torch(SimpleNamespace(cuda=Clock(), version=SimpleNamespace(hip=hip)))
    assert made._types["fp8"] == name


# which GPU, and refusals


@pytest.mark.parametrize(
    ("device", "name"),
    [
        ("NVIDIA H200", "h200-sxm"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("NVIDIA A100-SXM4-40GB", "a100-sxm-40gb"),
        ("NVIDIA B300 SXM6 AC", "b300-sxm"),
        ("AMD Instinct MI300X VF", "mi300x"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA A100-PCIE-40GB", "a100-pcie-40gb"),
        ("NVIDIA A30", None),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", None),
        ("NVIDIA GeForce RTX 4090", None),
    ],
)
def test_names_that_drivers_give(bench, device, name):
    gpu = bench.gpu_of(device)
    assert (gpu and gpu.name) == name


def run(bench, monkeypatch, capsys, *options):
    monkeypatch.setattr(bench, "Torch", lambda _: at_half)
    code = bench.main(options)
    found = capsys.readouterr()
    return code, found.out, found.err


def test_without_pytorch(bench, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "torch", None)  # as an import of what is not installed
    code, out, err = run(bench, monkeypatch, capsys)
    assert (code, out) == (2, "")
    assert err == "kernels.py times kernels of PyTorch, which is not installed here (pip install torch).\n"


def test_without_a_gpu(bench, monkeypatch, capsys):
    gpu_of_torch(monkeypatch, "", there=False)
    code, out, err = run(bench, monkeypatch, capsys)
    assert (code, out) == (2, "")
    assert err == "kernels.py needs an NVIDIA or AMD GPU, and PyTorch finds none on this machine.\n"


def test_an_unknown_gpu_has_rates_alone_or_the_peaks_of_the_one_it_is_given(
    bench, monkeypatch, capsys, tmp_path
):
    monkeypatch.chdir(tmp_path)
    gpu_of_torch(monkeypatch, "NVIDIA GeForce RTX 4090")
    code, out, err = run(bench, monkeypatch, capsys)
    assert code == 0
    assert err.startswith(
        "The catalog has no NVIDIA GeForce RTX 4090: rates alone; --gpu ID compares with one of a100-sxm,"
    )
    assert "| tflop_s | tb_s |\n" in out
    (path,) = tmp_path.iterdir()
    assert path.name.startswith("kernels-nvidia-geforce-rtx-4090-20")
    with path.open(encoding="utf-8", newline="") as file:
        row = next(csv.DictReader(file))
    assert (row["gpu"], row["runtime"], row["of_data_sheet"]) == ("unknown", "CUDA 12.8", "")
    code, out, err = run(bench, monkeypatch, capsys, "--gpu", "H200", "--output", "own.csv")
    assert (code, err) == (0, "")
    with (tmp_path / "own.csv").open(encoding="utf-8", newline="") as file:
        halves = [float(row["of_data_sheet"]) for row in csv.DictReader(file)]
    assert halves == pytest.approx([0.5] * len(bench.kernels()))


@pytest.mark.parametrize(
    ("options", "said"),
    [(("--gpu", "h2000"), 'unknown GPU "h2000"'), (("--output", "no/such.csv"), "no/such.csv: cannot write")],
)
def test_what_cannot_be_is_refused_before_anything_is_timed(
    bench, monkeypatch, capsys, tmp_path, options, said
):
    monkeypatch.chdir(tmp_path)
    gpu_of_torch(monkeypatch, "NVIDIA H200")
    code, out, err = run(bench, monkeypatch, capsys, *options)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(said)
    assert list(tmp_path.iterdir()) == []
