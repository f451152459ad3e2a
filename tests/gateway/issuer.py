"""An issuer of tokens: a real HTTP server of this host, with keys of its own."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1
from cryptography.hazmat.primitives.asymmetric.ec import generate_private_key as new_ec_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key as new_rsa_key
from jwt.algorithms import get_default_algorithms
from outrider.gateway.identity.bearer_tokens import LEEWAY_S
from outrider.mesh.addresses import hold_port

AUDIENCE = "outrider"
KEYS: dict[str, Callable[[], Any]] = {
    "EdDSA": Ed25519PrivateKey.generate,
    "ES256": lambda: new_ec_key(SECP256R1()),
    "RS256": lambda: new_rsa_key(65537, 2048),
}


class LocalIssuer:
    """Serves discovery and its keys on a port that stays its own.

    Attributes:
        keys: Private keys and their algorithms by id.
        requests: Paths that were asked for.
        documents: Answers by path, in place of the right ones.
    """

    def __init__(self) -> None:
        self.port = hold_port()
        self.keys: dict[str, tuple[str, Any]] = {}
        self.requests: list[str] = []
        self.documents: dict[str, bytes] = {}
        self._server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        """The issuer's name."""
        return f"http://127.0.0.1:{self.port}"

    def add_key(self, id_: str, algorithm: str = "EdDSA") -> None:
        """Makes a key."""
        self.keys[id_] = algorithm, KEYS[algorithm]()

    def jwk(self, id_: str) -> dict[str, Any]:
        """A public key as JSON."""
        algorithm, key = self.keys[id_]
        document = get_default_algorithms()[algorithm].to_jwk(key.public_key(), as_dict=True)
        return dict(document) | {"kid": id_, "use": "sig"}

    def token(self, id_: str, *, headers: dict[str, Any] | None = None, **claims: Any) -> str:
        """A token for a minute; a claim that is None is left out."""
        algorithm, key = self.keys[id_]
        whole = {"iss": self.url, "aud": AUDIENCE, "sub": "alice", "exp": int(time.time()) + 60, "tenant": "acme"}
        whole = {name: value for name, value in (whole | claims).items() if value is not None}
        return jwt.encode(whole, key, algorithm, {"kid": id_} | (headers or {}))

    def ends_in(self, seconds: float) -> dict[str, Any]:
        """Claims of a token that gateways take for another ``seconds``."""
        return {"exp": int(time.time() + seconds - LEEWAY_S)}

    def start(self) -> None:
        """Listens."""
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.requests.append(self.path)
                body = issuer.answer(self.path)
                self.send_response(404 if body is None else 200)
                self.send_header("content-length", str(len(body or b"")))
                self.end_headers()
                self.wfile.write(body or b"")

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def stop(self) -> None:
        """Is away until the next start."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def answer(self, path: str) -> bytes | None:
        """The document at ``path``."""
        documents = {
            "/.well-known/openid-configuration": {"issuer": self.url, "jwks_uri": f"{self.url}/keys"},
            "/keys": {"keys": [self.jwk(id_) for id_ in self.keys]},
        }
        if path in self.documents:
            return self.documents[path]
        return json.dumps(documents[path]).encode() if path in documents else None
