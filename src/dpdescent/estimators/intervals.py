r"""Confidence intervals of a fitted model: effects, their standard errors, and a table of them.

An effect is a contrast :math:`c \cdot w` of coefficients. Its error has the variance :math:`m'(V/n + N) m` with
:math:`m = W'c`, where W, V and N are those of `dpdescent.solvers.Sandwich`: V is of sampling, N of privacy. An
interval is the effect plus and minus a quantile of Student's t times the standard error. Simultaneous intervals use
the quantile of the largest of all \|t\|, for normal numbers with the correlations of the effects, in the place of the
normal one (Hothorn, Bretz & Westfall 2008).

Levels of a column add up to the constant, so only differences of levels are effects: against the mean of the levels
or against one of them. The intercept is none where there are such columns.

**Privacy** Everything here is computed from released quantities and the law of their noise. No row is read.

References
----------
Hothorn, T., Bretz, F. & Westfall, P. (2008). Simultaneous inference in general parametric models. Biometrical Journal
50(3).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from textwrap import fill
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import norm, t

from ..arrays import Floats
from ..display import printable
from ..errors import InvalidParameter, NotResolved, require_open_unit
from ..solvers import Sandwich
from .effects import level_groups

Reference = Mapping[str, str] | None

_HIDDEN = 0.5  # share of a variance that is due to directions which noise hides, from which it is not resolved
_DRAWS = 100_000  # for the largest of correlated numbers: the quantile has an error of about 0.005
_AT_ONCE = 2**22  # normal numbers
_ASSUMED = 0.5  # share of the model's own covariance in that of the gradients, from which it is said
_REST = (" (other)", " (missing)")  # columns that have all other levels


@dataclass(frozen=True, eq=False)
class Intervals:
    """What a fitted model knows of the errors of its coefficients, in the units of ``coef_``."""

    names: tuple[str, ...]  # of the columns of a row as the model sees it
    #: Columns of several levels, of which only differences are effects, and their levels that are seen to vary.
    groups: tuple[tuple[str, tuple[int, ...], tuple[str, ...]], ...]
    levels: frozenset[int]  # positions of all levels of these columns
    coefficients: Floats  # the last one is the intercept
    influence: Floats
    sandwich: Sandwich
    features: Any  # how rows are coded

    @classmethod
    def of_model(cls, model: Any) -> Intervals:
        """Return those of a model that was fitted with ``inference=True``."""
        coefficients = np.append(np.ravel(model.coef_), np.ravel(model.intercept_))
        names = getattr(model, "feature_names_in_", [f"x{column}" for column in range(model.n_features_in_)])
        named = [str(each) for each in names]
        seen = np.ones(len(named), np.bool_) if model._seen is None else model._seen
        groups, levels = [], set[int]()
        aliased = dict(zip(model._levels, model._sandwich.aliased, strict=True))
        added = range(len(named), len(coefficients) - 1)
        every = (*named, *(f"piece {number}" for number in added))
        influence = model._coefficient_unit() * model._influence
        for column, members in level_groups(named, level_columns(model)).items():
            positions = tuple(position for position, _ in members)
            if len(members) > 1 and positions in aliased:
                plain = model._sandwich.unresolved_share(influence[list(positions)]) <= _HIDDEN
                whole = any(named[position].endswith(_REST) for position in positions)
                if not (aliased[positions] or whole) and plain.any():
                    continue  # one level was left out: the others are coefficients as any
                levels.update(positions)
                there = [(position, level) for position, level in members if seen[position]]
                groups.append((column, tuple(p for p, _ in there), tuple(level for _, level in there)))
        return cls(every, tuple(groups), frozenset(levels), coefficients, influence, model._sandwich, model._features)

    def _resolved(self, positions: tuple[int, ...]) -> list[int]:
        """Return levels whose differences from each other noise does not hide, with those left out that hide most."""
        kept = list(positions)
        while len(kept) > 2:
            apart = self.influence[kept] - self.influence[kept].mean(axis=0)
            shares = self.sandwich.unresolved_share(apart)
            if (shares <= _HIDDEN).all():
                break
            kept.pop(int(np.argmax(np.sum((apart @ self.sandwich.unresolved) ** 2, axis=1))))
        return kept

    def effects(self, reference: Reference = None) -> Contrasts:
        """Return every effect that rows can tell, numbers first in the order of the columns."""
        wanted = dict(reference or {})
        size, rows, told = len(self.coefficients), [], []
        for position, name in enumerate(self.names):
            if position not in self.levels:
                rows.append(np.eye(size)[position])
                told.append((name, ""))
        for column, positions, levels in self.groups:
            base, against_one = self._resolved(positions), wanted.pop(column, None)
            for name, against, row in _comparisons(column, positions, levels, against_one, base, size):
                rows.append(row)
                told.append((name, against))
        if not self.groups:
            rows.append(np.eye(size)[-1])
            told.append(("intercept", ""))
        if wanted:
            raise InvalidParameter(
                f"reference names {next(iter(wanted))!r:.80}, which is no column of several levels"
            )
        matrix = np.array(rows)
        return self._contrasts(tuple(told), matrix @ self.coefficients, matrix @ self.influence)

    def differences(self, rows: Any, others: Any) -> Contrasts:
        """Return differences between the scores of rows, which the model has read, and of as many others."""
        if rows.shape[0] != others.shape[0]:
            raise InvalidParameter(
                f"rows are compared one by one, and there are {rows.shape[0]} and {others.shape[0]}: give as many"
            )
        both = np.column_stack([self.coefficients[:-1], self.influence[:-1]])
        changed = self.features.product(rows, both) - self.features.product(others, both)
        told = tuple((f"row {number}", "the other") for number in range(rows.shape[0]))
        found = self._contrasts(told, changed[:, 0], changed[:, 1:])
        if not found.resolved.all():
            raise NotResolved(
                "noise hides part of what these rows differ in: raise epsilon, or compare rows that differ in less"
            )
        return found

    def _contrasts(self, told: tuple[tuple[str, str], ...], values: Floats, directions: Floats) -> Contrasts:
        sandwich = self.sandwich
        both = sandwich.sampling, sandwich.privacy
        sampling, privacy = (np.einsum("ij,jk,ik->i", directions, each, directions) for each in both)
        joint = directions @ (both[0] + both[1]) @ directions.T
        return Contrasts(
            told,
            values,
            np.sqrt(np.maximum(sampling, 0.0)),
            np.sqrt(np.maximum(privacy, 0.0)),
            joint,
            sandwich.freedom(sampling + privacy, directions),
            sandwich.unresolved_share(directions) <= _HIDDEN,
            sandwich.shrunk_covariance,
        )

    def factor(self) -> Floats:
        """Return F, for which F'b has the standard error of the score b . w as its length."""
        values, vectors = np.linalg.eigh(self.sandwich.sampling + self.sandwich.privacy)
        factor: Floats = self.influence[:-1] @ (vectors * np.sqrt(np.maximum(values, 0.0)))
        return factor


def level_columns(model: Any) -> list[bool]:
    """Return which columns of a fitted model are 0 or 1, as far as it was told."""
    low, high = model.bounds_
    both: list[bool] = (np.array(model._binary) | ((low == 0) & (high == 1))).tolist()
    return both


def _comparisons(
    column: str,
    positions: Sequence[int],
    levels: Sequence[str],
    reference: str | None,
    compared: Sequence[int],
    size: int,
) -> Iterator[tuple[str, str, Floats]]:
    """Yield the name of each level, what it is compared with, and the contrast."""
    if reference is not None and str(reference) not in levels:
        raise InvalidParameter(
            f"{reference!r:.80} is no level of {column!r} that is seen to vary: choose one of "
            f"{', '.join(map(repr, levels))}"
        )
    if len(positions) == 2 and reference is None:
        reference = levels[1]
    base = np.zeros(size)
    if reference is None:
        base[list(compared)] = 1 / max(len(compared), 1)
    else:
        base[positions[list(levels).index(str(reference))]] = 1.0
    for position, level in zip(positions, levels, strict=True):
        if len(positions) > 1 and level != reference:
            against = f"the mean of {len(compared)} levels" if reference is None else f"{column}={reference}"
            yield f"{column}={level}", against, np.eye(size)[position] - base


@dataclass(frozen=True, eq=False)
class Contrasts:
    """Effects with the law of their errors."""

    #: The name of each, and what it is compared with; "" for a coefficient.
    told: tuple[tuple[str, str], ...]
    #: Effects, and the standard errors of each source.
    values: Floats
    by_sampling: Floats
    by_privacy: Floats
    covariance: Floats  # of all effects, both sources together
    freedom: Floats  # degrees of freedom of the standard errors
    resolved: Any  # whether noise leaves enough to tell
    #: The share of the model's own covariance in that of the gradients: 1 for that of a well specified model.
    assumed: float

    @property
    def errors(self) -> Floats:
        """Standard errors of sampling and privacy together."""
        return np.sqrt(np.maximum(np.diagonal(self.covariance), 0.0))

    @property
    def p_values(self) -> Floats:
        """The probability of an effect so far from 0 if it were 0; 1 where it is not resolved."""
        values: Floats = 2 * t.sf(np.abs(self.values) / np.maximum(self.errors, 1e-300), self.freedom)
        return np.where(self.resolved, values, 1.0)

    def ends(self, level: float, simultaneous: bool = False) -> tuple[Floats, Floats]:
        """Return the ends of intervals; infinite where an effect is not resolved."""
        tail = (1 + require_open_unit("level", level)) / 2
        quantiles = t.ppf(tail, self.freedom)
        if simultaneous and self.resolved.any():
            kept = self.covariance[np.ix_(self.resolved, self.resolved)]
            spread = np.sqrt(np.diagonal(kept))
            quantiles = quantiles * largest_quantile(kept / np.outer(spread, spread), level) / norm.ppf(tail)
        half = np.where(self.resolved, quantiles * self.errors, math.inf)
        return self.values - half, self.values + half

    def conf_int(self, level: float = 0.95, simultaneous: bool = False) -> pd.DataFrame:
        """Return the intervals as a table."""
        low, high = self.ends(level, simultaneous)
        return pd.DataFrame({"low": low, "high": high}, index=[_named(*each) for each in self.told])

    def summary(self, level: float, title: str) -> Summary:
        """Return the table of the effects."""
        low, high = self.ends(level)
        all_low, all_high = self.ends(level, simultaneous=True)
        certain = (all_low > 0) | (all_high < 0)
        maybe = (low > 0) | (high < 0)
        verdicts = np.where(certain, "differs from 0", np.where(maybe, "may differ", ""))
        verdicts = np.where(self.resolved, verdicts, "not resolved")
        table = pd.DataFrame(
            {
                "effect": self.values,
                "se sampling": np.where(self.resolved, self.by_sampling, math.nan),
                "se privacy": np.where(self.resolved, self.by_privacy, math.inf),
                "se": np.where(self.resolved, self.errors, math.inf),
                "low": low,
                "high": high,
                "low of all": all_low,
                "high of all": all_high,
                "p": self.p_values,
                "verdict": verdicts.tolist(),
            },
            index=[_named(*each) for each in self.told],
        )
        return Summary(title, level, table, self._remarks(level), self.told)

    def _remarks(self, level: float) -> tuple[str, ...]:
        found = [
            f"Intervals at {level:.4g} are of sampling and privacy together. An effect differs from 0 if the "
            "interval of all effects together leaves 0 out, and may differ if only its own does."
        ]
        if self.assumed > _ASSUMED:
            found.append(
                "Noise hides the covariance of the gradients, so that the standard errors by sampling are those of a "
                f"well specified model, to {self.assumed:.0%}."
            )
        hidden = int(np.count_nonzero(~self.resolved))
        if hidden:
            found.append(
                f"{hidden} of {len(self.values)} effects are not resolved: the noise of privacy hides how the score "
                "depends on these columns. Their values say nothing, so that their standard errors are infinite. A "
                "larger epsilon, more rows or fewer columns may resolve them. Columns that add up to another one "
                "hide each other; levels of a column are told by names such as job=nurse."
            )
        return tuple(found)


def _named(name: str, against: str) -> str:
    return f"{name} against {against}" if against else name


@dataclass(frozen=True, eq=False)
class Summary:
    """A table of effects with standard errors, intervals and p-values; `str` and notebooks show it."""

    title: str
    level: float  # that of the intervals
    #: Columns "effect", "se sampling", "se privacy", "se", "low", "high", "low of all", "high of all" (the
    #: simultaneous interval), "p" and "verdict". Standard errors of effects that are not resolved are infinite.
    table: pd.DataFrame
    remarks: tuple[str, ...]
    #: The name of each effect, and what it is compared with; "" for a coefficient.
    told: tuple[tuple[str, str], ...]

    def to_frame(self) -> pd.DataFrame:
        """Return the numbers as a table."""
        return self.table.copy()

    def to_dict(self) -> dict[str, Any]:
        """Return plain data; infinite ends are None."""
        rows = []
        for (name, against), (_, row) in zip(self.told, self.table.iterrows(), strict=True):
            numbers = {
                str(key).replace(" ", "_"): value if isinstance(value, str) else _finite(value)
                for key, value in row.items()
            }
            rows.append({"name": name, "against": against, **numbers})
        return {"level": self.level, "effects": rows, "remarks": list(self.remarks)}

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        """Return the head and the rows of the printed table."""
        tail = (1 - self.level) / 2
        head = ["", "effect", "se", "sampling", "privacy", f"[{tail:.4g}", f"{1 - tail:.4g}]", "P>|t|", ""]
        columns = ["effect", "se", "se sampling", "se privacy", "low", "high"]
        rows = []
        for name, row in self.table.iterrows():
            numbers = ["-" if math.isnan(row[column]) else f"{row[column]:.4g}" for column in columns]
            rows.append([printable(str(name)), *numbers, f"{row['p']:.3f}", str(row["verdict"])])
        return head, rows

    def __str__(self) -> str:
        head, rows = self._cells()
        widths = [max(len(line[column]) for line in [head, *rows]) for column in range(len(head))]
        line = "-" * (sum(widths) + 2 * (len(widths) - 1))

        def text(cells: list[str]) -> str:
            first, *numbers, last = cells
            shown = [f"{first:<{widths[0]}}"]
            shown += [f"{cell:>{width}}" for cell, width in zip(numbers, widths[1:-1], strict=True)]
            return "  ".join([*shown, last]).rstrip()

        body = [text(row) for row in rows]
        remarks = [fill(each, max(80, len(line))) for each in self.remarks]
        return "\n".join([self.title, line, text(head), line, *body, line, *remarks])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head, rows = self._cells()
        cells = "".join(f"<th>{escape(each)}</th>" for each in head)
        body = "".join(f"<tr>{''.join(f'<td>{escape(each)}</td>' for each in row)}</tr>" for row in rows)
        remarks = "".join(f"<p>{escape(each)}</p>" for each in self.remarks)
        table = f"<table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table>"
        return f"<p><strong>{escape(self.title)}</strong></p>{table}{remarks}"


def _finite(value: Any) -> float | None:
    number = float(value)
    return number if math.isfinite(number) else None


def largest_quantile(correlations: Floats, level: float) -> float:
    """Return the quantile of the largest absolute value of normal numbers with these correlations.

    It is at most that of independent numbers (Sidak 1967), which has a closed form. The draws are the same every
    time.
    """
    size = len(correlations)
    independent = float(norm.ppf((1 + level ** (1 / size)) / 2))
    if np.abs(correlations - np.eye(size)).max() < 1e-9:
        return independent
    values, vectors = np.linalg.eigh(correlations)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    generator, largest = np.random.default_rng(0), []
    for _ in range(max(1, math.ceil(_DRAWS * size / _AT_ONCE))):
        drawn = generator.standard_normal((min(_DRAWS, max(1, _AT_ONCE // size)), size))
        largest.append(np.abs(drawn @ root.T).max(axis=1))
    return min(independent, float(np.quantile(np.concatenate(largest), level)))
