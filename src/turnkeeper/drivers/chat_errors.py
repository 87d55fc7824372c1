"""What a model API's refusals and failures mean for a turn, in words that say what to do.

Decides which ending a fault leads to. It must not know turns. Invariant: no key is ever in the
words, also if the API repeats it.
"""

from __future__ import annotations

import re

from turnkeeper.core import signals as s
from turnkeeper.drivers.chat_apis import Api
from turnkeeper.net.retry import SPENT, is_spent
from turnkeeper.net.types import HttpFailure, shown
from turnkeeper.wire.model import ModelError, http_error

TOO_LONG = re.compile(
    r"context.?length|context.?window|context.?limit|prompt is too long|maximum context"
    r"|too many (input )?tokens|input is too long|exceeds? the (maximum|available) context",
    re.I,
)
KEY_SHOWN = "[key]"


def redacted(text: str, key: str) -> str:
    return text.replace(key, KEY_SHOWN) if key else text


def no_key(api: Api) -> s.Failed:
    return s.Failed(
        f"no key for {shown(api.url)}: {api.key_env} is not set."
        f" Set it in the environment of the server, or name another variable as key_env."
    )


def is_refusal_of_content(failure: HttpFailure) -> bool:
    """The API will not have this conversation as it is: asking again would not help."""
    return failure.status in {400, 413, 422}


def of_failure(failure: HttpFailure, api: Api, key: str) -> s.Failed | s.Broken:
    """A request that was refused, or that came to nothing."""
    where = shown(api.url)
    if failure.status is None or failure.kind != "status":
        if failure.kind == "protocol":
            told = f"{failure}. Check that url is the address of a model API."
            return s.Broken("protocol_error", redacted(told, key))
        return s.Failed(redacted(f"{failure}. It was not asked again; send it again.", key))
    error = http_error(failure.status, failure.body)
    told = redacted(error.message, key)
    return s.Failed(f"{where} answered {failure.status}: {told}. {_advice(failure, error, api)}")


def _advice(failure: HttpFailure, error: ModelError, api: Api) -> str:
    status = failure.status or 0
    if is_too_long(error):
        return (
            "The conversation is longer than the model's context; this message is not remembered."
            " Begin a new session, or send less."
        )
    if status == 402 or is_spent(failure.body):
        return _more_quota(api)
    if status == 401:
        return f"The key was refused: set {api.key_env} to one that is valid."
    if status == 403:
        return f"The key in {api.key_env} may not do that, or the model {_model(api)} is not open."
    if status == 404:
        return f"Check the model's name ({_model(api)}) and the url."
    if status in {400, 413, 422}:
        return "The request was refused as it is; this message is not remembered."
    if status in {429, 529, 503}:
        asked = failure.retry_after_s
        beyond = asked and not failure.permanent
        when = f"in {asked:g} s, which is beyond this run's time" if beyond else "later"
        times = "once" if failure.tries == 1 else f"{failure.tries} times"
        return f"It was asked {times}; send it again {when}."
    return "The fault is there; send it again."


def _more_quota(api: Api) -> str:
    return (
        f"The account of the key in {api.key_env} has used up what it may, and waiting does not"
        " change that: see its credit, its plan and its limits, or set another key."
    )


def _model(api: Api) -> str:
    return api.options.model


def is_too_long(error: ModelError) -> bool:
    return bool(TOO_LONG.search(error.message) or TOO_LONG.search(error.type))


def of_stream(error: ModelError, api: Api, key: str, kind: str) -> s.Failed | s.Broken:
    """An error within an answer that had begun. `kind` is the answer's content type."""
    where, told = shown(api.url), redacted(error.message, key)
    if error.type == "invalid_stream":
        return s.Broken("protocol_error", f"{where} sent {told}")
    if error.type == "truncated":
        if "event-stream" not in kind:
            advice = "Check that url is the address of a model API that streams."
            said = f"{where} answered with {kind or 'no content type'}, not with a stream. {advice}"
            return s.Broken("protocol_error", said)
        return s.Failed(f"{where}: {told}. What it had said is kept; send it again to go on.")
    if is_too_long(error):
        return s.Failed(
            f"{where}: {told}. The conversation is longer than the model's context."
            " Begin a new session, or send less."
        )
    if error.type in SPENT:
        return s.Failed(f"{where} broke off with {error.type}: {told}. {_more_quota(api)}")
    again = " Send it again later." if error.retryable else ""
    return s.Failed(f"{where} broke off with {error.type}: {told}.{again}")
