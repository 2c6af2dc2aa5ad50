"""Recurrent layers by their gates: each is two linear layers, of inputs and of states, at all places of a sequence.

The layers of torch compute all places in one piece, into which nothing can look. Here their equations are written
out, so that what enters the gates and what comes back to them is known, and gradients of rows follow as those of
linear layers do (`dpdescent.torch.layers`). The parameters are those of the layer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

#: Takes the parameters of gates, what enters them, and the gates themselves, of which the gradient is asked.
Note = Callable[[Tensor, Tensor | None, Tensor, Tensor], None]
RECURRENT = (nn.LSTM, nn.GRU, nn.RNN)


def has_gates(layer: nn.Module) -> bool:
    """Return whether the equations of a layer are written here."""
    return type(layer) in RECURRENT and not layer.proj_size


@contextmanager
def writing_out(layers: Iterable[nn.Module], noting: Callable[[nn.Module], Note] | None = None) -> Iterator[None]:
    """Compute recurrent layers by their equations, which `torch.func` maps over rows and whose gates can be noted."""
    gated = [layer for layer in layers if has_gates(layer)]
    before = [vars(layer).get("forward") for layer in gated]
    try:
        for layer in gated:
            vars(layer)["forward"] = _written_out(layer, None if noting is None else noting(layer))
        yield
    finally:
        for layer, forward in zip(gated, before, strict=True):
            vars(layer).pop("forward", None)
            if forward is not None:
                vars(layer)["forward"] = forward


def _written_out(layer: nn.Module, note: Note | None) -> Callable[..., Any]:
    """Return the forward function of a recurrent layer, which tells of all gates."""

    def forward(values: Tensor, state: Any = None) -> Any:
        if not isinstance(values, Tensor) or values.dim() != 3:
            raise TypeError("sequences are tensors of shape (rows, length, features)")
        inner = values if layer.batch_first else values.transpose(0, 1)
        ways, cells = 2 if layer.bidirectional else 1, type(layer) is nn.LSTM
        shape = (layer.num_layers * ways, inner.shape[0], layer.hidden_size)
        given = state if cells and state is not None else (state, None)
        first, second = (inner.new_zeros(shape) if each is None else each for each in given)
        last: list[tuple[Tensor, Tensor]] = []
        for level in range(layer.num_layers):
            found = []
            for way in range(ways):
                place = level * ways + way
                suffix = f"_l{level}{'_reverse' if way else ''}"
                outputs, *end = _run(layer, suffix, inner, first[place], second[place], note)
                found.append(outputs)
                last.append((end[0], end[1]))
            inner = torch.cat(found, 2) if ways > 1 else found[0]
            if layer.dropout and layer.training and level + 1 < layer.num_layers:
                inner = functional.dropout(inner, layer.dropout)
        states, inside = (torch.stack(each) for each in zip(*last, strict=True))
        outputs = inner if layer.batch_first else inner.transpose(0, 1)
        return outputs, ((states, inside) if cells else states)

    return forward


def _run(
    layer: nn.Module, suffix: str, values: Tensor, state: Tensor, inside: Tensor, note: Note | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the states at all places of one layer in one direction, and the last ones."""
    weight, weight_state = (getattr(layer, f"weight_{kind}{suffix}") for kind in ("ih", "hh"))
    bias, bias_state = (getattr(layer, f"bias_{kind}{suffix}", None) for kind in ("ih", "hh"))
    entering = functional.linear(values, weight, bias)
    at, shifts, shift = entering.unbind(1), None, entering
    if note is not None and type(layer) is nn.GRU:
        # Added to what the states give to the gates: its gradient is theirs, in one piece.
        shift = torch.zeros_like(entering, requires_grad=torch.is_grad_enabled())
        shifts = shift.unbind(1)
    places = range(len(at))
    before, after = [state] * len(at), [state] * len(at)
    for place in reversed(places) if suffix.endswith("reverse") else places:
        before[place] = state
        hidden = functional.linear(state, weight_state, bias_state)
        if type(layer) is nn.LSTM:
            state, inside = _lstm(at[place] + hidden, inside)
        elif type(layer) is nn.GRU:
            state = _gru(at[place], hidden if shifts is None else hidden + shifts[place], state)
        else:
            squash = torch.tanh if layer.nonlinearity == "tanh" else torch.relu
            state = squash(at[place] + hidden)
        after[place] = state
    if note is not None:
        note(weight, bias, values, entering)
        note(weight_state, bias_state, torch.stack(before, 1), shift)
    return torch.stack(after, 1), state, inside


def _lstm(gates: Tensor, inside: Tensor) -> tuple[Tensor, Tensor]:
    enter, forget, new, leave = gates.chunk(4, 1)
    inside = forget.sigmoid() * inside + enter.sigmoid() * new.tanh()
    return leave.sigmoid() * inside.tanh(), inside


def _gru(entering: Tensor, hidden: Tensor, state: Tensor) -> Tensor:
    size = state.shape[1]
    reset, keep = (entering[:, : 2 * size] + hidden[:, : 2 * size]).sigmoid().chunk(2, 1)
    new = (entering[:, 2 * size :] + reset * hidden[:, 2 * size :]).tanh()
    return new + keep * (state - new)
