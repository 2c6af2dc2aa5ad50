"""Named errors. Each message says what is wrong and what to do about it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from difflib import get_close_matches


class DPDescentError(Exception):
    """Base class of every error this package raises on purpose."""


class InvalidParameter(DPDescentError, ValueError):
    """A parameter lies outside its domain; nothing was computed or charged."""


class UnknownRelation(InvalidParameter):
    """The neighbouring relation is neither ``zero-out`` nor ``replace-one``."""


class DeltaTooSmall(InvalidParameter):
    """A delta is so small that the samplers' own distance from their laws would count beside it."""


class ScaleOutOfRange(InvalidParameter):
    """A noise scale cannot be drawn exactly by the lattice sampler."""


class TooFewRows(InvalidParameter):
    """Noise leaves too few rows for what was asked; nothing was computed or charged."""


class NotInferred(DPDescentError, AttributeError):
    """A model was fitted without what intervals need."""


class NotResolved(InvalidParameter):
    """Noise hides the comparison that was asked for."""


class UnsupportedCost(DPDescentError, ValueError):
    """A mechanism has no finite cost in the currency that was asked for."""


class UnsupportedLoss(InvalidParameter):
    """A method needs something that a loss does not have; nothing was computed or charged."""


class UnsupportedSource(InvalidParameter):
    """A method needs all rows in one place, and they are read block by block; nothing was computed or charged."""


class BudgetExhausted(DPDescentError, RuntimeError):
    """The query does not fit into what is left of the budget; nothing was charged."""


class LedgerError(DPDescentError, RuntimeError):
    """A ledger cannot be used in this way (read-only copy, foreign process, missing package)."""


class LedgerBusy(LedgerError):
    """Another process has held a ledger file for too long; nothing was charged."""


class LedgerNotWritable(LedgerError):
    """A ledger file cannot be written: a full or failing disk, a missing permission."""


class LedgerFormatError(DPDescentError, ValueError):
    """A ledger file or text cannot be read by this version, or was changed from outside."""


class RowDependence(DPDescentError, ValueError):
    """A plug-in loss lets one row change the contribution of another."""


class UnknownDataset(InvalidParameter):
    """No data set has this name, and no file has this path."""


class DatasetNotAvailable(DPDescentError, FileNotFoundError):
    """A data set is neither on this machine nor to be had from its public source."""


class DatasetFormatError(DPDescentError, ValueError):
    """A data file does not have the format it should have."""


class ChecksumMismatch(DatasetFormatError):
    """A downloaded file differs from the published one; it was thrown away."""


class ColumnError(InvalidParameter):
    """A column of a table contradicts what was declared public; no cell value is ever shown."""


class OneClass(InvalidParameter):
    """Fewer than two classes of a label were found, or far too many."""


class MissingColumn(ColumnError):
    """A declared column is not in the table."""


class UnexpectedColumn(ColumnError):
    """The table has a column about which nothing public was declared."""


class ColumnTypeError(ColumnError, TypeError):
    """A column's storage type cannot hold what was declared (text where numbers belong, or the reverse)."""


class UnknownLevel(ColumnError):
    """A categorical column holds a value outside its public levels."""


class MissingValue(ColumnError):
    """A column holds a missing cell."""


class InfiniteValue(ColumnError):
    """A numeric column holds an infinite cell."""


class ModelFormatError(DPDescentError, ValueError):
    """A model file is missing, damaged or of another version."""


class UnsupportedModel(InvalidParameter):
    """A model cannot be saved, exported or handed over in the form that was asked for; nothing was written."""


class ModelFailure(DPDescentError, RuntimeError):
    """A model that is evaluated could not score a row, or returned something else than scores."""


class StatementError(DPDescentError, ValueError):
    """A privacy statement is missing, damaged, of another version, or contradicts itself."""


class OutputNotWritable(DPDescentError, OSError):
    """A file cannot be written where it was asked for, or the folder for temporary files is full."""


class RunInProgress(DPDescentError, RuntimeError):
    """Another process works, or has worked, on the same comparison or the same steps of a training."""


class WorkerLost(DPDescentError, RuntimeError):
    """A worker process was killed from outside."""


class MissingPackage(DPDescentError, ImportError):
    """An optional package is needed for this; the message says how to install it."""


class UnknownLabel(InvalidParameter):
    """A label lies outside the public classes."""


class PrivacyWarning(UserWarning):
    """Something that should have been given as public knowledge was read from the data."""


class TrialsWarning(UserWarning):
    """Several copies of one estimator are fitted, and each fit is a release of its own."""


class LedgerWarning(UserWarning):
    """A fit is over and its ledger file still charges the whole of what was reserved for it."""


class GuaranteeWarning(UserWarning):
    """What was asked for cannot be promised with the public number of rows; privacy is not affected."""


class RowsWarning(UserWarning):
    """Many rows added nothing to a training, as a count tells that was released with noise."""


class SchemaError(InvalidParameter):
    """A schema file is incomplete or contradicts itself; each of ``problems`` names the column and the key."""

    def __init__(self, *problems: str) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems

    def __reduce__(self) -> tuple[type[SchemaError], tuple[str, ...]]:
        return type(self), self.problems


def require_finite(name: str, value: float) -> float:
    """Return ``value`` as a float, or raise `InvalidParameter` if it is NaN, infinite or no number."""
    try:
        if isinstance(value, str | bytes):
            raise TypeError
        number = float(value)
    except (TypeError, ValueError):
        raise InvalidParameter(f"{name} must be a number, got {value!r}") from None
    except OverflowError:
        raise InvalidParameter(f"{name} must fit into a float: it is a whole number above 1e308") from None
    if not math.isfinite(number):
        raise InvalidParameter(f"{name} must be finite, got {number}: pass a public constant")
    return number


def require_positive(name: str, value: float) -> float:
    """Return ``value`` as a float, or raise `InvalidParameter` unless it is finite and above zero."""
    number = require_finite(name, value)
    if number <= 0:
        raise InvalidParameter(f"{name} must be greater than 0, got {number}")
    return number


def require_nonnegative(name: str, value: float) -> float:
    """Return ``value`` as a float, or raise `InvalidParameter` unless it is finite and at least zero."""
    number = require_finite(name, value)
    if number < 0:
        raise InvalidParameter(f"{name} must not be negative, got {number}")
    return number


def require_open_unit(name: str, value: float) -> float:
    """Return ``value`` as a float, or raise `InvalidParameter` unless it lies strictly between 0 and 1."""
    number = require_finite(name, value)
    if not 0 < number < 1:
        raise InvalidParameter(
            f"{name} must lie strictly between 0 and 1, got {number}; for delta take well below 1/n"
            if name == "delta"
            else f"{name} must lie strictly between 0 and 1, got {number}"
        )
    return number


def require_order(value: float) -> float:
    """Return a Renyi order as a float, or raise `InvalidParameter` unless it is finite and above 1."""
    number = require_finite("order", value)
    if number <= 1:
        raise InvalidParameter(f"a Renyi order must be greater than 1, got {number}")
    return number


def require_positive_integer(name: str, value: int) -> int:
    """Return ``value`` as an int, or raise `InvalidParameter` unless it is a whole number of at least 1."""
    number = require_finite(name, value)
    if number != int(number) or number < 1:
        raise InvalidParameter(f"{name} must be a whole number of at least 1, got {value!r}")
    return int(number)


def nearest(name: object, known: Iterable[object]) -> str:
    """Return a question about the public name that comes closest to one that was typed, or nothing.

    Examples
    --------
    >>> nearest("sdg", ["sgd", "auto"]), nearest("Readmitted", ["age", "readmitted"]), nearest("x", ["age"])
    (" (did you mean 'sgd'?)", " (did you mean 'readmitted'?)", '')
    """
    by_lower = {str(each).lower(): each for each in known}
    close = get_close_matches(str(name)[:80].lower(), list(by_lower), n=1, cutoff=0.6)
    return f" (did you mean {str(by_lower[close[0]])!r}?)" if close else ""


def no_such_column(what: str, name: object, columns: Iterable[object]) -> MissingColumn:
    """Return the error for a column that is not there: its nearest name, or the first names that there are."""
    known = list(columns)
    hint = nearest(name, known)
    listed = f"columns are {known[:20]}" + (f" and {len(known) - 20} more" if len(known) > 20 else "")
    return MissingColumn(f"{what} {name!r:.90} is not there{hint}" + ("" if hint else f": {listed}"))
