"""The process that does the jobs: orders come as lines of JSON, progress and results go back as such."""

from __future__ import annotations

import json
import math
import os
import queue
import sys
import threading
from collections.abc import Callable, Mapping
from typing import IO, TYPE_CHECKING, Any

from topology.base.errors import RackplanError

if TYPE_CHECKING:
    from placement.plan import Plan
    from placement.progress import Progress


class Desk:
    """Where orders come in and answers go out; a job asks it whether it was cancelled."""

    def __init__(self, out: IO[str]) -> None:
        self._out = out
        self._lock = threading.Lock()
        self.orders: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self.cancelled = threading.Event()
        self.job = ""

    def read(self, lines: IO[str]) -> None:
        """Take orders until the server is gone, then end with it."""
        for line in lines:
            message = json.loads(line)
            if "cancel" in message:
                if message["cancel"] == self.job:
                    self.cancelled.set()
            else:
                self.orders.put(message)
        os._exit(0)

    def say(self, **message: Any) -> None:
        """Answer about the job that runs."""
        with self._lock:
            self._out.write(json.dumps({"job": self.job, **message}) + "\n")
            self._out.flush()

    def hear(self, progress: Progress) -> None:
        """Tell the page how far a search is, with incumbent and bound where there are any."""
        said: dict[str, Any] = {"stage": progress.stage, "elapsed_s": round(progress.elapsed_s, 2)}
        if progress.objective > 0:  # not a number before the first incumbent
            figures = {"done": progress.done, "total": progress.total}
            said |= figures | {"objective": progress.objective, "bound": progress.bound}
        self.say(progress=said)

    def work(self, kinds: Mapping[str, Kind]) -> None:
        """Do one job after the other."""
        from placement.budget import CancelledError

        while True:
            order = self.orders.get()
            self.cancelled.clear()
            self.job = order["job"]
            try:
                self.say(**kinds[order["kind"]](order, self))
            except CancelledError:
                self.say(failed="cancelled; nothing was placed yet.", state="cancelled")
            except RackplanError as error:
                self.say(failed=str(error))
            except MemoryError:
                self.say(failed="out of memory; try a smaller cluster.")
            except Exception as error:  # noqa: BLE001 - the page says so, and the next job runs
                self.say(failed=f"a defect of rackplan, please report it: {type(error).__name__}: {error}")


Kind = Callable[[dict[str, Any], Desk], dict[str, Any]]


def place(order: dict[str, Any], desk: Desk) -> dict[str, Any]:
    """Plan one cluster."""
    from rackplan import library
    from rackplan.serve.asked import read_asked, read_order
    from rackplan.serve.command import plan_command
    from rackplan.serve.placed import plan_data
    from rackplan.serve.pricing import deployed

    asked = read_asked(order["asked"])
    wanted = read_order(order["order"], len(asked.clusters))
    desk.say(progress={"stage": "reading model and cluster"})
    side = deployed(asked)[1][wanted.cluster]
    given: dict[str, Any] = {name: getattr(wanted, name) for name in ("ep", "tp", "stages")}
    if wanted.batch is not None:
        given["batch"] = wanted.batch
    elif asked.tpot_ms is not None:
        given["tpot_ms"] = "none" if math.isinf(asked.tpot_ms) else asked.tpot_ms
    made = library.plan(
        side.model,
        side.cluster,
        loads=wanted.loads if side.model.moe is not None else None,
        context=asked.context,
        prices=dict(side.prices.prices),
        time_limit_s=wanted.seconds,
        on_progress=desk.hear,
        cancel=desk.cancelled,
        **asked.served,
        **given,
    )
    return _handed(plan_data(made, command=plan_command(asked, wanted.cluster, side, wanted)), made)


def lose(order: dict[str, Any], desk: Desk) -> dict[str, Any]:
    """Re-plan a plan without what is lost."""
    from rackplan import library
    from rackplan.serve.asked import read_lost
    from rackplan.serve.placed import loss_data

    before = _read(order["plan"])
    lost = read_lost(order["lost"])
    found = library.replan(before, lost=lost, on_progress=desk.hear, cancel=desk.cancelled)
    command = " ".join(["rackplan replan PLAN", *(f"--lost {one}" for one in lost)])
    return _handed(loss_data(found, before, lost, command=command), found.plan)


def open_plan(order: dict[str, Any], desk: Desk) -> dict[str, Any]:
    """Show a plan that was made before."""
    from rackplan.serve.placed import plan_data

    desk.say(progress={"stage": "reading the plan"})
    plan = _read(order["plan"])
    return {"done": plan_data(plan, command=str(order.get("command", ""))), "plan": order["plan"]}


def report(order: dict[str, Any], desk: Desk) -> dict[str, Any]:
    """Write the page that is forwarded: of a plan, of one cluster priced, or of several."""
    from rackplan.serve.report import explored_report, plan_report

    desk.say(progress={"stage": "writing the report"})
    plan = order.get("plan")
    name, text = plan_report(_read(plan), order["command"]) if plan else explored_report(order["asked"])
    return {"done": {"name": name, "page": text}}


def _handed(data: dict[str, Any], plan: Plan) -> dict[str, Any]:
    from placement.plans.writing import plan_to_dict, plan_to_json

    return {"done": data, "plan": plan_to_json(plan_to_dict(plan, command=data["command"]))}


def _read(text: str) -> Plan:
    from placement.plans.reading import plan_of_text

    return plan_of_text(text, "plan.json")


KINDS: Mapping[str, Kind] = {
    "place": place,
    "lose": lose,
    "open": open_plan,
    "report": report,
}


def main() -> None:
    """Take orders on standard input; only answers go to standard output."""
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    out = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    desk = Desk(out)
    threading.Thread(target=desk.read, args=(sys.stdin,), daemon=True).start()
    desk.work(KINDS)
