"""What absurd sizes cost every command: CPU seconds and peak memory of each, or the refusal.

``python benchmarks/limits.py [AXIS ...]`` prints the table of ``docs/limits.md``. Each command is a process of its
own; ``rackplan serve`` is asked for its page and ended. An axis is ``layers``, ``experts``, ``gpus``, ``scenarios``,
``just above``, ``together``, ``products`` (at each limit on one), or ``other doors`` (sizes that come in elsewhere).
"""

from __future__ import annotations

import json
import os
import platform
import resource
import signal
import socket
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np

CPU_S, MEMORY_MB, REFUSAL_S = 120.0, 2000.0, 5.0
_KILLED_AFTER_S = 900
_MOST_MEMORY = 8 << 30
"""Beyond, a command is ended: the table is made on machines that are small."""

SMALL = {
    "model_type": "qwen3_moe",
    "architectures": ["Qwen3MoeForCausalLM"],
    "hidden_size": 512,
    "num_hidden_layers": 8,
    "num_experts": 64,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 256,
    "intermediate_size": 1024,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "vocab_size": 32000,
    "max_position_embeddings": 40960,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "tie_word_embeddings": False,
    "hidden_act": "silu",
    "torch_dtype": "bfloat16",
}
MODELS = {
    "small": {},
    "l10000": {"num_hidden_layers": 10_000},
    "l10001": {"num_hidden_layers": 10_001},
    "e4096": {"num_experts": 4_096},
    "e4097": {"num_experts": 4_097},
    "l10000-e4096": {"num_hidden_layers": 10_000, "num_experts": 4_096},
    "l1000-e4096": {"num_hidden_layers": 1_000, "num_experts": 4_096},
    "l61-e4096": {"num_hidden_layers": 61, "num_experts": 4_096},
    "l1000": {"num_hidden_layers": 1_000},
    "l61": {"num_hidden_layers": 61},
    "l62": {"num_hidden_layers": 62},
    "l160-e4096": {"num_hidden_layers": 160, "num_experts": 4_096},
    "l161-e4096": {"num_hidden_layers": 161, "num_experts": 4_096},
    "l10000-e65": {"num_hidden_layers": 10_000, "num_experts": 65, "num_experts_per_tok": 5},
    "top65": {"num_experts_per_tok": 65},
    "hidden": {"hidden_size": 10**9},
    "hidden-most": {"hidden_size": 2**24},
    "heads": {"num_attention_heads": 10**9},
    "vocab": {"vocab_size": 10**9},
    "context": {"max_position_embeddings": 10**18},
}
LOADS = {
    "w10000": (2, 10_000, 64),
    "w4096": (3, 8, 4_096),
    "s1000": (1_000, 58, 256),
    "s1001": (1_001, 58, 256),
    "s1000-small": (1_000, 8, 64),
    "s1000-e4096": (1_000, 8, 4_096),
    "w2": (2, 58, 256),
    "s2000": (2_000, 8, 64),
    "s2001": (2_001, 8, 64),
    "s100000": (100_000, 8, 64),
}
LISTED = """
nodes:
- {{id: "n{{h}}.g{{g}}", kind: gpu, gpu: h100-sxm, domain: "n{{h}}", rail: "{{g}}", repeat: {{h: {hosts}, g: 8}}}}
- {{id: "n{{h}}.s{{s}}", kind: switch, domain: "n{{h}}", repeat: {{h: {hosts}, s: 2}}}}
- {{id: "leaf{{l}}", kind: leaf, repeat: {{l: 8}}}}
- {{id: "spine{{s}}", kind: spine, repeat: {{s: 8}}}}
links:
- {{between: ["n{{h}}.g{{g}}", "n{{h}}.s{{s}}"], count: 9, fabric: nvlink4, repeat: {{h: {hosts}, g: 8, s: 2}}}}
- {{between: ["n{{h}}.g{{g}}", "leaf{{g}}"], fabric: ib-ndr400, repeat: {{h: {hosts}, g: 8}}}}
- {{between: ["leaf{{l}}", "spine{{s}}"], fabric: ib-ndr400, count: {hosts}, repeat: {{l: 8, s: 8}}}}
"""
TORUS = "domains: [{{gpu: tpu-v5p, structure: torus, shape: {shape}, wrap: true, link: 100 GB/s}}]"
HOSTS = "domains: [{{part: hgx-h100, count: {hosts}}}]\nfabric: {{kind: rail, nic: 400 Gb/s}}"
STUDY = "kind: sweep\nfixed: {{model: deepseek-v3, cluster: gb200-nvl72}}\n{points}\n"
GRID = "grid: {{context: {values}, tpot_ms: {values}, isl: {values}, osl: {values}}}"
REPEATED = """
name: repeated
gpu: h100
scale_up: nvlink4
gpus_per_node: 8
repeat: 12600
"""
OF_A_PLAN = (
    "score {p}",
    "explain {p}",
    "what-if {p}",
    "diff {p} {p}",
    "replan {p} --loads lognormal:0.8 --max-moves 100 -o {t}-moved",
    "replan {p} --lost {gpu} -o {t}-lost",
    "draw {c} --plan {p} -o {t}.svg",
    "export {p} --to sglang -o {t}-sglang.json",
    "export {p} --to trtllm -o {t}-trtllm.yaml",
    "export {p} --to vllm-ascend -o {t}-ascend.json",
    "export {p} --to vllm -o {t}-vllm.json",
    "export {p} --to hygon -o {t}-hygon.json",
    "export {p} --to lmdeploy -o {t}-lmdeploy.json",
    "check {t}-sglang.json --for sglang --model {m} --gpus {ep}",
    "import-plan {t}-sglang.json --from sglang --model {m} --cluster {d} -o {t}-imported",
    "serve {p}",
)
OF_A_MODEL = (
    "sweep --model {m} --cluster {c} -o {t}-sweep.html",
    "sweep --model {m} --cluster {c} --isl 4000 --osl 1000 -o {t}-matched.csv",
    "size --model {m} --cluster {c} --tok-s 2M",
    "compare {c} {o} --model {m} -o {t}-compare.html",
    "fleet --model {m} --cluster {c} -o {t}-fleet",
    "plan --model {m} --cluster {c} {x} -o {p}",
)
CASES: dict[str, list[tuple[str, dict[str, str]]]] = {}


def case(axis: str, commands: tuple[str, ...], **words: str) -> None:
    """Add ``commands`` to the cases of ``axis``; a word is what ``{c}`` and so on stand for."""
    default = {"x": "", "o": "hgx-h100", "gpu": "d0.n0.g0", "ep": "72"}
    default |= {"t": f"{axis}-{len(CASES.get(axis, []))}".replace(" ", "-")}
    words = default | {"p": default["t"] + "-plan"} | words
    words = {"d": words.get("c", "")} | words
    CASES.setdefault(axis, []).extend((command, words) for command in commands)


case("layers", OF_A_MODEL + OF_A_PLAN, m="l10000.json", c="gb200-nvl72")
case("layers", OF_A_MODEL[-1:], m="l10000.json", c="gb200-nvl72", x="--stages 8 --ep 8")
case("layers", OF_A_MODEL[-1:], m="l10000.json", c="hgx-h100@64", x="--loads w10000.npy")
case("layers", ("loads w10000.npy", "replay {plan} --loads w10000.npy"), plan="layers-0-plan")
case("experts", OF_A_MODEL + OF_A_PLAN, m="e4096.json", c="gb200-nvl72")
case("experts", OF_A_MODEL[-1:], m="e4096.json", c="hgx-h100@1024", x="--ep 1024")
case("experts", OF_A_MODEL[-1:], m="l61-e4096.json", c="gb200-nvl72", x="--loads lognormal:0.63")
case("experts", ("loads w4096.npy", "replay {plan} --loads w4096.npy"), plan="experts-0-plan")
for cluster, domain in (
    ("gb200-nvl72@100800", "gb200-nvl72"),
    ("hgx-h100@100000", "hgx-h100@32"),
    ("lecture-512@102400", "lecture-512"),
):
    case("gpus", OF_A_MODEL + OF_A_PLAN, m="deepseek-v3", c=cluster, d=domain, o="hgx-h200")
case("gpus", ("traffic {c}", "traffic {c} --pattern random", "draw {c} -o {t}.svg"), c="gb200-nvl72@100800")
case("gpus", ("traffic {c}", "draw {c} -o {t}.yaml", "draw {c} -o {t}.graphml"), c="hgx-h100@100000")
case("gpus", ("traffic {c}", "draw {c} -o {t}.png", "draw {c} -o {t}.json"), c="lecture-512@102400")
case("gpus", OF_A_MODEL[:2] + OF_A_MODEL[-1:], m="llama-3.1-70b", c="hgx-h100@100000")
case("gpus", OF_A_MODEL[-1:], m="deepseek-v3", c="gb200-nvl72@10080")
case("gpus", OF_A_MODEL[-1:], m="small.json", c="trn2-ultra@102400")
case("gpus", OF_A_MODEL[-1:], m="small.json", c="cm384@99840")
case("scenarios", OF_A_MODEL[-1:], m="deepseek-v3", c="gb200-nvl72", x="--loads s1000.npy")
case("scenarios", OF_A_MODEL[-1:], m="deepseek-v3", c="gb200-nvl72", x="--loads s1000.npy --windows 538")
case("scenarios", OF_A_PLAN, m="deepseek-v3", c="gb200-nvl72", p="scenarios-0-plan")
case("scenarios", OF_A_MODEL[-1:], m="deepseek-v3", c="gb200-nvl72", x="--loads s1000.npy --objective worst")
case("scenarios", OF_A_MODEL[-1:], m="small.json", c="hgx-h100@32", x="--loads s1000-small.npy")
case(
    "scenarios",
    (
        "loads s1000.npy",
        "score {p} --loads s1000.npy",
        "replan {p} --loads s1000.npy --max-moves 100 -o {t}-moved",
        "replay {p} --loads s1000.npy",
        "replay {p} --loads s1000.npy --windows 220",
        "replay {p} --loads s1000.npy --windows 617 --policy static --policy vllm --policy rackplan",
        "fleet --model {m} --cluster {c} --loads s1000.npy -o {t}-fleet",
        "compare {c} hgx-h100 --model {m} --loads s1000.npy",
        "plan --model {m} --cluster {c} --loads s1000.npy --time-limit 5 -o {t}-timed",
    ),
    m="deepseek-v3",
    c="gb200-nvl72",
    p="scenarios-0-plan",
)
case("just above", OF_A_MODEL, m="l10001.json", c="gb200-nvl72")
case("just above", OF_A_MODEL, m="e4097.json", c="gb200-nvl72")
case("just above", OF_A_MODEL, m="deepseek-v3", c="gb200-nvl72@200160")
case(
    "just above",
    (*OF_A_MODEL[-1:], "loads s1001.npy"),
    m="deepseek-v3",
    c="gb200-nvl72",
    x="--loads s1001.npy",
)
case("together", OF_A_MODEL[-1:], m="l10000.json", c="gb200-nvl72@10080")
case("together", OF_A_MODEL[-1:], m="l10000.json", c="gb200-nvl72@100800")
case("together", OF_A_MODEL[-1:], m="l1000-e4096.json", c="gb200-nvl72@576")
case("together", OF_A_MODEL[-1:], m="l10000-e4096.json", c="gb200-nvl72@576")
case("together", OF_A_MODEL[-1:], m="e4096.json", c="gb200-nvl72", x="--loads s1000-e4096.npy")
case("together", OF_A_MODEL[-1:], m="deepseek-v3", c="gb200-nvl72@10080", x="--loads s1000.npy")

for model, cluster in (
    ("l61.json", "gb200-nvl72@131040"),
    ("l62.json", "gb200-nvl72@131040"),
    ("deepseek-v3", "gb200-nvl72@131040"),
    ("l1000.json", "gb200-nvl72@7992"),
    ("l10000.json", "gb200-nvl72@792"),
    ("l160-e4096.json", "gb200-nvl72"),
    ("l161-e4096.json", "gb200-nvl72"),
    ("l10000-e65.json", "gb200-nvl72"),
    ("qwen3-30b-a3b", "hgx-h100@100000"),
):
    case("products", OF_A_MODEL[-1:], m=model, c=cluster)
for windows in (2_000, 2_001):
    loads = f"--loads s{windows}.npy --windows {windows}"
    case("products", OF_A_MODEL[-1:], m="small.json", c="hgx-h100@32", x=loads)
case("products", OF_A_MODEL[-1:], m="deepseek-v3", c="hgx-h200@100000", x="--ep 8 --stages 1")
case("products", OF_A_MODEL[2:3], m="deepseek-v3", c="hgx-h100@1000000")
case("products", OF_A_MODEL[2:3], m="deepseek-v3", c="hgx-h100@1000008")
for cluster in ("listed4096", "listed100000", "torus16384", "torus100000", "hosts125000"):
    case("other doors", OF_A_MODEL[-1:], m="deepseek-v3", c=f"{cluster}.yaml")
for model in ("top65", "hidden", "hidden-most", "heads", "vocab", "context"):
    case("other doors", OF_A_MODEL[-1:], m=f"{model}.json", c="gb200-nvl72")
for option in (
    "--batch 1000000000000",
    "--context 1000000000000",
    "--redundant 1000000000000",
    "--ep 1000000000000",
    "--stages 1000000000",
    "--time-limit -1",
    "--time-limit 0",
    "--price gb200=1e300",
    f"--seed {'7' * 400}",
):
    case("other doors", OF_A_MODEL[-1:], m="deepseek-v3", c="gb200-nvl72", x=option)
case(
    "other doors",
    ("loads s100000.npy", "sweep --model {m} --cluster {c} --isl 1000000000000 --osl 1"),
    m="l61.json",
    c="hgx-h100",
)
case("other doors", ("plan --model small.json --cluster hgx-h100@32 --loads s100000.npy -o {t}-plan",))
case("other doors", ("study grid.yaml -o {t}-grid", "study sample.yaml -o {t}-sample", "score large"))


def main() -> None:
    """Print the table: a row a command, with whether it keeps its promise."""
    print(f"Python {platform.python_version()}, NumPy {np.__version__}, {platform.machine()}\n")
    print("| axis | command | CPU s | MB | answer |\n|---|---|---|---|---|")
    root = Path(__file__).parent.parent
    os.environ["PYTHONPATH"] = str(root)
    os.environ["OMP_NUM_THREADS"] = "1"
    broken = 0
    only, first, at = [], None, None
    for word in sys.argv[1:]:
        if word.startswith("--at="):
            at = word.removeprefix("--at=")
        elif word.startswith("--only="):
            first = word.removeprefix("--only=")
        else:
            only.append(word)
    with tempfile.TemporaryDirectory() as new:
        os.chdir(at or new)
        write_inputs()
        for axis, cases in CASES.items():
            if only and axis not in only:
                continue
            for command, words in cases:
                line = " ".join(command.format(**words).split())
                if first and first not in line:
                    continue
                cpu_s, peak_mb, rc, said = run(line)
                within = cpu_s <= CPU_S and peak_mb <= MEMORY_MB
                # that something is impossible is an answer, which may take as long as one
                kept = cpu_s <= REFUSAL_S if rc == 2 else rc in (0, 3) and within
                broken += not kept
                answer = ("" if kept else "BROKEN ") + (said if rc else "done")
                print(f"| {axis} | `{line}` | {cpu_s:.1f} | {peak_mb:,.0f} | {answer} |", flush=True)
    print(f"\n{broken} of the rows break the promise.")


def write_inputs() -> None:
    """Write the configs, loads and clusters that the cases name."""
    for name, changes in MODELS.items():
        Path(f"{name}.json").write_text(json.dumps(SMALL | changes))
    for name, shape in LOADS.items():
        rng = np.random.default_rng(0)
        fixed = rng.lognormal(0, 0.63, shape[1:])
        path = Path(f"{name}.npy")
        if not path.exists():
            np.save(path, rng.poisson(fixed * rng.lognormal(0, 0.3, shape) * 1000).astype(np.float32) + 1)
    Path("repeated.yaml").write_text(REPEATED)
    for gpus in (4096, 100_000):
        Path(f"listed{gpus}.yaml").write_text(LISTED.format(hosts=gpus // 8))
    for name, shape in (("torus16384", [32, 32, 16]), ("torus100000", [50, 50, 40])):
        Path(f"{name}.yaml").write_text(TORUS.format(shape=shape))
    Path("hosts125000.yaml").write_text(HOSTS.format(hosts=125_000))
    values = [*range(1_000, 1_200)]
    Path("grid.yaml").write_text(STUDY.format(points=GRID.format(values=values)))
    Path("sample.yaml").write_text(
        STUDY.format(points="sample: {points: 10000000, seed: 1, context: [1, 65536]}")
    )
    Path("large").mkdir(exist_ok=True)
    with Path("large/plan.json").open("wb") as large:
        large.truncate(10**9)


def run(line: str) -> tuple[float, float, int, str]:
    """Run one command; its CPU seconds, peak memory in MB, exit code and the last line that it said."""
    port = 0
    if line.startswith("serve"):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        line += f" --port {port}"
    pid = os.fork()
    if not pid:
        with Path("stdout").open("wb") as out, Path("stderr").open("wb") as error:
            os.dup2(out.fileno(), 1)
            os.dup2(error.fileno(), 2)
        resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (_KILLED_AFTER_S, _KILLED_AFTER_S))
        os.execv(sys.executable, [sys.executable, "-m", "rackplan", *line.split()])  # noqa: S606 - no shell is wanted
    asked = ask(port) if port else ""
    if port:
        os.kill(pid, signal.SIGINT)
    _, status, used = os.wait4(pid, 0)
    words = Path("stderr").read_text(errors="replace").strip().splitlines() or [""]
    rc = os.waitstatus_to_exitcode(status)
    if port and asked:
        rc, words = (0, [""]) if asked == "200" else (1, [asked])
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, rc, words[-1][:300]


def ask(port: int) -> str:
    """Ask ``rackplan serve`` for its page until it answers; the status of the answer, or nothing if there is none."""
    for _ in range(240):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=120) as answer:
                answer.read()
                return str(answer.status)
        except urllib.error.HTTPError as error:
            return str(error.code)
        except OSError:
            time.sleep(0.5)
    return ""


if __name__ == "__main__":
    main()
