"""The part of a broker's configuration that makes it one server of a cluster."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from outrider.mesh.addresses import join
from outrider.mesh.security import Files

NAME = "outrider"
PORT = 6222
_USER = "route"


def cluster_part(hosts: Sequence[str], password: str, files: Files | None) -> str:
    """The same text for all servers on ``hosts``, which find each other at `PORT` of these.

    They show each other ``password`` and, with ``files``, certificates of the authorities there; a server's certificate
    has to have its host among its names.
    """
    routes = [f"nats://{_USER}:{password}@{join(host, PORT)}" for host in hosts]
    content: dict[str, object] = {"name": NAME, "listen": f"0.0.0.0:{PORT}", "routes": routes}
    content["authorization"] = {"user": _USER, "password": password}
    if files:
        named = {"cert_file": files.certificate, "key_file": files.key, "ca_file": files.authorities}
        content["tls"] = {key: str(path) for key, path in named.items()} | {"verify": True}
    return f"cluster: {msgspec.json.format(msgspec.json.encode(content), indent=2).decode()}\n"
