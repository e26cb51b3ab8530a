"""SGLang's and vLLM's own expert placement policies, loaded from their wheels or unpacked copies; they need torch.

Only the files of the policies are read: the engines need not be installed.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager, suppress
from types import ModuleType
from typing import TYPE_CHECKING, Any
from zipfile import ZipFile

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from cost.experts.assignment import Assignment
    from placement.experts.problem import Problem

    Policy = Callable[[Problem], tuple[Assignment | None, str]]

__all__ = ["engine_module", "in_package", "modules_there", "sglang_policies", "vllm_policies"]

_SGLANG = "sglang/srt/eplb/eplb_algorithms"
_VLLM = "vllm/distributed/eplb/policy"


def sglang_policies(where: Path) -> dict[str, Policy]:
    """Return SGLang's ``deepseek`` and ``deepseek_vec`` global policies by name; empty, and said so, without torch.

    ``where`` is the wheel, the folder it was unpacked to, or the folder of the policies.
    """
    if not _torch():
        return {}
    import torch

    deepseek, vectorised = (engine_module(where, _SGLANG, name) for name in ("deepseek", "deepseek_vec"))

    def plain(problem: Problem) -> tuple[Assignment | None, str]:
        if np.ptp(problem.slots_per_gpu):
            return None, "slots are unequal"
        weight = torch.from_numpy(problem.mean)
        answer = deepseek.rebalance_experts(weight, problem.slots, 1, 1, problem.gpus, False)
        return problem.assignment(answer[0].numpy().astype(np.int32)), ""

    def in_chunks(problem: Problem) -> tuple[Assignment | None, str]:
        if np.ptp(problem.slots_per_gpu):
            return None, "slots are unequal"
        if problem.gpus < problem.slots - problem.experts:
            return None, "more spare slots than GPUs"
        weight = torch.from_numpy(problem.mean)[None]
        each = problem.slots // problem.gpus
        answer = vectorised.rebalance_experts(weight, problem.slots, each, 1, 1, False)
        return problem.assignment(answer[0].numpy().astype(np.int32)), ""

    return {"SGLang deepseek": plain, "SGLang deepseek_vec": in_chunks}


def vllm_policies(where: Path) -> dict[str, Policy]:
    """Return vLLM's ``default`` and, where it has one, ``batched`` policy on one node, by name.

    Empty, and said so, without torch.

    ``where`` is the wheel, the folder it was unpacked to, or the folder of the policies.
    """
    if not _torch():
        return {}
    import torch

    base = engine_module(where, _VLLM, "abstract")
    with in_package(abstract=base):
        default = engine_module(where, _VLLM, "default", "_policies.default")
    found = {"vLLM default": default.DefaultEplbPolicy}
    with suppress(FileNotFoundError, KeyError), in_package(default=default):
        batched = engine_module(where, _VLLM, "batched", "_policies.batched")
        found["vLLM batched"] = batched.BatchedEplbPolicy

    def solver(policy: Any) -> Policy:
        def solve(problem: Problem) -> tuple[Assignment | None, str]:
            if np.ptp(problem.slots_per_gpu):
                return None, "slots are unequal"
            weight = torch.from_numpy(problem.mean)
            answer = policy.rebalance_experts(weight, problem.slots, 1, 1, problem.gpus)
            return problem.assignment(answer.numpy().astype(np.int32)), ""

        return solve

    return {name: solver(policy) for name, policy in found.items()}


def _torch() -> bool:
    """Whether torch is there; it then runs on one thread."""
    try:
        import torch
    except ImportError:
        print("torch is not installed: the engines' policies are left out")
        return False
    torch.set_num_threads(1)
    return True


@contextmanager
def in_package(**modules: ModuleType) -> Iterator[None]:
    """Let ``from .name import ...`` find modules, in a package of their own."""
    inside = {f"_policies.{name}": each for name, each in modules.items()}
    with modules_there(**inside):
        yield


@contextmanager
def modules_there(**modules: ModuleType) -> Iterator[None]:
    """Let ``import`` find modules by their dotted names, and their packages, which are empty."""
    added: dict[str, ModuleType] = {}
    for name, module in modules.items():
        parts = name.split(".")
        for end in range(1, len(parts)):
            package = ".".join(parts[:end])
            added.setdefault(package, ModuleType(package)).__path__ = []
        added[name] = module
    before = {name: sys.modules.get(name) for name in added}
    sys.modules.update(added)
    try:
        yield
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module


def engine_module(where: Path, folder: str, name: str, called: str = "") -> ModuleType:
    """Run one file of an engine as a module of its own.

    ``where`` is the wheel, the folder it was unpacked to, or the one that the file lies in.
    """
    if where.suffix == ".whl":
        with ZipFile(where) as wheel:
            source = wheel.read(f"{folder}/{name}.py")
    else:
        inside = where / folder if (where / folder).is_dir() else where
        source = (inside / f"{name}.py").read_bytes()
    module = ModuleType(called or name)
    module.__package__ = called.rpartition(".")[0]
    exec(compile(source, f"{folder}/{name}.py", "exec"), module.__dict__)  # noqa: S102  the rival's own code
    return module
