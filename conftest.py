"""What is collected where an optional package is absent."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("torch") else ["src/dpdescent/torch/*"]
