"""Public features: fixed functions of a row that need no privacy budget, because nothing about them is learnt."""

from .images import ImageEnergies

__all__ = ["ImageEnergies"]
