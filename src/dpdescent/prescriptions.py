"""The earlier name of the theorems in `dpdescent.lab.output_perturbation_paper`, for code that imports them here."""

from .lab.output_perturbation_paper.theorems import (
    Constants,
    Prescription,
    exponential_bound,
    lower_bound,
    prescription,
    tilted_prescription,
)

__all__ = ["Constants", "Prescription", "exponential_bound", "lower_bound", "prescription", "tilted_prescription"]
