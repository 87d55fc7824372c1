"""The mark on a function that is an agent: `@agent`.

Decides what may carry it. It must not know how such a function is run. Invariant: a marked function
is still that very function, to be called and tested like any other.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, overload

F = TypeVar("F", bound=Callable[..., Any])

ATTRIBUTE = "__turnkeeper_agent__"


class Mark(NamedTuple):
    """What the function's author says of it."""

    steer: bool = False


@overload
def agent(function: F, /) -> F: ...
@overload
def agent(*, steer: bool = False) -> Callable[[F], F]: ...
def agent(function: Any = None, /, *, steer: bool = False) -> Any:
    """Mark a function as an agent: plain, async, generator or async generator, taking `turn`.

    `steer=True` says that it looks at `turn.steering`; otherwise a message that is sent while it is
    busy waits for its own turn.
    """
    mark = Mark(steer)

    def put(given: F) -> F:
        check(given)
        setattr(given, ATTRIBUTE, mark)
        return given

    return put if function is None else put(function)


def mark_of(function: object) -> Mark | None:
    found = getattr(function, ATTRIBUTE, None)
    return found if isinstance(found, Mark) else None


def check(function: object) -> None:
    """Refuse what could not take a turn, with a word on what to do."""
    name = getattr(function, "__qualname__", repr(function))
    if inspect.isclass(function) or not callable(function):
        raise TypeError(f"{name} is not a function; an agent is a function that takes `turn`")
    try:
        signature = inspect.signature(function)
    except ValueError:
        return  # some functions of extension modules do not tell
    try:
        signature.bind(object())
    except TypeError as fault:
        raise TypeError(
            f"{name}{signature} cannot be called with just `turn` ({fault}); give it one parameter"
        ) from None
