"""A server on a real socket: clients that leave or dawdle, searches that are cancelled, processes that die."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="the extra `serve` is not installed")
pytest.importorskip("uvicorn", reason="the extra `serve` is not installed")

from rackplan.serve import pool
from rackplan.serve.question import FieldError

HEAD = "POST /api/plot HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "
REQUEST_S = 3.0
PROMPT = f"""\
from rackplan.__main__ import main
from rackplan.serve import security

security.REQUEST_S = {REQUEST_S}
main()
"""
LONG = {
    "kind": "place",
    "asked": {"model": {"name": "deepseek-v3"}, "clusters": [{"name": "gb200-nvl72"}], "serving": "decode"},
    "order": {"seconds": 60},
}


@pytest.fixture(scope="module")
def server():
    """The process of a server, and its port."""
    command = [sys.executable, "-c", PROMPT, "serve", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        port = int(re.search(r"127\.0\.0\.1:([0-9]+)/", process.stdout.readline())[1])
        assert plotted(port)
        yield process, port
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 0


@contextmanager
def asked(port, path, body):
    """Yield the answer; its client leaves with the block."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
    answer = connection.getresponse()
    try:
        yield answer
    finally:
        answer.close()
        connection.close()


def plotted(port):
    """Whether a small question is answered."""
    with asked(port, "/api/plot", {"model": {"name": "mixtral-8x7b"}}) as answer:
        return answer.status == 200


def descendants(pid):
    """Return the processes that a process started, and those that they did."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid for child in children for pid in (child, *descendants(child))]


def computing(process):
    """Return the process of the server that computes; those that start compute too, until they wait."""

    def seconds():
        found = {}
        for one in descendants(process.pid):
            fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
            found[int(one)] = int(fields[11]) + int(fields[12])
        return found

    begun = time.monotonic()
    while time.monotonic() - begun < 20:
        before = seconds()
        time.sleep(0.5)
        used = {pid: now - before.get(pid, 0) for pid, now in seconds().items()}
        busiest = max(used, key=used.__getitem__)
        if used[busiest] > 4 * (sum(used.values()) - used[busiest]):
            return busiest
    raise AssertionError("no process computes alone")


def searching(answer):
    """Read the lines of a job until it has an incumbent; return its id."""
    for line in answer:
        if "objective" in (told := json.loads(line)):
            return told["id"]
    raise AssertionError("the job ended")


pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


def gone(worker):
    """Wait for a process to end, two seconds at most."""
    begun = time.monotonic()
    while Path(f"/proc/{worker}/exe").exists():
        assert time.monotonic() - begun < 2
        time.sleep(0.02)


def test_a_search_ends_when_its_client_leaves(server):
    process, port = server
    with asked(port, "/api/jobs", LONG) as answer:
        searching(answer)
        worker = computing(process)
    gone(worker)
    assert plotted(port)


def test_a_call_ends_with_its_time_and_frees_its_process(monkeypatch):
    monkeypatch.setattr(pool, "ANSWER_S", 0.5)

    async def cut():
        calls = pool.Pool(calls=1)
        await calls.run(pool.Call("the plot", abs, -3))
        (busy,) = calls._idle[-1:]
        with pytest.raises(
            FieldError, match=r"the plot was cut off after 0\.5 s of computing; choose fewer or"
        ):
            await calls.run(pool.Call("the plot", time.sleep, 60))
        busy.process.join(2)
        assert not busy.process.is_alive()
        assert (
            await asyncio.gather(*(calls.run(pool.Call("the point", abs, -3)) for _ in range(3))) == [3] * 3
        )
        calls.close()

    asyncio.run(cut())


def test_long_calls_leave_a_place_for_short_ones_and_begin_again(monkeypatch):
    monkeypatch.setattr(pool, "PROMPT_S", 0.2)

    async def beside():
        calls = pool.Pool()
        long = [asyncio.create_task(calls.run(pool.Call("the plot", time.sleep, 60))) for _ in range(3)]
        await asyncio.sleep(0)
        assert await calls.run(pool.Call("the point", abs, -3)) == 3
        assert not any(one.done() for one in long)
        long[0].cancel()
        long.append(asyncio.create_task(calls.run(pool.Call("a short one", time.sleep, 0.01))))
        await long[3]
        for one in long[:3]:
            one.cancel()
        await asyncio.wait(long[:3])
        calls.close()

    asyncio.run(beside())


def test_a_cancelled_search_hands_over_what_it_has(server):
    _, port = server
    with asked(port, "/api/jobs", LONG) as answer:
        with asked(port, f"/api/jobs/{searching(answer)}/cancel", {}) as cancelled:
            assert cancelled.status == 200
        last = [json.loads(line) for line in answer][-1]
    assert "result" in last, last
    notes = [block["text"] for block in last["result"]["blocks"] if block["kind"] == "note"]
    assert any("interrupted" in text for text in notes)


def test_a_process_that_dies_is_said_and_replaced(server):
    process, port = server
    with asked(port, "/api/jobs", LONG) as answer:
        searching(answer)
        os.kill(computing(process), signal.SIGKILL)
        last = [json.loads(line) for line in answer][-1]
    assert "out of memory?" in last["errors"]["request"]
    assert plotted(port)


def test_slow_requests_are_cut(server):
    """Whether nothing comes, or a byte of a head or a body now and then."""
    head = f"{HEAD}999\r\n".encode()
    starts = [b"", b"GET / HTTP/1.1\r\nHost: ", head, head + b"\r\n{"]
    clients = {socket.create_connection(("127.0.0.1", server[1]), timeout=0.1): start for start in starts}
    begun, ended = time.monotonic(), []
    for client, start in clients.items():
        client.sendall(start)
    while len(ended) < len(clients) and time.monotonic() - begun < 15:
        for client in clients.keys() - set(ended):
            try:
                client.sendall(b"a" if clients[client] else b"")
                if client.recv(1024) == b"":
                    ended.append(client)
            except TimeoutError:
                continue
            except OSError:
                ended.append(client)
    assert REQUEST_S * 0.9 < time.monotonic() - begun < REQUEST_S + 3
    for client in clients:
        client.close()
