"""What the settings of every method declare: a type checker finds a method that lacks something."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import ClassVar

from ..accounting import Currency
from ..errors import InvalidParameter, UnsupportedCost
from .domains import require_domains
from .paper_modes import PaperMode
from .result import Facts

__all__ = ["GAUSSIAN_NOISE", "Payment", "Settings"]

_LEAST, _LARGEST = 1e-200, 1e200  # numbers beyond them would overflow in the middle of a run, after a charge


@dataclass(frozen=True)
class Payment:
    """Which ledgers can pay for a method.

    Parameters
    ----------
    mechanism : str
        What the method depends on, in words.
    currencies : tuple of str
        Those in which its plan has a price.
    remedies : mapping
        For other currencies, a setting that helps.
    """

    mechanism: str
    currencies: tuple[str, ...]
    remedies: Mapping[str, str] = field(default_factory=dict)

    def require(self, method: str, currency: Currency) -> None:
        """Raise `UnsupportedCost` unless a ledger of that currency can pay for the method; nothing is charged."""
        kept = currency.name
        if kept not in self.currencies:
            can = " or ".join(repr(each) for each in self.currencies)
            remedy = f", or {self.remedies[kept]}" if kept in self.remedies else ""
            raise UnsupportedCost(
                f"method {method!r} uses {self.mechanism}, for which a ledger in the currency {kept!r} cannot pay: "
                f"open the ledger with currency {can}{remedy}"
            )


GAUSSIAN_NOISE = Payment("Gaussian noise", ("gdp", "zcdp", "rdp"))


@dataclass(frozen=True)
class Settings(ABC):
    """The settings of a method: a frozen dataclass whose fields have defaults for every table.

    A field's type declares its domain (`dpdescent.solvers.domains`); ``__post_init__`` of a subclass holds what
    relates settings to each other.

    Parameters
    ----------
    paper : bool
        Take what a paper states for every setting that is not given (`dpdescent.solvers.paper_modes`).
    """

    paper: bool = field(default=False, kw_only=True)

    #: What ``paper`` stands for; None where none of the papers describes the method.
    paper_mode: ClassVar[PaperMode | None] = None
    #: Values of settings that neither the caller nor a paper has given.
    rest: ClassVar[Mapping[str, object]] = {}

    def __init_subclass__(cls) -> None:
        """Say in the docstring where the paper mode differs from the paper."""
        if cls.paper_mode is not None and cls.paper_mode.differences and cls.__doc__:
            said = "\n".join(f"    - {each}" for each in cls.paper_mode.differences)
            head = f"    Notes\n    -----\n    With ``paper`` it differs from {cls.paper_mode.paper} on purpose:"
            cls.__doc__ = f"{cls.__doc__.rstrip()}\n\n{head}\n\n{said}\n    "

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, float) and math.isfinite(value) and value and not _LEAST <= abs(value) <= _LARGEST:
                raise InvalidParameter(f"{each.name} must lie between 1e-200 and 1e200 in size, got {value!r}")
        if self.paper and self.paper_mode is None:
            raise InvalidParameter("none of the papers describes this method: leave the setting paper out")
        if self.paper and self.paper_mode is not None:
            self.fill(self.paper_mode.values)
        self.fill(self.rest)
        require_domains(self)

    def fill(self, values: Mapping[str, object]) -> None:
        """Set every setting that was not given to its value in ``values``."""
        for name, value in values.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)

    @abstractmethod
    def choose_currency(self, facts: Facts) -> str | Currency:
        """Return the currency in which a run is filtered, from what is public before it."""

    @property
    def batch_rate(self) -> float:
        """Share of the rows that answer a question which brings no batch of its own."""
        return 1.0

    @property
    def fixed_noise(self) -> bool:
        """Whether the noise follows from epsilon and delta alone, so that nothing may be spent before the run."""
        return False

    @property
    def payment(self) -> Payment:
        """Which ledgers can pay for a run."""
        return GAUSSIAN_NOISE
