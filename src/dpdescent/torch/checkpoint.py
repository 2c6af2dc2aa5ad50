"""A run that can be stopped at any time and goes on later, with what it was charged for and no more.

A checkpoint holds the parameters after some step and the number of steps that may have begun since. It is on the disk
before the rows of those steps are read. Whoever resumes goes on after them: their answers are lost, and their charge
stands, so that no step is ever taken twice. The charge itself carries the name of the run, by which an account tells
that it has paid already. The account also notes which steps have begun, so that a copy of a checkpoint does not take
them once more. The file therefore names its account, and goes on with no other and not without it. A run that never
had an account has a file without a name: nobody can tell its copies, and each that is resumed is a run with a budget
of its own.
"""

from __future__ import annotations

import os
import tempfile
import uuid
from dataclasses import astuple
from pathlib import Path
from typing import Any

import torch

from ..curator.release import note
from ..errors import InvalidParameter, OutputNotWritable, RunInProgress
from .step_rules import Method, StepRecord
from .training import PrivateTraining

_FORMAT, _VERSION = "dpdescent-training", 3


class Checkpoint:
    """The file of one run.

    Parameters
    ----------
    path : path-like
    training : PrivateTraining
    rule : Method
    method : str
        The name of the rule.

    Notes
    -----
    **Privacy** Everything in the file is a released answer or public.
    """

    def __init__(self, path: str | os.PathLike[str], training: PrivateTraining, rule: Method, method: str) -> None:
        self._path = Path(path)
        self._training, self._rule = training, rule
        plan = training.plan
        self._settings = {
            "method": method,
            "epsilon": float(plan.epsilon),
            "delta": float(plan.delta),
            "schedule": repr(plan.schedule.to_dict()),
            "rows": plan.sampling.rows,
            "relation": str(plan.relation),
            "clip": [plan.clipping.norm, plan.clipping.loss],
            "shapes": [list(each.shape) for each in training.parameters],
        }
        self._run = uuid.uuid4().hex
        self._account = None if training.account is None else training.account.identity

    def begin(self) -> list[StepRecord]:
        """Start a file or go on from one, charge unless that was done, and return the history so far."""
        history: list[StepRecord] = []
        if self._path.exists():
            history = self._restore(self._read())
        else:
            self.write(0, history)
        self._training.buy_steps(f"training {self._run}")
        return history

    def start(self, step: int, count: int, history: list[StepRecord]) -> None:
        """Note that ``count`` steps from ``step`` on begin, on the disk and in the account, before rows are read."""
        self.write(min(step + count, self._training.steps), history)
        account, label = self._training.account, f"training {self._run} from step {step}"
        if account is None:
            return
        # An account takes down one note after the other, so that of two equal ones only one is the first.
        note(account, label)
        if sum(entry.label == label for entry in account.entries) > 1:
            raise RunInProgress(
                "these steps of the run have begun already, from this checkpoint or a copy of it, and are paid for "
                "once: give another name to start anew"
            )

    def write(self, begun: int, history: list[StepRecord]) -> None:
        """Put the present state on the disk, and with it how many steps may have begun before the next one."""
        content = {
            "format": _FORMAT,
            "version": _VERSION,
            "run": self._run,
            "account": self._account,
            "settings": self._settings,
            "begun": begun,
            "parameters": [each.detach() for each in self._training.parameters],
            "state": self._rule.state(),
            "history": [list(astuple(each)) for each in history],
        }
        try:
            descriptor, draft = tempfile.mkstemp(prefix=".checkpoint-", dir=self._path.absolute().parent)
        except OSError as problem:
            raise OutputNotWritable(f"no checkpoint can be written at {self._path}: {problem.strerror}") from None
        try:
            with os.fdopen(descriptor, "wb") as file:
                torch.save(content, file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, self._path)
        except BaseException:
            os.unlink(draft)
            raise
        _sync_folder(self._path.absolute().parent)

    def _read(self) -> dict[str, Any]:
        try:
            content = torch.load(self._path, weights_only=True)
        except Exception:
            content = None
        if not isinstance(content, dict) or content.get("format") != _FORMAT or content.get("version") != _VERSION:
            raise InvalidParameter(f"{self._path} is no checkpoint of this version: give another name to start anew")
        return content

    def _require_account(self, named: str | None) -> None:
        """Refuse to go on with another account, or with none: steps would be taken twice for one charge."""
        if named == self._account:
            return
        if named is None:
            raise InvalidParameter(
                f"the checkpoint {self._path} is of a run without a ledger: leave ledger= out, or give another name "
                "to start anew"
            )
        raise InvalidParameter(
            f"the run of the checkpoint {self._path} was charged to the ledger {named}: open that ledger and pass it "
            "as ledger=, or give another name to start anew"
        )

    def _restore(self, content: dict[str, Any]) -> list[StepRecord]:
        changed = [name for name, value in self._settings.items() if content["settings"].get(name) != value]
        if changed:
            raise InvalidParameter(
                f"the checkpoint {self._path} is of a run with another {changed[0]}: repeat the call with the same "
                "arguments, or give another name to start anew"
            )
        self._require_account(content["account"])
        self._run = content["run"]
        with torch.no_grad():
            for each, saved in zip(self._training.parameters, content["parameters"], strict=True):
                each.copy_(saved)
        self._rule.restore(content["state"])
        self._training.skip_to(int(content["begun"]))
        return [StepRecord(int(step), float(size), float(norm)) for step, size, norm in content["history"]]


def _sync_folder(folder: Path) -> None:
    """Put the name of the file on the disk as well."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
