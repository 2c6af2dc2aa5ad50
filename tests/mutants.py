"""Change one operator, constant or argument of the code at a time, and run the tests that reach it: `make mutants`.

`python tests/mutants.py accounting.costs ledger` makes the changes of one module and of one package. The changes are
those of mutmut; unlike mutmut itself this script also changes functions that have decorators (properties, context
managers, cached functions), and starts every run from a process that has imported and collected everything.
Constants of modules and defaults of fields are not changed: they are read once, when a module is imported.

The folder `mutants` holds a copy of the sources. For the time of a run the changed module stands there as well, so
that processes started by a test see the change. What becomes of every mutant is written to `mutants/<module>.json`.
The command fails where a mutant survives that `survivors.txt` does not list, or where it lists what is no mutant.
"""

from __future__ import annotations

import argparse
import cProfile
import ctypes
import functools
import gc
import json
import math
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import CodeType, FunctionType

import pytest

from mutations import FOLDER, HOME, PACKAGE, SOURCES, Mutant, mutants_of, switch_on
from survivors import objections

LONGEST, MOST = 1.0, 3.0  # seconds of a test, and of all tests of a mutant: the others are left out
TRACED = 1.5  # how many times longer a test may take while its calls are recorded
PATIENCE, SLOWER = 1.0, 2.0  # a mutant is stopped after so many seconds, and so many times what its tests take

TESTS = {
    "ledger": ["ledger", "reservation", "joint_charges", "ledger_file", "smallest_delta"],
    "accounting": [
        *("conversions", "divergences", "costs", "prices", "sampling", "bellman", "threshold", "stopping"),
        *("schedules", "orders"),
        *("accounting_oracles", "smallest_delta", "ledger", "objective_perturbation", "permuted_passes", "explain"),
    ],
    "curator": [
        *(
            "batches",
            "curator",
            "query_laws",
            "units",
            "points_on_neighbours",
            "blocks",
            "search",
            "search_laws",
            "select",
        ),
        *("bounds", "moments", "payment", "curvature", "steps", "sgd", "mechanisms", "noise_selection", "sources"),
        *("output_perturbation", "permuted_passes", "scale_faults", "erring_minimisers", "step_scores"),
        *("ftrl", "phased", "seals", "excess_risk", "unit_sums", "objective_perturbation", "expmech"),
        *("drawn_minimiser", "any_loss", "saddle", "whitening", "outpert", "point_formulas", "progress_over_rows"),
        "leaf_sums",
    ],
}
TESTS["queries"] = TESTS["curator"]


class Runner:
    """A plugin of pytest that runs the collected tests once for every mutant, each time in a child process."""

    def __init__(self, modules: Sequence[str], options: argparse.Namespace) -> None:
        self.modules, self.longest, self.most = modules, options.longest, options.most
        self.recorded, self.first = options.recorded, options.first
        self.go_on, self.survivors, self.every = options.go_on, options.survivors, options.every
        self.recording = False
        self.objections: list[str] = []

    def pytest_sessionstart(self) -> None:
        from hypothesis import Phase, settings

        settings.register_profile("mutants", database=None, derandomize=True, phases=(Phase.explicit, Phase.generate))
        settings.load_profile("mutants")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """Stop a test that takes too long while its calls are recorded, and the whole child where a mutant is killed.

        A report of the failure, which nobody reads, would take longer than most tests.
        """
        signal.setitimer(signal.ITIMER_VIRTUAL, TRACED * self.longest if self.recording else 0)
        try:
            return (yield)
        except Exception:  # those of pytest itself, which skip a test, are none
            if self.recording or item.get_closest_marker("xfail"):
                raise
            os._exit(1)
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        live: dict[tuple[str, str], list[FunctionType]] = {}
        for thing in gc.get_objects():
            if isinstance(thing, FunctionType) and thing.__code__.co_filename.startswith(str(PACKAGE)):
                live.setdefault((thing.__code__.co_filename, thing.__qualname__), []).append(thing)
            elif isinstance(thing, functools._lru_cache_wrapper):
                thing.cache_clear()
        gc.freeze()
        seconds, reached = self._reach(session)
        for module in self.modules:
            self._run_module(session, module, live, seconds, reached)
        return True

    def _reach(self, session: pytest.Session) -> tuple[dict[str, float], dict[str, list[str]]]:
        """Run every test once; return what it takes, and which tests reach a function.

        A run that goes on with another one records only tests that it knows nothing of, or that were stopped earlier
        than they would be now.
        """
        log = FOLDER / "reach.json"
        records: dict[str, tuple[float, list[str]]] = {}
        if (self.go_on or self.survivors) and log.exists():
            records = json.loads(log.read_text())

        def stop(*_: object) -> None:
            raise TimeoutError

        def run() -> None:
            signal.signal(signal.SIGVTALRM, stop)
            self.recording, begun = True, time.process_time()
            items = random.Random(0).sample(session.items, len(session.items))
            for item in sorted(items, key=lambda item: item.nodeid in records):  # what is new comes first
                seconds, functions = records.get(item.nodeid, (0.0, []))
                if functions or seconds > TRACED * self.longest or time.process_time() - begun > self.recorded:
                    continue
                profile = cProfile.Profile(subcalls=False, builtins=False)
                failed, start = session.testsfailed, time.process_time()
                profile.enable()
                run_test(item)
                profile.disable()
                took, reached = time.process_time() - start, []
                if session.testsfailed > failed:
                    print(f"left out, too long or failing without a mutant: {item.nodeid}", flush=True)
                    session.shouldfail = False
                else:
                    codes = [entry.code for entry in profile.getstats() if isinstance(entry.code, CodeType)]
                    names = {(code.co_filename, code.co_qualname.partition(".<locals>")[0]) for code in codes}
                    reached = [f"{path} {name}" for path, name in names if path.startswith(str(PACKAGE))]
                records[item.nodeid] = took, reached
                if len(records) % 100 == 0:
                    log.write_text(json.dumps(records))
            log.write_text(json.dumps(records))

        state = in_child(run, None)
        assert state == 0, "the tests could not be run without a mutant"
        records = json.loads(log.read_text())
        by_function: dict[str, list[str]] = {}
        for test, (_, functions) in records.items():
            for function in functions:
                by_function.setdefault(function, []).append(test)
        seconds = {test: took for test, (took, functions) in records.items() if functions}
        print(f"{len(seconds)} of {len(session.items)} tests, {sum(seconds.values()):.0f} s", flush=True)
        return seconds, by_function

    def _run_module(
        self,
        session: pytest.Session,
        module: str,
        live: Mapping[tuple[str, str], list[FunctionType]],
        seconds: Mapping[str, float],
        reached: Mapping[str, list[str]],
    ) -> None:
        result = FOLDER / f"{module}.json"
        outcomes = {}
        if (self.survivors or self.go_on) and result.exists():
            outcomes = {
                (outcome["function"], outcome["change"]): outcome for outcome in json.loads(result.read_text())
            }
        begun, known = time.perf_counter(), {item.nodeid: item for item in session.items}
        killers: Counter[str] = Counter()  # those that have killed most are tried first, those of the function before
        for (function, _), outcome in outcomes.items():
            killers.update([outcome["test"], f"{function} {outcome['test']}"])
        mutants = {(mutant.function, mutant.change): mutant for mutant in mutants_of(module)}
        sampled = set(list(mutants)[self.first :: self.every])
        for key, mutant in mutants.items():
            state = outcomes.get(key, {}).get("state")
            again = self.survivors and state in ("survived", "not reached")
            if not (again or (state is None and key in sampled and (self.go_on or not self.survivors))):
                continue
            reaching = reached.get(f"{mutant.path} {mutant.function}", [])
            tests = self._chosen([test for test in reaching if test in known], seconds)
            tests.sort(key=lambda test: (-killers[f"{mutant.function} {test}"], -killers[test]))
            items = [known[test] for test in tests]
            state, test = "not reached", ""
            if items:
                state, test = self._run(session, mutant, items, live, sum(map(seconds.__getitem__, tests)))
            if state == "killed":
                killers.update([test, f"{mutant.function} {test}"])
            outcomes[key] = {"function": key[0], "change": key[1], "state": state, "test": test}
            if state in ("survived", "not reached"):
                print(f"{module} {mutant.function}: {state}\n{mutant.change}", flush=True)
            written = result.with_suffix(".new")
            written.write_text(json.dumps(list(outcomes.values())))
            written.replace(result)  # a run may be stopped at any time
        states = {key: outcomes[key]["state"] for key in mutants if key in outcomes}
        self.objections += objections(module, states, mutants)
        counts = ", ".join(f"{number} {state}" for state, number in sorted(Counter(states.values()).items()))
        took = f"{time.perf_counter() - begun:.0f} s"
        print(f"== {module}: {len(states)} of {len(mutants)} mutants, {counts}; {took}", flush=True)

    def _chosen(self, tests: Sequence[str], seconds: Mapping[str, float]) -> list[str]:
        """Return the quickest of some tests, as many as there is time for, and of each first one set of arguments."""
        chosen, total = [], 0.0
        turns: Counter[str] = Counter()
        order = []
        for test in sorted(tests, key=seconds.__getitem__):
            function = test.partition("[")[0]
            order.append((turns[function], seconds[test], test))
            turns[function] += 1
        for _, took, test in sorted(order):
            if took <= self.longest and (total + took <= self.most or not chosen):
                total += took
                chosen.append(test)
        return chosen

    def _run(
        self,
        session: pytest.Session,
        mutant: Mutant,
        items: Sequence[pytest.Item],
        live: Mapping[tuple[str, str], list[FunctionType]],
        expected: float,
    ) -> tuple[str, str]:
        current = FOLDER / "current"

        def run() -> None:
            current.write_text("it cannot be switched on")
            try:
                switch_on(mutant, live)
            except ValueError:  # a change that drops the use of super() changes what the code closes over
                os._exit(2)
            for item in items:
                current.write_text(item.nodeid)
                run_test(item)
                if session.testsfailed:
                    os._exit(1)

        original = mutant.path.read_text()
        try:
            state = in_child(run, PATIENCE + SLOWER * expected)
        finally:
            mutant.path.write_text(original)
        if state == 0:
            return "survived", ""
        states = {None: "out of time", -signal.SIGXCPU: "out of time", 2: "not run"}
        return states.get(state, "killed"), current.read_text()


def run_test(item: pytest.Item) -> None:
    item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)


def in_child(run: Callable[[], None], limit: float | None) -> int | None:
    """Call a function in a child process; return its exit code, or None where it was stopped."""
    start = time.perf_counter()
    child = os.fork()
    if child == 0:
        try:
            os.setpgrp()
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # dies with its parent
            if limit is not None:
                resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(limit), math.ceil(limit) + 1))
                quiet = os.open(os.devnull, os.O_WRONLY)
                os.dup2(quiet, 1)
                os.dup2(quiet, 2)
            run()
            os._exit(0)
        except BaseException as problem:
            print(f"{type(problem).__name__}: {problem}", file=sys.stderr)
        finally:
            os._exit(3)
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if limit is not None and time.perf_counter() - start > 20 * limit:  # waits, and uses no processor
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return None
        time.sleep(0.002)


def modules_named(names: Sequence[str]) -> list[str]:
    """Return the modules of packages, and modules that are named themselves."""
    modules = []
    for name in names:
        folder = PACKAGE / name.replace(".", "/")
        found = (
            sorted(path.stem for path in folder.glob("*.py") if path.stem != "__init__") if folder.is_dir() else []
        )
        modules += [f"{name}.{stem}" for stem in found] or [name]
    return modules


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "names", nargs="*", default=["ledger", "accounting", "queries", "curator"], help="packages or modules"
    )
    parser.add_argument("--tests", nargs="*", help="names of test files, if not those of the package")
    parser.add_argument("--longest", type=float, default=LONGEST, help="seconds of a test that is not left out")
    parser.add_argument("--most", type=float, default=MOST, help="seconds of the tests of one mutant")
    parser.add_argument("--recorded", type=float, default=math.inf, help="seconds of the tests that are tried at all")
    parser.add_argument(
        "--survivors", action="store_true", help="those that survived; with --go-on also those not run yet"
    )
    parser.add_argument("--every", type=int, default=1, help="3 for every third mutant")
    parser.add_argument("--first", type=int, default=0, help="the mutant to begin with, 1 for the second one")
    parser.add_argument("--go-on", action="store_true", help="go on with a run that was stopped")
    options = parser.parse_args()
    if not os.environ.get("MUTANTS_SOURCES"):
        shutil.rmtree(SOURCES, ignore_errors=True)
        shutil.copytree(HOME / "src", SOURCES, ignore=shutil.ignore_patterns("__pycache__"))
        environment = os.environ | {
            "MUTANTS_SOURCES": str(SOURCES),
            "PYTHONPATH": str(SOURCES),
            "PYTHONDONTWRITEBYTECODE": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }
        return subprocess.run([sys.executable, *sys.argv], env=environment, cwd=HOME).returncode
    modules = modules_named(options.names)
    chosen = options.tests or sorted({test for module in modules for test in TESTS[module.partition(".")[0]]})
    runner = Runner(modules, options)
    code = pytest.main(
        [
            *(str(next((HOME / "tests").rglob(f"test_{name}.py"))) for name in chosen),
            *("-q", "-s", "--assert=plain", "--tb=native", "--show-capture=no"),
            *(f"-pno:{plugin}" for plugin in ("cacheprovider", "logging", "faulthandler", "xdist")),
            f"--basetemp={FOLDER / 'tmp'}",
        ],
        plugins=[runner],
    )
    for objection in runner.objections:
        print(objection)
    return int(code) or bool(runner.objections)


if __name__ == "__main__":
    raise SystemExit(main())
