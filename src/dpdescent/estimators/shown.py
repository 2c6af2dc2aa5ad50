"""How a model shows itself to people: what it promises and where its budget went, as text and in a notebook.

All of it follows from the statement, which is public.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from typing import Any

from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from ..display import HtmlPage, printable
from ..statement import Effects, PrivacyStatement, headline, page_of, text_of
from ..statement.meaning import where_it_went


@dataclass(frozen=True)
class Explanation:
    """What a model guarantees, in words: prints as text, and shows itself as a page in a notebook.

    Parameters
    ----------
    statement : PrivacyStatement
    effects : Effects, optional
        The effects of a model whose noise is known.
    """

    statement: PrivacyStatement
    effects: Effects | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return printable("\n".join(text_of(self.statement, self.effects)), keep="\n")

    def __repr__(self) -> str:
        return str(self)

    def to_html(self) -> HtmlPage:
        """Return the page; it loads nothing."""
        return HtmlPage(page_of(self.statement, self.effects))

    def _repr_html_(self) -> str:
        return self.to_html()._repr_html_()


class ShownEstimator(BaseEstimator):  # type: ignore[misc]
    """An estimator that explains itself once it is fitted."""

    def explain(self) -> Explanation:
        """Say what the fitted model guarantees: what was released, what epsilon means, and where the budget went.

        It costs no privacy. `dpdescent explain` says the same about a model file.

        Returns
        -------
        Explanation
            Prints as text, and shows itself as a page in a notebook; `Explanation.to_html` returns the page.

        Examples
        --------
        >>> from dpdescent import DPLogisticRegression, load_dataset
        >>> data = load_dataset("synthetic", n=2000)
        >>> model = DPLogisticRegression(1.0, 1e-6, bounds=data.bounds, classes=data.classes).fit(data.X, data.y)
        >>> print(str(model.explain()).splitlines()[0])
        (1, 1e-06)-differentially private for one row under zero-out.
        """
        check_is_fitted(self)
        return Explanation(PrivacyStatement.from_dict(self.privacy_), self._shown_effects())

    def _shown_effects(self) -> Effects | None:
        """Return the effects of the model with their noise, where it is known."""
        return None

    def _repr_html_inner(self) -> str:
        return str(super()._repr_html_inner()) + self._promise()

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        bundle: dict[str, Any] = super()._repr_mimebundle_(**kwargs)
        return bundle | ({"text/html": bundle["text/html"] + self._promise()} if "text/html" in bundle else {})

    def _promise(self) -> str:
        """Return the guarantee and where the budget went as HTML, nothing before a fit."""
        if not hasattr(self, "privacy_"):
            return ""
        statement = PrivacyStatement.from_dict(self.privacy_)
        spent = "".join(f"<li>{share:.0%} {escape(name)}</li>" for name, share in where_it_went(statement))
        went = f"<details><summary>Where the budget went</summary><ul>{spent}</ul></details>" if spent else ""
        return printable(f"<p><strong>{escape(headline(statement))}</strong></p>{went}", keep="\n")
