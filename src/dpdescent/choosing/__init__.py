"""The price of trying: choose among private models under one stated budget.

People try several settings and several models. Every fit is a release of its own, and a choice by scores that were
computed without noise is one more, for which nobody has paid. `select` fits all candidates and chooses among them
under one (epsilon, delta).

``plan`` decides by public numbers how candidates are tried, and scores them on rows that trained none of them;
``choice`` is what people call.
"""

from .choice import Selection as Selection, select as select
