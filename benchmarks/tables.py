"""All tables about `auto` by one command: curves, few rows, bounds, several classes, wide and sparse rows.

Each part is a benchmark of its own (``benchmarks/curves.py`` and so on, which have more options) and prints means
with standard errors. ``--quick`` takes fewer folds and seeds and leaves out the oracle of several classes. With
``--interpret PYTHON``, an environment that has InterpretML, its DP-EBM is run as well (``other_libraries.py``).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

PARTS = {
    "curves": (["--folds", "5"], ["--quick"]),
    "few_rows": (["--repeats", "10"], ["--repeats", "2", "--effective-rows", "45,150,300"]),
    "bounds": (["--folds", "3"], ["--folds", "1"]),
    "classes": (["--seeds", "3"], ["--seeds", "2", "--without-oracle"]),
    "sparse": (["--seeds", "3"], ["--seeds", "2"]),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help=f"some of {', '.join(PARTS)}; all by default")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--interpret", metavar="PYTHON", help="run DP-EBM too, by this Python")
    parser.add_argument("--folder", type=Path, help="also write the measurements there, a JSON file for each part")
    asked = parser.parse_args()
    here = Path(__file__).parent
    for part in asked.parts or PARTS:
        if part not in PARTS:
            parser.error(f"there is no part {part!r}: choose among {', '.join(PARTS)}")
        command = [sys.executable, str(here / f"{part}.py"), *PARTS[part][asked.quick]]
        if asked.folder is not None:
            asked.folder.mkdir(parents=True, exist_ok=True)
            command += ["--json", str(asked.folder / f"{part}.json")]
        print(f"== {part}", flush=True)
        subprocess.run(command, check=True)
    if asked.interpret:
        print("== other libraries", flush=True)
        subprocess.run([sys.executable, str(here / "other_libraries.py"), "--interpret", asked.interpret], check=True)


if __name__ == "__main__":
    main()
