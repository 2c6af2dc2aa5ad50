"""What one fit shows of its epsilon: python benchmarks/one_fit.py [CANARIES]. Adult, epsilon 4, delta 1e-6."""

from __future__ import annotations

import sys

import numpy as np
from scipy import sparse

from dpdescent import load_dataset
from dpdescent.audit import audit_one_fit

# With a small clip norm a canary, of length 1, moves every sum as far as any row may.
DESCENT = {"clip_gradient": 0.1, "steps": 50, "sampling_rate": 1.0}
SETTINGS = {"auto": {"clip": 0.02}, "sgd": DESCENT, "adam": DESCENT}


def main() -> None:
    canaries = int(sys.argv[1]) if len(sys.argv) > 1 else 8192
    data = load_dataset("adult")
    cells = data.X.toarray() if sparse.issparse(data.X) else np.asarray(data.X)
    low, high = (np.broadcast_to(end, cells.shape[1]) for end in data.bounds)
    base = sparse.csr_array(np.clip(cells, low, high) / np.maximum(np.abs(low), np.abs(high)))
    labels = np.where(np.asarray(data.y) == data.classes[1], 1.0, -1.0)
    for method, options in SETTINGS.items():
        report = audit_one_fit(
            method, epsilon=4.0, delta=1e-6, canaries=canaries, base=base, labels=labels, options=options, seed=1
        )
        print(
            f"{method}: epsilon at least {report.lower_bound:.2f} of 4 with confidence {report.confidence:.0%}, "
            f"from one fit of {len(labels):,} rows of Adult; {report.test}; as (epsilon, delta)-DP alone "
            f"{report.lower_bounds['approximate']:.2f}; {report.seconds:.0f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
