"""The trusted part: the curator, the sources of rows and the noise. It answers the queries of `dpdescent.queries`.

A solver reaches rows through `Curator.answer` alone. A query is a value (`dpdescent.queries.query`), so a solver can
hold neither rows nor noise. Every answer, also those that no curator gives, is charged for and gets its noise in
`dpdescent.curator.release`. The queries can be imported from here, too, as those who ask for answers do.
"""

from typing import TYPE_CHECKING, Any

from .. import queries
from ..lazy_names import lazy_names
from ..minimisers.risks import Source as Source
from .array_source import ArraySource as ArraySource, BinnedSource as BinnedSource, cached_blocks as cached_blocks
from .batches import Batch as Batch, Sampling as Sampling, batch_cost as batch_cost
from .blocks import (
    BlockSource as BlockSource,
    Computed as Computed,
    Engine as Engine,
    PartWork as PartWork,
    PlacedBlocks as PlacedBlocks,
    RowBlocks as RowBlocks,
    Threads as Threads,
)
from .curator import Curator as Curator, sum_without_privacy as sum_without_privacy
from .kept_rows import Marks as Marks, Seals as Seals, marks as marks, new_digest as new_digest
from .lattice_noise import LatticeNoise as LatticeNoise
from .units import Units as Units

if TYPE_CHECKING:
    from .caller_functions import (
        drawn_minimiser as drawn_minimiser,
        perturbed_minimiser as perturbed_minimiser,
        perturbed_saddle_point as perturbed_saddle_point,
        phased_minimiser as phased_minimiser,
    )
else:
    _, _own = lazy_names(
        __name__, {"caller_functions": "drawn_minimiser perturbed_minimiser perturbed_saddle_point phased_minimiser"}
    )

    def __getattr__(name: str) -> Any:
        # Whoever asks for answers may import queries from here, and by the name that they had.
        earlier = {"Question": "Query", "QUESTIONS": "QUERIES"}.get(name, name)
        return getattr(queries, earlier) if hasattr(queries, earlier) else _own(name)
