"""Comparisons of methods on the same folds and budgets, and the figures of the papers rerun."""

from .cells import Curve, Row, Task
from .runner import Journal, run
from .study import Record, Study, curves_of

__all__ = ["Curve", "Journal", "Record", "Row", "Study", "Task", "curves_of", "run"]
