"""Shapes of tori: what a part of the catalog can be cut into, where it wraps, and which block is a host."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod

from topology.catalog_files import load_shapes
from topology.errors import InputError
from topology.spec import DomainSpec
from topology.structures import check_domain


def parse_shape(text: str) -> tuple[int, ...] | None:
    """Return the shape that a text such as ``4x4x8`` names, None where it is not one."""
    sizes = text.split("x")
    if len(sizes) < 2 or not all(size.isascii() and size.isdigit() and len(size) < 7 for size in sizes):
        return None
    shape = tuple(int(size) for size in sizes)
    return shape if min(shape) > 0 else None


def shaped(domain: DomainSpec, shape: Sequence[int], where: str) -> DomainSpec:
    """Return the catalog's torus ``domain`` with another shape, wrapped as its maker wraps that shape.

    Raises
    ------
    InputError
        If it is no torus, has one shape only, or is not made in that shape.
    """
    text = "x".join(str(size) for size in shape)
    if domain.structure != "torus":
        raise InputError(
            f"{where}: {domain.part} is not a torus, so it has no shape; it has {domain.gpus} GPUs."
        )
    rule = load_shapes(domain.part)
    default = "x".join(str(size) for size in domain.shape)
    if rule is None:
        if tuple(shape) != domain.shape:
            raise InputError(f"{where}: {domain.part} is made in one shape, {default}, not {text}.")
        return domain
    if len(shape) != len(domain.shape):
        raise InputError(
            f"{where}: {domain.part} has {len(domain.shape)} dimensions, like {default}; {text} has {len(shape)}."
        )
    if prod(shape) > rule.most_gpus or (rule.most_per_dimension and max(shape) > rule.most_per_dimension):
        each = f", {rule.most_per_dimension} in a dimension" if rule.most_per_dimension else ""
        raise InputError(
            f"{where}: {text} is {prod(shape)} GPUs; {domain.part} has at most {rule.most_gpus}{each}."
        )
    if rule.wrap_step:
        wrap = (all(size % rule.wrap_step == 0 for size in shape),) * len(shape)
    else:
        wrap = tuple(size == rule.wrap_size for size in shape)
    return check_domain(replace(domain, shape=tuple(shape), wrap=wrap, gpus=prod(shape)), where)


def shape_of(domain: DomainSpec, gpus: int) -> tuple[int, ...] | None:
    """Return the most even shape of ``gpus`` GPUs that the torus is made in, None where there is none.

    One that wraps in all dimensions is preferred; one that is neither whole cubes nor inside one is none.
    """
    rule = load_shapes(domain.part)
    inside = rule.wrap_step if rule is not None and rule.wrap_step else gpus
    wrapped: list[tuple[int, ...]] = []
    others: list[tuple[int, ...]] = []
    for shape in _factored(gpus, len(domain.shape)):
        try:
            torus = shaped(domain, shape, domain.part)
        except InputError:
            continue
        if all(torus.wrap):
            wrapped.append(shape)
        elif max(shape) <= inside:
            others.append(shape)
    return min(wrapped or others, key=lambda shape: (max(shape), shape), default=None)


def _factored(product: int, parts: int) -> Iterator[tuple[int, ...]]:
    """Yield the ways to write a number as an ordered product."""
    if parts == 1:
        yield (product,)
        return
    for size in range(1, product + 1):
        if product % size == 0:
            for rest in _factored(product // size, parts - 1):
                yield (size, *rest)


def default_node_shape(shape: Sequence[int], gpus_per_node: int, where: str) -> tuple[int, ...]:
    """Return hosts of ``gpus_per_node`` GPUs as runs along the last dimensions of a torus.

    Raises
    ------
    InputError
        If no such run fills the torus.
    """
    block: list[int] = []
    left = gpus_per_node
    for size in reversed(shape):
        step = size if left % size == 0 else left
        if size % step:
            raise InputError(
                f"{where}: hosts of {gpus_per_node} GPUs are no runs along the last dimensions of {list(shape)}; say "
                "which block a host has, like `node_shape: [2, 2, 1]`."
            )
        block.append(step)
        left //= step
    if left > 1:
        raise InputError(f"{where}: hosts of {gpus_per_node} GPUs are larger than the torus {list(shape)}.")
    return tuple(reversed(block))
