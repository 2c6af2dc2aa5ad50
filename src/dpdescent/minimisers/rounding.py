r"""What is added to the bounds of this package so that floating point never makes one too small.

A floating-point operation has a relative error of at most u = 2^-53. The names below are multiples of u, or factors
that cover several operations:

===============  =========  =========================================================================================
name             size       what it covers
===============  =========  =========================================================================================
``UNIT``         u          one operation
``PROJECTION``   64 u       how far a computed projection onto a ball is from the true one, in units of the lengths
``PLACEMENT``    u/512      how far a point is from the sum of its two parts on the grid, in each coordinate and in
                            units of its length: 9.6 2^-66
``FEW``          1 + 2^-40  a product of a few public constants: 8,192 operations
``EXPONENTIAL``  1 + 2^-30  exp(x) for |x| up to 150, whose argument is wrong by some u: 2^-45
``MANY``         1 + 2^-20  a norm, or a sum of errors, over up to 2^32 numbers in any order
===============  =========  =========================================================================================
"""

from __future__ import annotations

__all__ = ["EXPONENTIAL", "FEW", "MANY", "PLACEMENT", "PROJECTION", "UNIT"]

UNIT = 2.0**-53
PROJECTION = 2.0**-47
PLACEMENT = 2.0**-62
FEW = 1 + 2.0**-40
EXPONENTIAL = 1 + 2.0**-30
MANY = 1 + 2.0**-20
