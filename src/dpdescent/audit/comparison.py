"""Where two values differ, to the last bit: attributes of fitted models, and whatever they hold."""

from __future__ import annotations

import threading
import types
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

__all__ = ["Difference", "differences", "shown"]

#: A place, as Python would write it, and what is there in the one and in the other value.
Difference = tuple[str, str, str]

_LONGEST = 100
_PLAIN = (type(None), bool, int, float, str, bytes, complex, type, types.BuiltinFunctionType, types.ModuleType)
_LOCKS = (type(threading.Lock()), type(threading.RLock()))  # nothing of a row is in them
_Seen = dict[tuple[int, int], tuple[Any, Any]]  # kept alive, so that no other value gets the same identity


def differences(first: Any, second: Any, where: str) -> Iterator[Difference]:
    """Yield the places in which two values differ; ``where`` is what the place of the values themselves is called.

    Numbers are compared by their bits, so that 0.0 differs from -0.0 and NaN is itself. Objects are compared by their
    type and by all that they hold, private attributes and what functions have closed over included.
    """
    return _differences(first, second, where, {})


def shown(value: Any) -> str:
    """Return a short text for a value, in which control characters are escaped."""
    large = getattr(value, "size", 0) if hasattr(value, "shape") else 0
    text = f"{type(value).__name__} of shape {value.shape}" if large > 8 else ascii(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def _differences(first: Any, second: Any, where: str, seen: _Seen) -> Iterator[Difference]:
    if isinstance(first, _LOCKS) or (id(first), id(second)) in seen:
        return
    if type(first) is not type(second):
        yield where, shown(first), shown(second)
    elif isinstance(first, np.ndarray | np.generic):  # numbers of numpy that are Python's as well
        yield from _of_arrays(np.asarray(first), np.asarray(second), where, seen)
    elif isinstance(first, _PLAIN):
        same = first.hex() == second.hex() if isinstance(first, float) else first == second
        if not same:
            yield where, shown(first), shown(second)
    else:
        seen[id(first), id(second)] = first, second
        one, other = dict(_parts(first)), dict(_parts(second))
        if list(one) != list(other):
            yield where, shown(list(one)), shown(list(other))
        for name in (name for name in one if name in other):
            yield from _differences(one[name], other[name], where + name, seen)


def _of_arrays(first: Any, second: Any, where: str, seen: _Seen) -> Iterator[Difference]:
    if (first.dtype, first.shape) != (second.dtype, second.shape):
        yield where, f"{first.dtype} of shape {first.shape}", f"{second.dtype} of shape {second.shape}"
    elif first.dtype.hasobject:
        yield from _differences(first.tolist(), second.tolist(), where, seen)
    elif first.tobytes() != second.tobytes():
        places = zip(np.ndindex(first.shape), first.ravel(), second.ravel(), strict=True)
        place, one, other = next(each for each in places if each[1].tobytes() != each[2].tobytes())
        index = ", ".join(map(str, place))
        yield f"{where}[{index}]" if index else where, shown(one.item()), shown(other.item())


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield what an object consists of: how each part is reached, and the part."""
    if isinstance(value, pd.DataFrame | pd.Series | pd.Index):
        yield ".to_numpy()", value.to_numpy()
        yield ".axes", [] if isinstance(value, pd.Index) else [each.to_numpy() for each in value.axes]
        return
    if isinstance(value, types.FunctionType):
        yield ".__code__", value.__code__.co_code
        yield ".__defaults__", (value.__defaults__, value.__kwdefaults__)
        yield ".__closure__", [cell.cell_contents for cell in value.__closure__ or ()]
        return
    if isinstance(value, Mapping):
        yield from ((f"[{shown(name)}]", each) for name, each in value.items())
    elif isinstance(value, list | tuple):
        yield from ((f"[{place}]", each) for place, each in enumerate(value))
    elif isinstance(value, set | frozenset):
        yield from ((f"[{place}]", each) for place, each in enumerate(sorted(value, key=ascii)))
    held = dict(getattr(value, "__dict__", {}))
    for name in (name for kind in type(value).__mro__ for name in kind.__dict__.get("__slots__", ())):
        if hasattr(value, name) and not name.startswith("__"):
            held[name] = getattr(value, name)
    yield from ((f".{name}", held[name]) for name in sorted(held))
    if hasattr(value, "detach"):  # a tensor
        yield ".numpy()", value.detach().cpu().numpy()
    elif not held and not isinstance(value, Mapping | list | tuple | set | frozenset):
        yield ".__reduce__()", _reduced(value)


def _reduced(value: Any) -> Any:
    """Return what a pickle would hold of an object without attributes."""
    try:
        reduced = value.__reduce_ex__(4)
    except Exception:
        return None
    return reduced if isinstance(reduced, str) else list(reduced[1:3])
