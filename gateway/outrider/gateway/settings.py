"""The gateway's settings."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from msgspec import Meta, Struct
from outrider.gateway.observer.settings import MeasuringSettings
from outrider.mesh.config.settings import Port, Seconds


class Bounds(Struct, frozen=True):
    """Bounds of a request: bytes of its line and headers, number of headers, and seconds.

    ``header_s`` is the time from the first byte to the last header, ``body_idle_s`` the time between parts of a body.
    """

    header_bytes: int = 64 << 10
    headers: int = 100
    header_s: float = 10.0
    body_idle_s: float = 20.0


class Issuer(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """An issuer of bearer tokens, and the claims that say what the bearer of a token may do.

    ``issuer`` and ``audience`` are the values of ``iss`` and ``aud``. ``jwks`` is the URL or the file of the issuer's
    public keys; if it is empty, they are found by OpenID Connect Discovery. An empty ``limits_claim`` reads no limits.
    """

    issuer: str
    audience: Annotated[str, Meta(min_length=1)]
    jwks: str = ""
    tenant_claim: str = "tenant"
    scopes_claim: str = "scope"
    limits_claim: str = ""

    def __post_init__(self) -> None:
        """Raises `ValueError` for a URL that is not protected."""
        require_protected(self.issuer)
        if "://" in self.jwks:
            require_protected(self.jwks)


class AbuseSettings(Struct, frozen=True):
    """The most that a key, a tenant or an address may do in a window of time before it is suspect; 0 is any number."""

    window_s: Annotated[float, Meta(gt=0, le=3600, description="seconds in which requests are counted together")] = 60.0
    rate_factor: Annotated[
        float, Meta(ge=0, description="requests by the caller's usual number; see also rate_least")
    ] = 10.0
    rate_least: Annotated[int, Meta(ge=1, description="requests that are never too many for the caller")] = 300
    refusals: Annotated[int, Meta(ge=0, description="requests that are refused: 400, 401, 403 and limits")] = 100
    prompt_choices: Annotated[int, Meta(ge=0, description="random answers to one prompt")] = 500
    prefix_requests: Annotated[
        int, Meta(ge=0, description="prompts with one beginning whose answers have 4 tokens at most")
    ] = 1000
    logprobs_requests: Annotated[
        int, Meta(ge=0, description="requests for 10 logprobs a token or more and 4 tokens at most")
    ] = 500
    delay_s: Annotated[
        float, Meta(ge=0, le=10, description="seconds by which the requests of a suspect caller are delayed; 0: none")
    ] = 0.0


class GatewaySettings(MeasuringSettings, kw_only=True, frozen=True):
    """Settings of the gateway, in the configuration's ``[gateway]`` table. ``port`` is that of HTTP."""

    host: Annotated[str, Meta(min_length=1, description="address to listen on, for clients too")] = "127.0.0.1"
    port: Annotated[Port, Meta(description="HTTP port; 0 takes a free one")] = 8080
    share_port: Annotated[
        bool, Meta(description="let other gateways on this machine that say so too serve the same HTTP port")
    ] = False
    leave_s: Annotated[
        Seconds,
        Meta(description="seconds of drain_s in which new connections are still taken, and /readyz says 503"),
    ] = 0.0
    grpc_host: Annotated[str, Meta(description="address of the gRPC API; empty takes that of HTTP")] = ""
    grpc_port: Annotated[Port, Meta(description="port of the gRPC API; 0 takes a free one")] = 0
    door_certificate: Annotated[
        str,
        Meta(
            description="PEM file of the certificate that clients see at the HTTP and gRPC APIs; empty: HTTP in "
            "the clear, and gRPC with tls_certificate if that is set"
        ),
    ] = ""
    door_key: Annotated[str, Meta(description="PEM file of that certificate's key")] = ""
    usage_log: Annotated[
        str,
        Meta(description="file to which a line is appended for each request that was answered, or stderr; empty: none"),
    ] = ""
    nats_door: Annotated[bool, Meta(description="answer requests on outrider.v1.generate and the like, over NATS")] = (
        True
    )
    nats_request_s: Annotated[
        float, Meta(gt=0, le=86400, description="seconds after which a request that came over NATS is ended")
    ] = 600.0
    playground: Annotated[bool, Meta(description="serve a page at / on which people can try the models")] = True
    parameters: Annotated[
        Literal["lenient", "strict"],
        Meta(description="strict: refuse parameters that are unknown or have no effect; lenient: name them in answers"),
    ] = "lenient"
    thought_key_file: Annotated[
        str,
        Meta(
            description="file of 64 bytes, the same for all gateways, by which clients keep thoughts; empty: one each"
        ),
    ] = ""
    grammar_tokens: Annotated[
        bool,
        Meta(description="let grammars of clients name special tokens, where neither tenant nor key has that limit"),
    ] = False
    chat_templates: Annotated[
        bool, Meta(description="let requests bring a chat_template, a program that tokenizers run within bounds")
    ] = False
    max_body_bytes: Annotated[int, Meta(ge=1024, description="most bytes of a request's body")] = 8 << 20
    max_header_bytes: Annotated[
        int, Meta(ge=4096, le=1 << 20, description="most bytes of a request's line and headers")
    ] = 64 << 10
    max_headers: Annotated[int, Meta(ge=20, le=1000, description="most headers of a request")] = 100
    header_s: Annotated[
        float, Meta(gt=0, le=600, description="seconds from a request's first byte to the last of its headers")
    ] = 10.0
    body_idle_s: Annotated[
        float, Meta(gt=0, le=60, description="seconds that a request's body may pause; it may take 60 in all")
    ] = 20.0
    keepalive_s: Annotated[
        Seconds,
        Meta(description="seconds of silence after which an HTTP stream tells that it lives, for proxies; 0: never"),
    ] = 10.0
    obfuscation_bytes: Annotated[
        int, Meta(ge=256, le=1 << 16, description="bytes of each cell of an obfuscated stream")
    ] = 1024
    obfuscation_tick_s: Annotated[
        float, Meta(gt=0, le=10, description="seconds from one cell of an obfuscated stream to the next")
    ] = 0.05
    obfuscation_cells: Annotated[
        int, Meta(ge=1, le=1 << 16, description="the number of cells of an obfuscated stream is a multiple of this")
    ] = 64
    max_connections: Annotated[
        int,
        Meta(ge=1, description="most open HTTP connections; fewer where the process may not open as many files"),
    ] = 8000
    max_connections_per_address: Annotated[
        int, Meta(ge=1, description="most of them from one address; trusted_proxies may have any number")
    ] = 2000
    silence_s: Annotated[
        float,
        Meta(gt=0, le=60, description="seconds without a frame after which the verifier itself is asked for it"),
    ] = 1.0
    heartbeat_s: Annotated[
        float,
        Meta(gt=0, le=600, description="seconds without a heartbeat after which a verifier that is followed is lost"),
    ] = 15.0
    place_s: Annotated[Seconds, Meta(description="seconds to look for services that can take a new request")] = 15.0
    aliases: Annotated[
        dict[str, str],
        Meta(description="further names by which requests may ask for models, each with the name of its model"),
    ] = {}
    cold_models: Annotated[
        list[str],
        Meta(description="names of models that may have no verifier at the moment; a request for one waits"),
    ] = []
    cold_place_s: Annotated[
        Seconds, Meta(description="seconds to wait for services that serve one of cold_models, in the place of place_s")
    ] = 600.0
    resume_s: Annotated[
        Seconds, Meta(description="seconds to look for a verifier that goes on with a stream whose own was lost")
    ] = 120.0
    most_deaths: Annotated[
        int,
        Meta(
            ge=1,
            description="verifiers in a row whose deaths end a request that was on its own at the last one",
        ),
    ] = 3
    lease_s: Annotated[
        float,
        Meta(gt=0, le=3600, description="seconds after which verifiers drop the requests of a gateway that died"),
    ] = 10.0
    linger_s: Annotated[
        Seconds, Meta(description="seconds that a stream which asked for it goes on after its client has left")
    ] = 30.0
    replay_s: Annotated[
        float, Meta(ge=1, description="seconds that a stream can be resumed, from its beginning on; needs JetStream")
    ] = 3600.0
    replay_bytes: Annotated[
        int, Meta(ge=1 << 20, description="most bytes of tokens, and of requests, that JetStream keeps for resuming")
    ] = 512 << 20
    auth: Annotated[
        Literal["none", "keys"], Meta(description="keys: requests need a key of `outrider keys`, and limits hold")
    ] = "none"
    limit_store: Annotated[
        str,
        Meta(description="where limits are counted: nats, which gateways share; memory, for one; or a plug-in"),
    ] = "nats"
    keys_stale_s: Annotated[
        Seconds, Meta(description="seconds for which known keys are still taken while NATS, or an issuer, is away")
    ] = 300.0
    issuers: Annotated[
        list[Issuer],
        Meta(description="with auth = keys, tables of issuers whose bearer tokens are taken beside keys"),
    ] = []
    failed_authentications: Annotated[
        int,
        Meta(ge=1, description="wrong keys of an address, or for a key, in a minute; more get 429 for a minute"),
    ] = 20
    admin_address: Annotated[
        str,
        Meta(
            pattern=r"^$|^(\[[^\]]+\]|[^:\[\]]+):\d+$", description="host:port of the admin API; empty: there is none"
        ),
    ] = ""
    abuse: AbuseSettings = AbuseSettings()
    router: Annotated[
        str, Meta(description="who is asked first, by plug-in name: least_load, prefix, cost or round_robin")
    ] = "least_load"
    router_options: Annotated[
        dict[str, Any], Meta(description="settings of that router, and of sessions: sticky, sticky_imbalance")
    ] = {}
    filters: Annotated[
        list[str], Meta(description="filters of every answer, in order; tenants and keys may have further ones")
    ] = []
    filter_options: Annotated[
        dict[str, dict[str, Any]],
        Meta(description="filters by name, each with plugin, timeout_s, fail_open and its own options"),
    ] = {}
    coalesce: Annotated[
        bool, Meta(description="requests of a tenant that ask for the very same at one time share one generation")
    ] = True
    cache_bytes: Annotated[
        int, Meta(ge=0, description="most bytes of answers kept for requests that ask for the very same; 0 keeps none")
    ] = 0
    cache_s: Annotated[float, Meta(gt=0, description="seconds that an answer is kept")] = 300.0
    cache_fast: Annotated[
        bool, Meta(description="keep answers of verifiers too that might give another one: determinism fast, or lossy")
    ] = False
    submit_s: Annotated[
        float,
        Meta(gt=0, le=60, description="seconds that a verifier has to take a request before the next is asked"),
    ] = 5.0
    breaker_failures: Annotated[
        int, Meta(ge=1, description="requests in a row that a verifier leaves unanswered before it is asked last")
    ] = 3
    breaker_open_s: Annotated[
        Seconds, Meta(description="seconds after which a verifier that is asked last is probed with a request")
    ] = 5.0
    trusted_proxies: Annotated[
        list[str], Meta(description="networks (CIDRs) of proxies whose X-Forwarded-For is believed")
    ] = []
    cors_origins: Annotated[
        list[str],
        Meta(description="origins of web pages that may use the API, as https://app.example.com; * for all"),
    ] = []

    @property
    def http_bounds(self) -> Bounds:
        """The bounds of a request over HTTP."""
        return Bounds(self.max_header_bytes, self.max_headers, self.header_s, self.body_idle_s)

    def __post_init__(self) -> None:
        """Raises `ValueError` for a network or an origin that is none, and for settings that exclude each other."""
        if self.leave_s > self.drain_s:
            raise ValueError(f"leave_s may be at most drain_s, {self.drain_s:g}, not {self.leave_s:g}")
        if self.admin_address and self.auth == "none":
            raise ValueError("admin_address is set and auth is none: the admin API needs auth = keys")
        for network in self.trusted_proxies:
            try:
                ip_network(network)
            except ValueError as error:
                raise ValueError(f"trusted_proxies: {error}") from None
        for origin in self.cors_origins:
            try:
                _require_origin(origin)
            except ValueError as error:
                raise ValueError(f"cors_origins: {error}") from None
        names = [issuer.issuer for issuer in self.issuers]
        if len(set(names)) < len(names):
            raise ValueError("issuers: each issuer may be named once")
        if names and self.auth != "keys":
            raise ValueError('issuers: tokens are only taken with auth = "keys"')


def require_protected(url: str) -> None:
    """`ValueError` unless ``url`` is one of https, or of this host."""
    parts = urlsplit(url)
    local = parts.scheme == "http" and parts.hostname in ("localhost", "127.0.0.1", "::1")
    if not (parts.hostname and (parts.scheme == "https" or local)):
        raise ValueError(f"{url!r} is not protected: an issuer's URL begins with https://, or http://localhost")


def _require_origin(text: str) -> None:
    """`ValueError` unless ``text`` is ``*`` or an origin as browsers write it (RFC 6454, 6.2): no path, no slash."""
    parts = urlsplit(text)
    origin = f"{parts.scheme}://{parts.netloc}"
    if text != "*" and not (parts.scheme and parts.netloc and text == origin.lower() and "@" not in text):
        raise ValueError(f"{text!r} is no origin: write it as https://app.example.com, or http://localhost:3000, or *")
