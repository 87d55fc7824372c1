"""The voice of Gemini's generateContent. Knows its form; must not know plans or sockets."""

from __future__ import annotations

import json

from turnkeeper.testing.model.voices import Asked, Event, Json, Tool, texts_of


def read(body: Json, model: str, stream: bool) -> Asked:
    contents = body.get("contents", [])
    parts = contents[-1].get("parts", []) if contents else []
    results = [p["functionResponse"] for p in parts if "functionResponse" in p]
    declared = [d for t in body.get("tools", []) for d in t.get("functionDeclarations", [])]
    return Asked(
        "gemini",
        model,
        stream,
        texts_of(parts),
        json.dumps(results[-1].get("response")) if results else None,
        tuple(
            Tool(d["name"], d.get("parametersJsonSchema") or d.get("parameters") or {})
            for d in declared
        ),
    )


class Gemini:
    """Each chunk is a whole candidate; the last one says why it ends."""

    def __init__(self, asked: Asked, number: int) -> None:
        self._number = number
        self._model = asked.model
        self._parts: list[Json] = []

    def begin(self) -> list[Event]:
        return []

    def thinking(self, text: str) -> list[Event]:
        return self._part({"text": text, "thought": True})

    def text(self, text: str) -> list[Event]:
        return self._part({"text": text})

    def tool(self, name: str, given: Json) -> list[Event]:
        call = {"id": f"call_{self._number}", "name": name, "args": given}
        return self._part({"functionCall": call})

    def ping(self) -> list[Event]:
        return [(None, None)]

    def end(self) -> list[Event]:
        return [(None, self._candidate([{"text": ""}], "STOP"))]

    def whole(self) -> Json:
        return self._candidate(self._parts, "STOP")

    def error(self, status: int) -> Json:
        name = {429: "RESOURCE_EXHAUSTED", 400: "INVALID_ARGUMENT", 503: "UNAVAILABLE"}
        said = {"code": status, "message": f"scripted {status}"}
        return {"error": {**said, "status": name.get(status, "INTERNAL")}}

    def _part(self, part: Json) -> list[Event]:
        self._parts.append(part)
        return [(None, self._candidate([part]))]

    def _candidate(self, parts: list[Json], reason: str | None = None) -> Json:
        candidate: Json = {"content": {"role": "model", "parts": parts}, "index": 0}
        if reason:
            candidate["finishReason"] = reason
        usage = {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15}
        return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": self._model}
