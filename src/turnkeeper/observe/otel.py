"""Hands finished spans to OpenTelemetry. The only module that imports it (the extra `otel`).

Decides nothing about spans: it translates. It must not know events. Invariant: ids are the ones
that it is given; the sampler's word about a trace is the same for every span of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points

from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import Decision, Sampler
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from turnkeeper.core.errors import MISSING_PART, InvalidValue, TurnkeeperError
from turnkeeper.observe.span import Span

EXPORTERS = "opentelemetry_traces_exporter"
PROTOCOLS = {"grpc": "otlp_proto_grpc", "http/protobuf": "otlp_proto_http"}
PACKAGES = {
    "otlp_proto_grpc": "opentelemetry-exporter-otlp-proto-grpc",
    "otlp_proto_http": "opentelemetry-exporter-otlp-proto-http",
}


class _Given(IdGenerator):
    """The ids of the span that is being made."""

    def __init__(self) -> None:
        self.trace = self.span = 1

    def generate_trace_id(self) -> int:
        return self.trace

    def generate_span_id(self) -> int:
        return self.span


class Sender:
    """Makes spans that have already happened, and gives them to the processor."""

    def __init__(
        self, processor: SpanProcessor, *, version: str = "", sampler: Sampler | None = None
    ) -> None:
        self._ids = _Given()
        self._provider = TracerProvider(
            sampler=sampler, resource=_resource(version), id_generator=self._ids,
            shutdown_on_exit=False,
        )  # fmt: skip
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("turnkeeper", version or None)

    def send(self, span: Span) -> None:
        self._ids.trace, self._ids.span = span.trace, span.id
        links = [] if span.link is None else [Link(self._context(span.trace, span.link))]
        above = Context()
        if span.parent is not None:
            held = NonRecordingSpan(self._context(span.trace, span.parent))
            above = set_span_in_context(held, above)
        made = self._tracer.start_span(
            span.name, above, attributes=dict(span.values), links=links, start_time=_ns(span.start)
        )
        for note in span.notes:
            made.add_event(note.name, dict(note.values), _ns(note.at))
        if span.fault is not None:
            made.set_status(Status(StatusCode.ERROR, span.fault))
        made.end(_ns(max(span.start, span.end)))

    def close(self, within_s: float) -> None:
        """Send what waits, for so long at most. Blocks."""
        self._provider.force_flush(int(within_s * 1000))
        self._provider.shutdown()

    def _context(self, trace: int, span: int) -> SpanContext:
        decision = self._provider.sampler.should_sample(None, trace, "run").decision
        sampled = decision is Decision.RECORD_AND_SAMPLE
        flags = TraceFlags(TraceFlags.SAMPLED if sampled else TraceFlags.DEFAULT)
        return SpanContext(trace, span, is_remote=True, trace_flags=flags)


def _resource(version: str) -> Resource:
    """What the operator's variables say of this service; its own name, unless they name it."""
    found = Resource.create({"service.version": version} if version else {})
    if str(found.attributes.get("service.name", "")).startswith("unknown_service"):
        found = found.merge(Resource({"service.name": "turnkeeper"}))
    return found


def processor_of(environ: Mapping[str, str]) -> SpanProcessor:
    """What `OTEL_TRACES_EXPORTER` names (`otlp`, unless it says otherwise), sending in batches."""
    name = environ.get("OTEL_TRACES_EXPORTER", "") or "otlp"
    if name == "otlp":
        protocol = environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "") or "http/protobuf"
        if protocol not in PROTOCOLS:
            allowed = f"give {' or '.join(PROTOCOLS)}"
            raise InvalidValue("OTEL_EXPORTER_OTLP_PROTOCOL", protocol, allowed)
        name = PROTOCOLS[protocol]
    for found in entry_points(group=EXPORTERS, name=name):
        return BatchSpanProcessor(found.load()())
    package = PACKAGES.get(name)
    todo = f"pip install {package}" if package else "check OTEL_TRACES_EXPORTER"
    raise TurnkeeperError(MISSING_PART, f"there is no exporter {name} for spans: {todo}")


def _ns(at: float) -> int:
    return int(at * 1_000_000_000)
