"""Several fits with several settings are several releases: whoever tries is told what they add up to.

scikit-learn searches for settings by copying an estimator, changing the copies and fitting them. Each fit has the
(epsilon, delta) of its own statement; the search as a whole has not, and the scores that it compares are computed
from rows without noise. Copies are counted, so that the first fit of a changed copy can say so, once, and every such
statement says how many there may have been.

**Privacy** Warnings and remarks depend on settings and on the number of copies, and on no cell.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Self
from weakref import WeakKeyDictionary, WeakSet

from sklearn.base import BaseEstimator

from ..errors import TrialsWarning
from ..ledger import Ledger

__all__ = ["CountedEstimator", "remarks_on_trials"]

_NO_SETTINGS = frozenset({"random_state", "progress", "ledger"})
_MANY = 100


@dataclass
class _Family:
    """An estimator and its copies: how many there are, and whether anybody was told what they cost."""

    copies: int = 0
    warned: bool = False


_FAMILIES: WeakKeyDictionary[Any, _Family] = WeakKeyDictionary()
_CHANGED: WeakSet[Any] = WeakSet()


class CountedEstimator(BaseEstimator):  # type: ignore[misc]
    """An estimator that knows how often it was copied, and whether a copy was changed."""

    def __sklearn_clone__(self) -> Any:
        copy = super().__sklearn_clone__()
        family = _FAMILIES.setdefault(self, _Family())
        family.copies += 1
        _FAMILIES[copy] = family
        return copy

    def set_params(self, **params: Any) -> Self:
        """Change settings by name; a search for settings changes those of copies in this way."""
        super().set_params(**params)
        if not _NO_SETTINGS.issuperset(params):
            _CHANGED.add(self)
        return self


def remarks_on_trials(estimator: Any, own: Ledger, stacklevel: int) -> tuple[str, ...]:
    """Return what a statement says of one of several copies that were changed; the first of a family warns as well.

    Parameters
    ----------
    estimator : estimator
        About to be fitted.
    own : Ledger
        The ledger of this one fit.
    stacklevel : int
        Where the warning points, as for `warnings.warn` from the caller.
    """
    family = _FAMILIES.get(estimator)
    if family is None or family.copies < 2 or estimator not in _CHANGED:
        return ()
    if not family.warned:
        family.warned = True
        warnings.warn(
            "settings of a copied estimator were changed, as GridSearchCV does: each fit is a release of its own. "
            f"{_MANY} fits of ({own.epsilon:g}, {own.delta:g}) together are {_together(own, _MANY)}, "
            f"{family.copies} are {_together(own, family.copies)}; and the scores that such a search compares are "
            "computed from rows without noise, so that no epsilon covers them. dpdescent.select chooses under one "
            "budget",
            TrialsWarning,
            stacklevel=stacklevel + 1,
        )
    return (
        f"one of up to {family.copies} fits of copies with changed settings, all of which together are "
        f"{_together(own, family.copies)}",
    )


def _together(own: Ledger, fits: int) -> str:
    """Return the guarantee of so many fits, each with a ledger like this one."""
    basic = own.currency.name == "approximate"
    uncounted = float(own.currency.uncounted)
    delta = fits * own.delta if basic else own.delta * (1 + (fits - 1) * uncounted)
    return f"({own.epsilon_of(fits * own.budget):.3g}, {delta:.3g})-differentially private"
