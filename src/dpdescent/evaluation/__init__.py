"""What a model is worth, under differential privacy: accuracy on sensitive rows is itself a release.

`evaluate` pays for one noisy histogram of scores by class. From that follow the accuracy, the confusion matrix, the
area under the curve, the curves themselves, calibration, and any threshold, each with an interval that covers both
the noise of privacy and the draw of the rows. Numbers and counts get means of clipped errors.

``row_sums`` says what is summed over rows and how much one row can change it, and ``scoring`` how rows get scores
that depend on no other row. ``score_counts`` and ``measures`` compute from released numbers alone. ``report`` is the
document that is returned, ``drift`` compares two of them, and ``evaluation_page`` shows one; ``one_budget`` fits and
evaluates under one guarantee, one model or several.
"""

from .drift import Drift as Drift, drift_between as drift_between
from .evaluating import evaluate as evaluate
from .evaluation_page import page_of_evaluation as page_of_evaluation
from .measures import Measure as Measure
from .one_budget import Fitted as Fitted, fit_and_evaluate as fit_and_evaluate, optimism as optimism
from .report import Evaluation as Evaluation, Threshold as Threshold
