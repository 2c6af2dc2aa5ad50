"""The privacy statement of a model: a typed, versioned document, and what it means to a person.

``privacy_statement`` holds the statement, whose format is `privacy-statement.schema.json`, and what it is made of;
``sealed_files`` reads and writes what must not have been changed, and checks plain data by a schema. ``meaning``
makes the sentence that is the first one everywhere, computes what a guarantee is worth to an attacker, tells effects
of a model from its noise, and shows all of it in a terminal; ``statement_page`` is the page, and has the parts of
pages.
"""

from typing import TYPE_CHECKING

from ..lazy_names import lazy_names

if TYPE_CHECKING:
    from .meaning import (
        UNSEEN_LEVEL as UNSEEN_LEVEL,
        Effect as Effect,
        Effects as Effects,
        InferredEffects as InferredEffects,
        guarantee as guarantee,
        headline as headline,
        text_of as text_of,
    )
    from .privacy_statement import (
        ALL_ROWS as ALL_ROWS,
        Charge as Charge,
        Origin as Origin,
        PrivacyStatement as PrivacyStatement,
        charges_of as charges_of,
        exceptions_noted as exceptions_noted,
        moved as moved,
        name_of as name_of,
        public_fact as public_fact,
    )
    from .sealed_files import (
        FileKind as FileKind,
        load_schema as load_schema,
        objection as objection,
        with_nulls as with_nulls,
    )
    from .statement_page import (
        BLUE as BLUE,
        GREY as GREY,
        PALE as PALE,
        heading as heading,
        html_page as html_page,
        listing as listing,
        page_of as page_of,
        picture as picture,
        table as table,
    )

__all__, __getattr__ = lazy_names(
    __name__,
    {
        "meaning": "UNSEEN_LEVEL Effect Effects InferredEffects guarantee headline text_of",
        "privacy_statement": "ALL_ROWS Charge Origin PrivacyStatement charges_of exceptions_noted moved name_of "
        "public_fact",
        "sealed_files": "FileKind load_schema objection with_nulls",
        "statement_page": "BLUE GREY PALE heading html_page listing page_of picture table",
    },
)
