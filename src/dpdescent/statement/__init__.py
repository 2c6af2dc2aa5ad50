"""The privacy statement of a model: a typed, versioned document, and what it means to a person.

``document`` holds the statement, whose format is `privacy-statement.schema.json`; ``files`` reads and writes what
must not have been changed, and ``validation`` checks plain data by a schema. ``headline`` makes the sentence that is
the first one everywhere, ``meaning`` computes what a guarantee is worth to an attacker, and ``effects`` tells effects
of a model from its noise; ``text`` and ``page`` show all of it.
"""

from .agreement import with_nulls
from .charges import ALL_ROWS, Charge, charges_of
from .document import PrivacyStatement
from .effects import Effect, Effects
from .files import FileKind
from .headline import guarantee, headline
from .origins import Origin, exceptions_noted, moved, name_of, public_fact
from .page import page_of
from .text import text_of
from .validation import load_schema, objection

__all__ = [
    "ALL_ROWS",
    "Charge",
    "Effect",
    "Effects",
    "FileKind",
    "Origin",
    "PrivacyStatement",
    "charges_of",
    "exceptions_noted",
    "guarantee",
    "headline",
    "load_schema",
    "moved",
    "name_of",
    "objection",
    "page_of",
    "public_fact",
    "text_of",
    "with_nulls",
]
