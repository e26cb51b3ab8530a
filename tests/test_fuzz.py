"""``benchmarks/fuzz``: every reader is in it, a few inputs of each end well, and what was found stays mended."""

from __future__ import annotations

import io
import json
import os
import resource
import signal
import sys
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cost.loads import read_loads
from cost.traces.routing_files import read_routing
from cost.traces.torch_file import load_torch_file
from helpers import script
from placement.online.state import ARRAYS, OnlineState
from topology.errors import InputError
from topology.importers import ImportOptions, import_files
from topology.limits import MESSAGE_CHARACTERS
from topology.npy import read_npy_header
from topology.reading import read_text
from topology.resolve import resolve_cluster
from topology.routes import read_traffic
from topology.settings import parse_setting

FUZZ = Path(__file__).resolve().parents[1] / "benchmarks" / "fuzz"
HEAVY = ("command-line", "names-in-pages", "serve-", "study-folder")
"""Readers of pages, servers and folders, which take a second to begin."""


@pytest.fixture(scope="module")
def fuzz() -> Iterator[Any]:
    """The modules of the benchmark."""
    before = [*sys.path], signal.getsignal(signal.SIGPROF)
    sys.path.insert(0, str(FUZZ))
    with warnings.catch_warnings():
        main = script("benchmarks/fuzz/__main__.py", "fuzz_main")
        import found
        import watched

        yield SimpleNamespace(main=main, found=found, watched=watched, readers=main.all_readers())
    sys.path[:] = before[0]
    signal.signal(signal.SIGPROF, before[1])


@pytest.fixture
def watch(fuzz: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    scratch = tmp_path / fuzz.watched.SCRATCH
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    with warnings.catch_warnings():
        return fuzz.watched.Watch(tmp_path)


def light(readers: Any) -> Any:
    return [reader for reader in readers if not reader.name.startswith(HEAVY)]


def test_every_function_that_reads_is_in_the_list(fuzz: Any) -> None:
    """One that is new is either entered by a reader of the list, or said to read only what is ours."""
    named = {one for reader in fuzz.readers for one in reader.enters}
    listed = named | set(fuzz.found.OWN) | set(fuzz.found.BELOW)
    assert fuzz.found.reading_functions() - listed == set()
    assert (set(fuzz.found.OWN) | set(fuzz.found.BELOW)) - fuzz.found.reading_functions() == set()


def test_every_kind_is_in_the_list(fuzz: Any) -> None:
    from placement.engines import NAMES
    from rackplan.cli import COMMANDS
    from topology.importers.registry import KINDS

    names = {reader.name for reader in fuzz.readers}
    assert {f"import-{kind}" for kind in KINDS} <= names
    assert {f"engine-{name}" for name in (*NAMES, "npy")} <= names
    import readers_commands

    assert set(readers_commands.LINES) == set(COMMANDS)


@pytest.mark.wide
def test_whole_inputs_are_read_by_what_the_list_says(fuzz: Any, watch: Any) -> None:
    below = set(fuzz.found.BELOW)
    for reader in fuzz.readers:
        if reader.name not in ("command-line", "names-in-pages"):
            entered = fuzz.found.entered(reader, watch)
            assert set(reader.enters) - entered == set(), reader.name
            below -= entered
    assert below == set()


def tried(fuzz: Any, watch: Any, readers: Any, inputs: int, seed: int) -> list[str]:
    wrong = []
    for reader in readers:
        seeds = reader.seeds()
        for number in range(len(seeds), len(seeds) + inputs):
            file, data = fuzz.main.made(reader, seeds, seed, number)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                _, found = watch.look(reader, watch.put(file, data))
            wrong += [f"{reader.name} {number}: {one}" for one in found if one.kind not in ("long", "large")]
    return wrong


def test_a_few_inputs_of_each_reader(fuzz: Any, watch: Any) -> None:
    assert tried(fuzz, watch, light(fuzz.readers), 5, seed=11) == []


@pytest.mark.wide
def test_more_inputs_of_each_reader(fuzz: Any, watch: Any) -> None:
    assert tried(fuzz, watch, light(fuzz.readers), 25, seed=12) == []
    assert (
        tried(fuzz, watch, [one for one in fuzz.readers if one.name.startswith("serve-")], 5, seed=13) == []
    )


def test_what_is_wrong_is_found(fuzz: Any, watch: Any, tmp_path: Path) -> None:
    """Each defect that the watch is for, made on purpose."""

    def found(read: Callable[[Path], object]) -> list[str]:
        reader = SimpleNamespace(name="made", read=read, writes=False)
        return [one.kind for one in watch.look(reader, tmp_path)[1]]

    def says(text: str) -> Callable[[Path], object]:
        def read(_: Path) -> None:
            raise type("Raw", (InputError,), {"__str__": lambda _: text})

        return read

    assert found(lambda _: None) == []
    assert found(lambda _: {}["absent"]) == ["traceback"]
    assert found(lambda _: os.system("true")) == ["touched"]  # noqa: S605, S607 - that is the point
    assert found(lambda path: (path.parent / "beside").write_text("x")) == ["touched"]
    assert found(lambda _: warnings.warn("x", stacklevel=1)) == ["traceback"]
    assert found(says("one line")) == []
    assert found(says("two\nlines")) == ["message"]
    assert found(says("\x1b[2J")) == ["message"]
    (tmp_path.parent / "beside").unlink()


def one_line(text: str) -> bool:
    return "\n" not in text and len(text) <= MESSAGE_CHARACTERS + 5


def test_long_input_is_not_repeated_whole() -> None:
    with pytest.raises(InputError) as caught:
        parse_setting("9" * 5000)
    assert one_line(str(caught.value))


@pytest.mark.wide
def test_hosts_by_the_hundred_thousand_are_refused_before_they_are_made(tmp_path: Path) -> None:
    (tmp_path / "t.conf").write_text("SwitchName=s Nodes=n[19-100000]\n")
    start = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    with pytest.raises(InputError, match="99,982 hosts with 799,856 GPUs; at most 131,072 are imported"):
        import_files([str(tmp_path / "t.conf")], ImportOptions(gpu="hgx-h100"))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_utime - start < 20


@pytest.mark.wide
@pytest.mark.parametrize(
    ("count", "words"), [(3, "3 islands, 2 GPUs"), (70_000, "140,000 xpus; at most 131,072")]
)
def test_hosts_that_nothing_joins_are_refused_before_anything_is_made_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, words: str
) -> None:
    """65,535 of them in 538 bytes took 8.6 s."""
    monkeypatch.setattr("topology.importers.assemble.Draft", None)
    device = {"name": "d", "components": [{"name": "xpu", "type": "xpu", "count": 2}]}
    hosts = {"devices": [device], "instances": [{"name": "h", "device": "d", "count": count}]}
    (tmp_path / "i.json").write_text(json.dumps(hosts))
    with pytest.raises(InputError, match=words):
        import_files([str(tmp_path / "i.json")], ImportOptions(gpu="hgx-h100", pcie="32 GB/s"))


@pytest.mark.parametrize("code", [b"N0", b"](1"])
def test_a_pickle_grows_no_more_than_torch_writes_it(tmp_path: Path, code: bytes) -> None:
    with zipfile.ZipFile(tmp_path / "x.pt", "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("x/data.pkl", b"\x80\x02" + code * 1_000_000 + b".")
    with pytest.raises(InputError, match=r"its data\.pkl has more than 1,048,576 bytes"):
        load_torch_file(tmp_path / "x.pt")


SIMAI = "10 2 2 4 1 H100\n4 5 6 7 8 9\n0 4 2880Gbps 0.000025ms 0\n"
HOST = {
    "name": "d",
    "components": [{"name": "xpu", "type": "xpu"}, {"name": "nic", "type": "nic"}],
    "links": [{"name": "l"}],
}
SWITCH = {"name": "s", "components": [{"name": "p", "type": "port", "count": 9}]}


def infragraph(host: dict[str, object], edges: list[tuple[str, str, str]], **counts: int) -> str:
    """A host and some switches, edges between instances as (one, other, scheme)."""
    ends = [
        {
            f"ep{i + 1}": dict(zip(("instance", "component"), end.split(), strict=True))
            for i, end in enumerate(one)
        }
        | {"scheme": scheme, "link": "e"}
        for *one, scheme in edges
    ]
    instances = [{"name": name, "device": name[0], "count": count} for name, count in counts.items()]
    link = {"name": "e", "bandwidth": {"gigabytes_per_second": 50}}
    return json.dumps(
        {"devices": [{**HOST, **host}, SWITCH], "instances": instances, "links": [link], "edges": ends}
    )


INSIDE = {"component": "xpu"}
IMPORTS = {
    "alone.json": (infragraph({}, [("s p[0]", "s p[0]", "many2many")], d=1, s=3), ""),
    "inside.json": (
        infragraph(
            {
                "components": [{"name": "xpu", "type": "xpu", "count": 1000}],
                "edges": [{"ep1": INSIDE, "ep2": INSIDE, "scheme": "many2many", "link": "l"}],
            },
            [],
            d=1,
        ),
        "makes more than 100,000 edges",
    ),
    "blank.out": (
        'Switch\t65 "S-0"\t\t# "l"\n' + " " * 900_000 + "x\n" * 2,
        "is not a line of ibnetdiscover",
    ),
    "lines.conf": ("\n" * 900_000 + "x", "none of the kinds"),
    "word.conf": ("SwitchName=s Nodes=n1\n" + "a" * 900_000, "is not KEY=VALUE"),
    "digits.txt": (SIMAI.replace("10 2", "9" * 5000 + " 2"), "none of the kinds"),
    "nodes.txt": (SIMAI.replace("10 2 2 4", "900000000010 2 900000000000 6"), "at most 500,000 are read"),
    "rate.txt": (SIMAI.replace("2880G", "1" + "0" * 40 + "G"), "is not a link|none of the kinds"),
    "ib.out": ("Switch\t" + "9" * 5000 + ' "S-00a0"\t\t# "leaf"\n', "is not a line of ibnetdiscover"),
    "ends.yaml": (
        (
            "devices: [{name: d, components: [{name: xpu, type: xpu}], links: [{name: l, bandwidth: "
            "{gigabytes_per_second: 4}}], connections: [xpu.0.l.leaf.1]}]\ninstances: [{name: h, device: d}]\n"
        ),
        "leaf",
    ),
    "numa.txt": (
        (
            "=== Link Type between two GPUs ===\n      GPU0  GPU1\nGPU0  0     XGMI\nGPU1  XGMI  0\n"
            "GPU[7] : (Topology) Numa Node: 0\nGPU[9] : (Topology) Numa Node: 1\n"
        ),
        "",
    ),
}


@pytest.mark.parametrize("name", IMPORTS)
def test_dumps_that_were_no_dumps(tmp_path: Path, name: str) -> None:
    text, words = IMPORTS[name]
    (tmp_path / name).write_text(text)
    options = ImportOptions(gpu="mi300x" if name == "numa.txt" else "hgx-h100")
    if not words:
        assert import_files([str(tmp_path / name)], options).spec.gpus
        return
    with pytest.raises(InputError, match=words) as caught:
        import_files([str(tmp_path / name)], options)
    assert one_line(str(caught.value))


def headed(text: str, body: bytes = bytes(64)) -> bytes:
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode() + body


HEADERS = {
    "no-bytes": "{'descr': '|V0', 'fortran_order': False, 'shape': (2, 4), }",
    "endless": "{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999999999999,), }",
    "wide": "{'descr': '<f8', 'fortran_order': False, 'shape': (4294967296, 4294967296, 4), }",
    "open": "{'descr': '<f8', 'fortran_order': False, 'shape': (2, ",
    "code": "{'descr': __import__('os').system('touch ran'), 'fortran_order': False, 'shape': (2, 4), }",
    "fields": "{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (2, 4), }",
    "python-2": "{'descr': '<f8', 'fortran_order': False, 'shape': (2L, 4L), 'x': 1L}",
    "none": "",
}


@pytest.mark.parametrize("name", HEADERS)
def test_headers_of_arrays_that_promise_what_is_not_there(tmp_path: Path, name: str) -> None:
    """By every way that an array comes in: loads, traces, answers of servers, traffic, a balancer's state."""
    data = headed(HEADERS[name])
    path = tmp_path / "x.npy"
    path.write_bytes(data)
    with pytest.raises(InputError) as loads:
        read_loads([str(path)], moe_layers=(0, 1), layers=2, experts=4, seed=0)
    with pytest.raises(InputError):
        read_traffic(path, 8)
    with zipfile.ZipFile(tmp_path / "s.npz", "w") as archive:
        for key in ARRAYS:
            archive.writestr(f"{key}.npy", data)
    with pytest.raises(InputError):
        OnlineState.load(tmp_path / "s.npz")
    import base64

    (tmp_path / "a.json").write_text(
        json.dumps({"choices": [{"routed_experts": base64.b64encode(data).decode()}]})
    )
    with pytest.raises(InputError):
        read_routing([str(tmp_path / "a.json")])
    assert one_line(str(loads.value))


def test_headers_that_numpy_writes_are_read() -> None:
    for array in (
        np.zeros((2, 3)),
        np.zeros((2, 3), order="F"),
        np.int16(7),
        np.zeros(0, "<u1"),
        np.zeros((1, 1), "f2"),
    ):
        file = io.BytesIO()
        np.save(file, array)
        file.seek(0)
        shape, fortran, dtype = read_npy_header(file)
        assert (shape, fortran, dtype) == (array.shape, np.isfortran(np.asarray(array)), array.dtype)


def test_types_of_answers_are_texts(tmp_path: Path) -> None:
    given = {"choices": [{"routed_experts": {"data": "AAAA", "shape": [1, 1, 3], "dtype": ["int8"]}}]}
    (tmp_path / "a.json").write_text(json.dumps(given))
    with pytest.raises(InputError, match="not of whole numbers"):
        read_routing([str(tmp_path / "a.json")])


def test_a_device_that_never_ends_is_no_file() -> None:
    if not Path("/dev/zero").exists():
        pytest.skip("there is no /dev/zero here")
    with pytest.raises(InputError, match="32,000,000 or fewer"):
        read_text(Path("/dev/zero"), "/dev/zero")


@pytest.mark.wide
def test_a_journal_that_is_a_link_is_left_alone(fuzz: Any, watch: Any) -> None:
    """A study cuts half a line off its journal; through a link it would cut somebody else's file."""
    pytest.importorskip("pyarrow", reason="the extra `study` is not installed")
    reader = next(one for one in fuzz.readers if one.name == "study-folder")
    path = watch.put("out", reader.seeds()[0].data)
    (path / "journal").unlink(missing_ok=True)
    (path / "journal").symlink_to("../canary")
    assert watch.look(reader, path)[1] == []


def test_a_name_of_brackets_is_no_name() -> None:
    """Each was looked for its end, to the end of the name."""
    with pytest.raises(InputError, match="unknown cluster"):
        resolve_cluster("(a" * 100_000)


def test_a_fifo_without_a_writer_is_empty(tmp_path: Path) -> None:
    if not hasattr(os, "mkfifo"):
        pytest.skip("there are no FIFOs here")
    os.mkfifo(tmp_path / "fifo")
    assert read_text(tmp_path / "fifo", "fifo") == ""
