"""What a module must be before anything is charged, and what is kept from it while it reads rows."""

from __future__ import annotations

import copy
import random
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from ..errors import InvalidParameter, RowDependence
from .gradients import Batch, LoopedGradients, Loss, trained_parameters, unchanged

__all__ = [
    "generator_states",
    "private_copy",
    "reading",
    "require_losses",
    "require_trainable",
    "secret_randomness",
    "usable_probe",
]


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


def usable_probe(module: nn.Module, loss: Loss, probes: Sequence[Batch]) -> Batch:
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


def require_losses(module: nn.Module, loss: Loss, probe: Batch) -> None:
    """Raise what is wrong unless the loss gives one number for each of some public rows, each by itself.

    Raises
    ------
    InvalidParameter
        The module or the loss cannot be computed, or gives no number for each row that could be differentiated.
    RowDependence
        The loss of a row changes with the outputs of other rows.
    """
    rows, given = len(probe), probe.copy()
    try:
        with unchanged(module):
            outputs = module(*given.inputs)
        losses = loss(outputs, given.targets)
    except Exception as problem:
        raise InvalidParameter(
            f"the module and the loss cannot be computed on public rows of the shapes of the data ({problem}): check "
            "that the module takes the inputs, and the loss its outputs and the targets"
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


@contextmanager
def reading() -> Iterator[None]:
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
            random.seed(seed)
            np.random.seed([seed % 2**32, seed >> 32])  # noqa: NPY002
            _seed_layers(seed)
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numbers)  # noqa: NPY002


def _seed_layers(seed: int) -> None:
    """Seed torch as `torch.manual_seed` does, which keeps a traceback for each call where there is no CUDA."""
    if torch.accelerator.is_available():
        torch.manual_seed(seed)
    else:
        torch.default_generator.manual_seed(seed)


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
