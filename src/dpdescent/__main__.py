"""``python -m dpdescent`` is the command ``dpdescent``."""

from .cli import main

main()
