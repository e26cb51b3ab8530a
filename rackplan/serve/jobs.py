"""Long work: one process beside the server that places experts, one job after the other, each cancellable."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from topology.base.errors import InputError

MOST_JOBS, MOST_WAITING = 12, 3
"""Jobs that are remembered, and those that may wait."""
MOST_SECONDS = 900.0
"""A job that runs longer is ended."""
DYING_S = 20.0
"""How long a job that was cancelled may take to hand over what it has."""
_WORKER = "import sys; sys.path[:] = sys.argv[1:]; from rackplan.serve.worker import main; main()"
"""Imports from where the server does, never from the working folder."""


@dataclass
class Job:
    """One job: ``state`` is waiting, running, done, cancelled or failed."""

    id: str
    order: dict[str, Any]
    state: str = "waiting"
    progress: dict[str, Any] = field(default_factory=dict)
    trail: list[tuple[float, float, float]] = field(default_factory=list)
    result: dict[str, Any] | None = None
    plan: str = ""
    message: str = ""
    begun: float = 0.0
    cancelled_at: float = 0.0

    @property
    def over(self) -> bool:
        """Whether nothing more will come."""
        return self.state in ("done", "cancelled", "failed")

    def status(self) -> dict[str, Any]:
        """Return what the page shows while it waits."""
        elapsed = time.monotonic() - self.begun if self.begun else 0.0
        return {
            "id": self.id,
            "kind": self.order["kind"],
            "state": self.state,
            "progress": self.progress,
            "trail": self.trail,
            "message": self.message,
            "elapsed_s": round(elapsed, 1),
        }


class Jobs:
    """The jobs and the process that does them; it starts with the first, and is started again where it died."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._numbers = count(1)
        self._lock = threading.RLock()
        self._process: subprocess.Popen[str] | None = None
        self._listener = threading.Thread()
        self._closed = False

    def add(self, order: dict[str, Any]) -> Job:
        """Put a job in line.

        Raises
        ------
        InputError
            If too many wait.
        """
        with self._lock:
            if sum(not job.over for job in self._jobs.values()) > MOST_WAITING:
                raise InputError(f"{MOST_WAITING} jobs wait already; cancel one first.")
            job = Job(f"job-{next(self._numbers)}", order)
            self._jobs[job.id] = job
            while len(self._jobs) > MOST_JOBS:
                oldest = next(one for one in self._jobs.values() if one.over)
                del self._jobs[oldest.id]
            self._next()
            return job

    def get(self, name: str) -> Job | None:
        """Return a job by its id, None where there is none; one that overran its time is ended."""
        with self._lock:
            job = self._jobs.get(name)
            if job is not None and job.state == "running":
                now = time.monotonic()
                dying = bool(job.cancelled_at) and now - job.cancelled_at > DYING_S
                if dying or now - job.begun > MOST_SECONDS:
                    said = "cancelled." if dying else f"ended after {MOST_SECONDS:g} s."
                    self._end(job, "cancelled" if dying else "failed", said)
            return job

    def cancel(self, job: Job) -> None:
        """Cancel a job: what is placed so far is kept and handed over."""
        with self._lock:
            if job.state == "waiting":
                job.state, job.message = "cancelled", "cancelled before it began."
            elif job.state == "running" and not job.cancelled_at:
                job.cancelled_at = time.monotonic()
                self._send({"cancel": job.id})

    def close(self) -> None:
        """End the process; nothing is waited for."""
        with self._lock:
            self._closed = True
            process, self._process = self._process, None
        if process is not None:
            process.kill()
            self._listener.join(timeout=1.0)

    def _next(self) -> None:
        """Begin the next job where none runs."""
        if any(job.state == "running" for job in self._jobs.values()):
            return
        job = next((one for one in self._jobs.values() if one.state == "waiting"), None)
        if job is None or self._closed:
            return
        job.state, job.begun = "running", time.monotonic()
        self._send({"job": job.id, **job.order})

    def _send(self, message: dict[str, Any]) -> None:
        process = self._running()
        assert process.stdin is not None  # noqa: S101 - a pipe
        with contextlib.suppress(OSError, ValueError):  # it died: the reader says so
            process.stdin.write(json.dumps(message) + "\n")
            process.stdin.flush()

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(  # noqa: S603 - this Python
                [sys.executable, "-P", "-c", _WORKER, *sys.path],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                encoding="utf-8",
                # Ctrl-C is the server's: it ends the process
                start_new_session=True,
            )
            self._listener = threading.Thread(target=self._listen, args=(self._process,), daemon=True)
            self._listener.start()
        return self._process

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None  # noqa: S101 - a pipe
        for line in process.stdout:
            message = json.loads(line)
            with self._lock:
                job = self._jobs.get(message["job"])
                if job is not None and not job.over:
                    self._hear(job, message)
        process.wait()
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):  # what was not read yet is lost with the process
                assert pipe is not None  # noqa: S101 - a pipe
                pipe.close()
        with self._lock:
            if process is self._process and not self._closed:
                self._process = None
                for job in self._jobs.values():
                    if job.state == "running":
                        job.state, job.message = "failed", "its process ended; out of memory?"
                self._next()

    def _hear(self, job: Job, message: dict[str, Any]) -> None:
        if "progress" in message:
            job.progress = said = message["progress"]
            if said.get("objective"):
                job.trail.append((said["elapsed_s"], said["objective"], said["bound"]))
                if len(job.trail) > 400:
                    job.trail = job.trail[::2]
            return
        if "failed" in message:
            job.state, job.message = message.get("state", "failed"), message["failed"]
        else:
            job.state, job.result, job.plan = "done", message["done"], message.get("plan", "")
        self._next()

    def _end(self, job: Job, state: str, said: str) -> None:
        """End the process of a job that does not end by itself."""
        job.state, job.message = state, said
        process, self._process = self._process, None
        if process is not None:
            process.kill()
        self._next()
