"""How a point may end."""

OK, INFEASIBLE, FAILED, TIMEOUT = "ok", "infeasible", "failed", "timeout"
STATUSES = (OK, INFEASIBLE, FAILED, TIMEOUT)
