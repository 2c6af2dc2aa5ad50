"""The privacy statement of a model: a typed, versioned document, and what it means to a person.

``privacy_statement`` holds the statement, whose format is `privacy-statement.schema.json`, and what it is made of;
``sealed_files`` reads and writes what must not have been changed, and checks plain data by a schema. ``meaning``
makes the sentence that is the first one everywhere, computes what a guarantee is worth to an attacker, tells effects
of a model from its noise, and shows all of it in a terminal; ``statement_page`` is the page, made from
``page_parts``.
"""

from .meaning import UNSEEN_LEVEL, Effect, Effects, guarantee, headline, text_of
from .page_parts import BLUE, GREY, PALE, heading, html_page, listing, picture, table
from .privacy_statement import (
    ALL_ROWS,
    Charge,
    Origin,
    PrivacyStatement,
    charges_of,
    exceptions_noted,
    moved,
    name_of,
    public_fact,
)
from .sealed_files import FileKind, load_schema, objection, with_nulls
from .statement_page import page_of

__all__ = [
    "ALL_ROWS",
    "BLUE",
    "GREY",
    "PALE",
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
    "heading",
    "headline",
    "html_page",
    "listing",
    "load_schema",
    "moved",
    "name_of",
    "objection",
    "page_of",
    "picture",
    "public_fact",
    "table",
    "text_of",
    "with_nulls",
]
