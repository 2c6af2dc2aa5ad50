"""The privacy statement of a model: a typed, versioned document, and what it means to a person.

``privacy_statement`` holds the statement, whose format is `privacy-statement.schema.json`, and ``statement_parts``
what it is made of; ``sealed_files`` reads and writes what must not have been changed, and checks plain data by a
schema. ``meaning`` makes the sentence that is the first one everywhere, and computes what a guarantee is worth to an
attacker; ``visible_effects`` tells effects of a model from its noise; ``statement_text`` and ``statement_page`` show
all of it.
"""

from .meaning import guarantee, headline
from .privacy_statement import PrivacyStatement
from .sealed_files import FileKind, load_schema, objection, with_nulls
from .statement_page import page_of
from .statement_parts import ALL_ROWS, Charge, Origin, charges_of, exceptions_noted, moved, name_of, public_fact
from .statement_text import text_of
from .visible_effects import UNSEEN_LEVEL, Effect, Effects

__all__ = [
    "ALL_ROWS",
    "UNSEEN_LEVEL",
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
