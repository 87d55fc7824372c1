"""What has to be carried from one session to another, whatever happens on the way.

Decides when it is tried again. It must not know what is carried. Invariant: it is done, or there is
nothing to do there any more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from turnkeeper.core.errors import Fenced, StoreDown, TurnkeeperError
from turnkeeper.ports import Elsewhere

log = logging.getLogger("turnkeeper.sessions")

Errand = Callable[[], Coroutine[Any, Any, object]]


async def persist(errand: Errand) -> None:
    """Do it, however long its store is down."""
    pause_s = 0.1
    while True:
        try:
            await errand()
            return
        except (StoreDown, Fenced):
            pass
        except Elsewhere:
            return
        except TurnkeeperError as refused:
            log.info("nothing to do there: %s", refused)
            return
        except Exception:
            log.exception("an errand between sessions failed, and is tried again")
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * 2, 5.0)
