"""The earlier name of what `dpdescent.lab` holds of comparisons, for code that imports it from here."""

from .lab.fold_fits import Curve, Row, Task
from .lab.study import Record, Study, curves_of, run
from .long_runs import Journal

__all__ = ["Curve", "Journal", "Record", "Row", "Study", "Task", "curves_of", "run"]
