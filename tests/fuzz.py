"""Fuzz every entry of the package for a given time: `make fuzz`, or `python tests/fuzz.py --minutes 10`.

The properties are those of `fuzzing.py`. Where atheris is installed it guides the choice of examples by the code that
they reach; otherwise hypothesis draws them at random, from another seed in every round. A property that fails is
reported with its smallest example, and the others go on. The exit code is 1 if one has failed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, seed, settings, strategies as st

STARTS, LENGTH = 20, 4096  # inputs that atheris begins with, and their bytes
ROUND = 25  # examples of a property before it is the turn of the next one
QUIET = settings(
    max_examples=ROUND,
    deadline=None,
    database=None,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)


def by_hypothesis(names: list[str], seconds: float, first: int) -> dict[str, Any]:
    """Draw examples of the properties in turn until the time is over; return how many, and what failed."""
    import fuzzing

    end, number = time.monotonic() + seconds, first
    examples, failures = dict.fromkeys(names, 0), {}
    while time.monotonic() < end and len(failures) < len(names):
        for name in names:
            if name in failures or time.monotonic() > end:
                continue
            number += 1

            try:
                QUIET(seed(number)(given(data=st.data())(counting(fuzzing.PROPERTIES[name], name, examples))))()
            except KeyboardInterrupt:
                raise
            except BaseException as problem:
                notes = "\n".join(getattr(problem, "__notes__", []))
                failures[name] = f"seed {number}: {type(problem).__name__}: {problem}\n{notes}"
                print(f"{name} fails: {failures[name]}", file=sys.stderr)
    return {"engine": "hypothesis", "examples": examples, "failures": failures, "last_seed": number}


def counting(body: Callable[[st.DataObject], None], name: str, examples: dict[str, int]) -> Callable[..., None]:
    """Return a property that counts how often it is tried."""

    def counted(data: st.DataObject) -> None:
        examples[name] += 1
        body(data)

    return counted


def by_atheris(names: list[str], seconds: float) -> dict[str, Any]:
    """Give every property a process of its own, which ends when its share of the time is over or an example fails."""
    failures, reached = {}, {}
    for name in names:
        command = [sys.executable, __file__, "--guided", name, "--seconds", str(max(1, round(seconds / len(names))))]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        reached[name] = next((line for line in reversed(done.stderr.splitlines()) if line.startswith("#")), "")
        if done.returncode:
            failures[name] = done.stderr[-3000:]
            print(f"{name} fails: {failures[name]}", file=sys.stderr)
    return {"engine": "atheris", "examples": reached, "failures": failures}


def guided(name: str, seconds: float) -> None:
    """Let atheris choose the examples of one property; it ends the process."""
    import atheris

    with atheris.instrument_imports(include=["dpdescent"]):
        import fuzzing

    fuzzing.template()
    test = given(data=st.data())(fuzzing.PROPERTIES[name])
    corpus = Path(tempfile.mkdtemp(prefix="dpdescent-corpus-"))
    for number in range(STARTS):  # short inputs are no examples: begin with some that are long enough
        (corpus / str(number)).write_bytes(random.Random(number).randbytes(LENGTH))
    options = [f"-max_total_time={round(seconds)}", f"-max_len={LENGTH}", "-len_control=0", "-report_slow_units=600"]
    arguments = [sys.argv[0], *options, f"-artifact_prefix={corpus}/", str(corpus)]
    atheris.Setup(arguments, test.hypothesis.fuzz_one_input)
    atheris.Fuzz()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long, in all")
    parser.add_argument("--seconds", type=float, help="the same in seconds")
    parser.add_argument("--only", action="append", metavar="NAME", help="a property; default: all of them")
    parser.add_argument("--engine", choices=["atheris", "hypothesis"], help="default: atheris where it is installed")
    parser.add_argument("--seed", type=int, default=0, help="hypothesis draws from the seeds after this one")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the counts and failures here")
    parser.add_argument("--guided", metavar="NAME", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    seconds = 60 * arguments.minutes if arguments.seconds is None else arguments.seconds
    if arguments.guided:
        guided(arguments.guided, seconds)
    installed = importlib.util.find_spec("atheris") is not None
    engine = arguments.engine or ("atheris" if installed else "hypothesis")
    names = arguments.only or properties()
    found = by_atheris(names, seconds) if engine == "atheris" else by_hypothesis(names, seconds, arguments.seed)
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")
    print(json.dumps(found["examples"], indent=1))
    print(f"{engine}: {len(found['failures'])} of {len(names)} properties fail")
    sys.exit(bool(found["failures"]))


def properties() -> list[str]:
    """Return the names of all properties."""
    import fuzzing

    return list(fuzzing.PROPERTIES)


if __name__ == "__main__":
    main()
