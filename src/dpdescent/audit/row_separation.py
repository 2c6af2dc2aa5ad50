"""Whether a PyTorch module keeps the rows of a batch apart, as a private training of it needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import RowDependence, require_positive_integer

if TYPE_CHECKING:
    from torch import Tensor, nn

_WAYS = {
    "RecordedGradients": "side by side, in one pass",
    "MappedGradients": "each as a batch of its own, by torch.func",
    "LoopedGradients": "one after the other",
}


@dataclass(frozen=True)
class RowSeparation:
    """What was found of a module. It is true in a condition if no trial has shown that rows are mixed.

    Parameters
    ----------
    mixing : str or None
        In which trial one row changed what belongs to another, or why the module is refused.
    trained : str or None
        How `dpdescent.torch` computes the gradients of rows, or None if it refuses the module.
    """

    mixing: str | None
    trained: str | None

    def __bool__(self) -> bool:
        return self.mixing is None

    def __str__(self) -> str:
        if self.trained is None:
            return f"the module is refused: {self.mixing}"
        found = (
            "no trial has shown that rows are mixed" if self.mixing is None else f"rows may be mixed: {self.mixing}"
        )
        return f"{found}. Rows are computed {self.trained}."


def rows_separate(
    module: nn.Module, dataset: Any, loss: Callable[[Tensor, Tensor], Tensor], *, most_rows: int = 1024
) -> RowSeparation:
    """Try on public rows whether a module and a loss keep the rows of a batch apart, in the mode the module is in.

    Parameters
    ----------
    module : torch.nn.Module
        Left as it is.
    dataset : TensorDataset, pair of arrays, or map-style Dataset
        Gives the shapes and types of a row, as in `dpdescent.torch.fit`. What rows hold is not used.
    loss : callable
        Maps outputs and targets to one number for each row.
    most_rows : int
        The longest batch that is tried.

    Returns
    -------
    RowSeparation

    Notes
    -----
    **Privacy** The result depends on the module, the loss and the shapes of rows. It is a test and no proof: what is
    tried is listed in `dpdescent.torch.separation`. `dpdescent.torch` tries the same before it lets rows pass side by
    side. Wherever a trial fails it computes each row as a batch of its own, for which its guarantee holds whatever a
    module does with a batch; but such a row lacks the company it has elsewhere, and training is slower.

    Examples
    --------
    >>> import torch
    >>> from dpdescent.audit import rows_separate
    >>> rows = torch.zeros(100, 4), torch.zeros(100, dtype=torch.long)
    >>> loss = torch.nn.CrossEntropyLoss(reduction="none")
    >>> bool(rows_separate(torch.nn.Linear(4, 2), rows, loss))
    True
    >>> class Centred(torch.nn.Linear):
    ...     def forward(self, values):
    ...         return super().forward(values - values.mean(0) if len(values) > 7 else values)
    >>> rows_separate(Centred(4, 2), rows, loss).mixing
    'what belongs to a row changes with what other rows of 37 hold'
    """
    return _separate(module, dataset, loss, require_positive_integer("most_rows", most_rows))


def _separate(
    module: nn.Module, dataset: Any, loss: Callable[[Tensor, Tensor], Tensor], longest: int
) -> RowSeparation:
    from ..torch import module_checks as checks
    from ..torch.dataset_rows import DatasetRows
    from ..torch.gradient_choice import choose_gradients
    from ..torch.row_gradients import InputGradients
    from ..torch.separation import mixing

    try:
        rows = DatasetRows(dataset, checks.require_trainable(module, None))
        copied = checks.private_copy(module)
        with checks.silence_warnings(), checks.secret_randomness(0):
            probe = checks.choose_probe(copied, loss, rows.probes())
            checks.require_losses(copied, loss, probe)
            way = choose_gradients(copied, loss, probe, longest)
            found = mixing(InputGradients(copied, loss), probe, longest, branches=False)
    except RowDependence as refusal:
        return RowSeparation(str(refusal), None)
    return RowSeparation(found or way.mixing, _WAYS[type(way).__name__])
