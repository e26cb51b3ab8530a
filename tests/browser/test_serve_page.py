"""The local page in a real browser: it starts, answers, keeps its state in the address, and names cannot break it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="the extra `serve` is not installed")
pytest.importorskip("uvicorn", reason="the extra `serve` is not installed")

SMALL = "#model=mixtral-8x7b&cluster=hgx-h100"
REPLICAS = "#model=olmoe-1b-7b&cluster=hgx-h100&seconds=0"
"""A question whose plan outlives a GPU."""
READY = "#point table"


@pytest.fixture(scope="module")
def server():
    """The address of a server of its own."""
    command = [sys.executable, "-m", "rackplan", "serve", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        said = process.stdout.readline()
        yield re.search(r"http://[0-9.:]+/", said)[0]
        process.terminate()


@pytest.fixture
def page(server, open_page):
    """Open the small example, or another address, and wait for its first answer."""

    def opened(hash_=SMALL, **how):
        found = open_page(server + hash_, **how)
        found.page.wait_for_selector(READY)
        return found

    return opened


@pytest.mark.parametrize("width", [1440, 390])
@pytest.mark.parametrize("dark", [False, True])
def test_it_is_whole_at_each_width_and_in_the_dark(page, width, dark):
    found = page(width=width, dark=dark)
    assert found.axe() == []
    assert found.clipped() == []
    assert found.errors == []


def test_the_example_is_real_and_the_sliders_answer(page, server):
    found = page("")
    where = found.page
    assert "deepseek-v3" in where.text_content("#title")
    assert where.text_content("#command").startswith(
        "rackplan sweep --model deepseek-v3 --cluster gb200-nvl72"
    )
    chart, headline = (where.locator(name).bounding_box() for name in ("#plot", "#headline"))
    assert headline["y"] < chart["y"] < chart["y"] + chart["height"] < 900
    before = where.text_content("#best")
    where.locator("#slider-hbm").focus()
    where.keyboard.press("End")
    where.wait_for_function("before => document.querySelector('#best').textContent !== before", arg=before)
    assert "--set gpu.hbm_bytes_per_s=4x" in where.text_content("#command")
    where.wait_for_function("() => location.hash.includes('x-hbm=4')")
    assert found.errors == []


def test_what_is_wrong_stands_beside_its_field(page):
    where = page().page
    for name, text, words in (
        ("model", "no-such-model", "no-such-model"),
        ("tpot_ms", "abc", "a number above 0"),
    ):
        before = where.input_value(f"#{name}")
        where.fill(f"#{name}", text)
        where.press(f"#{name}", "Enter")
        where.wait_for_selector(f"#{name}-error:not(:empty)")
        assert words in where.text_content(f"#{name}-error")
        where.wait_for_selector(f"#{name}[aria-invalid=true]")
        where.fill(f"#{name}", before)
        where.press(f"#{name}", "Enter")
        where.wait_for_selector(f"#{name}-error:empty", state="attached")


def test_prices_and_powers_ask_nothing_and_each_question_can_be_undone(page):
    found = page()
    where = found.page
    where.wait_for_function("() => location.hash.includes('model=mixtral')")
    where.wait_for_selector("#point .drawing svg")
    asked: list[str] = []
    where.on("request", lambda request: asked.append(request.url))
    dear, power = where.get_by_label("h100-sxm, USD/h"), where.get_by_label("h100-sxm, W")
    before = where.text_content("#headline dl")
    for field, value, flag in (
        (dear, "2.6", "--price h100-sxm=2.6"),
        (power, "1000", "--power h100-sxm=1000"),
    ):
        field.fill(value)
        field.press("Enter")
        assert flag in where.text_content("#command")
        where.wait_for_function("value => location.hash.includes(value)", arg=f"h100-sxm%3D{value}")
    assert "$20.8/h, 8 kW" in where.text_content("#headline")
    where.locator("#undo").click()
    where.wait_for_function("() => !location.hash.includes('powers')")
    where.go_back()
    where.wait_for_function("() => !location.hash.includes('prices')")
    where.wait_for_function(
        "before => document.querySelector('#headline dl').textContent === before", arg=before
    )
    where.wait_for_selector("#undo:disabled")
    assert asked == []
    assert found.errors == []


@pytest.mark.parametrize(
    ("button", "name", "head"),
    [
        ("#csv", "mixtral-8x7b.csv", b"cluster,"),
        ("#png", "mixtral-8x7b.png", b"\x89PNG"),
        ("#report", "mixtral-8x7b-hgx-h100-sweep.html", b"<!DOCTYPE"),
    ],
)
def test_chart_and_report_are_taken_away(page, button, name, head):
    where = page().page
    with where.expect_download(timeout=60_000) as taken:
        where.locator(button).click()
    assert taken.value.suggested_filename == name
    assert Path(taken.value.path()).read_bytes().startswith(head)


def test_names_with_markup_are_text(page):
    from cost.resolve import resolve_model

    config = {key: value for key, value in resolve_model("mixtral-8x7b").config.items() if key != "rackplan"}
    hostile = '<img src=x onerror="window.broken=1"><script>window.broken=1</script>.json'
    found = page()
    where = found.page
    where.evaluate(
        """async ([name, text]) => {
          const data = new DataTransfer();
          data.items.add(new File([text], name));
          document.dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
        }""",
        [hostile, json.dumps(config)],
    )
    where.wait_for_function("() => document.querySelector('#command').textContent.includes('onerror')")
    assert where.input_value("#model") == hostile
    assert where.evaluate("window.broken") is None
    where.wait_for_function("() => location.hash.includes('model=file')")
    assert found.errors == []


def test_experts_are_placed_and_a_node_is_lost_by_a_click(page):
    found = page(REPLICAS)
    where = found.page
    where.get_by_role("button", name="Place experts", exact=True).click()
    where.wait_for_selector("#plan .verdict", timeout=60_000)
    assert "output tok/s/GPU" in where.text_content("#plan .verdict")
    assert where.locator("#plan canvas").count() >= 1
    where.locator('#plan .drawing [data-kind="gpu"]').first.click()
    where.wait_for_selector("#plan >> text=copies of experts", timeout=60_000)
    where.wait_for_function("() => location.hash.includes('lost=d0.n0.g0')")
    head = where.locator("#plan table").first.locator("thead").inner_text()
    assert "before" in head
    where.get_by_role("button", name="Restore d0.n0.g0").click()
    where.wait_for_function(
        "() => !document.querySelector('#plan').textContent.includes('copies of experts')"
    )
    assert found.errors == []
    assert found.clipped() == []


def test_a_job_is_cancelled(page):
    where = page("#model=deepseek-v3&cluster=gb200-nvl72&seconds=120&tpot_ms=20").page
    where.get_by_role("button", name="Place experts", exact=True).click()
    where.wait_for_function("() => /gap/.test(document.querySelector('#job').textContent)", timeout=60_000)
    where.get_by_role("button", name="Cancel").click()
    where.wait_for_selector("#plan .verdict", timeout=60_000)
    assert "interrupted" in where.text_content("#plan").lower()
