"""What one engine's module offers: how its file is written, read and checked, and how the engine is started."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cost.dispatch import Split
from placement.engines.findings import Inspected
from placement.engines.mapping import ExpertMapping, ModelFacts

EngineName = Literal["sglang", "trtllm", "vllm-ascend", "vllm"]


@dataclass(frozen=True)
class Launch:
    """What an engine is started with, for one replica.

    Attributes
    ----------
    file:
        Path of the plan file, as the engine shall find it.
    model:
        Name of the model.
    ep, tp, attention_dp, stages, nodes, redundant:
        GPUs of the EP group, tensor-parallel width of attention, attention groups, pipeline stages, hosts of a
        replica, extra copies per layer.
    split:
        How the plan expects tokens to be split over copies.
    model_type:
        As in the model's config.json.
    """

    file: str
    model: str
    ep: int
    tp: int
    attention_dp: int
    stages: int
    nodes: int
    redundant: int
    split: Split
    model_type: str = ""


@dataclass(frozen=True)
class Engine:
    """An engine that loads plans.

    Attributes
    ----------
    title, version:
        Its name, and the sources that its rules were read from.
    released:
        Whether a released version loads the file.
    suffixes:
        Endings that a file must have; the first is the usual one. Empty: any.
    splits:
        How it can split an expert's tokens over copies; the first is what it does unless told.
    split_words:
        The same in words.
    write:
        Text of the file for a mapping.
    limits:
        Each returns why the engine cannot hold a mapping, and the option that avoids it; empty where it can.
    inspect:
        Reads and checks a file, for a model and a number of ranks.
    flags:
        Lines to start it with.
    warnings:
        What a person should know before starting it so.
    launch_limits:
        The same for how the engine would be started.
    nearest_copy:
        Where it splits by source rank: whether a rank takes the nearest copy; else copy rank mod copies.
    """

    name: EngineName
    title: str
    version: str
    released: bool
    suffixes: tuple[str, ...]
    splits: tuple[Split, ...]
    split_words: str
    write: Callable[[ExpertMapping, ModelFacts], str]
    limits: tuple[Callable[[ExpertMapping, ModelFacts], str], ...]
    inspect: Callable[[Path, ModelFacts, int], Inspected]
    flags: Callable[[Launch], list[str]]
    warnings: Callable[[Launch], list[str]]
    launch_limits: tuple[Callable[[Launch], str], ...] = ()
    nearest_copy: bool = True
