"""What commands print and write: lines on the screen, privacy statements, JSON files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.text import Text

__all__ = ["complain", "out", "print_privacy", "say", "write_json"]

out = Console(highlight=False)


def say(text: str) -> None:
    """Print a line of text as it is, however wide the screen."""
    out.print(text, soft_wrap=True, markup=False)


def complain(title: str, text: str) -> None:
    """Print one line on standard error, its title in red."""
    Console(stderr=True, highlight=False).print(Text.assemble((title, "bold red"), ": ", text), soft_wrap=True)


def print_privacy(privacy: dict[str, Any]) -> None:
    """Print a privacy statement: the guarantee, how much of it is spent, and on what."""
    say(
        f"({privacy['epsilon']:g}, {privacy['delta']:g})-differential privacy for {privacy['unit']}, "
        f"relation {privacy['relation']}; spent {privacy['spent'] / privacy['budget']:.1%} of the budget"
    )
    for kind, count in privacy["mechanisms"].items():
        say(f"  {count:5d} x {kind}")
    sampled = privacy.get("sampler_error")
    if sampled and not sampled["within_delta"]:
        say(f"the samplers' own error adds at most {sampled['delta']:.3g} to delta")
    if "randomness" in privacy:
        say(f"randomness: {privacy['randomness']}")


def write_json(path: Path | None, data: dict[str, Any]) -> None:
    """Write plain data as JSON, if a file was asked for."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(data, indent=1, default=_plain) + "\n")


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is not plain data")
