"""What a ledger has recorded: its lines in order, and exact sums of what they cost.

**Settling a reservation.** A fit whose own filter has the budget b is charged b at once, as a `FilteredRun`, before
it touches a row. When it is over and can charge nothing more, the mechanisms that it did run, of the total s <= b,
take the place of b. That is sound in every scalar currency. A filter's theorem asks for one thing: that the prices of
the mechanisms actually run, in the order in which they were run and each chosen from released answers only, never
add up to more than the budget (Rogers et al. 2016; Feldman & Zrnic 2021; Smith & Thakurta 2022). At every moment the
mechanisms run so far are those of settled fits, which the ledger counts one by one, and those of open fits, each of
which has run no more than was reserved for it. So their sum is at most what the ledger counts, and the ledger never
counts more than its budget. Fits that overlap only interleave their mechanisms. Nearly all of these answer at once,
from noise of their own: the interleaved sequence is again an adaptive one. A batch that answers several questions is
one mechanism that is asked more than once, and is charged in full before its first answer. Such mechanisms may be
interleaved with others, because a filter for (epsilon, delta)-DP, f-DP or Renyi DP of a fixed order is also one for
concurrent interactive mechanisms (Haney et al. 2023); GDP is f-DP, and zCDP is Renyi DP at every order. The sum s is
a function of released answers, as every later decision may be. A fit that dies is never settled and stays charged
with b.

References
----------
Haney, S. et al. (2023). Concurrent composition for interactive differential privacy with adaptive privacy-loss
parameters. arXiv:2309.05901.
"""

from __future__ import annotations

from ..errors import LedgerFormatError
from .amounts import exactly, failure_probability
from .entries import Entry, Line

__all__ = ["Tally"]


class Tally:
    """The lines of a ledger by their numbers, what they cost, and with what probability their mechanisms may fail.

    Both sums are exact, in multiples of 2^-1074. A record may be passed on twice, with the same number, if an
    interrupt falls between its steps. These are ordered so that the sums are then too large, never too small.
    """

    def __init__(self) -> None:
        self.lines: dict[int, Line] = {}
        self.spent = 0
        self.failures = 0

    def copy(self) -> Tally:
        """Return a tally of the same lines that goes its own way."""
        copied = Tally()
        copied.lines, copied.spent, copied.failures = dict(self.lines), self.spent, self.failures
        return copied

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Every charge that counts, in order."""
        return tuple(entry for line in tuple(self.lines.values()) for entry in line.charges)

    def charge(self, number: int, entry: Entry) -> None:
        """Count a charge that the journal has recorded under ``number``."""
        if number not in self.lines:
            spent, failures = _sums((entry,))
            self.spent += spent
            self.failures += failures
            self.lines[number] = Line(entry)

    def settle(self, number: int, charges: tuple[Entry, ...]) -> None:
        """Let the charges of a run take the place of what was reserved for it in line ``number``."""
        line = self.lines.get(number) if isinstance(number, int) else None
        if line is not None and line.settled == charges:
            return
        if line is None or line.state != "reserved":
            raise LedgerFormatError(f"record {number!r} is settled, and is no open reservation: the file is damaged")
        reserved, settled = _sums((line.entry,)), _sums(charges)
        self.lines[number] = Line(line.entry, charges)
        self.spent += settled[0] - reserved[0]
        self.failures += settled[1] - reserved[1]


def _sums(entries: tuple[Entry, ...]) -> tuple[int, int]:
    prices = sum(exactly(entry.price) for entry in entries)
    return prices, sum(exactly(failure) for entry in entries if (failure := failure_probability(entry.cost)))
