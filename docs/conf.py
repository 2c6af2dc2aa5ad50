"""The manual: `make docs` builds it, and every warning is an error."""

from __future__ import annotations

import sys
from inspect import getmodule
from pathlib import Path
from typing import Any

import dpdescent

sys.path.insert(0, str(Path(__file__).parent))

from versions import folder_of

project = "dpdescent"
author = "The dpdescent engineers"
copyright = "the dpdescent engineers, Apache-2.0"  # noqa: A001
version = release = dpdescent.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "numpydoc",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "gallery/*.rst", "gallery/*.py"]
templates_path = ["_templates"]
suppress_warnings = ["config.cache"]  # sort keys of the gallery are functions

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

autosummary_generate = True
autodoc_typehints = "none"
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
default_role = "code"
toc_object_entries_show_parents = "hide"  # long names would be cut off beside the page

sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "pictures",
    "filename_pattern": r"/plot_",
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "show_memory": False,
    "min_reported_time": 0,
    "show_signature": False,
    "abort_on_example_error": True,
}

html_theme = "pydata_sphinx_theme"
html_title = "dpdescent"
html_static_path = ["_static"]
html_css_files = ["manual.css"]
html_js_files = ["version-choice.js"]
html_context = {
    "manual_folder": folder_of((Path(__file__).parents[1] / "CHANGELOG.md").read_text(encoding="utf-8")),
}
html_show_sourcelink = False
html_theme_options = {
    "logo": {"text": "dpdescent"},
    "show_nav_level": 1,
    "navigation_with_keys": False,
    "navbar_end": ["version-choice.html", "theme-switcher.html", "navbar-icon-links.html"],
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "show_prev_next": True,
}
html_sidebars = {"index": [], "comparison": [], "contributing": []}


def skip_inherited(_app: Any, _what: str, name: str, member: Any, skip: bool, _options: Any) -> bool:
    """Leave out what scikit-learn defines or generates: its own manual describes it."""
    module = getmodule(member)
    foreign = module is not None and not module.__name__.startswith("dpdescent")
    return skip or foreign or name.endswith("_request")


def setup(app: Any) -> None:
    """Connect the hook of this file."""
    app.connect("autodoc-skip-member", skip_inherited)
