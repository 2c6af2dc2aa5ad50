"""Print the lowest versions that `pyproject.toml` allows, for pip: of what the package needs, and of what tests need.

What they need in turn is taken as new as it can be had, as an installation would; with the word `newest`, all of it.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

#: Groups of `pyproject.toml`, and which of the tools of developers the short suite runs with.
GROUPS = ("accounting", "plots", "scale")
TOOLS = ("hypothesis", "jsonschema", "mpmath", "pytest", "pytest-xdist")


def requirements(pyproject: Path, *, newest: bool = False) -> list[str]:
    """Return each requirement with its lowest version, or as it is."""
    project = tomllib.loads(pyproject.read_text())["project"]
    extras = project["optional-dependencies"]
    tools = [each for each in extras["dev"] if each.partition(">=")[0] in TOOLS]
    wanted = [*project["dependencies"], *(each for group in GROUPS for each in extras[group]), *tools]
    return sorted({each if newest else each.replace(">=", "==") for each in wanted})


if __name__ == "__main__":
    print("\n".join(requirements(Path(__file__).parents[1] / "pyproject.toml", newest="newest" in sys.argv[1:])))
