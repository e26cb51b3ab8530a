"""SGLang's own expert placement policies, loaded from its wheel or an unpacked copy; they need torch.

Only the two files of the policies are read: SGLang itself need not be installed.
"""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from typing import TYPE_CHECKING
from zipimport import zipimporter

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.machinery import ModuleSpec
    from pathlib import Path
    from types import ModuleType

    from cost.assignment import Assignment
    from placement.problem import ExpertProblem

    Policy = Callable[[ExpertProblem], tuple[Assignment | None, str]]

__all__ = ["sglang_policies"]

_FOLDER = "sglang/srt/eplb/eplb_algorithms"


def sglang_policies(where: Path) -> dict[str, Policy]:
    """Return SGLang's ``deepseek`` and ``deepseek_vec`` global policies by name; empty, and said so, without torch.

    ``where`` is the wheel, the folder it was unpacked to, or the folder of the policies.
    """
    try:
        import torch
    except ImportError:
        print("torch is not installed: SGLang's policies are left out")
        return {}
    torch.set_num_threads(1)
    deepseek, vectorised = _module(where, "deepseek"), _module(where, "deepseek_vec")

    def plain(problem: ExpertProblem) -> tuple[Assignment | None, str]:
        if np.ptp(problem.slots_per_gpu):
            return None, "slots are unequal"
        weight = torch.from_numpy(problem.loads)
        answer = deepseek.rebalance_experts(weight, problem.slots, 1, 1, problem.gpus, False)
        return problem.assignment(answer[0].numpy().astype(np.int32)), ""

    def in_chunks(problem: ExpertProblem) -> tuple[Assignment | None, str]:
        if np.ptp(problem.slots_per_gpu):
            return None, "slots are unequal"
        if problem.gpus < problem.slots - problem.experts:
            return None, "more spare slots than GPUs"
        weight = torch.from_numpy(problem.loads)[None]
        each = problem.slots // problem.gpus
        answer = vectorised.rebalance_experts(weight, problem.slots, each, 1, 1, False)
        return problem.assignment(answer[0].numpy().astype(np.int32)), ""

    return {"SGLang deepseek": plain, "SGLang deepseek_vec": in_chunks}


def _module(where: Path, name: str) -> ModuleType:
    """Run one file of the policies as a module of its own."""
    spec: ModuleSpec | None
    if where.suffix == ".whl":
        spec = zipimporter(f"{where}/{_FOLDER}").find_spec(name)
    else:
        folder = where / _FOLDER if (where / _FOLDER).is_dir() else where
        spec = spec_from_file_location(name, folder / f"{name}.py")
    if spec is None or spec.loader is None:
        raise SystemExit(f"{where} has no {_FOLDER}/{name}.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
