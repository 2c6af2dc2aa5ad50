"""How a model shows itself to people: what it promises and where its budget went, as text and in a notebook.

All of it follows from the statement and from released effects, which are public.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from typing import Any

from ..display import HtmlPage, printable
from ..errors import UnsupportedModel
from ..statement import Effects, PrivacyStatement, headline, page_of, text_of
from ..statement.meaning import where_it_went
from .base import PrivateLinearModel
from .saved_models import SavedModel


@dataclass(frozen=True)
class Explanation:
    """What a model guarantees, in words: prints as text, and shows itself as a page in a notebook."""

    statement: PrivacyStatement
    #: The effects of a model whose noise is known.
    effects: Effects | None = field(default=None, repr=False)

    @classmethod
    def of_model(cls, model: Any) -> Explanation:
        """Return what a fitted model says of itself."""
        effects = None
        if isinstance(model, PrivateLinearModel):
            names = getattr(model, "feature_names_in_", [f"x{column}" for column in range(model.n_features_in_)])
            try:
                effects = SavedModel.from_estimator(model, [str(name) for name in names]).effects()
            except UnsupportedModel:  # what its loss makes of effects, nobody here can say
                effects = None
        return cls(PrivacyStatement.from_dict(model.privacy_), effects)

    def __str__(self) -> str:
        return printable("\n".join(text_of(self.statement, self.effects)), keep="\n")

    def __repr__(self) -> str:
        return str(self)

    def to_html(self) -> HtmlPage:
        """Return the page; it loads nothing."""
        return HtmlPage(page_of(self.statement, self.effects))

    def _repr_html_(self) -> str:
        return self.to_html()._repr_html_()


def promise_of(privacy: Any) -> str:
    """Return the guarantee of a statement, and where its budget went, as a part of a page."""
    statement = PrivacyStatement.from_dict(privacy)
    spent = "".join(f"<li>{share:.0%} {escape(name)}</li>" for name, share in where_it_went(statement))
    went = f"<details><summary>Where the budget went</summary><ul>{spent}</ul></details>" if spent else ""
    return printable(f"<p><strong>{escape(headline(statement))}</strong></p>{went}", keep="\n")
