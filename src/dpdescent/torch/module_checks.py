"""What a module must be before anything is charged, and what is kept from it while it reads rows.

**Memory.** Buffers, and attributes that a pass sets, are put back after every pass. What is changed in place
elsewhere (a tensor in an attribute, a list, a generator, a variable outside of the module) is not, and would tell
later rows of earlier ones, even where every row is a batch by itself, or whoever reads it afterwards. Such modules
are refused.

What a module or a loss can reach that no copy of it has for itself.

A copy shares variables that its functions have closed over, those outside of functions, and what its classes hold. A
pass may write into them: a log of losses, for instance, or a moving mean. Whether it does is tried on copies of these
values, which stand in their places for as long as that takes.
"""

from __future__ import annotations

import copy
import itertools
import math
import random
import sys
import types
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..errors import InvalidParameter, RowDependence
from .row_gradients import (
    Batch,
    LoopedGradients,
    Loss,
    seed_generators,
    trained_parameters,
    unchanged,
    unchanged_buffers,
)


def require_trainable(module: nn.Module, device: str | torch.device | None) -> torch.device:
    """Return the device of a module, or raise what keeps it from being trained row by row.

    Raises
    ------
    RowDependence
        A layer mixes rows, or remembers them in its buffers.
    InvalidParameter
        There is nothing to train, or numbers are too short, or the module is on another device.
    """
    if not isinstance(module, nn.Module):
        raise InvalidParameter(f"module must be a torch.nn.Module, got a {type(module).__name__}")
    for name, each in [*module.named_parameters(), *module.named_buffers()]:
        if nn.parameter.is_lazy(each):
            raise InvalidParameter(f"{name!r} has no shape yet: pass a batch of public rows through the module first")
    for name, layer in module.named_modules():
        _require_eager(name or "the module itself", layer)
        _require_separate_rows(name or "the module itself", layer)
    parameters = trained_parameters(module)
    if not parameters:
        raise InvalidParameter(
            "the module has no trainable parameters: call requires_grad_(True) on those that are to be trained"
        )
    for name, each in parameters.items():
        if each.dtype not in (torch.float32, torch.float64):
            raise InvalidParameter(
                f"parameter {name!r} is {str(each.dtype).removeprefix('torch.')}, in which lengths of gradients "
                "overflow: train in float32 (module.float()), or freeze it"
            )
    devices = {each.device for each in module.parameters()} | {each.device for each in module.buffers()}
    found = next(iter(parameters.values())).device
    wanted = found if device is None else torch.device(device)
    if len(devices) > 1 or wanted.type != found.type or (wanted.index or 0) != (found.index or 0):
        raise InvalidParameter(
            f"the module is on {', '.join(sorted(map(str, devices)))} and not on {wanted}: call module.to('{wanted}')"
        )
    return found


def _require_eager(name: str, layer: nn.Module) -> None:
    """Refuse layers of which gradients of single rows cannot be had."""
    if isinstance(layer, torch.jit.ScriptModule):
        raise InvalidParameter(
            f"{name} is a TorchScript module, into which nothing can look: pass the torch.nn.Module that it was made "
            "from, and call torch.jit.script or torch.jit.trace after the training"
        )
    if isinstance(layer, nn.Embedding | nn.EmbeddingBag) and layer.sparse:
        raise InvalidParameter(
            f"{name} is an {type(layer).__name__} with sparse=True, whose gradient would be dense after noise: use "
            "sparse=False"
        )


def _require_separate_rows(name: str, layer: nn.Module) -> None:
    """Refuse layers in which one row changes what another adds, or which keep something of the rows."""
    kind = type(layer).__name__
    if isinstance(layer, nn.modules.batchnorm._BatchNorm) and (layer.training or layer.running_mean is None):
        raise RowDependence(
            f"{name} is a {kind}, which mixes the rows of a batch and keeps their means: use torch.nn.GroupNorm, or "
            "call eval() on a layer whose statistics were trained on public data"
        )
    if isinstance(layer, nn.modules.instancenorm._InstanceNorm) and layer.training and layer.track_running_stats:
        raise RowDependence(
            f"{name} is a {kind} with track_running_stats, which keeps means of the rows in its buffers: use "
            "track_running_stats=False, or torch.nn.GroupNorm"
        )
    if isinstance(layer, nn.Embedding | nn.EmbeddingBag):
        if layer.max_norm is not None:
            raise RowDependence(
                f"{name} is a {kind} with max_norm, which changes the vectors that rows ask for without noise: use "
                "max_norm=None"
            )
        if layer.scale_grad_by_freq:
            raise RowDependence(
                f"{name} is a {kind} with scale_grad_by_freq, which counts other rows: use scale_grad_by_freq=False"
            )


def choose_probe(module: nn.Module, loss: Loss, probes: Sequence[Batch]) -> Batch:
    """Return the first of several public batches that a module and a loss take, or the last."""
    for probe in probes[:-1]:
        try:
            with torch.no_grad():
                finite = torch.isfinite(LoopedGradients(module, loss).losses_together(probe)).all()
        except Exception:
            continue
        if bool(finite):
            return probe
    return probes[-1]


def _remedy_of_outputs(outputs: Any, rows: int) -> str:
    """Return what to do about a loss that cannot be computed from the outputs for some rows."""
    several = len(outputs) // rows if isinstance(outputs, Tensor) and outputs.dim() else 1
    if several > 1 and len(outputs) == several * rows:
        return (
            f"the module returns {len(outputs)} outputs for {rows} rows: if these are views of a row, let it return "
            f"one and pass views={several}, or let the loss return the mean over the views of each row"
        )
    return "check that the module takes the inputs, and the loss its outputs and the targets"


def require_losses(module: nn.Module, loss: Loss, probe: Batch, classes: int | None = None) -> None:
    """Raise what is wrong unless the loss gives one number for each of some public rows, each by itself.

    ``classes`` is how many scores the module must have for each row, if it has several.

    Raises
    ------
    InvalidParameter
        The module or the loss cannot be computed, or gives no number for each row that could be differentiated.
    RowDependence
        The loss of a row changes with the outputs of other rows.
    """
    rows, given, outputs = len(probe), probe.copy(), None
    try:
        with unchanged(module):
            outputs = module(*given.inputs)
        _require_scores(outputs, classes)
        losses = loss(outputs, given.targets)
    except InvalidParameter:
        raise
    except Exception as problem:
        raise InvalidParameter(
            f"the module and the loss cannot be computed on public rows of the shapes of the data ({problem}): "
            f"{_remedy_of_outputs(outputs, rows)}"
        ) from problem
    if not isinstance(losses, Tensor) or tuple(losses.shape) != (rows,):
        shape = tuple(losses.shape) if isinstance(losses, Tensor) else type(losses).__name__
        raise InvalidParameter(
            f"the loss of {rows} rows has the shape {shape}, and one number for each row is needed: use "
            "reduction='none', and sum over the dimensions of a row"
        )
    if not losses.requires_grad:
        raise InvalidParameter("the loss does not depend on any trainable parameter: train those that it depends on")
    with torch.no_grad():
        changed = outputs.detach().clone() if isinstance(outputs, Tensor) else None
        if changed is not None and changed.dim() and changed.shape[0] == rows:
            before = loss(changed.clone(), probe.copy().targets)[0]
            changed[1:] = changed[1:] * 2 + 1
            after = loss(changed.clone(), probe.copy().targets)[0]
            if not torch.allclose(before, after, rtol=1e-4, atol=1e-5, equal_nan=True):
                raise RowDependence(
                    "the loss of a row changes with the outputs of other rows: compute it from its own output alone"
                )


def _require_scores(outputs: Any, classes: int | None) -> None:
    if classes is None or not isinstance(outputs, Tensor) or outputs.dim() < 2:
        return
    scores = outputs.shape[1]
    if scores != classes and (scores, classes) != (1, 2):
        raise InvalidParameter(
            f"the module gives {scores} scores for each row and there are {classes} classes: end it with a layer of "
            f"{classes} scores, or correct classes="
        )


def require_no_memory(module: nn.Module, loss: Loss, probe: Batch) -> bool:
    """Raise `RowDependence` if a pass over public rows leaves something of them behind; return whether anything is.

    Two things are tried, on copies of the module: whether the loss and the gradient of a row change once others have
    passed, and whether what the module and the loss hold differs after different rows have passed. Parameters, which
    the copies share, are put back. What no row has changed may stay, for instance a number of passes; but a module
    that holds one may mix rows in a later pass, which no trial tells.
    """
    left = [] if _changes_with_earlier_rows(module, loss, probe) else _left_behind(module, loss, probe)
    if not left or left[1] != left[2]:
        raise RowDependence(
            "the module or the loss keeps something of the rows that pass through it, by which the loss of a row "
            "changes when other rows have passed before it, or which anybody could read: keep nothing of a pass in "
            "the module, the loss or a variable outside of them, and draw random numbers from the generators of "
            "torch, numpy or Python that all share"
        )
    return left[0] != left[1]


def _changes_with_earlier_rows(module: nn.Module, loss: Loss, probe: Batch) -> bool:
    for gradients in (False, True):
        copied = private_copy(module)
        found: list[Tensor] = []
        # The first row also passes with the others, as in a step.
        for rows in (probe[:1], probe[1:], probe, probe[:1]):
            with secret_randomness(0), torch.set_grad_enabled(gradients), unchanged_buffers(copied):
                given = rows.copy()
                losses = loss(copied(*given.inputs), given.targets)
                parts = [losses.detach()]
                if gradients:
                    trained = [each for each in copied.parameters() if each.requires_grad]
                    got = torch.autograd.grad(losses.sum(), trained, allow_unused=True)
                    parts += [each.detach().reshape(-1) for each in got if each is not None]
            found.append(torch.cat(parts))
        if not torch.allclose(found[0], found[-1], rtol=0, atol=0, equal_nan=True):
            return True
    return False


def _left_behind(module: nn.Module, loss: Loss, probe: Batch) -> list[object]:
    """Return what copies of a module and its loss hold at first, after passes over rows, and after other rows."""
    order = torch.arange(len(probe)).roll(1).to(probe.targets.device)
    held: list[object] = []
    for rows in (None, probe, probe[order]):
        start = [each.detach().clone() for each in module.parameters()]
        copied, also = private_copy(module), _own(loss)
        looped = LoopedGradients(copied, also)
        with secret_randomness(0), copied_variables(copied, also) as variables:
            if rows is not None:
                looped.of(rows)
                together = looped.losses_together(rows).sum()
                torch.autograd.grad(together, list(looped.parameters.values()), allow_unused=True)
            shared = [_contents_if_any(each) for each in variables()]
        parameters = [_tensor_bytes(each.detach()) for each in module.parameters()]
        held.append((contents_of(copied), contents_of(also), shared, parameters))
        for each, before in zip(module.parameters(), start, strict=True):
            each.data.copy_(before)
    return held


def _own(loss: Loss) -> Any:
    """Return a copy of a loss that shares its parameters, or the loss itself if it is a function."""
    if isinstance(loss, nn.Module):
        return private_copy(loss)
    try:
        return copy.deepcopy(loss)
    except Exception:
        return loss


def _contents_if_any(value: Any) -> object:
    """Return what a variable holds, or None if that cannot be told."""
    try:
        return contents_of(value)
    except Exception:
        return None


def contents_of(value: Any) -> object:
    """Return all that a value holds, as plain data that can be compared; functions and parameters are left out.

    What functions share is not theirs, and has its own copies (`dpdescent.torch.module_checks`).
    """
    seen: set[int] = set()

    def read(value: Any) -> object:
        if value is None or isinstance(value, str | bytes | int | float | complex | np.generic):
            return repr(value)
        if id(value) in seen:
            return "seen"
        seen.add(id(value))
        for kind, contents in _KINDS.items():
            if isinstance(value, kind):
                return contents(value)
        if isinstance(value, Mapping):
            return named(value)
        if isinstance(value, list | tuple | deque):
            return tuple(read(each) for each in value)
        if isinstance(value, partial):
            return read(value.func), read(value.args), read(value.keywords)
        if isinstance(value, types.MethodType):
            return value.__name__, read(value.__self__)
        if isinstance(value, set | frozenset):
            return tuple(sorted(map(repr, value)))
        plain = not isinstance(value, type | types.FunctionType)
        return type(value).__name__, named(_fields(value)) if plain else None

    def named(values: Mapping[Any, Any]) -> object:
        return tuple((repr(key), read(each)) for key, each in list(values.items()))

    return read(value)


def _fields(value: Any) -> dict[str, Any]:
    names = [each for kind in type(value).__mro__ for each in _names(kind.__dict__.get("__slots__", ()))]
    slots = {name: getattr(value, name) for name in names if not name.startswith("__") and hasattr(value, name)}
    return slots | getattr(value, "__dict__", {})


def _names(slots: Any) -> tuple[str, ...]:
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _tensor_bytes(value: Tensor) -> object:
    if isinstance(value, nn.Parameter):
        return None
    dense = value.detach().cpu().to_dense().contiguous()
    return tuple(value.shape), str(value.dtype), dense.reshape(-1).view(torch.uint8).numpy().tobytes()


_KINDS: dict[type, Callable[[Any], object]] = {
    Tensor: _tensor_bytes,
    np.ndarray: lambda value: repr(value.tolist()),
    torch.Generator: lambda value: value.get_state().numpy().tobytes(),
    random.Random: lambda value: value.getstate(),
    np.random.Generator: lambda value: repr(value.bit_generator.state),
    itertools.count: repr,
}


@contextmanager
def silence_warnings() -> Iterator[None]:
    """Silence warnings while rows are read: they would speak of them."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


@contextmanager
def secret_randomness(seed: int) -> Iterator[None]:
    """Give random layers and random augmentations numbers of their own, and leave all generators as they were.

    A row whose augmentation draws more numbers than another's shifts those of the rows that are read after it. The
    noise covers that only if nobody knows them: a seed that the caller has published would not do. How many were
    drawn tells how many rows a batch had, so nothing of it is left behind either.
    """
    python, numbers = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        with torch.random.fork_rng():
            seed_generators(seed)
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numbers)  # noqa: NPY002


def generator_states() -> tuple[object, ...]:
    """Return where the generators of Python, numpy and torch that all share are, on the processor."""
    _, numbers, place, *_ = np.random.get_state(legacy=True)  # noqa: NPY002
    return random.getstate(), np.asarray(numbers).tobytes(), place, torch.get_rng_state().numpy().tobytes()


def private_copy(module: nn.Module) -> nn.Module:
    """Return a copy that shares the parameters and nothing else.

    Rows are given to the copy, so whatever it keeps of them, in buffers or elsewhere, stays with the curator.
    """
    shared = {id(each): each for each in module.parameters()}
    try:
        copied: nn.Module = copy.deepcopy(module, shared)
    except Exception as problem:
        raise InvalidParameter(
            f"the module cannot be copied ({problem}): remove what copy.deepcopy does not take, for instance tensors "
            "that are kept from an earlier pass"
        ) from None
    return copied


_LIBRARIES = frozenset(["torch", "numpy", "dpdescent", *sys.stdlib_module_names]) - {"__main__"}
_DATA = (
    *(int, float, complex, list, tuple, dict, set, deque, bytearray, itertools.count),
    *(Tensor, np.ndarray, torch.Generator, random.Random, np.random.Generator),
)


class _Variable:
    """A place outside of an object where a function or a class keeps a value."""

    def __init__(self, read: Callable[[], Any], write: Callable[[Any], None]) -> None:
        self.read, self.write = read, write

    def value(self) -> Any:
        """Return what is there, if anything is."""
        with suppress(ValueError, KeyError, AttributeError):
            return self.read()
        return None

    def holds_data(self) -> bool:
        """Return whether numbers are there, a collection or an object, unless it is of a library."""
        value = self.value()
        if isinstance(value, nn.Module | nn.Parameter | type | types.FunctionType):
            return False
        return isinstance(value, _DATA) or not _of_library(type(value))


@contextmanager
def copied_variables(*roots: Any) -> Iterator[Callable[[], list[Any]]]:
    """Put copies in the places of all variables that objects reach, and yield a function that returns their values.

    What cannot be copied stays. Afterwards every variable is what it was.
    """
    variables = [(each, each.value()) for each in reachable(*roots)[0] if each.holds_data()]
    modules = [each for root in roots if isinstance(root, nn.Module) for each in root.modules()]
    memo: dict[int, Any] = {id(each): each for part in modules for each in (part, *part.parameters())}
    try:
        for variable, value in variables:
            with suppress(Exception):
                variable.write(copy.deepcopy(value, memo))
        yield lambda: [variable.value() for variable, _ in variables]
    finally:
        for variable, value in variables:
            with suppress(Exception):
                variable.write(value)


def reachable(*roots: Any) -> tuple[list[_Variable], list[types.FunctionType]]:
    """Return the variables that the functions and the classes of objects name, and these functions.

    Those of libraries are left out.
    """
    found: list[_Variable] = []
    functions: list[types.FunctionType] = []
    seen: set[int] = set()

    def visit(value: Any) -> None:
        if id(value) in seen:
            return
        seen.add(id(value))
        if isinstance(value, types.FunctionType):
            if not _of_library(value):
                functions.append(value)
            for variable in _variables_of(value):
                found.append(variable)
                visit(variable.value())
        elif isinstance(value, types.MethodType):
            visit(value.__self__)
            visit(value.__func__)
        elif isinstance(value, partial):
            for each in (value.func, *value.args, *value.keywords.values()):
                visit(each)
        elif isinstance(value, nn.Module):
            for each in value.modules():
                visit_object(each)
        elif callable(value) and not isinstance(value, type) and hasattr(value, "__dict__"):
            visit_object(value)

    def visit_object(value: Any) -> None:
        for kind in type(value).__mro__:
            if id(kind) not in seen and not _of_library(kind):
                seen.add(id(kind))
                for name, each in list(vars(kind).items()):
                    if isinstance(each, types.FunctionType):
                        visit(each)
                    elif not name.startswith("__"):
                        place = partial(getattr, kind, name), partial(setattr, kind, name)
                        found.append(_Variable(*place))
        for each in list(vars(value).values()):
            if not isinstance(each, nn.Module):
                visit(each)
            if isinstance(each, dict):  # hooks
                for held in each.values():
                    if isinstance(held, types.FunctionType | types.MethodType | partial):
                        visit(held)

    for root in roots:
        visit(root)
    return found, functions


def _of_library(value: Any) -> bool:
    return (getattr(value, "__module__", None) or "builtins").partition(".")[0] in _LIBRARIES


def _variables_of(function: types.FunctionType) -> Iterator[_Variable]:
    if _of_library(function):
        return
    outside = function.__globals__
    for cell in function.__closure__ or ():
        yield _Variable(partial(getattr, cell, "cell_contents"), partial(setattr, cell, "cell_contents"))
    for name in _names_in(function.__code__):
        if name in outside and not isinstance(outside[name], types.ModuleType):
            value = outside[name]
            if not (isinstance(value, types.FunctionType) and value.__globals__ is not outside):  # of this file alone
                yield _Variable(partial(outside.__getitem__, name), partial(outside.__setitem__, name))
    for name in ("__defaults__", "__kwdefaults__"):
        yield _Variable(partial(getattr, function, name), partial(setattr, function, name))


def _names_in(code: types.CodeType) -> set[str]:
    return {name for each in _codes_in(code) for name in each.co_names}


def _codes_in(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield a code, and those of the functions that are made in it."""
    yield code
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield from _codes_in(each)


_MOST_NAMED = 48
_PLACES_OF_NUMBERS = ("padding_idx", "ignore_index")  # of layers and losses of torch


def named_numbers(module: nn.Module, loss: Loss) -> list[float]:
    """Return numbers that the code of a module and its loss names, or that their variables and attributes hold.

    Among them are those for which something else is done, if there are any: the token of a padding, a code for a
    cell that is not known, a number of rows.
    """
    variables, functions = reachable(module, loss)
    held = [each.value() for each in variables]
    held += [each for function in functions for code in _codes_in(function.__code__) for each in code.co_consts]
    for part in (*module.modules(), *(loss.modules() if isinstance(loss, nn.Module) else ())):
        named = _PLACES_OF_NUMBERS if _of_library(type(part)) else vars(part)
        held += [getattr(part, name, None) for name in named]
    for value in list(held):
        if isinstance(value, list | tuple | set | frozenset):
            held += value
        elif hasattr(value, "__dict__") and not callable(value) and not _of_library(type(value)):
            held += vars(value).values()  # of settings
    numbers = (each for each in held if isinstance(each, int | float) and not isinstance(each, bool))
    found = dict.fromkeys(float(each) for each in numbers if abs(each) < 2.0**63 and math.isfinite(each))
    return list(found)[:_MOST_NAMED]


def surroundings(module: nn.Module, loss: Loss) -> list[object]:
    """Return what a loss holds, and all variables that it and a module reach, which the caller may change."""
    held = [each.value() for each in reachable(module, loss)[0] if each.holds_data()]
    return [_contents_if_any(each) for each in (loss, *held)]
