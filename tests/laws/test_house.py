"""The size of the house, and its picture: what `python tests/house.py` prints can grow on purpose alone."""

from __future__ import annotations

import re
from pathlib import Path

import house
from dpdescent import old_names

PAGE = Path(__file__).parents[2] / "ARCHITECTURE.md"
MOST_MODULES, MOST_LINES, MOST_LOADED = 249, 66_900, 119
LONGEST, MOST_PATHS = 60, 20


def test_the_house_grows_on_purpose_alone() -> None:
    assert len(house.modules()) <= MOST_MODULES
    assert house.lines() <= MOST_LINES
    assert house.loaded() <= MOST_LOADED


def test_no_function_is_too_long_to_be_read_alone() -> None:
    assert {place for place, length, paths in house.functions() if length > LONGEST or paths > MOST_PATHS} == set()


def test_no_two_modules_share_a_name() -> None:
    assert house.shared_names() == {}
    assert not {path.stem for path in house.modules()} & set(old_names.EARLIER)


def test_the_page_names_modules_and_packages_that_there_are() -> None:
    page = PAGE.read_text()
    named = set(re.findall(r"`([a-z_]+/[a-z_]+)`", page))
    assert len(named) > 50
    assert {name for name in named if not (house.SOURCES / f"{name}.py").exists()} == set()
    picture = page.split("```")[1]
    rooms = {path.name for path in house.SOURCES.iterdir() if (path / "__init__.py").exists()}
    assert {room for room in rooms if not re.search(rf"\b{room}\b", picture)} == set()
