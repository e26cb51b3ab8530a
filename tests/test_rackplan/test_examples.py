"""The examples run, and print the figures that somebody would act on."""

from __future__ import annotations

import ast
import json
import re
import runpy
from pathlib import Path
from typing import Any

import pytest

import rackplan
from pages import differs
from topology.base.shown import Shown

EXAMPLES = Path(__file__).parents[2] / "examples"
CLOSE = 0.02
"""How far a figure may be: what an engineer would do is the same."""

PRINTED = {
    "02_many_loads": """
...
for day 0.999 0.564 777
for night 0.578 0.999 786
for both 0.984 0.984 952
""",
    "03_node_loss": """
Before 406,473 output tokens/s of 72 GPUs
...
After 373,968 output tokens/s of 68 GPUs
...
With two copies of each it takes 0.0% of the tokens, for 3.9% of the throughput
""",
    "04_own_cluster": """
as bought 3,511 tok/s/GPU, 0.1503 USD per million tokens, EP8 TP1, HBM bandwidth binds
one hot 2,707 tok/s/GPU, 0.1950 USD per million tokens, EP8 TP1, HBM bandwidth binds
The hot GPU gets 73% of the mean load; balancedness 0.999
Picture box.svg
""",
    "08_recording_to_launch": """
Recorded <ExpertLoads 3 x 94 layers x 128 experts: recording.npy#0, recording.npy#1, recording.npy#2>
Plan 962 tok/s/GPU, gap 0.6%
File sglang.json: 94 layers of 128 slots, balancedness 0.983
Start with
python3 -m sglang.launch_server --model-path Qwen/Qwen3-235B-A22B
--tp-size 16 --ep-size 16
...
--init-expert-location sglang.json
--ep-dispatch-algorithm static
""",
    "09_validate_your_runs": """
...
b200-1214 13.5 ms 14.1 ms +4%
...
gb200-16130 56.1 ms 56.2 ms +0%
Median error 3%, bias -0%, 100% within 20 %
Plan with a margin of 1.07 until more runs say otherwise
""",
}
QUICK = {"09_validate_your_runs"}


def test_every_example_names_what_is_there() -> None:
    """Those that are not run here repeat what README, tutorial and tour are held to."""
    paths = sorted(EXAMPLES.glob("*.py"))
    assert set(PRINTED) < {path.stem for path in paths}
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "rackplan":
                assert hasattr(rackplan, node.attr), (path.name, node.attr)


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.wide) for name in PRINTED]
)
def test_an_example_prints_what_is_acted_on(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert differs(PRINTED[name].lstrip("\n"), capsys.readouterr().out, CLOSE) == ""


TOUR = json.loads((EXAMPLES / "tour.ipynb").read_text(encoding="utf-8"))
SHOWN = """
<Cluster gb200-nvl72@16: 16 GPUs in 1 domain>
<Plan qwen3-30b-a3b on gb200-nvl72@16, decode: EP16 TP1 PP1 x1, 8,786 output tok/s/GPU, step 39.95 ms, experts
...
8,786 tok/s/GPU, 80 % of measured runs are between 5,937 and 13,004
0.104 USD per million output tokens, 34 kW
...
for day balancedness by day 0.999, by night 0.703
for both balancedness by day 0.992, by night 0.992
<Replanned 1,431 of 6,144 copies move, balancedness 0.9454:
...
HBM bandwidth x2 +51.4%
...
HBM twice as fast: 1.51 times the throughput
<Comparison of qwen3-30b-a3b: hgx-h100@72 866 output tok/s/GPU, hgx-h200@72 1,160 output tok/s/GPU, gb200-nvl72
...
<Size qwen3-30b-a3b on hgx-h200, requests of 8,192 + 1,024 tokens: 1,000,000 output tok/s by 1,136
GPUs in 142 domains>
1,965 kW, 1,818 USD an hour
...
HBM capacity binds: deepseek-v3 on hgx-h100 needs 85.4 GB per GPU, 72.2 GB are
...
<Exported of qwen3-30b-a3b for SGLang: tour-sglang.json, balancedness 0.9987>
...
"""


def cells(kind: str) -> list[str]:
    """The sources of the tour's cells of one kind."""
    return ["".join(cell["source"]) for cell in TOUR["cells"] if cell["cell_type"] == kind]


def run_cell(source: str, names: dict[str, Any]) -> None:
    """Run a cell as a notebook does: what stands at its end is shown, in a line and as a page."""
    tree = ast.parse(source)
    end = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "tour", "exec"), names)  # noqa: S102 - our own notebook
    value = eval(compile(ast.Expression(end.value), "tour", "eval"), names) if end is not None else None  # noqa: S307
    if isinstance(value, Shown):
        print(repr(value))
        assert "<script" not in (value._repr_html_() or "")


@pytest.mark.wide
def test_the_tour_shows_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for source in cells("code"):
        run_cell(source, names)
    assert differs(SHOWN.lstrip("\n"), capsys.readouterr().out, CLOSE) == ""


def test_the_tour_has_its_outputs() -> None:
    """Executed with ``PLOTLY_RENDERER=png``: pictures that every viewer shows, and no script."""
    outputs = [one for cell in TOUR["cells"] if cell["cell_type"] == "code" for one in cell["outputs"]]
    texts = [
        one.get("text") or one["data"]["text/plain"]
        for one in outputs
        if one["output_type"] != "display_data"
    ]
    shown = ["".join(text) for text in texts]
    assert differs(SHOWN.lstrip("\n"), "\n".join(shown), CLOSE) == ""
    kinds = {kind for one in outputs for kind in one.get("data", ())}
    assert kinds == {"text/plain", "text/html", "image/svg+xml", "image/png"}
    text = json.dumps(TOUR)
    assert len(text) < 600_000
    assert re.findall(r"/(?:home|root|tmp|work)/", text) == []
