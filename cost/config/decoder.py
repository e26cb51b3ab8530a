"""What an adapter returns: the layers of a decoder, its embedding and its head."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cost.config.facts import Facts
from cost.model import Layer


@dataclass(frozen=True)
class Decoder:
    """A decoder-only language model, counted but without names and precision.

    ``embedding_params`` includes learned positions; ``head_params`` includes the head's bias.
    """

    hidden: int
    vocab: int
    layers: tuple[Layer, ...]
    embedding_params: int
    head_params: int
    final_norm_params: int
    tied: bool
    omitted: tuple[str, ...] = ()


FAMILIES: dict[str, Callable[[Facts], Decoder]] = {}


def family(*model_types: str) -> Callable[[Callable[[Facts], Decoder]], Callable[[Facts], Decoder]]:
    """Register an adapter for ``model_types``."""

    def register(adapter: Callable[[Facts], Decoder]) -> Callable[[Facts], Decoder]:
        for model_type in model_types:
            FAMILIES[model_type] = adapter
        return adapter

    return register


def decoder(
    facts: Facts,
    hidden: int,
    layers: list[Layer],
    *,
    final_norm: int,
    tied: bool,
    head_bias: bool = False,
    omitted: tuple[str, ...] = (),
) -> Decoder:
    """Put embedding and head of the usual shape (``vocab x hidden``) around ``layers``.

    ``tied`` is what the family's config class takes where ``tie_word_embeddings`` is not in the file.
    """
    vocab = facts.count("vocab_size")
    matrix = vocab * hidden
    return Decoder(
        hidden=hidden,
        vocab=vocab,
        layers=tuple(layers),
        embedding_params=matrix,
        head_params=matrix + (vocab if head_bias else 0),
        final_norm_params=final_norm,
        tied=facts.flag("tie_word_embeddings", default=tied),
        omitted=omitted,
    )
