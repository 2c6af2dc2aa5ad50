"""What a replay found, as values that print."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Leak", "ReplayReport"]


@dataclass(frozen=True)
class Leak:
    """One thing by which a fit tells two neighbouring tables apart, beyond what it has paid for.

    Parameters
    ----------
    kind : str
        What differs: an "attribute", the "statement", a "warning", a printed "message", an "error", "progress", a
        "pickle", the record of the "ledger", or a "release"; or "sensitivity", if a sum moved farther than that.
    where : str
        Which one it is: the name of an attribute, or the number of a release.
    recorded, replayed : str
        What was found on the table, and on its neighbour.
    change : str
        How the neighbour differs from the table.
    """

    kind: str
    where: str
    recorded: str
    replayed: str
    change: str = ""

    def __str__(self) -> str:
        told = f"    recorded: {self.recorded}\n    replayed: {self.replayed}\n    neighbour: {self.change}"
        return f"{self.kind}, {self.where}\n{told}"


@dataclass(frozen=True)
class ReplayReport:
    """What a replay of an estimator on neighbouring tables has found.

    Parameters
    ----------
    subject : str
        The estimator.
    relation : str
        Which tables are neighbours.
    pairs, releases : int
        How many pairs of tables, and over all pairs how many releases, were compared.
    leaks : tuple of Leak
        By what the fits told neighbours apart; empty if there was nothing.
    shares : dict
        For each charge, by its label, how far an exact sum was moved at most: in the norm of its declared
        sensitivity, and as a share of it. Above 1 is a leak. Far below 1 means that no neighbour was a hard one.
    unchecked : tuple of str
        What the replay could not compare.
    """

    subject: str
    relation: str
    pairs: int
    releases: int
    leaks: tuple[Leak, ...]
    shares: dict[str, float]
    unchecked: tuple[str, ...] = ()

    @property
    def clean(self) -> bool:
        """Whether no leak was found."""
        return not self.leaks

    @property
    def largest_share(self) -> float:
        """The largest share of its declared sensitivity by which an exact sum was moved."""
        return max(self.shares.values(), default=0.0)

    def __str__(self) -> str:
        first: dict[tuple[str, str], list[Leak]] = {}
        for leak in self.leaks:
            first.setdefault((leak.kind, leak.where), []).append(leak)
        found = {0: "no leak was found", 1: "1 leak was found"}.get(len(first), f"{len(first)} leaks were found")
        lines = [
            f"{self.subject}, {self.relation}: {found} in {self.pairs} pairs of neighbouring tables",
            f"{self.releases} releases were compared; the largest changes, as shares of the sensitivities:",
            *(f"  {ascii(label)[1:-1]}: {share:.1%}" for label, share in self.shares.items()),
            *(f"not checked: {each}" for each in self.unchecked),
        ]
        for alike in first.values():
            lines.append(f"- {alike[0]}" + (f"\n    and in {len(alike) - 1} more pairs" if len(alike) > 1 else ""))
        return "\n".join(lines)
