"""Shapes of the catalog's tori: what each is made in, and where it wraps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from math import prod

from topology.base.errors import InputError
from topology.base.schema import Count, CountOrZero, Spec, changed, spec, validated
from topology.catalog import entry
from topology.structures.domain import DomainSpec
from topology.structures.torus import TorusDomain


@spec
class Shapes(Spec):
    """Which shapes a torus of the catalog is made in, and where those wrap.

    With ``wrap_step`` a torus wraps in all dimensions where each size is a multiple of it, and in none otherwise;
    with ``wrap_size`` it wraps in the dimensions that have this size.
    """

    most_gpus: Count
    most_per_dimension: CountOrZero = 0
    wrap_step: CountOrZero = 0
    wrap_size: CountOrZero = 0


@cache
def load_shapes(name: str) -> Shapes | None:
    """Return the shapes that the torus called ``name`` is made in, None where there is one only.

    Raises
    ------
    InputError
        If the catalog has no system of that name.
    """
    shapes = entry("systems", name).get("shapes")
    return (
        None
        if shapes is None
        else validated(Shapes, shapes, f"catalog systems.yaml: systems: {name}: shapes")
    )


def shaped(domain: DomainSpec, shape: Sequence[int], where: str) -> TorusDomain:
    """Return the catalog's torus ``domain`` with another shape, wrapped as its maker wraps that shape.

    Raises
    ------
    InputError
        If it is not a torus, has one shape only, or is not made in that shape.
    """
    text = "x".join(str(size) for size in shape)
    if not isinstance(domain, TorusDomain):
        raise InputError(
            f"{where}: {domain.part} is not a torus, so it has no shape; it has {domain.gpus} GPUs."
        )
    rule = load_shapes(domain.part)
    default = "x".join(str(size) for size in domain.shape)
    if rule is None:
        if tuple(shape) != domain.shape:
            raise InputError(f"{where}: {domain.part} has only one shape, {default}, not {text}.")
        return domain
    if len(shape) != len(domain.shape):
        raise InputError(
            f"{where}: {domain.part} has {len(domain.shape)} dimensions, like {default}; {text} has {len(shape)}."
        )
    if prod(shape) > rule.most_gpus or (rule.most_per_dimension and max(shape) > rule.most_per_dimension):
        per_dimension = f", {rule.most_per_dimension} in a dimension" if rule.most_per_dimension else ""
        raise InputError(
            f"{where}: {text} is {prod(shape)} GPUs; {domain.part} has at most {rule.most_gpus}{per_dimension}."
        )
    if rule.wrap_step:
        wrap = (all(size % rule.wrap_step == 0 for size in shape),) * len(shape)
    else:
        wrap = tuple(size == rule.wrap_size for size in shape)
    return changed(domain, where, shape=tuple(shape), wrap=wrap, gpus=prod(shape))


def shape_of(domain: TorusDomain, gpus: int) -> tuple[int, ...] | None:
    """Return the most even shape of ``gpus`` GPUs that the torus is made in, None where there is none.

    One that wraps in all dimensions is preferred; one that is neither whole cubes nor inside one is none.
    """
    rule = load_shapes(domain.part)
    inside = rule.wrap_step if rule is not None and rule.wrap_step else gpus
    wrapped: list[tuple[int, ...]] = []
    unwrapped: list[tuple[int, ...]] = []
    for shape in _factored(gpus, len(domain.shape)):
        try:
            torus = shaped(domain, shape, domain.part)
        except InputError:
            continue
        if all(torus.wrap):
            wrapped.append(shape)
        elif max(shape) <= inside:
            unwrapped.append(shape)
    return min(wrapped or unwrapped, key=lambda shape: (max(shape), shape), default=None)


def _factored(product: int, parts: int) -> Iterator[tuple[int, ...]]:
    """Yield the ways to write a number as an ordered product."""
    if parts == 1:
        yield (product,)
        return
    for size in range(1, product + 1):
        if product % size == 0:
            for factors in _factored(product // size, parts - 1):
                yield (size, *factors)
