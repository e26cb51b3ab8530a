"""The recipes of CONTRIBUTING.md, each followed with a small example in a copy of the packages.

Each test touches the files that its recipe names and no more, then runs the result in a process of its own.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("topology", "cost", "placement", "rackplan")
RECIPES = dict(
    part.split("\n", 1) for part in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("\n## ")[1:]
)

pytestmark = pytest.mark.wide


class House:
    """A copy of the packages, and the files that were touched in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.touched: set[str] = set()
        for package in PACKAGES:
            shutil.copytree(ROOT / package, folder / package)

    def write(self, name: str, text: str) -> None:
        """Add a file."""
        assert not (self.folder / name).exists()
        (self.folder / name).write_text(dedent(text).lstrip("\n"), encoding="utf-8")
        self.touched.add(name)

    def edit(self, name: str, *changes: tuple[str, str]) -> None:
        """In a file that is there, put the second text of each pair in the place of the first."""
        text = (self.folder / name).read_text(encoding="utf-8")
        for old, new in changes:
            assert text.count(old) == 1, f"{name} has {text.count(old)} times {old!r}"
            text = text.replace(old, new)
        (self.folder / name).write_text(text, encoding="utf-8")
        self.touched.add(name)

    def python(self, code: str) -> Any:
        """Run code on the copy; the last line that it prints is JSON."""
        return json.loads(self._run("-c", dedent(code)).splitlines()[-1])

    def rackplan(self, *args: object) -> str:
        """Run a command on the copy and return what it prints."""
        return self._run("-m", "rackplan", *map(str, args))

    def _run(self, *args: str) -> str:
        done = subprocess.run(
            [sys.executable, *args], cwd=self.folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def follows(self, recipe: str, most: int = 2) -> None:
        """Check that few files were touched, and that the recipe names each of them or its folder."""
        assert len(self.touched) <= most
        for name in self.touched:
            folder = name.rpartition("/")[0]
            assert {name, f"{folder}/", f"{folder}/NAME.yaml", Path(name).name} & named(recipe), name


def named(recipe: str) -> set[str]:
    """What stands in backticks in a recipe of CONTRIBUTING.md."""
    return set(RECIPES[recipe].split("`")[1::2])


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path / "house")


def test_the_recipes_are_these() -> None:
    assert {
        "Add a GPU or a system",
        "Add a model",
        "Add a term of the step",
        "Add a placement constraint",
        "Add an importer of topologies",
        "Add an engine's plan file",
        "Add a section to a report",
        "Add a column or a key to an output",
        "Add an option",
    } <= set(RECIPES)


def test_add_a_gpu(house: House) -> None:
    house.edit(
        "topology/catalog/gpus.yaml",
        (
            "\ngpus:\n",
            """
gpus:
  toy-gpu:
    title: Toy GPU
    vendor: none
    status: invented
    dies: 1
    figures:
      hbm_bytes: {value: 100 GB, kind: assumed, source: lecture}
      hbm_bytes_per_s: {value: 4 TB/s, kind: assumed, source: lecture}
      bf16_flop_per_s: {value: 1 PFLOP/s, kind: assumed, source: lecture}

""",
        ),
    )
    house.edit(
        "topology/catalog/systems.yaml",
        (
            "\nsystems:\n",
            """
systems:
  toy-box:
    title: Toy box
    status: invented
    gpu: toy-gpu
    gpus: 4
    gpus_per_node: 4
    nodes_per_rack: 1
    structure: switch
    fabric: nvlink4
    switches: [{chips: 2, links: 5}]
    scale_out: {kind: rail, fabric: ib-ndr400, nic_links_per_gpu: 1, pod: 32, spines: 4}

""",
        ),
    )
    assert "4 TB/s" in house.rackplan("catalog", "toy-gpu")
    plan = ("plan", "--model", "llama-3.1-8b", "--cluster", "toy-box@8", "--time-limit", 0, "-o", "out")
    assert "nobody measured toy-gpu" in " ".join(house.rackplan(*plan).split())
    house.follows("Add a GPU or a system")


def test_add_a_family_of_models(house: House) -> None:
    house.edit(
        "cost/config/families.py",
        (
            "\nTABLE = (\n",
            '\nTABLE = (\n    Family("toyformer", "Toyformer: grouped queries, no biases.", Grouped(), Dense()),\n',
        ),
    )
    house.write(
        "cost/catalog/models/toyformer-1b.yaml",
        """
        title: Toyformer 1B
        published:
          total: 0.9B
          sources: [none]
        config:
          model_type: toyformer
          hidden_size: 2048
          intermediate_size: 8192
          num_attention_heads: 16
          num_hidden_layers: 12
          num_key_value_heads: 4
          torch_dtype: bfloat16
          vocab_size: 32000
        """,
    )
    found = house.python(
        """
        import json
        from cost.resolve import model_names, resolve_model
        model = resolve_model("toyformer-1b")
        print(json.dumps([model.total_params, len(model.layers), "toyformer-1b" in model_names()]))
        """
    )
    layer = (2 * 2048 * 2048 + 2 * 2048 * 512) + 3 * 2048 * 8192 + 2 * 2048  # attention, gated, two norms
    assert found == [12 * layer + 2 * 32000 * 2048 + 2048, 12, True]
    house.follows("Add a model")


def test_add_a_term_of_the_step(house: House) -> None:
    """A toll for each token of a layer, read from HBM."""
    house.write(
        "cost/terms/toll.py",
        '''
        """A toll: every token reads 1 MB of HBM in every layer."""

        from __future__ import annotations

        from cost.terms.work import LayerStep, Parts, Term, Work

        TOLL_BYTES = 1e6


        def add_toll(parts: Parts, at: LayerStep) -> None:
            """Read the toll of every token."""
            seconds = at.shape.tokens * TOLL_BYTES / at.machine.rates.hbm_bytes_per_s
            parts.works.append(
                Work("toll", "attention.decode.bf16", "hbm.cache", 0.0 * seconds, seconds, at.count)
            )


        TOLL = Term("toll", "#123456", behind=("hbm.cache",), meaning="toll of every token", of_layer=add_toll)
        ''',
    )
    house.edit(
        "cost/terms/registry.py",
        (
            "from cost.terms.pipeline import BUBBLE, HOPS\n",
            "from cost.terms.pipeline import BUBBLE, HOPS\nfrom cost.terms.toll import TOLL\n",
        ),
        ("ENGINE, RANKS,", "ENGINE, RANKS, TOLL,"),
    )
    asked = ("--model", "llama-3.1-8b", "--cluster", "hgx-h100", "--batch", 8, "--tp", 1, "--time-limit", 0)
    assert "toll" in house.rackplan("plan", *asked, "-o", "out")
    plan = json.loads((house.folder / "out/plan.json").read_text(encoding="utf-8"))
    assert plan["layout"]["stages"] == 1
    peak_s = 32 * 8 * 1e6 / 3.35e12  # layers, tokens of a GPU
    assert peak_s < plan["score"]["terms_s"]["toll"] < 2 * peak_s
    assert "toll" in house.rackplan("explain", "out/plan.json")
    assert "#123456" in (house.folder / "out/report.html").read_text(encoding="utf-8")
    house.follows("Add a term of the step")


def test_add_a_placement_constraint(house: House) -> None:
    """No expert may have more than so many copies in a layer."""
    house.edit(
        "placement/problem.py",
        (
            "    votes: Floats | None = None\n\n",
            "    votes: Floats | None = None\n    copies_at_most: int = 1 << 30\n\n",
        ),
        ("        return total\n", "        return np.minimum(total, ks * self.copies_at_most)\n"),
        (
            "        if self.each_alone:\n            return twice\n",
            (
                "        many = [np.bincount(row, minlength=self.experts) for row in slot_expert]\n"
                "        twice += np.maximum(np.array(many) - self.copies_at_most, 0).sum(axis=1)\n"
                "        if self.each_alone:\n            return twice\n"
            ),
        ),
    )
    house.edit(
        "placement/verify.py",
        (
            "    if problem.spread is not None:\n        wrong += _spread_violations",
            (
                "    most = int(assignment.copies.max())\n"
                "    if most > problem.copies_at_most:\n"
                '        wrong.append(f"an expert has {most} copies, and {problem.copies_at_most} are allowed")\n'
                "    if problem.spread is not None:\n        wrong += _spread_violations"
            ),
        ),
    )
    found = house.python(
        """
        import json
        from dataclasses import replace
        import numpy as np
        from placement.problem import make_problem
        from placement.solve import solve
        from placement.verify import verify_experts
        problem = make_problem([[8.0, 1.0, 1.0, 1.0]], np.full(4, 2))
        free = solve(problem).assignment
        said = []
        for most in (5, int(free.copies.max()) - 1):
            bound = replace(problem, copies_at_most=most)
            again = solve(bound).assignment
            said.append([verify_experts(free, bound), verify_experts(again, bound), int(again.copies.max())])
        print(json.dumps([*said, int(free.copies.max())]))
        """
    )
    (fine, solved, same), (broken, mended, fewer), most = found
    assert same == most > 1
    assert fine == solved == mended == []
    assert broken == [f"an expert has {most} copies, and {most - 1} are allowed"]
    assert fewer == most - 1, "the search keeps to the rule"
    house.follows("Add a placement constraint")


def test_add_an_importer_of_topologies(house: House) -> None:
    """Lines such as ``pair a b 50``: two GPUs of one host, and GB/s between them."""
    house.write(
        "topology/importers/pairs.py",
        '''
        """Pairs of GPUs: lines of two names and the GB/s between them."""

        from __future__ import annotations

        from topology.figures import Evidence, Figure
        from topology.importers.found import Format, WholeFound, WholeLink
        from topology.importers.source import Source
        from topology.spec import RawNode


        def read_pairs(source: Source) -> WholeFound:
            """Return the whole graph."""
            nodes, links = {}, []
            for number, line in enumerate(source.lines, 1):
                if not line.strip():
                    continue
                words = line.split()
                if len(words) != 4:
                    raise source.error(number, "expected `pair A B RATE`.")
                _, a, b, rate = words
                for name in (a, b):
                    nodes[name] = RawNode(name, "gpu", "host", "host")
                figure = Figure(float(rate) * 1e9, "byte/s", Evidence.USER, source.name, f"{rate} GB/s")
                latency = Figure(1e-6, "s", Evidence.ASSUMED, "example", "1 us")
                links.append(WholeLink((a, b), 1, figure, True, "pair", latency))
            return WholeFound(tuple(nodes.values()), tuple(links))


        FORMAT = Format("pairs", read_pairs, in_text=lambda text: text.startswith("pair "))
        ''',
    )
    house.edit(
        "topology/importers/registry.py",
        ("    simai,\n", "    pairs,\n    simai,\n"),
        ("    simai.FORMAT,\n", "    simai.FORMAT,\n    pairs.FORMAT,\n"),
    )
    (house.folder / "cables.txt").write_text(
        "pair g0 g1 225\npair g1 g2 225\npair g0 g2 225\n", encoding="utf-8"
    )
    house.rackplan("import", "cables.txt", "--gpu", "h100-sxm", "-o", "cluster.yaml")
    text = house.rackplan("traffic", "cluster.yaml", "--pattern", "ring", "--bytes-per-gpu", 1e9, "--json")
    assert json.loads(text)["gpus"] == 3
    house.follows("Add an importer of topologies")


def test_add_the_plan_file_of_an_engine(house: House) -> None:
    house.write(
        "placement/engines/toy.py",
        '''
        """Toy: SGLang's file under another name, started otherwise."""

        from __future__ import annotations

        from placement.engines.engine import Launch
        from placement.engines.sglang import Sglang


        class Toy(Sglang):
            """Toy."""

            name = "toy"
            title = "Toy"
            version = "1"

            def flags(self, launch: Launch) -> list[str]:
                """See :class:`Engine`."""
                return [f"toy --map {launch.file}"]

            def warnings(self, launch: Launch) -> list[str]:
                """See :class:`Engine`."""
                del launch
                return []


        ENGINE = Toy()
        ''',
    )
    house.edit("placement/engines/__init__.py", ('NAMES = ("sglang", ', 'NAMES = ("toy", "sglang", '))
    asked = ("--model", "mixtral-8x7b", "--cluster", "hgx-h100", "--redundant", 8, "--batch", 4)
    house.rackplan("plan", *asked, "--time-limit", 0, "-o", "out")
    assert "toy --map map.json" in house.rackplan("export", "out/plan.json", "--to", "toy", "-o", "map.json")
    checked = house.rackplan(
        "check", "map.json", "--for", "toy", "--model", "mixtral-8x7b", "--gpus", 8, "--json"
    )
    assert json.loads(checked)["right"] is True
    assert "toy, sglang" in house.rackplan("export", "--help")
    house.follows("Add an engine's plan file")


def test_add_a_section_to_a_report(house: House) -> None:
    house.edit(
        "rackplan/views/plan_page.py",
        (
            "def _key_figures(",
            (
                "def _layers(plan: Plan) -> list[Block]:\n"
                '    """Return how many layers each stage has."""\n'
                "    from rackplan.views.blocks import Table\n\n"
                "    stages = plan.layout.replicas[0]\n"
                "    rows = [(str(number), str(len(stage.layers))) for number, stage in enumerate(stages)]\n"
                '    return [Heading("Layers by stage", 2), Table(("stage", "layers"), rows)]\n'
                "\n\n"
                "def _key_figures("
            ),
        ),
        ("        *memory_section(found),\n", "        *memory_section(found),\n        *_layers(plan),\n"),
    )
    asked = (
        "--model",
        "llama-3.1-8b",
        "--cluster",
        "hgx-h100",
        "--stages",
        2,
        "--time-limit",
        0,
        "-o",
        "out",
    )
    house.rackplan("plan", *asked)
    page = (house.folder / "out/report.html").read_text(encoding="utf-8")
    assert "Layers by stage" in page
    cut = json.loads((house.folder / "out/plan.json").read_text(encoding="utf-8"))["stages"]
    table = page.split("Layers by stage")[-1].split("</table>")[0]
    assert len(cut) >= 2
    assert all(f">{one['last_layer'] - one['first_layer'] + 1}<" in table for one in cut[:2])
    house.follows("Add a section to a report")


def test_add_a_column_to_an_output(house: House) -> None:
    house.edit(
        "rackplan/views/sweep.py",
        (
            '        ("bound by", found.bound),\n',
            '        ("bound by", found.bound),\n        ("GPUs", lambda index: f"{found.gpus[index]}"),\n',
        ),
        (
            '    data["bound_by"] = found.bound(index)\n',
            '    data["bound_by"] = found.bound(index)\n    data["layers"] = len(found.deployment.model.layers)\n',
        ),
    )
    asked = ("sweep", "--model", "llama-3.1-8b", "--cluster", "hgx-h100")
    heads = [
        line for line in house.rackplan(*asked).splitlines() if line.split()[:3] == ["on", "the", "frontier"]
    ]
    assert any("GPUs" in head.split() for head in heads)  # a wide table goes on below itself
    data = json.loads(house.rackplan(*asked, "--json"))
    assert '"layers": 32' in json.dumps(data)
    house.follows("Add a column or a key to an output")


def test_add_an_option_to_the_commands_that_price_a_workload(house: House) -> None:
    """How much of the context is in the cache."""
    house.edit(
        "rackplan/options.py",
        (
            '    sparse_attention: SparseAttention = ""\n    engine:',
            (
                '    sparse_attention: SparseAttention = ""\n'
                '    cached: Annotated[float, opt("--cached", "Part of the context in the cache.", "F")] = 1.0\n'
                "    engine:"
            ),
        ),
        ("context=serving.context,", "context=round(serving.context * self.cached),"),
    )
    for command in ("plan", "sweep", "compare", "import-plan"):
        told = " ".join(house.rackplan(command, "--help").split())
        assert "--cached F Part of the context in the cache. [default: 1.0] --engine" in told
    asked = ("sweep", "--model", "llama-3.1-8b", "--cluster", "hgx-h100", "--context")
    half = house.rackplan(*asked, 4096, "--cached", 0.5)
    assert half == house.rackplan(*asked, 2048) != house.rackplan(*asked, 4096)
    house.follows("Add an option")
