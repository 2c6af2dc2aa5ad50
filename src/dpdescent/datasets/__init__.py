"""Public data sets, the caller's own files, and a built-in synthetic table."""

from .record import Dataset, DatasetInfo
from .registry import list_datasets, load_dataset

__all__ = ["Dataset", "DatasetInfo", "list_datasets", "load_dataset"]
