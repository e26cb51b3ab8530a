"""Readers of what is recorded and planned: models, loads, traces, plans, engines' files, measurements, studies."""

from __future__ import annotations

import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import seeds_files as seeds
from mutations_archives import pack
from reader import Reader, Seed, texts

_JSON = ("topology.reading:read_text", "topology.reading:parse_json")
_ARRAYS = "cost.traces.arrays"
_TORCH = ("cost.traces.torch_file:load_torch_file", "cost.traces.torch_file:_Reader._small")


def _model(path: Path) -> None:
    from cost.resolve import resolve_model

    resolve_model(str(path))


@cache
def _small() -> Any:
    from cost.config.build import model_from_config

    return model_from_config(seeds.CONFIG, name="small")


def _loads(path: Path) -> None:
    from cost.loads import read_loads
    from cost.traces.open import open_recording
    from rackplan.views.loads import describe

    if sum(path.as_posix().encode()) % 7 == 0:
        describe(str(path), None, None, None)
    else:
        open_recording(str(path))
    model = _small()
    read_loads(
        [str(path)], moe_layers=model.moe_layers, layers=len(model.layers), experts=model.moe.experts, seed=0
    )


def _routing(path: Path) -> None:
    from cost.traces.recording import Wanted
    from cost.traces.routing_files import is_routing, read_routing

    wanted = Wanted((0, 1), seeds.LAYERS, seeds.EXPERTS, seeds.TOP_K)
    is_routing(str(path), wanted)
    for trace in read_routing([str(path)], wanted):
        trace.counts.sum()


def _bare(path: Path) -> None:
    from cost.traces.routing_files import is_routing, read_routing

    is_routing(str(path))
    read_routing([str(path)])


def _transitions(path: Path) -> None:
    from cost.traces.transitions import read_transitions

    read_transitions(path)


def _lengths(path: Path) -> None:
    from cost.lengths import read_lengths

    read_lengths(path)


def _points(path: Path) -> None:
    from cost.validation.read import read_counted
    from rackplan.views.validate import validate_view, validation

    points, rows = read_counted(path)
    validate_view([validation("points", points[:8], rows)])


def _engine(kind: str) -> Any:
    def read(path: Path) -> None:
        from placement.engines.mapping import model_facts
        from placement.engines.registry import ENGINES, check_file, read_mapping
        from rackplan.views.engines import check_view

        facts = model_facts(_small())
        if kind in ENGINES:
            check_view(check_file(path, ENGINES[kind], facts, seeds.RANKS))
        read_mapping(path, kind, facts, seeds.RANKS)

    return read


@cache
def small_plan() -> Any:
    """Return a plan of the small model on eight GPUs."""
    import rackplan

    return rackplan.plan(seeds.CONFIG, "hgx-h100", loads="zipf:0.6", time_limit_s=0, batch=4, context=1024)


def _plan_text(plan: Any) -> str:
    from placement.plan_file import plan_to_dict, plan_to_json

    return plan_to_json(plan_to_dict(plan, command="rackplan plan", sha256={}))


@cache
def plans() -> tuple[str, ...]:
    """Return plan files: of one load, and of several with everything that a plan may hold."""
    import rackplan

    several = rackplan.plan(
        seeds.CONFIG,
        "hgx-h100",
        loads=["zipf:0.6", "lognormal:0.5"],
        time_limit_s=0,
        batch=4,
        context=1024,
        stages=2,
    )
    return _plan_text(small_plan()), _plan_text(several)


def _read_plan(path: Path) -> None:
    from placement.plan_file import read_plan
    from rackplan.render.text import text_lines
    from rackplan.views.plan import plan_view

    text_lines(plan_view(read_plan(path), {}).blocks)


def _exported(engine: str) -> list[Seed]:
    """Return what our own exporter writes for an engine that has no seed by hand."""
    from placement.engines.registry import ENGINES

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"x{(*ENGINES[engine].suffixes, '.json')[0]}"
        import rackplan

        rackplan.export(small_plan(), engine, path)
        return [Seed(path.name, "json", path.read_bytes())]


def _engine_seeds(kind: str) -> list[Seed]:
    if kind in seeds.ENGINES:
        return [Seed(*one) for one in seeds.ENGINES[kind]]
    return _exported(kind)


def _state(path: Path) -> None:
    from placement.online.state import OnlineState

    OnlineState.load(path)


def _state_seeds() -> list[Seed]:
    from placement.online.balancer import start

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "s.npz"
        state = start(seeds.EXPERTS, np.full(seeds.RANKS, 2), stored=seeds.WINDOWS)
        state.seen(seeds.COUNTS).save(path)
        return [Seed("s.npz", "zip", path.read_bytes())]


def _environment(path: Path) -> None:
    from rackplan.balancers.settings import require_known, settings, switched_on

    given = dict(
        line.partition("=")[::2] for line in path.read_bytes().decode("utf-8", "replace").split("\n")
    )
    require_known(given)
    switched_on(given)
    settings(given)


def _study(path: Path) -> None:
    from rackplan.studies.spec import Files, read_study

    study = read_study(path)
    for point, _ in zip(study.points(Files(study.base)), range(20), strict=False):
        assert point.digest


def _study_folder(path: Path) -> None:
    from rackplan.studies.folder import open_study, opened, read_finished
    from rackplan.views.study import study_view

    study, folder = open_study(path, None)
    study_view(read_finished(path), {})
    with opened(study, folder):
        pass


@cache
def _study_seeds() -> list[Seed]:
    from rackplan.studies.folder import run_study
    from rackplan.studies.spec import read_study

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "s.yaml"
        path.write_text(seeds.STUDY[0], encoding="utf-8")
        run_study(read_study(path), Path(folder) / "out", workers=1)
        out = Path(folder) / "out"
        files = {
            one.relative_to(out).as_posix(): one.read_bytes()
            for one in sorted(out.rglob("*"))
            if one.is_file()
        }
    rows = {name: data for name, data in files.items() if not name.endswith(".parquet")}
    return [Seed("out", "folder", pack(files)), Seed("out", "folder", pack({**rows, "journal": _journal()}))]


def _journal() -> bytes:
    import zlib

    text = json.dumps(
        {"digest": "0" * 64, "point": 0, "status": "ok", "reason": None, "finished": "2026-01-01T00:00:00"}
    ).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _stored(path: Path) -> None:
    from rackplan.balancers.stored import read_stored

    read_stored.cache_clear()
    read_stored((str(path),), "")


def _engines() -> tuple[Reader, ...]:
    from placement.engines import NAMES

    enters = {
        "sglang": ("placement.engines.sglang:Sglang.read", "placement.engines.sglang:_torch", "placement.engines.strict_text:read_json", "placement.engines.strict_text:read_text", "placement.engines.strict_text:_parse"),
        "trtllm": ("placement.engines.trtllm:Trtllm.read", "placement.engines.strict_text:read_yaml"),
        "vllm-ascend": ("placement.engines.vllm_ascend:VllmAscend.read",),
        "vllm": ("placement.engines.vllm:Vllm.of", "placement.engines.vllm:_record", "placement.engines.vllm:VllmInitialMap.read", "placement.engines.strict_text:read_json_lines"),
        "hygon": ("placement.engines.hygon:Hygon.read",),
        "lmdeploy": ("placement.engines.lmdeploy:LMDeploy.read",),
        "npy": ("placement.engines.phy2log:inspect_phy2log",),
    }  # fmt: skip
    return tuple(
        Reader(
            f"engine-{kind}", lambda kind=kind: _engine_seeds(kind), _engine(kind), enters.get(kind, ()), 20
        )
        for kind in (*NAMES, "npy")
    )


READERS = (
    Reader(
        "model-config",
        lambda: [Seed("config.json", "json", one) for one in seeds.configs()],
        _model,
        (*_JSON, "cost.config.build:load_object"),
        20,
    ),
    Reader(
        "loads-npy",
        lambda: texts("l.npy", "npy", seeds.npy(seeds.COUNTS), seeds.npy(seeds.WINDOWS.astype(float))),
        _loads,
        (
            f"{_ARRAYS}:npy_array",
            f"{_ARRAYS}:FileArray.pieces",
            f"{_ARRAYS}:FileArray._read",
            f"{_ARRAYS}:Place.open",
        ),
        20,
    ),
    Reader(
        "loads-npz",
        lambda: texts(
            "l.npz", "zip", seeds.npz(loads=seeds.COUNTS), seeds.npz(loads=seeds.WINDOWS, other=np.ones(3))
        ),
        _loads,
        (f"{_ARRAYS}:npz_array",),
        20,
    ),
    Reader(
        "loads-csv",
        lambda: texts("l.csv", "csv", seeds.LOADS_CSV),
        _loads,
        ("cost.traces.csv_file:read_csv",),
        20,
    ),
    Reader(
        "loads-json",
        lambda: texts(
            "l.json", "json", seeds.LOADS_JSON, json.dumps({"logical_count": seeds.WINDOWS.tolist()})
        ),
        _loads,
        ("cost.traces.json_files:read_json", "cost.traces.json_files:parse", "cost.traces.open:_is_lines"),
        20,
    ),
    Reader(
        "loads-vllm",
        lambda: texts("l.jsonl", "jsonl", seeds.VLLM_STATS),
        _loads,
        ("cost.traces.json_files:_stats",),
        15,
    ),
    Reader(
        "loads-pt",
        lambda: texts(
            "l.pt",
            "zip",
            seeds.torch({"rank": 0, "logical_count": seeds.WINDOWS.astype(np.int32)}),
            *seeds.per_pass().values(),
            *seeds.per_token().values(),
        ),
        _loads,
        (*_TORCH, "cost.traces.sglang:read_sglang_pt"),
        20,
    ),
    Reader(
        "loads-sglang-folder",
        lambda: [
            Seed("dump", "folder", pack(seeds.per_pass())),
            Seed("dump", "folder", pack(seeds.per_token())),
        ],
        _loads,
        ("cost.traces.sglang:read_sglang_folder", "cost.traces.sglang:_rank"),
        8,
    ),
    Reader(
        "loads-trtllm-folder",
        lambda: [Seed("stats", "folder", seeds.trtllm_folder())],
        _loads,
        (
            "cost.traces.trtllm_folder:is_trtllm_folder",
            "cost.traces.trtllm_folder:read_trtllm_folder",
            "cost.traces.trtllm_folder:_experts",
            "cost.traces.trtllm_folder:_headers",
            "cost.traces.trtllm_folder:_add",
        ),
        8,
    ),
    Reader(
        "routing-npy",
        lambda: texts("r.npy", "npy", seeds.npy(seeds.CHOSEN)),
        _routing,
        (
            "cost.traces.routing_files:_read_npy",
            "cost.traces.routing_files:_is_routing",
            f"{_ARRAYS}:npy_array",
        ),
        15,
    ),
    Reader(
        "routing-npz",
        lambda: texts("r.npz", "zip", seeds.npz(routed_experts=seeds.CHOSEN)),
        _routing,
        ("cost.traces.routing_files:_read_npz", f"{_ARRAYS}:npz_names"),
        15,
    ),
    Reader("routing-bare-npy", lambda: texts("r.npy", "npy", seeds.npy(seeds.CHOSEN)), _bare, (), 10),
    Reader(
        "routing-pt",
        lambda: texts("expert_distribution_recorder_1.5_0.pt", "zip", *seeds.per_token().values()),
        _routing,
        ("cost.traces.routing_files:_read_pt", "cost.traces.sglang:_beside"),
        15,
    ),
    Reader(
        "routing-folder",
        lambda: [Seed("dump", "folder", pack(seeds.per_token()))],
        _routing,
        ("cost.traces.sglang:sglang_ranks",),
        8,
    ),
    Reader(
        "routing-answers",
        lambda: texts("r.json", "json", *seeds.ANSWERS),
        _routing,
        (
            "cost.traces.routing_answers:_answers",
            "cost.traces.routing_answers:_npy",
            "cost.traces.routing_answers:_bare",
            "cost.traces.routing_answers:_shaped",
        ),
        15,
    ),
    Reader(
        "routing-lines", lambda: texts("r.jsonl", "jsonl", "\n".join(seeds.ANSWERS[:2])), _routing, (), 10
    ),
    Reader(
        "routing-parquet",
        lambda: [
            Seed(
                "t",
                "folder",
                pack({"layer_01.parquet": seeds.parquet(), "layer_02.parquet": seeds.parquet()}),
            ),
            *texts("layer_01.parquet", "bytes", seeds.parquet()),
        ],
        _bare,
        ("cost.traces.routing_files:_read_parquet", "cost.traces.routing_files:_parquet"),
        5,
    ),
    Reader(
        "transitions",
        lambda: [
            *texts("t.npz", "zip", seeds.npz(transitions=np.ones((2, 4, 4)), tokens=np.array(9.0))),
            *texts("t.npy", "npy", seeds.npy(np.ones((2, 4, 4)))),
        ],
        _transitions,
        ("cost.traces.transitions:read_transitions", f"{_ARRAYS}:FileArray.whole"),
        15,
    ),
    Reader(
        "lengths-csv",
        lambda: texts("l.csv", "csv", seeds.LENGTHS),
        _lengths,
        ("cost.lengths:read_lengths", "topology.table:Table.read"),
        20,
    ),
    Reader(
        "points-csv",
        lambda: texts("p.csv", "csv", seeds.POINTS, seeds.ALLTOALL, seeds.SILICON, seeds.TRANSCRIBED),
        _points,
        ("cost.validation.read:read_counted",),
        5,
    ),
    *_engines(),
    Reader(
        "plan-json",
        lambda: texts("plan.json", "json", *plans()),
        _read_plan,
        ("placement.plan_file:read_plan", "placement.plan_file:_fields"),
        4,
        writes=True,  # settles what a killed run left beside it
    ),
    Reader(
        "plan-folder",
        lambda: [Seed("plan", "folder", pack({"plan.json": one.encode()})) for one in plans()],
        _read_plan,
        ("placement.plan_file:read_plan",),
        1,
        writes=True,
    ),
    Reader(
        "online-state",
        _state_seeds,
        _state,
        ("placement.online.state:_arrays", "placement.online.state:OnlineState._checked"),
        15,
    ),
    Reader("balancer-stored", lambda: texts("l.npy", "npy", seeds.npy(seeds.COUNTS)), _stored, (), 8),
    Reader(
        "balancer-environment",
        lambda: texts(
            "e.txt",
            "text",
            "RACKPLAN_BALANCER=1\nRACKPLAN_MAX_MOVES=5%\nRACKPLAN_HISTORY=4\nRACKPLAN_SCENARIOS=a.npy,b.npy\nRACKPLAN_NODE_GROUPS=keep",
        ),
        _environment,
        (),
        10,
    ),
    Reader(
        "study-yaml",
        lambda: texts("s.yaml", "yaml", *seeds.STUDY),
        _study,
        ("rackplan.studies.spec:read_content",),
        10,
    ),
    Reader(
        "study-folder",
        _study_seeds,
        _study_folder,
        (
            "rackplan.studies.folder:_recorded",
            "rackplan.studies.store:read_rows",
            "rackplan.studies.store:journal_rows",
            "rackplan.studies.store:Store.__init__",
        ),
        2,
        writes=True,
    ),
)
