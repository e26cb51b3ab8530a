"""What this process may use of its host: cores and memory, by affinity, by limits of a container and of the shell."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

_GROUPS = Path("/proc/self/cgroup")
_MOUNT = Path("/sys/fs/cgroup")
_NO_LIMIT = 1 << 60
"""Version 1 of control groups writes a number about this large where there is none."""


def cores() -> int:
    """Return how many cores this process may use, one at least: by affinity, and by the quota of its container."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([affinity, *map(math.ceil, _quotas())]))


def memory_bytes() -> int | None:
    """Return how many bytes of memory this process may use; None where the system does not say."""
    found = [*_total(), *_memory_limits(), *_shell_limit()]
    return min(found, default=None)


def _quotas() -> Iterator[float]:
    """Yield the cores that each control group above this process allows."""
    for folder in _folders("cpu"):
        quota, _, period = _read(folder / "cpu.max").partition(" ")
        if not quota:
            quota, period = _read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")
        if quota.isdecimal() and period.isdecimal() and int(period):
            yield int(quota) / int(period)


def _memory_limits() -> Iterator[int]:
    """Yield the bytes that each control group above this process allows."""
    for folder in _folders("memory"):
        limit = _read(folder / "memory.max") or _read(folder / "memory.limit_in_bytes")
        if limit.isdecimal() and int(limit) < _NO_LIMIT:
            yield int(limit)


def _total() -> Iterator[int]:
    try:
        pages = os.sysconf("SC_PHYS_PAGES")
        size = os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return
    if pages > 0 and size > 0:
        yield pages * size


def _shell_limit() -> Iterator[int]:
    """Yield what ``ulimit -v`` allows, if anything."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if 0 <= limit < _NO_LIMIT and limit != resource.RLIM_INFINITY:
        yield limit


def _folders(controller: str) -> Iterator[Path]:
    """Yield the folders of the control groups of this process, from its own up to the root, of both versions."""
    for line in _read(_GROUPS).splitlines() or ["0::/"]:
        number, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if number == "0":
            roots = [_MOUNT, _MOUNT / "unified"]
        elif controller in names.split(","):
            roots = [_MOUNT / controller, _MOUNT / names]
        else:
            continue
        parts = [part for part in path.split("/") if part not in ("", "..")]
        for root in roots:
            for depth in range(len(parts), -1, -1):
                yield root.joinpath(*parts[:depth])


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""
