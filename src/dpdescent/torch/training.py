r"""The curator of a module: the only one who holds the data set, and what it answers.

A step draws a random batch and releases

.. math:: \tilde g = \frac{1}{qn}\Big(\sum_{i \in B} c_i g_i + z\Big), \qquad
          c_i = \min(1, C/|g_i|) \ \text{ or } \ 1/\max(|g_i|, s), \qquad z \sim N(0, \sigma^2 C^2 I),

with the gradient g_i of a row's loss, the public number of rows n and the sampling rate q. The second weight is a
form of automatic clipping (Bu et al. 2022), where C = 1 whatever the shortest length s is. All steps are one
`FixedSchedule`, charged before the first row is read.

**Arithmetic.** Gradients are computed in the precision of the module, and what a row adds does not depend on the rows
beside it, to the last bit (`dpdescent.torch.dataset_rows`). Lengths are computed in float64, so that a row is C long
at most but for 2^-30, and sums so that two tables that differ in one row have sums that differ by 2^-9 C more at most
(`dpdescent.torch.layers`). The sum is rounded to a lattice, for which the sensitivity grows by sqrt(d) of its units,
and the noise on it is exact (`dpdescent.noise`).

With ``epsilon=inf`` answers have no noise, for finding the mistakes of a model (`Noiseless`). NOT PRIVATE.

References
----------
Abadi, M. et al. (2016). Deep learning with differential privacy. arXiv:1607.00133.
Bu, Z., Wang, Y.-X., Zha, S. & Karypis, G. (2022). Automatic clipping: differentially private deep learning made
easier and stronger. arXiv:2206.07136.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from ..accounting import AboveThreshold
from ..arrays import Floats, Integers
from ..curator.batches import draw_rows
from ..curator.release import Paid, check, pay, public_count
from ..errors import BudgetExhausted, InvalidParameter, PrivacyWarning, require_positive
from ..estimators.arguments import seed_of
from ..estimators.payment import make_noise
from ..ledger import Ledger
from ..queries import Noised
from ..statement import Origin, PrivacyStatement, public_fact
from .correlated_noise import Cycle
from .dataset_rows import (
    BINS,
    DatasetRows,
    absence_told,
    clipped_sum,
    length_counts,
    loss_falls,
    on_lattice,
    typical_length,
)
from .failing_rows import Screen, failing_losses, sum_rows
from .gradient_choice import choose_gradients
from .module_checks import (
    choose_probe,
    private_copy,
    require_losses,
    require_trainable,
    secret_randomness,
    silence_warnings,
    surroundings,
)
from .row_gradients import Batch, Loss, seed_generators, trained_parameters, unchanged_buffers
from .training_plan import SHORTEST, Clipping, Plan, epsilon_of_noise, plan_training

_ARITHMETIC = (
    "gradients are in the precision of the module, each at a place of its batch that is its own, so that no other "
    "row changes its rounding; lengths are in float64; the noise is 2^-9 larger, for the rounding of sums, and is "
)


def _require_account(ledger: Ledger | None, epsilon: float | None) -> None:
    if ledger is not None and not isinstance(ledger, Ledger):
        raise InvalidParameter(f"ledger must be a Ledger, got a {type(ledger).__name__}: Ledger.open(path) opens one")
    if ledger is not None and epsilon == math.inf:
        raise InvalidParameter("epsilon=inf spends nothing of a ledger: leave ledger= out")


def _epsilon_of(
    epsilon: float | None, noise_multiplier: float | None, search_steps: int, public: dict[str, Any]
) -> float:
    """Return what a training guarantees, which is infinite for one without noise."""
    if noise_multiplier is not None:
        if epsilon is not None:
            raise InvalidParameter("noise_multiplier takes the place of epsilon: give one of them")
        if search_steps:
            raise InvalidParameter("noise_multiplier cannot pay for searches: give epsilon, or leave searches out")
        return epsilon_of_noise(noise_multiplier, **public)
    if epsilon is None:
        raise InvalidParameter("give epsilon, or noise_multiplier instead of it")
    if epsilon == math.inf:
        warnings.warn(WARNING, PrivacyWarning, stacklevel=3)
    return epsilon


def _bands_of(bands: int | None, *, independent: bool) -> int | None:
    """Return over how many steps noise is correlated: one where its multiplier is given, or where there is none."""
    if independent and bands not in (None, 1):
        raise InvalidParameter("bands need a finite epsilon, from which the noise follows: take bands=1")
    return 1 if independent else bands


def _seeded(seed: int, add: Callable[[Batch], Tensor], part: Batch) -> Tensor:
    """Return what a part adds, with random numbers that neither other parts nor earlier attempts decide."""
    seed_generators(seed)
    return add(part)


class PrivateTraining:
    """Noisy gradients of a module for a training loop of your own, under one ledger.

    Parameters
    ----------
    module : torch.nn.Module
        Trained where it is, in the mode (`train` or `eval`) it is in.
    dataset : TensorDataset, pair or dict of arrays, list of rows, map-style Dataset, or DataLoader
        Rows are tuples of one or more inputs and a target, which may be a tuple or a dict of several, or dicts with
        the names by which the module takes its inputs. Each part has the shape and type that it has in the first row
        (`PaddedRows`); rows of another shape add nothing. What is at a position must be made of one row: a data set
        that blends rows (MixUp) puts one into many places. Of a DataLoader, the data set, the collate function (for
        each row by itself), the workers and the batch size are used; batches are drawn by chance.
    loss : callable or None
        Maps outputs and targets to one number for each row (``reduction="none"``). With None, the module computes it:
        it takes inputs and targets, and what it returns has a ``loss``, which is asked for one row at a time.
    epsilon, delta : float
        The guarantee for all steps together. ``epsilon=inf`` is a run without noise, for finding mistakes, which its
        statement and a warning call not private.
    noise_multiplier : float, optional
        Instead of epsilon, which then follows: the noise as a multiple of C, as it is before rounding is added.
    steps : int, optional
        How many steps there will be at most. All of them are charged by the first `draw`.
    epochs : float, optional
        Instead of ``steps``: how often each row is read on average, 3 by default.
    batch_size : int, optional
        The expected number of rows in a batch; by default sqrt(2 n epochs), where ``steps`` count as 3 epochs.
    clip_norm : float, optional
        C, to which every row's gradient is clipped. None divides each by its own length; see `gradient`.
    search_steps : int
        How many step sizes a line search of `first_step` tries at most. 0 leaves the whole budget to gradients;
        otherwise searches get a tenth of it.
    clip_loss : float
        To which the losses of a search are clipped, from above; from below they are clipped to 0.
    search_noise : {"laplace", "gaussian"}
    adjacency : {"zero-out", "replace-one"}
    bands : int, optional
        Over how many steps noise is correlated: 1 for independent noise; None for the number with which partial sums
        of gradients have the least noise (`dpdescent.accounting.banded`), for loops that add gradients up.
    ledger : Ledger, optional
        An account that pays as well, for instance one shared by several fits.
    random_state : int, optional
        Repeats a run; not for release.
    noise : {"exact", "float"}
    device : str or torch.device, optional
        Where the module must be. Batches are put there.
    classes : int or sequence of int, optional
        The public labels: how many, from 0 on, or which. They become positions 0, 1, ..., the module must have as
        many scores, and rows of another label add nothing.
    targets : str or sequence of str, optional
        Which parts of rows that are dicts the loss compares with; ``"labels"`` by default.
    views : int
        How often each row is read, or shown to the random layers of the module: its gradient is the mean over these
        views, clipped and charged once. Where the trained module is used, it sees a row once.

    Notes
    -----
    **Privacy** Unit: one row. Sensitivity: C, or 2C if a row is replaced, plus what rounding adds (`Plan`). Each
    `draw` pays for one gradient and, if there are searches, for one search, each on a random batch of its own. With
    several bands a row may be in a batch once in so many steps, and the noise is made for all outputs that it then
    changes. Rows
    whose loss or gradient is not finite or cannot be computed add nothing. Rows are given to a copy of the module
    that shares its parameters alone, and whose buffers are put back after every pass. What is charged is a
    `FixedSchedule`; batches under zero-out are Poisson, and under replace-one of fixed size.

    Examples
    --------
    >>> import torch
    >>> from dpdescent.torch import PrivateTraining
    >>> rows = torch.utils.data.TensorDataset(torch.randn(200, 3), torch.randint(0, 2, (200,)))
    >>> loss = torch.nn.CrossEntropyLoss(reduction="none")
    >>> module = torch.nn.Linear(3, 2)
    >>> training = PrivateTraining(module, rows, loss, epsilon=3.0, delta=1e-5, steps=5, clip_norm=1.0)
    >>> optimiser = torch.optim.SGD(module.parameters(), lr=0.1)
    >>> for _ in range(training.steps):
    ...     training.draw()
    ...     _ = training.gradient()
    ...     optimiser.step()
    >>> training.statement()["epsilon"]
    3.0
    """

    def __init__(
        self,
        module: nn.Module,
        dataset: Any,
        loss: Loss | None,
        *,
        epsilon: float | None = None,
        delta: float,
        noise_multiplier: float | None = None,
        steps: int | None = None,
        epochs: float | None = None,
        batch_size: int | None = None,
        clip_norm: float | None = 1.0,
        search_steps: int = 0,
        clip_loss: float = 3.0,
        search_noise: str = "laplace",
        adjacency: str = "zero-out",
        bands: int | None = 1,
        ledger: Ledger | None = None,
        random_state: Any = None,
        noise: str = "exact",
        device: str | torch.device | None = None,
        classes: int | Sequence[int] | None = None,
        targets: str | Sequence[str] | None = None,
        views: int = 1,
    ) -> None:
        _require_account(ledger, epsilon)
        self._seed, self._mode = seed_of(random_state), noise
        self._noise = make_noise(noise, self._seed)
        self.account = ledger
        place = require_trainable(module, device)
        self._rows = DatasetRows(dataset, place, classes, targets=targets, own_loss=loss is None, views=views)
        rows = public_count(self._rows.count)
        public: dict[str, Any] = {"rows": rows, "delta": delta, "steps": steps, "epochs": epochs}
        public |= {"batch_size": self._rows.batch_size if batch_size is None else batch_size, "adjacency": adjacency}
        found = _epsilon_of(epsilon, noise_multiplier, search_steps, public)
        self.private = found != math.inf
        self.plan: Plan = plan_training(
            **public,
            epsilon=found if self.private else PLANNED,
            clipping=Clipping(clip_norm, clip_loss),
            parameters=sum(each.numel() for each in trained_parameters(module).values()),
            search_steps=search_steps,
            search_noise=search_noise,
            account=ledger,
            bands=_bands_of(bands, independent=noise_multiplier is not None or not self.private),
        )
        self.module = module
        self._try_on_public_rows(*self._rows.form.reader(private_copy(module), loss))
        check(self.plan.released, self.plan.relation)
        self._cycle = None if self.plan.bands.count == 1 else Cycle(self.plan.bands, self.plan.parameters)
        self.ledger = self.plan.open_ledger()
        self._drawn = 0
        self.begun = self.steps  # before which draws may begin; a checkpoint says which ones it holds
        self.absence: str | None = None  # what a released count of rows says of those that add nothing
        self._pending: set[str] = set()
        self._paid: Paid | Noiseless | None = None

    def _try_on_public_rows(self, reader: nn.Module, loss: Loss) -> None:
        """Choose the way to gradients and measure their lengths, both on public rows, or raise what is wrong."""
        with silence_warnings(), secret_randomness(0), unchanged_buffers(reader):
            probe = choose_probe(reader, loss, self._rows.probes())
            require_losses(reader, loss, probe, self._rows.classes)
        self._blank = probe
        self._reader = reader, loss
        self._choose_gradients()
        with silence_warnings(), secret_randomness(0), unchanged_buffers(reader):
            of_probe = length_counts(self._gradients, probe)
            self._screen = Screen(self._gradients, probe)
        self.public_length = typical_length(of_probe.cpu().numpy(), 0.0) or 1.0
        self._parameters = list(self._gradients.parameters.values())

    def _choose_gradients(self) -> None:
        """Choose the way to gradients, by what a loss holds now and the variables that it and the module reach."""
        expected = math.ceil(self.plan.sampling.size)
        with silence_warnings(), secret_randomness(0), unchanged_buffers(self._reader[0]):
            self._gradients = choose_gradients(*self._reader, self._blank, self.plan.most_rows, (expected,))
        self._surroundings = surroundings(*self._reader) if self._gradients.together else None

    # Public numbers ------------------------------------------------------------------------------------------

    @property
    def steps(self) -> int:
        """How many steps are planned."""
        return self.plan.steps

    @property
    def drawn(self) -> int:
        """How many steps have begun."""
        return self._drawn

    @property
    def parameters(self) -> list[nn.Parameter]:
        """The parameters that are trained, in the order of gradients."""
        return list(self._parameters)

    @property
    def deviation(self) -> float:
        """Standard deviation of the noise that is drawn for each coordinate of a gradient."""
        return self.plan.noise_multiplier * self.plan.sensitivity.under(self.plan.relation) / self.plan.sampling.size

    def statement(self) -> dict[str, Any]:
        """Return the privacy statement as plain data."""
        return self.statement_of("own loop").to_dict()

    def statement_of(self, method: str) -> PrivacyStatement:
        """Return the privacy statement of this training by a method."""
        plan, numbers = self.plan, sum(each.numel() for each in self._parameters)
        make: Callable[..., PrivacyStatement] = partial(PrivacyStatement.of_ledger, self.ledger)
        noise: dict[str, float] = {"noise_multiplier": plan.noise_multiplier}
        if not self.private:
            make, noise = partial(PrivacyStatement.without_privacy, relation=str(plan.relation)), {}
        return make(
            model=type(self.module).__name__,
            method=method,
            randomness=self._noise.description,
            arithmetic=_ARITHMETIC + ("exact" if self._mode == "exact" else "in floating point"),
            released=(f"parameters of the module: {numbers} numbers", "step sizes and lengths of noisy gradients"),
            assumed_public=(
                public_fact("the number of rows", str(plan.sampling.rows), Origin.RELATION),
                public_fact("dataset", "the shape and the type of a row", Origin.ARGUMENT),
                public_fact("module", "its kind, its initial parameters and its buffers", Origin.ARGUMENT),
                *self._rows.public_classes,
            ),
            remarks=self._remarks(),
            account=None if self.account is None else self.account.identity,
            steps=plan.steps,
            sampling_rate=plan.sampling.rate,
            **noise,
            clip_norm=plan.clipping.bound,
        )

    def _remarks(self) -> tuple[str, ...]:
        plan, ways = self.plan, f"gradients of rows by {type(self._gradients).__name__}"
        correlated = (
            f"noise is correlated over {plan.bands.count} bands: rows are dealt to so many groups at random, which "
            f"take turns, and a batch has each row of its group with probability {plan.group_sampling.rate:.4g}; "
            f"{plan.schedule.steps} such batches are charged, and the noise multiplier is that of all outputs "
            "together that a row changes from one batch"
        )
        found = (ways, self._rows.remark, self.absence, correlated if plan.bands.count > 1 else None)
        return tuple(each for each in (*found, None if self.private else WARNING) if each is not None)

    # The door to the rows ------------------------------------------------------------------------------------

    def draw(self) -> None:
        """Begin the next step; the first one charges for all of them.

        Raises
        ------
        BudgetExhausted
            All planned steps have begun, or the account cannot pay. Nothing was charged then.
        """
        if self._drawn >= self.steps:
            raise BudgetExhausted(f"all of the {self.steps} steps that were planned have begun: plan more of them")
        if self._drawn >= self.begun:
            raise BudgetExhausted(
                "the checkpoint holds no such step as begun: call draw() once for each of its steps"
            )
        self.buy_steps()
        if self._surroundings is not None and self._surroundings != surroundings(*self._reader):
            self._choose_gradients()  # the caller has changed what they do
        self._drawn += 1
        self._pending = {"gradient", "search"} if self.plan.search is not None else {"gradient"}

    def buy_steps(self, label: str = "training") -> None:
        """Charge for all steps, once; an account with a charge of this very label and cost has paid before.

        Anybody can write a label, so that it alone tells nothing of what was paid for.
        """
        if self._paid is not None:
            return
        if not self.private:
            self._paid = Noiseless()
            return
        ledgers, schedule = self._ledgers, self.plan.schedule
        if label != "training" and self.account is not None:
            self.account.affords(schedule)  # reads what others have written
            if any(entry.label == label and entry.cost == schedule for entry in self.account.entries):
                ledgers = (self.ledger,)
        rights = dict.fromkeys(self.plan.released, self.steps - self._drawn)
        self._paid = pay(ledgers, schedule, label, rights, self._noise)

    def gradient(self, shortest: float = SHORTEST) -> list[Tensor]:
        """Return the noisy gradient of the mean loss at the module's parameters, which also becomes their ``grad``.

        Once for each `draw`. Where ``clip_norm`` is None, gradients are divided by their length, and those that are
        shorter than the public number ``shortest``, or 0.01, by this, so that rows that are fitted fade.
        """
        least = require_positive("shortest", shortest)
        paid = self._take("gradient", self.plan.gradients)
        clipping, unit = self.plan.clipping, self.plan.unit
        exact = self._add_over_batch(
            "batch", lambda batch: clipped_sum(self._gradients, batch, clipping, least, unit), self.plan.parameters
        )
        noisy = self._release_correlated(paid, exact)
        mean = torch.from_numpy(noisy / self.plan.sampling.size)
        sizes = [each.numel() for each in self._parameters]
        for each, part in zip(self._parameters, mean.split(sizes), strict=True):
            each.grad = part.reshape(each.shape).to(each.device, each.dtype)
        return [each.grad for each in self._parameters]

    def measure_length(self) -> float:
        """Return about how long gradients of rows are at the module's parameters; instead of a `gradient`.

        **Privacy** What is released is a histogram (`dpdescent.torch.dataset_rows`) in which a row is at most 1 long,
        and which is multiplied by C, so that it has the sensitivity, the noise and the price of a gradient. Where the
        noise hides it, the length is that of public random rows at the parameters the training began with.
        """
        part, bound, unit = self.plan.alone, self.plan.clipping.bound, self.plan.unit
        paid = self._take("gradient", self.plan.gradients).exchange((self.plan.gradients,), (part,))
        counted = self._release_sum(
            paid, lambda batch: on_lattice(length_counts(self._gradients, batch) * bound, unit), BINS
        )
        noisy = counted / bound
        deviation = self.plan.noise_multiplier * part.sensitivity.under(self.plan.relation) / bound
        self.absence = absence_told(float(noisy.sum()), deviation * math.sqrt(BINS), self.plan.sampling)
        found = typical_length(noisy, deviation)
        return self.public_length if found is None else found

    def first_step(
        self, direction: Sequence[Tensor], step_sizes: Sequence[float], demands: Sequence[float]
    ) -> int | None:
        """Return the position of the first step size that lowers the mean loss by its demand, or None.

        All are public. The search goes from the parameters w to w - step * direction, through at most as many step
        sizes as were planned, in that order; demands say by how much each must lower the mean of the clipped losses.

        Notes
        -----
        **Privacy** Once for each `draw`. A query is a sum of differences of losses clipped to [0, C], so that one row
        moves it by at most C, or 2C if it is replaced. It is charged as AboveThreshold.
        """
        search, queries = self.plan.search, self.plan.searches
        sizes, wanted = (np.asarray(list(each), dtype=np.float64) for each in (step_sizes, demands))
        if search is None or queries is None:
            raise InvalidParameter("no searches were planned: pass search_steps")
        if not 1 <= sizes.size <= search.max_queries or wanted.shape != sizes.shape:
            raise InvalidParameter(f"give 1 to {search.max_queries} step sizes, and a demand for each")
        if not (np.isfinite(sizes).all() and np.isfinite(wanted).all()):
            raise InvalidParameter("step sizes and demands must be finite")
        paid = self._take("search", queries)
        bound, unit = self.plan.clipping.loss, self.plan.loss_unit
        total = self._add_over_batch(
            "search batch",
            lambda batch: loss_falls(self._gradients, batch, direction, sizes, bound, unit),
            sizes.size,
        )
        demanded = np.clip(np.rint(self.plan.sampling.size * wanted / unit), -(2.0**61), 2.0**61).astype(np.int64)
        found: int | None = paid.release(queries, total - demanded)
        return found

    # On rows that have been paid for -------------------------------------------------------------------------

    @property
    def _ledgers(self) -> tuple[Ledger, ...]:
        return (self.ledger,) if self.account is None else (self.ledger, self.account)

    def _take(self, name: str, part: Noised) -> Paid | Noiseless:
        """Return the right to one answer, or raise before a row is read."""
        if self._paid is None or name not in self._pending:
            raise BudgetExhausted(f"this step has no {name} left: call draw() to begin the next one")
        self._pending.remove(name)
        if self._cycle is not None:
            self._cycle.begin(self._drawn - 1)
        return self._paid.exchange((part,), (part,))

    def _add_over_batch(self, name: str, add: Callable[[Batch], Tensor], count: int) -> Integers:
        """Return the sum of ``count`` whole numbers over a fresh batch, a bounded number of rows at a time."""
        stream = self._noise.randomness.stream(name, self._drawn)
        chosen = draw_rows(stream, self._rows.count, self.plan.group_sampling)
        if self._cycle is not None:
            groups = self._noise.randomness.stream("groups", self._drawn)
            members = self._cycle.members(self._drawn - 1, groups, self._rows.count)
            chosen = members if chosen is None else chosen & members
        rows = np.arange(self._rows.count) if chosen is None else np.flatnonzero(chosen)
        seed = self._noise.randomness.stream(f"layers of a {name}", self._drawn).integer(63)
        at_once = self._gradients.rows_at_once
        total: Tensor | int = 0
        suspects = partial(failing_losses, self._gradients)
        with silence_warnings(), secret_randomness(seed ^ 2**62):  # of augmentations
            for number, first in enumerate(range(0, rows.size, at_once)):
                part = self._screen(self._rows.batch(rows[first : first + at_once]))
                total = total + sum_rows(partial(_seeded, seed + number, add), (part,), self._blank, suspects)
        return total.numpy() if isinstance(total, Tensor) else np.zeros(count, np.int64)

    def _release_sum(self, paid: Paid | Noiseless, add: Callable[[Batch], Tensor], count: int) -> Floats:
        """Return a sum over a batch, in which a row is at most C long, with noise of its own."""
        total = self._add_over_batch("batch", add, count)
        return np.asarray(paid.release(self.plan.alone, total), dtype=np.float64)

    def _release_correlated(self, paid: Paid | Noiseless, exact: Integers) -> Floats:
        """Return a sum of gradients with noise that takes back part of the noise before it, if there are bands."""
        part, step, cycle = self.plan.gradients, self._drawn - 1, self._cycle
        if cycle is None:
            return np.asarray(paid.release(part, exact), dtype=np.float64)
        noisy = np.asarray(paid.release(part, exact - cycle.carried(step)), dtype=np.float64)
        cycle.keep(step, np.rint(noisy / part.unit) - exact)
        return noisy

    # Runs that go on -----------------------------------------------------------------------------------------

    def skip_to(self, step: int) -> None:
        """Give up the steps before ``step``, which an interrupted run may have begun. They stay paid for.

        With several bands those until the next multiple of their number are given up as well, because the groups of
        rows and the noise are not known any more.
        """
        if not self._drawn <= step <= self.steps:
            raise InvalidParameter(f"step {step} is not between {self._drawn} and {self.steps}")
        if self._cycle is not None:
            step = min(self._cycle.restart(step), self.steps)
        if step > self._drawn and self._seed is not None:
            self._noise = make_noise(self._mode, (self._seed * 2**20 + step) % 2**127)
        self._drawn, self._pending = step, set()


WARNING = (
    "epsilon=inf: this run adds no noise and is NOT PRIVATE; what comes of it may disclose any row, so use it to "
    "find mistakes and release nothing of it"
)
PLANNED = 1e4  # the epsilon of the plan, whose rules need one


class Noiseless:
    """Takes the place of a right that was paid for, and returns what was computed from the rows as it is."""

    def exchange(self, given: Any, rights: Any) -> Self:
        """Return itself: there is nothing to use up."""
        return self

    def release(self, part: Noised, values: Integers) -> Any:
        """Return exact values, or the first that is not below zero where a search asks. NOT PRIVATE."""
        if isinstance(part.cost, AboveThreshold):
            found = np.flatnonzero(values >= 0)
            return int(found[0]) if found.size else None
        return part.of(values).to_float() / part.divisor
