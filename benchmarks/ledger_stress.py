"""Stress a ledger file with random fits, charges, refusals and kills: does it ever record less than was released.

In every sequence a creator and up to seven others start together on a file that does not exist yet. Each makes random
charges, runs of a reserved budget and fits of a small table, writes a marker to a file of its own once a charge
was accepted (that is where data would be touched) or an answer was given, and may be killed at any moment. Afterwards
the ledger must open, must charge at least what the markers say was released, and at most its budget.

The package is imported once and the processes are forked, so that a sequence takes some hundredths of a second. With
``--json`` the counts are written as it goes, and the same command goes on where a stopped one was.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from dpdescent import DPLogisticRegression
from dpdescent.accounting import Currency
from dpdescent.curator import Curator
from dpdescent.errors import BudgetExhausted, LedgerError, LedgerFormatError
from dpdescent.ledger import Ledger, reserving, sqlite_store

EPSILON, DELTA = 2.0, 1e-6
STEPS = 6  # charges or runs that each process asks for
LONGEST = 0.1  # seconds within which the processes that are killed are killed
SHARES = (0.01, 0.02, 0.05, 0.08, 0.12)  # of the budget, for one charge
RUNS = (0.1, 0.2, 0.4)  # of epsilon, for one fit
#: By which method a table is fitted in each currency that a ledger may be kept in.
METHODS: dict[str, dict[str, Any]] = {
    "gdp": {"method": "sgd", "solver_options": {"steps": 5, "sampling_rate": 1.0}},
    "zcdp": {"method": "sgd", "solver_options": {"steps": 5, "sampling_rate": 1.0}},
    "pure": {"method": "outpert", "solver_options": {"pure": True}, "alpha": 0.1},
}
CURRENCIES = tuple(METHODS)
ACTS = ("charge",) * 6 + ("fit",) * 5 + ("train",)
SAVED = 100  # sequences after which the counts are written
X = np.linspace(0.0, 1.0, 40)[:, None]
Y = (X[:, 0] > 0.5).astype(int)


def mechanism(currency: Currency, amount: float) -> Any:
    return currency.laplace(amount) if currency.name == "pure" else currency.gaussian(amount)


class Worker:
    """One process: what it asks for is drawn from its seed, and what was released to it is in its side file."""

    def __init__(self, path: Path, number: int, seed: int) -> None:
        self.path, self.number, self.random = path, number, random.Random(seed)
        self.side = path.with_suffix(f".{number}")
        self.markers = -1

    def run(self, gate: int, currency: str) -> None:
        self.markers = os.open(self.side, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        os.read(gate, 1)
        ledger = self.create(currency) if self.number == 0 else self.open()
        for step in range(STEPS if ledger is not None else 0):
            try:
                act = getattr(self, self.random.choice(ACTS))
                act(ledger, f"{self.number}.{step}")
            except BudgetExhausted:
                self.note("refused")
        self.note("done")

    def create(self, currency: str) -> Ledger:
        return Ledger(EPSILON, DELTA, currency=currency, path=self.path)

    def open(self) -> Ledger | None:
        while True:
            dead = self.path.with_suffix(".gone").exists()
            try:
                return Ledger.open(self.path)
            except (LedgerError, LedgerFormatError) as problem:
                if "there is no ledger" not in str(problem) and "create it again" not in str(problem):
                    raise
            if dead:
                return None  # the creator was killed before there was a ledger
            time.sleep(0.0005)

    def charge(self, ledger: Ledger, label: str) -> None:
        cost = mechanism(ledger.currency, ledger.budget * self.random.choice(SHARES))
        entry = ledger.spend(cost, label)
        self.note("released", label, entry.price.hex())

    def fit(self, ledger: Ledger, label: str) -> None:
        own = Ledger(EPSILON * self.random.choice(RUNS), DELTA, currency=ledger.currency)
        with reserving(ledger, own, label):
            for query in range(self.random.randrange(5)):
                cost = mechanism(own.currency, own.budget * self.random.choice((0.1, 0.3, 0.5)))
                entry = own.spend(cost, f"{label}.{query}")
                self.note("answered", label, entry.price.hex())
                time.sleep(self.random.uniform(0, 0.004))

    def train(self, ledger: Ledger, label: str) -> None:
        """Fit a table: every answer is noted when the curator has given it."""
        account, epsilon = Ledger.open(self.path, model=label), EPSILON * self.random.choice(RUNS)
        model = DPLogisticRegression(
            epsilon, DELTA, bounds=(0, 1), classes=(0, 1), ledger=account, **METHODS[ledger.currency.name]
        )
        answer, noted = Curator.answer, 0

        def noting(curator: Curator, *asked: Any) -> Any:
            nonlocal noted
            found = answer(curator, *asked)
            for entry in curator.ledger.entries[noted:]:
                self.note("answered", label, entry.price.hex())
                noted += 1
            return found

        Curator.answer = noting  # type: ignore[method-assign]
        try:
            model.fit(X, Y)
            self.note("trained")
        finally:
            Curator.answer = answer  # type: ignore[method-assign]

    def note(self, *words: str) -> None:
        os.write(self.markers, f"{' '.join(words)}\n".encode())


def forked(worker: Worker, currency: str, gate: int, release: int) -> int:
    process = os.fork()
    if process:
        return process
    status = 1
    try:
        os.close(release)
        worker.run(gate, currency)
        status = 0
    except BaseException as problem:
        worker.note("error", repr(problem))
    finally:
        os._exit(status)


def sequence(folder: Path, number: int, seed: int) -> dict[str, Any]:
    """Run one sequence, and return its counts and whatever is wrong with its outcome."""
    chance = random.Random(f"{seed} {number}")
    path = folder / f"ledger-{number}"
    count = chance.randint(2, 8)
    workers = [Worker(path, each, chance.getrandbits(32)) for each in range(count)]
    currency = chance.choice(CURRENCIES)
    sqlite_store.CREATION = 0.02  # nobody waits long for a creator who was killed
    gate, release = os.pipe()
    processes = [forked(worker, currency, gate, release) for worker in workers]
    os.close(gate)
    os.close(release)  # all start now
    begin = time.perf_counter()
    victims = chance.sample(range(count), chance.choice((0, 1, count // 2, count)))
    for moment, victim in sorted((chance.uniform(0, LONGEST), victim) for victim in victims):
        time.sleep(max(0.0, begin + moment - time.perf_counter()))
        os.kill(processes[victim], signal.SIGKILL)
    codes = [os.waitstatus_to_exitcode(os.waitpid(processes[0], 0)[1])]
    path.with_suffix(".gone").touch()
    codes += [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in processes[1:]]
    outcome = judged(path, [worker.side for worker in workers])
    outcome["counts"]["killed"] = sum(code == -signal.SIGKILL for code in codes)
    outcome["counts"]["processes"] = count
    if any(code not in (0, -signal.SIGKILL) for code in codes) and not outcome["wrong"]:
        outcome["wrong"].append(f"exit codes {codes}")
    for each in folder.glob(f"{path.name}*"):
        each.unlink()
    return outcome


def judged(path: Path, sides: list[Path]) -> dict[str, Any]:
    """Compare the record with what was released."""
    lines = [line.split(" ") for side in sides if side.exists() for line in side.read_text().splitlines()]
    counts = Counter(words[0] for words in lines)
    wrong = [" ".join(words) for words in lines if words[0] == "error"]
    charged = {words[1]: Fraction(float.fromhex(words[2])) for words in lines if words[0] == "released"}
    answered: dict[str, Fraction] = {}
    for words in lines:
        if words[0] == "answered":
            answered[words[1]] = answered.get(words[1], Fraction(0)) + Fraction(float.fromhex(words[2]))
    released = charged | answered
    sqlite_store.CREATION = 0.0
    try:
        ledger = Ledger.open(path)
    except Exception as problem:
        if released:
            wrong.append(f"{len(released)} releases, and the ledger does not open: {problem!r}")
        return {"counts": counts, "wrong": wrong}
    prices = {
        line.entry.model or line.entry.label: sum(Fraction(each.price) for each in line.charges)
        for line in ledger.history
    }
    if len(prices) != len(ledger.history):
        wrong.append("a charge is recorded twice")
    wrong += [f"{label} is not recorded" for label in released if label not in prices]
    wrong += [f"{label} is recorded for less" for label in released if prices.get(label, 0) < released[label]]
    total = sum(prices.values())
    if not sum(released.values()) <= total <= Fraction(ledger.budget):
        wrong.append(f"released {float(sum(released.values()))}, recorded {float(total)}, budget {ledger.budget}")
    if Fraction(ledger.spent) < total:
        wrong.append("the ledger counts less than it records")
    states = Counter(line.state for line in ledger.history)
    return {"counts": counts + states + Counter(files=1), "wrong": wrong}


def warm_up() -> None:
    """Fill the caches of prices before the processes are forked."""
    for currency in CURRENCIES:
        ledgers = [Ledger(EPSILON * share, DELTA, currency=currency) for share in (1, *RUNS)]
        for ledger, shares in zip(ledgers, (SHARES, *[(0.1, 0.3, 0.5)] * len(RUNS)), strict=True):
            for share in shares:
                ledger.affords(mechanism(ledger.currency, ledger.budget * share))
        for share in RUNS:
            DPLogisticRegression(EPSILON * share, DELTA, bounds=(0, 1), classes=(0, 1), **METHODS[currency]).fit(X, Y)
    gc.collect()
    gc.freeze()  # pages that no child writes to are never copied


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sequences", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the counts here")
    parser.add_argument(
        "--folder", type=Path, help="where the ledgers are written; by default that of temporary files"
    )
    arguments = parser.parse_args()
    warm_up()
    record = stressed(arguments.sequences, arguments.seed, arguments.folder, arguments.json)
    print(json.dumps(record["counts"]))
    print(f"{record['sequences']} sequences in {record['seconds']:.1f} s, {len(record['wrong'])} wrong")
    for each in record["wrong"][:20]:
        print(each)
    sys.exit(bool(record["wrong"]))


def stressed(sequences: int, seed: int, folder: Path | None, output: Path | None) -> dict[str, Any]:
    """Run the sequences that the record in a file does not have yet, and return the counts of all."""
    record: dict[str, Any] = {"seed": seed, "sequences": 0, "seconds": 0.0, "counts": {}, "wrong": []}
    if output is not None and output.exists():
        kept = json.loads(output.read_text())
        record = kept if kept["seed"] == seed else record
    begin, counts = time.perf_counter() - record["seconds"], Counter(record["counts"])
    with tempfile.TemporaryDirectory(dir=folder) as place:
        for number in range(record["sequences"], sequences):
            outcome = sequence(Path(place), number, seed)
            counts += outcome["counts"]
            record["wrong"] += [f"sequence {number}: {each}" for each in outcome["wrong"]]
            record |= {"sequences": number + 1, "seconds": time.perf_counter() - begin}
            record["counts"] = dict(sorted(counts.items()))
            if output is not None and (number + 1 == sequences or (number + 1) % SAVED == 0):
                part = output.with_name(f"{output.name}.part")
                part.write_text(json.dumps(record, indent=2) + "\n")
                part.replace(output)
    return record


if __name__ == "__main__":
    main()
