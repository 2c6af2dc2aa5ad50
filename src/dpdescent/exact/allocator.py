"""The memory allocator of a process that works on blocks of rows, or on one batch after another.

Each of them needs several arrays of a megabyte or two. The allocator of glibc gives such memory back to the system
when it is freed, and to get its pages again takes about as long as sums over them. By and by it learns to keep
arrays of the length that it has seen, but never several of them; and Dask starts its workers with
``MALLOC_TRIM_THRESHOLD_=65536``, with which it learns nothing.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache

__all__ = ["keep_freed_memory"]

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # as malloc.h numbers them
_LARGEST_LEARNED = 2**25  # bytes of the longest array that glibc learns to keep


@cache
def keep_freed_memory() -> None:
    """Have this process keep what it frees for the next block, up to 64 megabytes for each thread.

    These are the largest limits that glibc comes to by itself. They stay for as long as the process lives. Another
    allocator is left alone, and so is one that is told by the environment how long an array is mapped on its own.
    """
    if "MALLOC_MMAP_THRESHOLD_" in os.environ:
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # not glibc
        return
    mallopt(_MMAP_THRESHOLD, _LARGEST_LEARNED)
    mallopt(_TRIM_THRESHOLD, 2 * _LARGEST_LEARNED)
