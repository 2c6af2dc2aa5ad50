"""The mutants that may live: `survivors.txt` has one of them in a line, with the letter of the argument for it.

A line is `letter module function: old -> new`. The arguments stand in `docs/mutants.md`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mutations import HOME

LIST = HOME / "tests" / "survivors.txt"


def listed(module: str) -> dict[tuple[str, str], str]:
    """Return the letters of the survivors of a module by their functions and changes."""
    letters = {}
    for line in LIST.read_text().splitlines():
        letter, name, rest = line.split(" ", 2)
        function, change = rest.split(": ", 1)
        if name == module:
            letters[function, change] = letter
    return letters


def objections(
    module: str, states: Mapping[tuple[str, str], str], all_mutants: Iterable[tuple[str, str]]
) -> list[str]:
    """Return what the list lacks after a run, and what it names that is none of the mutants of a module any more."""
    letters = listed(module)
    alive = [key for key, state in states.items() if state in ("survived", "not reached")]
    gone = letters.keys() - set(all_mutants)
    return [
        *(
            f"not listed: {module} {function}: {change}"
            for function, change in alive
            if (function, change) not in letters
        ),
        *(f"no mutant: {module} {function}: {change}" for function, change in sorted(gone)),
    ]
