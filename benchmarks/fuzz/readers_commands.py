"""The command line, pages and the local server as readers: arguments, names that end up in pages, bodies of requests."""

from __future__ import annotations

import asyncio
import contextlib
import csv
import io
import json
import os
import re
import shlex
import shutil
import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import hostile
import readers_files
import seeds_files
import seeds_topology
from reader import Reader, Seed, texts

LINES = {
    "plan": "plan --model config.json --cluster c.yaml --loads loads.csv --time-limit 0 --batch 4 -o out",
    "replan": "replan plan.json --lost d0.n0.g1 --time-limit 0 -o out",
    "score": "score plan.json --json",
    "explain": "explain plan.json",
    "what-if": "what-if plan.json --json",
    "diff": "diff plan.json plan.json",
    "draw": "draw c.yaml -o x.svg --level auto",
    "traffic": "traffic c.yaml --pattern shift:1 --bytes-per-gpu 1e6",
    "sweep": "sweep --model config.json --cluster c.yaml --context 1024 --json",
    "size": "size --model config.json --cluster c.yaml --tok-s 1e5 --isl 1024 --osl 128",
    "compare": "compare --model config.json --clusters c.yaml,hgx-h200 --context 1024",
    "fleet": "fleet --model config.json --cluster c.yaml --context 1024 --time-limit 0",
    "replay": "replay plan.json --loads windows.npy",
    "export": "export plan.json --to sglang -o x.json",
    "import-plan": "import-plan map.npy --from npy --model config.json --cluster c.yaml --ep 4 --batch 4 -o out",
    "check": "check x-sglang.json --for sglang --model config.json --gpus 4",
    "import": "import topology.conf --gpu hgx-h100 -o y.yaml",
    "loads": "loads loads.csv windows.npy --model config.json",
    "catalog": "catalog c.yaml --set gpu.hbm_bytes=+10%",
    "validate": "validate points.csv --json",
    "schema": "schema plan",
    "study": "study nothing.yaml -o out --workers 1",
    "doctor": "doctor --json",
    "serve": "serve nothing.json",
}
"""A small run of each command; its arguments are changed. ``serve`` and ``study`` are given nothing to open: they would begin others."""


@cache
def _files() -> dict[str, bytes]:
    return {
        "c.yaml": seeds_topology.CLUSTERS[0].encode(),
        "config.json": json.dumps(seeds_files.CONFIG).encode(),
        "loads.csv": seeds_files.LOADS_CSV.encode(),
        "windows.npy": seeds_files.npy(seeds_files.WINDOWS),
        "plan.json": readers_files.plans()[0].encode(),
        "map.npy": seeds_files.npy(seeds_files.SLOTS),
        "x-sglang.json": seeds_files.ENGINES["sglang"][0][2],
        "topology.conf": seeds_topology.SLURM[0].encode(),
        "points.csv": seeds_files.POINTS.encode(),
        "s.yaml": seeds_files.STUDY[0].encode(),
    }


def _prepared(folder: Path) -> Path:
    """Return an empty folder with the files that the lines name, and go there."""
    inside = folder / "work"
    if inside.exists():
        shutil.rmtree(inside)
    inside.mkdir()
    for name, data in _files().items():
        (inside / name).write_bytes(data)
    os.chdir(inside)
    return inside


def run(words: list[str]) -> tuple[int, str, str]:
    """Run a command line here; return its exit code and what it printed."""
    from rackplan import cli

    out, err = io.StringIO(), io.StringIO()
    before, sys.argv = sys.argv, ["rackplan", *words]
    code: object = 0
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            cli.main()
    except SystemExit as ended:
        code = ended.code
    finally:
        sys.argv = before
    return int(code) if isinstance(code, int) else 1 if code else 0, out.getvalue(), err.getvalue()


def _steer(text: str) -> str:
    """Return the control characters in a text."""
    return "".join(
        sorted({c for c in text if not c.isprintable() and c not in "\n\t\u00a0\u2007\u2009\u202f\u3000"})
    )


def _judge(code: int, out: str, err: str) -> None:
    """Raise AssertionError if a command said what it must not."""
    assert not _steer(out), f"control characters {_steer(out)!r} on standard output"
    assert not _steer(err), f"control characters {_steer(err)!r} on standard error"
    assert "Traceback" not in err, err
    assert code in (0, 1, 2, 3, 4), code
    if code in (2, 3, 4) and not out:
        assert err.count("\n") <= 6, err


_LONG = re.compile(r"(--time-limit|--workers|--windows|--gpus|--trials)")


def _arguments(path: Path) -> None:
    """Run a line with changed arguments; what would take long by right is left out."""
    words = path.read_bytes().decode("utf-8", "surrogateescape").replace("\0", "").split("\n")
    if (
        not words
        or words[0] not in LINES
        or (words[0] in ("serve", "study") and words[1:2] != LINES[words[0]].split()[1:2])
    ):
        return
    _prepared(path.parent)
    try:
        _judge(*run(words))
        for made in Path.cwd().rglob("*"):
            if made.suffix in (".html", ".svg") and made.is_file():
                check_page(made.read_text(encoding="utf-8"))
    finally:
        os.chdir(path.parent)


def lines() -> list[Seed]:
    """Return the command lines, a word a line."""
    return [Seed("words.txt", "words", "\n".join(shlex.split(line)).encode()) for line in LINES.values()]


class _Page(HTMLParser):
    """What a browser would run of a page: scripts, handlers of events, links to scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.runs: list[str] = []
        self._script = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Look at attributes; scripts and elements that fetch."""
        self._script = tag == "script"
        for name, value in attrs:
            if name.startswith("on") or (
                name in ("href", "src", "xlink:href")
                and (value or "").strip().lower().startswith(("javascript:", "data:text"))
            ):
                self.runs.append(f"<{tag} {name}={value!r}>")
            if hostile.MARK in name:
                self.runs.append(f"<{tag} {name}>")
        if tag == "img" and hostile.MARK in str(attrs):
            self.runs.append(f"<{tag}>")

    def handle_data(self, data: str) -> None:
        """Look at what stands in a script."""
        if self._script and re.match(rf"\s*{hostile.MARK}", data):
            self.runs.append(data[:60])
        self._script = False


def check_page(text: str) -> None:
    """Raise AssertionError if a name of a file, GPU or model would run in a page or a drawing."""
    page = _Page()
    page.feed(text)
    page.close()
    assert not page.runs, page.runs[:3]


def check_csv(text: str) -> None:
    """Raise AssertionError if a cell would be a formula in a spreadsheet."""
    for row in csv.reader(io.StringIO(text)):
        for cell in row:
            assert not (cell[:1] in "=@\t\r" and hostile.MARK in cell), cell
            assert not (cell[:1] in "+-" and hostile.MARK in cell), cell


_NAMES = (
    *tuple(one for one in hostile.TEXTS if hostile.MARK in one),
    "x\x1b[31m",
    "\u202ex",
    "a\nb",
    "é",
    "a&b;<i>",
    "]]>",
    "--><b>",
)


def _named(path: Path) -> None:
    """Give everything hostile names, and look at all that is written."""
    folder = _prepared(path.parent)
    name, what = json.loads(path.read_bytes())
    label = re.sub(r"[/\0\ud800-\udfff]", "_", name)[:60] or "x"
    config = {**seeds_files.CONFIG, "_name_or_path": name, "architectures": [name]}
    cluster = f"name: {json.dumps(name)}\ngpus: {{{json.dumps(name)}: {{hbm_bytes: 80 GB, hbm_bytes_per_s: 3 TB/s, bf16_flop_per_s: 900 TFLOP/s}}}}\n"
    cluster += f"prices: {{{json.dumps(name)}: 2 USD/h}}\ndomains: [{{gpu: {json.dumps(name)}, gpus: 8, gpus_per_node: 8, structure: mesh, link: 64 GB/s}}]\n"
    (folder / f"{label}.yaml").write_text(cluster, encoding="utf-8", errors="surrogatepass")
    (folder / f"{label}.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / f"{label}.csv").write_text(
        seeds_files.LOADS_CSV.replace("s0", json.dumps(name).strip('"').replace(",", ";")), encoding="utf-8"
    )
    asked = ["--model", f"./{label}.json", "--cluster", f"./{label}.yaml"]
    lines_of = {
        "plan": [
            "plan",
            *asked,
            "--loads",
            f"./{label}.csv",
            "--time-limit",
            "0",
            "--batch",
            "4",
            "-o",
            "out",
        ],
        "sweep": ["sweep", *asked, "--context", "1024", "-o", "sweep.csv"],
        "sweep-page": ["sweep", *asked, "--context", "1024", "-o", "sweep.html"],
        "draw": ["draw", f"./{label}.yaml", "-o", "x.svg"],
        "size": ["size", *asked, "--tok-s", "1e4", "--isl", "512", "--osl", "64", "-o", "size.html"],
        "compare": [
            "compare",
            "--model",
            f"./{label}.json",
            "--clusters",
            f"./{label}.yaml,hgx-h100",
            "--context",
            "1024",
            "-o",
            "c.html",
        ],
        "catalog": ["catalog", f"./{label}.yaml"],
        "loads": ["loads", f"./{label}.csv"],
    }
    try:
        _judge(*run(lines_of[what]))
        for made in folder.rglob("*"):
            if made.suffix in (".html", ".svg") and made.is_file():
                check_page(made.read_text(encoding="utf-8"))
            elif made.suffix == ".csv" and made.stem == "sweep":
                check_csv(made.read_text(encoding="utf-8"))
    finally:
        os.chdir(path.parent)


def _names() -> list[Seed]:
    kinds = ("plan", "sweep", "sweep-page", "draw", "size", "compare", "catalog", "loads")
    return [
        Seed("n.json", "names", json.dumps([name, kind]).encode())
        for kind in kinds
        for name in ("plain", *_NAMES)
    ]


HOST = "127.0.0.1:8710"


class _Desk:
    """Stands in for the jobs, which would start processes."""

    def add(self, order: dict[str, Any]) -> Any:
        json.dumps(order)
        return self

    def status(self) -> dict[str, Any]:
        return {"id": "j1"}

    def get(self, _: str) -> Any:
        return None


@cache
def _app() -> Any:
    from rackplan.serve.app import make_app
    from rackplan.serve.start import Start

    app = make_app(Start(), 8710)
    app.state.served.jobs = _Desk()
    return app


def _request(path: Path) -> None:
    """Send a body to each route that takes one; the answer is 2xx or 4xx, and JSON."""
    body = path.read_bytes()
    for route in ("/api/plot", "/api/point", "/api/drawing", "/api/jobs"):
        status, answer = asyncio.run(_post(route, body))
        assert 200 <= status < 500, (route, status, answer[:300])
        json.loads(answer)


async def _post(route: str, body: bytes) -> tuple[int, bytes]:
    sent: list[dict[str, Any]] = []
    bodies = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> dict[str, Any]:
        if bodies:
            return bodies.pop()
        await asyncio.sleep(60)
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {
        "type": "http", "method": "POST", "path": route, "raw_path": route.encode(), "query_string": b"", "http_version": "1.1",
        "headers": [(b"host", HOST.encode()), (b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())],
        "scheme": "http", "server": ("127.0.0.1", 8710), "client": ("127.0.0.1", 9), "root_path": "",
    }  # fmt: skip
    await _app()(scope, receive, send)
    return sent[0]["status"], b"".join(one.get("body", b"") for one in sent)


def _start(path: Path) -> None:
    from rackplan.serve.start import Start

    start = Start.of(path)
    json.dumps([start.data(), [plan.command for plan in start.plans]])


READERS = (
    Reader("command-line", lines, _arguments, ("rackplan.digests:digests",), 1, writes=True),
    Reader("names-in-pages", _names, _named, (), 1, writes=True),
    Reader(
        "serve-body",
        lambda: texts("b.json", "json", *seeds_files.ASKED),
        _request,
        ("rackplan.serve.app:_body", "rackplan.serve.asked:model_of", "rackplan.serve.asked:_cluster"),
        2,
        writes=True,
    ),
    Reader(
        "serve-plan",
        lambda: texts("plan.json", "json", *readers_files.plans()),
        _start,
        (
            "rackplan.serve.start:_plan_text",
            "rackplan.serve.start:OpenPlan.asked",
            "rackplan.serve.start:OpenPlan.command",
        ),
        2,
        writes=True,  # settles what a killed run left beside the plan
    ),
)
