"""How often a full run repeats what a paper repeats, and how a page says so."""

from __future__ import annotations

from ..errors import InvalidParameter, require_positive_integer

__all__ = ["repeated", "require_repetitions"]


def require_repetitions(full: bool, repetitions: int | None) -> None:
    """Raise unless a number of repetitions, if there is one, is positive and that of a full run."""
    if repetitions is None:
        return
    require_positive_integer("repetitions", repetitions)
    if not full:
        raise InvalidParameter("repetitions are those of a full run: add --full, or leave --repetitions out")


def repeated(count: int, published: int, unit: str = "repetitions") -> str:
    """Return in words how many of the paper's repetitions were run."""
    if count == published:
        return f"{count} {unit}, as in the paper"
    if count < published:
        return f"{count} of the paper's {published} {unit}"
    return f"{count} {unit}, where the paper has {published}"
