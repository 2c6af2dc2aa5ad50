"""Earlier names of modules, for code that imports them: each stands for names that are elsewhere now.

``import dpdescent`` lets Python find these modules. Their names are looked up when they are first used.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_PAPER = "lab.output_perturbation_paper.theorems"

#: For each earlier module: which names it had, by where they are.
EARLIER = {
    "encoding": {
        "tables": "MISSING UNKNOWN BoundedEncoder bucket_codes date_values day_numbers level_codes levels_of_text "
        "numeric_values scale_columns"
    },
    "excess_risk": {_PAPER: "ExcessRiskBound excess_risk_bound", "solvers": "price_of_privacy regularisation"},
    "experiments": {
        "lab.fold_fits": "Curve Row Task",
        "lab.study": "Record Study curves_of run",
        "long_runs": "Journal",
    },
    "prescriptions": {
        _PAPER: "Constants Prescription exponential_bound lower_bound prescription tilted_prescription"
    },
    "schema": {
        "tables": "FILL_IN CategoricalColumn Column DateColumn FileFormat HashedColumn IgnoredColumn Label "
        "NumericColumn Schema SchemaDraft Unit draft_schema json_schema read_document"
    },
    "sources": {
        "tables": "DaskEngine DaskTable MappedArrays ParquetTable StreamedTable is_long_text is_parquet "
        "is_parquet_group open_parquet parquet_files stream_text streamed"
    },
}


class _EarlierModules(MetaPathFinder, Loader):
    """Finds the modules of `EARLIER`, and fills them with their names."""

    def find_spec(self, fullname: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        package, _, name = fullname.rpartition(".")
        return ModuleSpec(fullname, self) if package == __package__ and name in EARLIER else None

    def exec_module(self, module: ModuleType) -> None:
        places = EARLIER[module.__name__.rpartition(".")[2]]
        homes = {name: home for home, names in places.items() for name in names.split()}

        def look_up(name: str) -> Any:
            if name not in homes:
                raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
            return getattr(import_module(f".{homes[name]}", __package__), name)

        vars(module).update(
            __doc__=f"An earlier name of what is in {', '.join(places)} now.",
            __all__=sorted(homes),
            __getattr__=look_up,
        )


def find_earlier_modules() -> None:
    """Let Python find the modules of `EARLIER`, after all that there is in files."""
    if not any(type(finder).__name__ == _EarlierModules.__name__ for finder in sys.meta_path):
        sys.meta_path.append(_EarlierModules())
