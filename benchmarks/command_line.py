"""Processor time of commands that only show something: help, the version, completion of a word."""

from __future__ import annotations

import os
import resource
import subprocess
import sys

from dpdescent.cli import commands

COMMANDS = {
    "--help": {},
    "--version": {},
    **{f"{command.name} --help": {} for command in commands.COMMANDS},
    "completion of a command": {
        "_DPDESCENT_COMPLETE": "complete_bash",
        "COMP_WORDS": "dpdescent pre",
        "COMP_CWORD": "1",
    },
}
PROGRAM = "from dpdescent.cli import main; main()"
LIMIT = 0.5


def seconds(*arguments: str, **environment: str) -> float:
    """Return the processor time of a run of the command, its children included."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        env=os.environ | environment,
        stdout=subprocess.DEVNULL,
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    slow = []
    for name, environment in COMMANDS.items():
        best = min(seconds(*([] if environment else name.split()), **environment) for _ in range(3))
        print(f"{name:<26} {best:5.2f} s of processor time")
        if best > LIMIT:
            slow.append(name)
    if slow:
        sys.exit(f"above {LIMIT} s: {', '.join(slow)}")


if __name__ == "__main__":
    main()
