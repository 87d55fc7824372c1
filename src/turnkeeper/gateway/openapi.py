"""The document of the API, made of the table and of the shapes in `turnkeeper.api`.

Decides how an endpoint is described to programs. It must not know handlers. Invariant: every status
that an endpoint can answer is in the document, and its shape is the one that is sent.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from typing import Any, get_args

import msgspec

from turnkeeper import api
from turnkeeper.core.errors import (
    BUSY,
    FENCED,
    FORBIDDEN,
    INTERNAL,
    INVALID,
    SHUTTING_DOWN,
    STORE_DOWN,
    TOO_LARGE,
    UNAUTHORIZED,
    WRONG_HOST,
    WRONG_MEDIA,
    WRONG_ORIGIN,
    Code,
)  # fmt: skip
from turnkeeper.gateway.table import Endpoint, Told

Json = dict[str, Any]

REF = "#/components/schemas/{name}"
PROBLEM = {"application/problem+json": {"schema": {"$ref": REF.format(name="Problem")}}}

ANYWHERE: Sequence[Code] = (INVALID, INTERNAL, BUSY, SHUTTING_DOWN, STORE_DOWN, FENCED)
BEHIND_THE_DOOR: Sequence[Code] = (UNAUTHORIZED, FORBIDDEN, WRONG_ORIGIN, WRONG_HOST)
WITH_A_BODY: Sequence[Code] = (TOO_LARGE, WRONG_MEDIA)

RETRY = {"Retry-After": "seconds after which to ask again"}
CHALLENGE = {"WWW-Authenticate": "what kind of token is needed"}
HEADERS: Mapping[int, Mapping[str, str]] = {
    401: CHALLENGE, 403: CHALLENGE, 429: RETRY, 503: RETRY,
}  # fmt: skip

_PARAMETER = re.compile(r"{(\w+)}")


def document(endpoints: Sequence[Endpoint]) -> bytes:
    """OpenAPI 3.1, as JSON."""
    shapes, components = msgspec.json.schema_components(_shapes(endpoints), ref_template=REF)
    del shapes
    paths: dict[str, Json] = {}
    for endpoint in endpoints:
        path = paths.setdefault(endpoint.path, {})
        path[endpoint.method.lower()] = _operation(endpoint, components)
    whole = {
        "openapi": "3.1.0",
        "info": {
            "title": "Turnkeeper",
            "version": version("turnkeeper"),
            "description": "Runs AI agents for people and programs, and keeps every turn honest.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "x-websocket": {"path": "/v1/ws", "asked": _names(api.Incoming),
                        "told": _names(api.Outgoing)},
    }  # fmt: skip
    return msgspec.json.encode(whole)


def _shapes(endpoints: Iterable[Endpoint]) -> list[Any]:
    found: dict[Any, None] = {api.Problem: None, api.EventOut: None}
    for endpoint in endpoints:
        for shape in (endpoint.body, endpoint.query):
            if shape is not None:
                found[shape] = None
        if endpoint.form is not None:
            found[endpoint.form.shape] = None
        for told in endpoint.answers.values():
            if not isinstance(told.what, str):
                found[told.what] = None
    return [*found, *get_args(api.Incoming), *get_args(api.Outgoing)]


def _names(union: Any) -> list[Json]:
    return [{"$ref": REF.format(name=shape.__name__)} for shape in get_args(union)]


def _operation(endpoint: Endpoint, components: Mapping[str, Json]) -> Json:
    operation: Json = {
        "operationId": endpoint.does.__name__,
        "summary": endpoint.summary,
        "parameters": [*_in_path(endpoint), *_in_query(endpoint, components), *_headers(endpoint)],
        "responses": _responses(endpoint),
    }
    if endpoint.needs is not None:
        operation["security"] = [{"token": []}]
        operation["description"] = f"Needs a token of the scope `{endpoint.needs}`."
    if endpoint.body is not None:
        schema = {"schema": {"$ref": REF.format(name=endpoint.body.__name__)}}
        operation["requestBody"] = {
            "required": not endpoint.body_optional,
            "content": {"application/json": schema},
        }
    return operation


def _in_path(endpoint: Endpoint) -> list[Json]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _PARAMETER.findall(endpoint.path)
    ]


def _in_query(endpoint: Endpoint, components: Mapping[str, Json]) -> list[Json]:
    if endpoint.query is None:
        return []
    found = components[endpoint.query.__name__].get("properties", {})
    return [
        {"name": name, "in": "query", "required": False, "schema": schema}
        for name, schema in found.items()
    ]


def _headers(endpoint: Endpoint) -> list[Json]:
    return [
        {"name": name, "in": "header", "required": False, "description": told, "schema": schema}
        for name, (told, schema) in endpoint.headers.items()
    ]


def _responses(endpoint: Endpoint) -> Json:
    found: dict[int, Json] = {}
    for status, told in endpoint.answers.items():
        found[status] = _described(told)
    by_status: dict[int, list[Code]] = {}
    for code in _refusals(endpoint):
        by_status.setdefault(code.http, []).append(code)
    by_status |= {408: [BUSY], 431: [TOO_LARGE]}
    for status, codes in sorted(by_status.items()):
        told_all = "; ".join(f"{code.code} {code.title}" for code in codes)
        found[status] = {"description": told_all, "content": _refused(endpoint)}
        if status in HEADERS:
            found[status]["headers"] = _told_headers(HEADERS[status])
    return {str(status): found[status] for status in sorted(found)}


def _refused(endpoint: Endpoint) -> Json:
    """The door refuses in the usual form everywhere."""
    if endpoint.form is None:
        return PROBLEM
    schema = {"$ref": REF.format(name=endpoint.form.shape.__name__)}
    return {"application/json": {"schema": schema}, **PROBLEM}


def _refusals(endpoint: Endpoint) -> list[Code]:
    refusals = [*endpoint.refusals, *ANYWHERE]
    if endpoint.needs is not None:
        refusals += BEHIND_THE_DOOR
    if endpoint.body is not None:
        refusals += WITH_A_BODY
    return refusals


def _described(told: Told) -> Json:
    described: Json = {"description": told.meaning}
    if told.headers:
        described["headers"] = _told_headers(told.headers)
    if told.leads_to:
        described["links"] = {
            where: {"operationId": where, "parameters": {"id": f"$response.body#/{field}"}}
            for where, field in told.leads_to.items()
        }
    if told.what is api.Problem:
        described["content"] = PROBLEM
    elif not isinstance(told.what, str):
        schema = {"schema": {"$ref": REF.format(name=told.what.__name__)}}
        described["content"] = {"application/json": schema}
    elif told.what:
        described["content"] = {told.what: _schema_of(told.what)}
    for media in told.or_else:
        described["content"][media] = _schema_of(media)
    return described


def _schema_of(media: str) -> Json:
    """What is known of a body by its media type alone. OpenAPI 3.1 has no words for a stream."""
    if media == "text/event-stream":
        return {}
    return {"schema": {"type": "object" if media == "application/json" else "string"}}


def _told_headers(headers: Mapping[str, str]) -> Json:
    return {
        name: {"description": told, "schema": {"type": "string"}} for name, told in headers.items()
    }
