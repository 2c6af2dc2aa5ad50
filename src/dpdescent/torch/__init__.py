"""Private training of PyTorch modules: give a module, a data set, a loss for each row and (epsilon, delta).

`fit` trains a module, `DPModuleClassifier` does so as a scikit-learn estimator, and `PrivateTraining` gives noisy
gradients to a loop of your own. All hold to one rule: the data set belongs to `PrivateTraining`, which charges a
ledger before it reads a row and returns nothing but noised answers.
"""

try:
    import torch as _torch  # noqa: F401
except ImportError:
    from ..errors import MissingPackage

    raise MissingPackage(
        "dpdescent.torch needs PyTorch: pip install 'dpdescent[torch]', or torch alone from "
        "https://download.pytorch.org/whl/cpu for its smaller build"
    ) from None

from .classifier import DPModuleClassifier as DPModuleClassifier
from .module_fit import TrainingResult as TrainingResult, fit as fit, resumable_steps as resumable_steps
from .row_forms import PaddedRows as PaddedRows
from .step_rules import StepRecord as StepRecord
from .training import PrivateTraining as PrivateTraining
