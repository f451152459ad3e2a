"""Settings common to all services."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

SECTIONS = frozenset({"mesh", "gateway", "tokenizer", "proposer", "verifier", "kvcache"})
"""Tables of the configuration file, and middle parts of `OUTRIDER_<SECTION>_<KEY>`."""

Port = Annotated[int, Meta(ge=0, le=65535)]
Seconds = Annotated[float, Meta(ge=0, le=86400)]


class Settings(msgspec.Struct, kw_only=True, frozen=True):
    """Keys common to all services: the ``[mesh]`` table, or ``OUTRIDER_<KEY>``.

    A service extends it with its own keys, each ``Annotated[type, Meta(description=..., ge=...)]`` with a
    default; ``Meta(extra={"secret": True})`` keeps a value out of what is shown.
    """

    nats_url: Annotated[
        str,
        Meta(
            pattern=r"^(nats|tls)://[^\s,]+(,(nats|tls)://[^\s,]+)*$",
            description="NATS to join; servers of a cluster are separated by commas",
        ),
    ] = "nats://127.0.0.1:4222"
    nats_credentials: Annotated[
        str,
        Meta(
            description="file by which the process proves to NATS who it is: the seed of an nkey, or a .creds file; or "
            "a directory with a seed for each kind of process, KIND.nk; empty where NATS asks for neither"
        ),
    ] = ""
    nats_replicas: Annotated[
        Literal[1, 3, 5],
        Meta(
            description="servers of NATS's cluster that keep each stream and bucket of the mesh; gateways and commands "
            "create these with so many, and raise the number of those that exist"
        ),
    ] = 1
    nats_wait_s: Annotated[Seconds, Meta(description="seconds to wait for NATS at start")] = 60.0
    host: Annotated[
        str,
        Meta(
            description="address to listen on; empty takes 127.0.0.1 where NATS is reached there, else this machine's "
            "address on the way to NATS"
        ),
    ] = ""
    port: Annotated[Port, Meta(description="gRPC port (the gateway's HTTP port); 0 takes a free one")] = 0
    metrics_port: Annotated[Port, Meta(description="port of /healthz, /readyz and /metrics; 0 takes a free one")] = 0
    advertise: Annotated[
        str,
        Meta(
            pattern=r"^[^\s/]*$",
            description="host, or host:port, by which peers reach this process; empty takes `host`, or finds it out",
        ),
    ] = ""
    sockets: Annotated[
        str,
        Meta(
            description="directory of the Unix sockets by which KV caches and verifiers of one host reach each other; "
            "auto is one of this user's own, empty has them use TCP"
        ),
    ] = "auto"
    tls_certificate: Annotated[
        str,
        Meta(
            description="PEM file of the certificate with which this service calls others and is called; "
            "{kind} in it stands for gateway, verifier and so on; empty: services talk in the clear"
        ),
    ] = ""
    tls_key: Annotated[str, Meta(description="PEM file of that certificate's key; {kind} as above")] = ""
    tls_ca: Annotated[
        str, Meta(description="PEM file of the authorities that other services' certificates are from; {kind} as above")
    ] = ""
    metrics_tls: Annotated[
        bool, Meta(description="speak TLS on the metrics port too, with tls_certificate; callers need no certificate")
    ] = False
    instance: Annotated[
        str,
        Meta(pattern=r"^[A-Za-z0-9_-]{0,64}$", description="name of this process; empty takes a random one"),
    ] = ""
    residency: Annotated[
        str,
        Meta(
            pattern=r"^[A-Za-z0-9_-]{0,64}$",
            description="tag of the place where this process runs, such as eu, for tenants whose data has to stay "
            "somewhere; empty: none",
        ),
    ] = ""
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], Meta(description="least severity that is logged")
    ] = "info"
    log_format: Annotated[Literal["json", "console"], Meta(description="one JSON object a line, or for eyes")] = "json"
    metrics_names: Annotated[
        Literal["outrider", "both"],
        Meta(description="names of metrics in /metrics; both: Outrider's and vLLM's, for tools that read the latter"),
    ] = "outrider"
    trace_exporter: Annotated[
        str,
        Meta(
            pattern=r"^(none|console|otlp|file:.+)$",
            description="where spans go: none, console, otlp, which reads the OTEL_EXPORTER_OTLP_* variables, or "
            "file:PATH, to which all processes of a host may append",
        ),
    ] = "none"
    trace_ratio: Annotated[float, Meta(ge=0, le=1, description="part of the requests that is traced")] = 1.0
    audit_log: Annotated[
        str, Meta(description="file to which events of security are appended, or stderr; empty: none")
    ] = ""
    timeline: Annotated[
        str,
        Meta(description="file to which verifiers and proposers append the times of steps and messages; empty: none"),
    ] = ""
    drain_s: Annotated[Seconds, Meta(description="seconds that work in flight is given to end on SIGTERM")] = 20.0
