"""YAML of somebody else's, without what such files do not need: tags, aliases, keys given twice, deep nesting."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any

DEEPEST = 64


def strict_yaml(
    text: str, error: Callable[[int | None, str], Exception], *, deepest: int = DEEPEST
) -> object:
    """Return the one document of ``text``, by the safe loader; ``error`` makes an exception of a line and a problem.

    The parser's events are looked at first: a loader recurses, and a file nested a hundred thousand deep ends the
    whole process; nested aliases grow without bound when walked.
    """
    import yaml

    base = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Loader(base):  # type: ignore[misc, valid-type]
        """The safe loader, that refuses keys given twice."""

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
            seen = set()
            for key, _ in node.value:
                if isinstance(key, yaml.ScalarNode):
                    if (key.tag, key.value) in seen:
                        raise error(
                            key.start_mark.line + 1,
                            f"the key {key.value[:40]!r} is given twice in one mapping.",
                        )
                    seen.add((key.tag, key.value))
            constructed: dict[Hashable, Any] = super().construct_mapping(node, deep)
            return constructed

    try:
        _check(yaml.parse(text, Loader=base), error, deepest)
        value: object = yaml.load(text, Loader=Loader)  # noqa: S506 - a subclass of the safe loader
    except yaml.YAMLError as problem:
        mark = getattr(problem, "problem_mark", None)
        what = getattr(problem, "problem", None) or getattr(problem, "reason", None) or "cannot be parsed"
        words = " ".join(str(what).split())
        raise error(None if mark is None else mark.line + 1, f"not valid YAML ({words}).") from None
    except RecursionError:
        raise error(None, "is nested too deeply.") from None
    except (ValueError, OverflowError, TypeError) as problem:
        words = " ".join(str(problem).split())[:80]
        raise error(None, f"not valid YAML ({words}).") from None
    return value


def _check(events: Iterable[Any], error: Callable[[int | None, str], Exception], deepest: int) -> None:
    """Refuse what the loader must not see."""
    import yaml

    depth = 0
    for event in events:
        line = None if event.start_mark is None else event.start_mark.line + 1
        if isinstance(event, yaml.AliasEvent):
            raise error(line, "YAML aliases (`*name`) are not read here; write the values out.")
        if getattr(event, "tag", None):
            raise error(line, f"a YAML tag ({event.tag[:40]}) has no place here.")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > deepest:
                raise error(line, f"is nested more than {deepest} deep.")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
