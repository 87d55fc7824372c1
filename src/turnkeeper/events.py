"""The events of a session's log, for those who read them: `from turnkeeper import events`.

Decides nothing: it is the public name of what `turnkeeper.core.events` lets others use. Invariant:
the types are the very same, so that `match event.data:` works by either name.
"""

from turnkeeper.core.events import *  # noqa: F403 - its `__all__` is the list
from turnkeeper.core.events import __all__ as __all__
