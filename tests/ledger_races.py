"""Processes that race for one ledger file, some of them killed: a program that prints what each was told.

It imports the package once and forks the racers, so that one trial takes milliseconds. Every racer reports each
label right after the ledger has accepted its charge; a racer that was killed leaves the report it had made so far.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dpdescent.accounting import Gaussian
from dpdescent.errors import BudgetExhausted
from dpdescent.ledger import Ledger

EPSILON, DELTA = 1.0, 1e-6
CAPACITY = 12  # charges that fit into the budget; every racer asks for as many
STEPS = ("open", "write", "fsync", "link", "unlink", "ftruncate")  # calls of the module os that may touch the file

Racer = Callable[[Path, Callable[[str], None]], None]


def charge() -> Gaussian:
    """One of the charges of which exactly `CAPACITY` fit."""
    ledger = Ledger(EPSILON, DELTA)
    return ledger.currency.gaussian(ledger.budget / CAPACITY)


COST = charge()


def spend_all(ledger: Ledger, name: str, report: Callable[[str], None]) -> None:
    for number in range(CAPACITY):
        label = f"{name} {number}"
        try:
            ledger.spend(COST, label)
        except BudgetExhausted:
            return
        report(label)


def create(path: Path, report: Callable[[str], None]) -> None:
    spend_all(Ledger(EPSILON, DELTA, path=path), "creator", report)


def opener(name: str) -> Racer:
    def race(path: Path, report: Callable[[str], None]) -> None:
        while not path.exists():
            if path.with_suffix(".gone").exists() and not path.exists():
                return  # the creator was killed before there was a file
            time.sleep(0.0001)
        spend_all(Ledger.open(path), name, report)

    return race


def fork(racer: Racer, path: Path, gate: int = -1, closed: tuple[int, ...] = ()) -> tuple[int, int]:
    """Start a racer behind ``gate``; return its process and the end of the pipe from which its report is read."""
    reading, writing = os.pipe()
    process = os.fork()
    if process:
        os.close(writing)
        return process, reading
    status = 1
    to_pipe = os.write  # what a racer writes to its ledger may be made to fail
    try:
        for descriptor in closed:
            os.close(descriptor)
        if gate >= 0:
            os.read(gate, 1)
        racer(path, lambda line: to_pipe(writing, f"{line}\n".encode()) and None)
        status = 0
    except BaseException as problem:
        to_pipe(writing, f"error {problem!r}\n".encode())
    finally:
        os._exit(status)


def finish(process: int, reading: int) -> dict[str, Any]:
    """Wait for a racer and return its report."""
    with os.fdopen(reading, "rb") as pipe:
        lines = pipe.read().decode().splitlines()
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    return {
        "accepted": [line for line in lines if not line.startswith("error ")],
        "errors": [line for line in lines if line.startswith("error ")],
        "killed": code == -signal.SIGKILL,
    }


def race(path: Path, openers: int, victims: dict[int, float]) -> list[dict[str, Any]]:
    """Start a creator (racer 0) and openers at once; kill each victim after its delay in seconds."""
    gate, release = os.pipe()
    racers = [create, *(opener(f"opener {number}") for number in range(openers))]
    started = [fork(racer, path, gate, (release,)) for racer in racers]
    os.close(gate)
    os.close(release)
    begin = time.perf_counter()
    for victim, delay in sorted(victims.items(), key=lambda item: item[1]):
        time.sleep(max(0.0, begin + delay - time.perf_counter()))
        os.kill(started[victim][0], signal.SIGKILL)
    reports = [finish(*started[0])]
    path.with_suffix(".gone").touch()
    return reports + [finish(*each) for each in started[1:]]


def stop_at(step: int) -> list[int]:
    """Make this process kill itself at its ``step``-th call from `STEPS`, a write being cut in half."""
    count = [0]

    def interrupted(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*arguments: Any, **options: Any) -> Any:
            count[0] += 1
            if count[0] == step:
                if name == "write":
                    call(arguments[0], arguments[1][: len(arguments[1]) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments, **options)

        return wrapper

    for name in STEPS:
        setattr(os, name, interrupted(name, getattr(os, name)))
    return count


def create_and_stop(step: int) -> Racer:
    def racer(path: Path, report: Callable[[str], None]) -> None:
        stop_at(step)
        ledger = Ledger(EPSILON, DELTA, path=path)
        for label in ("first", "second"):
            ledger.spend(COST, label)
            report(label)

    return racer


def interrupt_everywhere(folder: Path) -> list[dict[str, Any]]:
    """Kill a creator at each of its steps in turn, and let another process go on with whatever it left."""
    outcomes: list[dict[str, Any]] = []
    while not outcomes or outcomes[-1]["killed"]:
        path = folder / f"interrupted-{len(outcomes)}"
        outcome = finish(*fork(create_and_stop(len(outcomes) + 1), path))
        outcome |= {"path": str(path), "exists": path.exists()}
        outcomes.append(outcome | {"next": finish(*fork(opener("next") if path.exists() else create, path))})
    return outcomes


def main(folder: Path, trials: int, openers: int) -> None:
    generator = random.Random(5)
    races = []
    for trial in range(trials):
        path = folder / f"race-{trial}"
        doomed = generator.sample(range(1 + openers), 1 + trial % openers) if trial % 2 else []
        victims = {victim: generator.uniform(0.0, 0.02) for victim in doomed}
        races.append({"path": str(path), "racers": race(path, openers, victims)})
    json.dump({"races": races, "interrupted": interrupt_everywhere(folder)}, sys.stdout)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
