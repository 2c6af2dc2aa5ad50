"""The privacy statement of a training."""

from __future__ import annotations

from torch import nn

from ..ledger import Ledger
from ..statement import Origin, PrivacyStatement, public_fact
from .plan import Plan

__all__ = ["training_statement"]

_ARITHMETIC = (
    "gradients are in the precision of the module, each at a place of its batch that is its own, so that no other "
    "row changes its rounding; lengths are in float64; the noise is 2^-9 larger, for the rounding of sums, and is "
)


def training_statement(
    module: nn.Module,
    method: str,
    plan: Plan,
    ledger: Ledger,
    account: Ledger | None,
    *,
    parameters: int,
    gradients: str,
    randomness: str,
    noise: str,
    rows: str | None = None,
) -> PrivacyStatement:
    """Return the statement of a training by its plan, and by the ledger that has paid for it."""
    return PrivacyStatement.of_ledger(
        ledger,
        model=type(module).__name__,
        method=method,
        randomness=randomness,
        arithmetic=_ARITHMETIC + ("exact" if noise == "exact" else "in floating point"),
        released=(f"parameters of the module: {parameters} numbers", "step sizes and lengths of noisy gradients"),
        assumed_public=(
            public_fact("the number of rows", str(plan.sampling.rows), Origin.RELATION),
            public_fact("dataset", "the shape and the type of a row", Origin.ARGUMENT),
            public_fact("module", "its kind, its initial parameters and its buffers", Origin.ARGUMENT),
        ),
        remarks=(f"gradients of rows by {gradients}", *([] if rows is None else [rows])),
        account=None if account is None else account.identity,
        steps=plan.steps,
        sampling_rate=plan.sampling.rate,
        noise_multiplier=plan.noise_multiplier,
        clip_norm=plan.clipping.bound,
    )
