"""The guarantee in one sentence, with which every page, picture, print-out and statement begins.

There is one sentence so that no two of them can differ. It says whose rows are protected, and what was
read from them without being paid for, or that none are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..ledger import ONE_ROW
from .document import PrivacyStatement
from .origins import exceptions_noted

__all__ = ["guarantee", "headline"]

_NONE = "NOT PRIVATE: the rows were used without noise, so the model may disclose any of them."


def guarantee(epsilon: float | str, delta: float | str, relation: str, unit: str = ONE_ROW) -> str:
    """Return the words for a guarantee; a text in place of a number names one that differs from fit to fit."""
    pair = ", ".join(each if isinstance(each, str) else f"{each:g}" for each in (epsilon, delta))
    return f"({pair})-differentially private for {unit} under {relation}"


def headline(stated: PrivacyStatement | Mapping[str, Any]) -> str:
    """Return the guarantee of a statement, typed or as the plain data of ``privacy_``, or of that of a ledger."""
    if isinstance(stated, PrivacyStatement):
        facts = {name: getattr(stated, name) for name in ("epsilon", "delta", "relation", "unit")}
        return headline(facts | {"private": exceptions_noted(stated.private, stated.assumed_public)})
    private = stated.get("private", True)
    if not private:
        return _NONE
    words = guarantee(stated["epsilon"], stated["delta"], stated["relation"], stated["unit"])
    return f"{words}, {private}." if isinstance(private, str) else f"{words}."
