"""The local page's requests: who may ask, what is answered, and what hostile ones get."""

from __future__ import annotations

import json
import re

import pytest

pytest.importorskip("starlette", reason="the extra `serve` is not installed")
pytest.importorskip("httpx", reason="httpx is not installed")

import warnings

import rackplan
from cost.resolve import resolve_model
from helpers import OWN_CLUSTER, write_plan
from rackplan.requests import CompareRequest, PlanRequest, SweepRequest, options_of
from rackplan.serve.app import MAX_BODY_BYTES, STATIC, Page
from rackplan.serve.opened import Opened
from topology.base.errors import InputError

PORT = 8710
HERE = f"http://127.0.0.1:{PORT}"
SMALL = {"model": {"name": "mixtral-8x7b"}, "clusters": [{"name": "hgx-h100"}]}
DECODE = SMALL | {"serving": "decode"}
OWN_MODEL = {
    key: value for key, value in resolve_model("mixtral-8x7b").config.items() if key != "rackplan"
} | {"num_hidden_layers": 4}


@pytest.fixture(scope="module")
def client():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from starlette.testclient import TestClient

        with TestClient(Page(Opened()).app(), base_url=HERE, raise_server_exceptions=True) as session:
            yield session


def test_the_page_and_its_files_are_served_under_a_strict_policy(client):
    page = client.get("/")
    assert page.status_code == 200
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "<script>" not in page.text
    assert page.headers["x-content-type-options"] == "nosniff"
    for name in (*STATIC, "pictures.js", "pictures.css", "plotly.js"):
        file = client.get(f"/static/{name}")
        assert file.status_code == 200, name
        assert file.headers["content-type"].startswith(
            "text/css" if name.endswith(".css") else "text/javascript"
        )


@pytest.mark.parametrize("name", ["../app.py", "..%2fapp.py", "%2fetc%2fpasswd", "app.py"])
def test_no_other_file_is_served(client, name):
    assert client.get(f"/static/{name}").status_code == 404


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"host": f"127.0.0.1.evil.example:{PORT}"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": f"https://127.0.0.1:{PORT}"},
        {"origin": "http://127.0.0.1:1"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
@pytest.mark.parametrize("path", ["/", "/api/start"])
def test_foreign_hosts_and_pages_are_refused(client, headers, path):
    answer = client.get(path, headers=headers)
    assert answer.status_code == (400 if "host" in headers else 403)
    assert "content-security-policy" in answer.headers


@pytest.mark.parametrize(
    "host", [f"localhost:{PORT}", f"127.0.0.1:{PORT}", f"[::1]:{PORT}", f"LOCALHOST:{PORT}"]
)
def test_its_own_names_are_answered(client, host):
    assert client.get("/api/start", headers={"host": host, "origin": f"http://{host}"}).status_code == 200


def figures(data):
    """Return the figures of the record at the root of a document as the page takes it."""
    records = (block for block in data["blocks"] if block["kind"] == "record" and not block["key"])
    return {figure["key"]: figure["value"] for record in records for figure in record["figures"]}


def pictures(data):
    """Return the pictures of a document as the page takes it, by name."""
    return {block["key"]: block for block in data["blocks"] if block["kind"] == "picture"}


def plot(client, **asked):
    return client.post("/api/plot", json=SMALL | asked)


def test_fields_of_the_form_are_those_of_the_requests(client):
    start = client.get("/api/start").json()
    fields = {field.pop("name"): field for field in start["fields"]}
    assert {"serving", "engine", "tp", "ep", "tpot_ms"} <= fields.keys()
    assert fields["recipe"]["choices"] == [["checkpoint", "checkpoint"], ["usual", "usual"]]
    for name, field in fields.items():
        option = (options_of(CompareRequest) | options_of(PlanRequest) | options_of(SweepRequest)).get(name)
        assert name == "serving" or option[0].help.startswith(field["title"])
    assert start["defaults"]["kv_dtype"] == SweepRequest.kv_dtype


def test_a_plot_has_frontier_money_and_the_command(client):
    data = plot(client).json()
    (side,) = data["clusters"]
    edge = side["frontier"]
    assert edge["user"] == sorted(edge["user"])
    assert edge["gpu"] == sorted(edge["gpu"], reverse=True)
    assert len({len(column) for column in edge.values()}) == 1
    assert side["bill"][0]["usd"]["rental"] > 0
    assert side["best"]["user"][0] >= 1e3 / data["tpot_ms"]
    assert data["command"] == "rackplan sweep --model mixtral-8x7b --cluster hgx-h100 --isl 8192 --osl 1024"


def test_the_figures_are_those_of_a_sweep(client):
    edge = plot(client, serving="decode", factors={"hbm": 2}).json()["clusters"][0]
    swept = rackplan.sweep("mixtral-8x7b", "hgx-h100", context=8704, settings={"gpu.hbm_bytes_per_s": "2x"})
    first = int(swept.frontier()[0])
    assert edge["frontier"]["gpu"][0] == pytest.approx(swept.tok_s_per_gpu[first], rel=1e-4)
    (paid,) = edge["bill"]
    dollars = 1e6 * paid["usd"]["rental"] / 3600 / edge["frontier"]["gpu"][0]
    assert dollars == pytest.approx(swept.totals(first).usd_per_million_tokens, rel=1e-4)
    assert paid["count"] * paid["power_w"] == pytest.approx(swept.deployment.bill.power_w)


def test_whole_requests_are_those_of_a_sweep_by_each_way(client):
    best = rackplan.sweep("mixtral-8x7b", "hgx-h100", isl=8192, osl=1024).serving.bests(0.05)
    for serving, match in (("better", next(iter(best.values()))), *best.items()):
        (side,) = plot(client, serving=serving).json()["clusters"]
        drawn = {way["name"]: way["points"]["gpu"][0] for way in side["ways"]}
        assert drawn == {
            name: pytest.approx(way.output_tok_s_per_gpu, rel=1e-4) for name, way in best.items()
        }
        shown = side["best"]
        assert shown["gpu"][0] == pytest.approx(match.output_tok_s_per_gpu, rel=1e-4)
        assert shown["ttft"][0] == pytest.approx(match.ttft_s * 1e3, rel=1e-4)
        at = {"cluster": 0, "layout": side["layouts"][shown["layout"][0]], "batch": shown["batch"][0]}
        point = client.post("/api/point", json={"asked": SMALL | {"serving": serving}, "point": at}).json()
        assert figures(point)["tok_s_per_gpu"] == pytest.approx(match.output_tok_s_per_gpu)


def test_dropped_files_are_read_as_data(client):
    cluster = "domains:\n  - {part: hgx-h100}\n"
    data = plot(
        client,
        model={"name": "<b>mine</b>.json", "text": json.dumps(OWN_MODEL | {"num_hidden_layers": 32})},
        clusters=[{"name": "../../etc/own.yaml", "text": cluster}],
    ).json()
    assert data["model"] == "b-mine-b"
    assert data["clusters"][0]["name"] == "etc-own"
    assert data["clusters"][0]["frontier"] == plot(client).json()["clusters"][0]["frontier"]


WRONG = [
    ({"model": {"name": "/etc/passwd"}}, "model"),
    ({"model": {"name": "x.json", "text": "{"}}, "model"),
    ({"clusters": [{"name": "hgx-h100"}] * 6}, "clusters"),
    ({"clusters": [1] * 400_000}, "clusters.0"),
    ({"clusters": [{"name": "hgx-h100"}, {"name": "nope"}]}, "clusters.1"),
    ({"clusters": [{"name": "/etc/x.yaml"}]}, "clusters.0"),
    ({"clusters": [{"name": "x.yaml", "text": "domains: [{part: hgx-h100, count: 1000}]"}]}, "clusters.0"),
    ({"clusters": [{"name": "x.yaml", "text": "!!python/object/apply:os.system [true]"}]}, "clusters.0"),
    ({"isl": 0}, "isl"),
    ({"osl": 10**400}, "osl"),
    ({"clusters": [{"name": "hgx-h100@" + "9" * 5000}]}, "clusters.0"),
    ({"factors": {"hbm": 40}}, "factors.hbm"),
    ({"settings": "gpu.hbm_bytes_per_s"}, "settings"),
    *(
        ({name: "abc"}, name)
        for name in ("isl", "osl", "gpus", "tpot_ms", "ttft_ms", "draft_tokens", "prices")
    ),
    ({"path": "/etc"}, "path"),
]


@pytest.mark.parametrize(
    ("asked", "field"), WRONG, ids=[f"{field}-{n}" for n, (_, field) in enumerate(WRONG)]
)
def test_what_is_wrong_is_said_beside_its_field(client, asked, field):
    answer = plot(client, **asked)
    assert answer.status_code == 422
    assert answer.json()["errors"][field]
    assert "Traceback" not in answer.text


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"{", "application/json", 422),
        (b"[]", "application/json", 422),
        (b"\xff\xfe", "application/json", 422),
        (b"[" * 100_000, "application/json", 422),
        (b"{}", "text/plain", 415),
        (b"x" * (MAX_BODY_BYTES + 1), "application/json", 413),
        (b'{"isl": 1e999}', "application/json", 422),
        (b'{"\\ud800": 1}', "application/json", 422),
        (b'{"kind": "open", "kind": "open"}', "application/json", 422),
    ],
)
def test_hostile_bodies_get_a_message(client, body, kind, status):
    for path in ("/api/plot", "/api/point", "/api/jobs"):
        answer = client.post(path, content=body, headers={"content-type": kind})
        assert answer.status_code == status
        assert answer.json()["errors"]


def test_a_body_that_hides_its_length_is_cut(client):
    parts = (b" " * 100_000 for _ in range(40))
    answer = client.post("/api/plot", content=parts, headers={"content-type": "application/json"})
    assert answer.status_code == 413


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/api/plot", 405),
        ("GET", "/api/jobs/job-9/plan", 404),
        ("POST", "/api/jobs", 404),
    ],
)
def test_other_requests_get_a_message(client, method, path, status):
    answer = client.request(method, path, json={"kind": "lose", "of": "job-9", "lost": ["d0.n0"]})
    assert answer.status_code == status
    assert answer.json()["errors"]["request"]


def test_a_point_has_its_step_and_memory(client):
    side = plot(client, serving="decode").json()["clusters"][0]
    edge = side["frontier"]
    asked = {"cluster": 0, "layout": side["layouts"][edge["layout"][0]], "batch": edge["batch"][0]}
    data = client.post("/api/point", json={"asked": DECODE, "point": asked}).json()
    step, memory = (pictures(data)[name]["svg"] for name in ("step", "memory"))
    bars = re.findall(r'<rect x="[\d.]+%" width="([\d.]+)%"[^>]* class="term"', step)
    assert sum(map(float, bars)) == pytest.approx(100, abs=0.01)
    (whole,) = re.findall(r">step: ([\d.]+) ms</text>", step)
    assert float(whole) == pytest.approx(edge["step"][0], abs=0.01)
    assert ">KV cache: " in memory
    assert data["order"]["batch"] == edge["batch"][0]
    assert data["command"].startswith("rackplan plan --model mixtral-8x7b --cluster hgx-h100")
    long = DECODE | {"model": {"name": "deepseek-v3"}, "clusters": [{"name": "hgx-h200@16"}], "isl": 65_536}
    for layout, dcp in (("EP8 TP8 DCP8 PP1 x2", 8), ("EP8 TP8 PP1 x2", 1)):
        asked = {"cluster": 0, "layout": layout, "batch": 1}
        order = client.post("/api/point", json={"asked": long, "point": asked}).json()["order"]
        assert (order["tp"], order["dcp"]) == (8, dcp)  # not as many as the search prefers


def written(folder, **given):
    """Write a plan into a folder."""
    made = rackplan.plan(time_limit_s=0, **given)
    write_plan(folder, made)
    return made


def test_the_plans_of_a_folder_are_opened(tmp_path):
    folder = tmp_path / "one"
    written(folder, model="mixtral-8x7b", cluster="hgx-h100", kv_dtype="fp8", context=2048)
    for path in (tmp_path, folder, folder / "plan.json"):
        opened = Opened.of(path)
        assert [plan.name for plan in opened.plans] == ["one"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="neither"):
        Opened.of(tmp_path / "empty")


@pytest.mark.parametrize("model", ["mixtral-8x7b", OWN_MODEL], ids=["catalog", "own"])
def test_the_page_opens_with_the_plan_that_was_given(tmp_path, client, model):
    """Its own model, cluster, figures and formats: the plan of its layout and batch has the plan's step."""
    cluster, settings = OWN_CLUSTER, {"mine.hbm_bytes_per_s": "2x"}
    if isinstance(model, str):
        cluster, settings = "hgx-h100@16", {"gpu.hbm_bytes_per_s": "2x"}
    given = {"model": model, "cluster": cluster, "kv_dtype": "fp8", "phase": "decode", "tpot_ms": 30}
    made = written(tmp_path / "one", settings=settings, **given)
    asked = Opened.of(tmp_path / "one").start["asked"]
    answer = client.post("/api/plot", json=asked)
    assert answer.status_code == 200, answer.text
    assert "--kv-dtype fp8 --set " in answer.json()["command"]
    order = {"ep": made.layout.ep, "tp": made.layout.tp, "stages": made.layout.stages, "seconds": 0}
    order["batch"] = made.deployment.workload.batch
    *_, last = job(client, kind="place", asked=asked, order=order)
    # of copies within the tolerance the fewest are taken, at a batch that is given too
    assert figures(last["result"])["step_s"] == pytest.approx(made.score.step_s, rel=0.02)


def test_a_plan_opens_with_its_requests(tmp_path):
    written(tmp_path / "one", model="mixtral-8x7b", cluster="hgx-h100", phase="prefill", context=3000)
    written(tmp_path / "two", model="mixtral-8x7b", cluster="hgx-h100", isl=256, osl=1024)
    for name, asked in (
        ("one", {"isl": 3000, "serving": "two pools"}),
        ("two", {"isl": 256, "osl": 1024, "serving": "one pool"}),
    ):
        assert Opened.of(tmp_path / name).start["asked"].items() >= asked.items()


def job(client, **order):
    """Return what a job tells, line by line."""
    return [json.loads(line) for line in client.post("/api/jobs", json=order).text.splitlines()]


@pytest.fixture(scope="module")
def placed(client):
    asked = SMALL | {"tpot_ms": 30, "isl": 256, "osl": 1024}
    return job(client, kind="place", asked=asked, order={"seconds": 0})[-1]


def test_a_plan_is_handed_over_with_figures_pictures_and_file(placed, client):
    data = placed["result"]
    drawn = {name: "svg" in picture for name, picture in pictures(data).items()}
    assert drawn == {"experts": False, "step": True, "memory": True}
    assert "<svg" in data["svg"]
    assert data["command"].startswith(
        "rackplan plan --model mixtral-8x7b --cluster hgx-h100 --isl 256 --osl 1024 --tpot-ms 30"
    )
    assert figures(data)["step_s"] <= 0.03
    assert figures(data)["balancedness"] <= 1
    assert any(block["kind"] == "table" and block["key"] == "baselines" for block in data["blocks"])
    assert client.get(f"/api/jobs/{placed['id']}/plan").json()["model"] == "mixtral-8x7b"


def test_work_that_cannot_be_done_says_why_and_the_next_is_done(placed, client):
    assert job(client, kind="lose", of=placed["id"], lost=["d0"])[-1]["errors"]["request"]
    assert client.post("/api/jobs", json={"kind": "open"}).json()["errors"]["plan"]
    assert "name" in job(client, kind="report", of=placed["id"])[-1]["result"]


def test_measured_runs_of_the_user_s_own_correct_the_plot(client):
    head = "id,quantity,measured,phase,cluster,model,tp,concurrency,isl,osl,engine\n"
    row = "a,tpot_ms,60,aggregated,hgx-h100,mixtral-8x7b,4,64,1024,1024,vllm\n"
    slow = plot(client, runs={"name": "mine.csv", "text": head + row}).json()
    assert slow["command"].endswith("--runs mine.csv")
    assert slow["clusters"][0]["frontier"] != plot(client).json()["clusters"][0]["frontier"]
    bad = plot(client, runs={"name": "mine.csv", "text": "a,b\n1,2\n"})
    assert "no measured points" in bad.json()["errors"]["runs"]


LONG = ["y" * 5000, "y z " * 1250, "7" * 4000, ["y" * 400] * 300, {"y" * 4000: 1}]
RUNS = "id,quantity,measured,phase,model,cluster\none,tpot_ms,9,decode,deepseek-v3,hgx-h100\n"
EVERY_FIELD = DECODE | {
    "gpus": 8, "recipe": "checkpoint", "isl": 100, "osl": 10, "tpot_ms": 50, "ttft_ms": 500, "weights": "fp8",
    "kv_dtype": "fp8", "draft_tokens": 1, "engine": "sglang", "mem_util": 0.9, "max_seqs": 100, "tp": 1, "ep": 1,
    "settings": "gpu.hbm_bytes_per_s=2x", "price_basis": "rental", "prices": {"h100-sxm": 3},
    "powers": {"h100-sxm": 900}, "factors": {"hbm": 2}, "runs": {"name": "runs.csv", "text": RUNS},
}  # fmt: skip
POINT = {"asked": DECODE, "point": {"cluster": 0, "layout": "EP1", "batch": 1}}
ORDER = {"cluster": 0, "ep": 1, "tp": 1, "stages": 1, "batch": 1, "loads": "uniform", "seconds": 0}
REQUESTS = [
    ("/api/plot", EVERY_FIELD),
    ("/api/point", POINT),
    ("/api/drawing", POINT),
    ("/api/jobs", {"kind": "place", "asked": DECODE, "order": ORDER}),
    ("/api/jobs", {"kind": "lose", "of": "job-9", "lost": ["d0.n0"]}),
    ("/api/jobs", {"kind": "open", "plan": 0}),
    ("/api/jobs", {"kind": "report", "of": "job-9"}),
]


def altered(data, new):
    """Yield JSON data with one of its values, or of its keys, replaced."""
    yield new
    if isinstance(data, dict):
        for key, value in data.items():
            rest = {name: item for name, item in data.items() if name != key}
            if isinstance(new, str):
                yield rest | {new: value}
            yield from (rest | {key: item} for item in altered(value, new))
    elif isinstance(data, list) and data:
        yield from ([item, *data[1:]] for item in altered(data[0], new))


def messages(answer):
    """Return all messages of an answer: names of fields and what is wrong, or notes."""
    data = json.loads(answer.text.splitlines()[-1])
    shown = [data.get(name) for name in ("errors", "notes", "said", "gone")]
    return json.dumps([*shown, *(side["reason"] for side in data.get("clusters", ()))])


@pytest.mark.parametrize("new", LONG, ids=lambda new: str(new)[:5])
def test_no_message_repeats_a_long_value(client, new):
    for path, body in ((path, body) for path, request in REQUESTS for body in altered(request, new)):
        text = messages(client.post(path, json=body))
        assert not re.search(r"y{201}|(y z ){51}|7{201}|(y+', '){2}", text), (path, text[:2000])
        assert "defect" not in text


def test_no_message_repeats_a_long_path(client):
    assert (
        "y" * 201
        not in client.get("/api/jobs/" + "y" * 5000 + "/plan").text + client.get("/" + "y" * 5000).text
    )
