"""Price clusters for the page: all layouts and batches, or whole requests in one and two pools."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from cost.calibration.correction import Correction
from cost.config.build import model_from_config
from cost.inputs.deployment import Deployment
from cost.model import Model
from cost.resolve import model_called, resolve_model
from cost.validation.read import measurements_of
from cost.validation.runs import with_own_runs
from rackplan import library
from rackplan.inputs import compared_clusters
from rackplan.serve.question import MAX_GPUS, SLIDERS, FieldError, Question, Source
from topology import cluster_from_dict
from topology.base.errors import InputError, RackplanError, called
from topology.base.reading import parse_json, parse_yaml
from topology.base.table import Table
from topology.build import build_cluster
from topology.changes.overrides import overrides
from topology.cluster import Cluster
from topology.files.cluster_data import spec_from_dict
from topology.files.cluster_file import read_cluster
from topology.files.resolve import cluster_called, resolve_cluster

_MAX_DIGITS = 9
"""Digits of a size that are read, more than one that is accepted has."""
_FIELDS = {"context": "isl", "accept_length": "draft_tokens"}
"""Fields of the page by inputs of other names."""


def _field(error: RackplanError, otherwise: str) -> str:
    """Return the field of the page that an error is about."""
    named = (_FIELDS.get(name, name) for name in error.inputs)
    return next((name for name in named if name in Question.model_fields), otherwise)


def deployed(question: Question) -> tuple[list[Deployment], Mapping[str, str]]:
    """Return the deployments, and notes by field on sliders without effect.

    Raises
    ------
    FieldError
        If something asked cannot be used: what, by field.
    """
    problems: dict[str, str] = {}
    try:
        model = model_of(question.model, question.weights)
    except RackplanError as error:
        instead = " You can drop its config.json here." if error.hint else ""
        problems[_field(error, "model")] = f"{error.text(called, hint=False)}{instead}"
    try:
        clusters, notes = _scaled(question)
    except FieldError as error:
        problems |= error.fields
    if problems:
        raise FieldError(problems)
    return [_deployment(question, model, cluster) for cluster in clusters], notes


@lru_cache(maxsize=32)
def model_of(source: Source, weights: str | None) -> Model:
    """Return the requested model, from the catalog or a dropped config.

    Raises
    ------
    InputError
        If there is none of that name, or the file cannot be read.
    """
    if not source.text:
        return resolve_model(model_called(source.name), weights=weights)
    config = parse_json(source.text, source.name, infinite=True)
    if not isinstance(config, dict):
        raise InputError(f"{source.name}: a config.json must be one JSON object.")
    known = config.get("rackplan")
    known = known if isinstance(known, dict) else {}
    limits = {name: known[name] for name in ("most_context", "most_context_source") if name in known}
    config["rackplan"] = {**limits, "source": source.name}
    return model_from_config(config, name=source.label, weights=weights)


def _scaled(question: Question) -> tuple[tuple[Cluster, ...], dict[str, str]]:
    """Return the clusters with the user's figures and the sliders', all of one size; and notes of idle sliders."""
    sides, notes = _sides(question.clusters, question.gpus, question.settings), {}
    for name, factor in question.factors.moved.items():
        try:
            sides = _set(sides, ((SLIDERS[name], factor),))
        except RackplanError as error:
            notes[f"factors.{name}"] = str(error)
    return sides, notes


@lru_cache(maxsize=64)
def _set(clusters: tuple[Cluster, ...], settings: tuple[tuple[str, str], ...]) -> tuple[Cluster, ...]:
    return tuple(overrides(clusters, [f"{figure}={value}" for figure, value in settings]))


@lru_cache(maxsize=32)
def _sides(
    sources: tuple[Source, ...], gpus: int | None, settings: tuple[tuple[str, str], ...]
) -> tuple[Cluster, ...]:
    """Return the clusters at one size; several by name have as many GPUs as the largest unless ``gpus`` are given."""
    clusters: list[Cluster] = []
    problems: dict[str, str] = {}
    for place, source in enumerate(sources):
        try:
            clusters.append(cluster_of(source))
        except RackplanError as error:
            problems[f"clusters.{place}"] = str(error)
    if problems:
        raise FieldError(problems)
    named = [side if source.text else side.name for source, side in zip(sources, clusters, strict=True)]
    try:
        sized = tuple(compared_clusters(named, gpus))
    except RackplanError as error:
        raise FieldError({"clusters" if gpus is None else "gpus": str(error)}) from None
    try:
        return _set(sized, settings) if settings else sized
    except RackplanError as error:
        raise FieldError({"settings": str(error)}) from None


@lru_cache(maxsize=64)
def cluster_of(source: Source) -> Cluster:
    """Return a cluster by name, from the text of a cluster YAML, or from plan data (``.json``).

    Raises
    ------
    InputError
        If it cannot be built, or has more GPUs than the page takes.
    """
    name, ending = source.name, Path(source.name).suffix.lower()
    if source.text and ending == ".json":
        data = parse_json(source.text, name)
        if not isinstance(data, dict):
            raise InputError(f"{name}: expected a cluster in the format of plan.json.")
        spec = spec_from_dict({key: value for key, value in data.items() if key != "view"}, name)
        _require_size(sum(domain.gpus for domain in spec.domains))
        return cluster_from_dict(data, name)
    if source.text:
        spec = read_cluster(parse_yaml(source.text, name), name, source.label)
        _require_size(sum(domain.gpus for domain in spec.domains))
        return build_cluster(spec)
    if ending in (".yaml", ".yml"):
        raise InputError(f"{name}: drop the file here; the page cannot open files by name.")
    named = cluster_called(name)
    size = named.partition("@")[2]
    if size.isdecimal():
        _require_size(int(size[:_MAX_DIGITS]))
    cluster = resolve_cluster(named)
    _require_size(len(cluster.gpus))
    return cluster


def _require_size(gpus: int) -> None:
    if gpus > MAX_GPUS:
        raise InputError(
            f"{gpus:,} GPUs: the page supports at most {MAX_GPUS:,}; use `rackplan sweep` for more."
        )


def _deployment(question: Question, model: Model, cluster: Cluster) -> Deployment:
    served = question.served | {"context": question.context}
    chips = {domain.gpu.name for domain in cluster.spec.domains}
    money: dict[str, Any] = {
        kind: {name: figure for name, figure in getattr(question, kind) if name in chips}
        for kind in ("prices", "powers")
    }
    try:
        base = library.make_deployment(model, cluster, **money, **served)
    except RackplanError as error:
        raise FieldError({_field(error, "request"): str(error)}) from None
    prices = {
        part.name: float(f"{part.usd_per_hour.value * question.factors.price:.6g}")
        for part in base.bill.gpu_parts
        if part.usd_per_hour is not None and question.factors.price != 1
    }
    base = replace(base, prices=replace(base.prices, prices={**base.prices.prices, **prices}))
    return base if question.runs is None else replace(base, correction=_own_runs(question.runs))


@lru_cache(maxsize=4)
def _own_runs(source: Source) -> Correction:
    """Return the correction with the runs of a dropped file on top."""
    try:
        return with_own_runs(measurements_of(Table.of_text(source.text, source.label)), source.label)
    except InputError as error:
        raise FieldError({"runs": str(error)}) from None
