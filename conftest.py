"""What is collected where an optional package is absent, and how many threads a test has."""

import sys
from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("torch") else ["src/dpdescent/torch/*"]


def pytest_collection_finish() -> None:
    """Leave the other processors to the tests that run beside this one: threads of torch wait for them busily."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)
