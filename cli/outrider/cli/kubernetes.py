"""Folders of credentials as Secrets of Kubernetes, written by a pod with a service account."""

from __future__ import annotations

import ssl
from base64 import b64encode
from pathlib import Path

import httpx
from outrider.mesh.errors import ConfigError

API = "https://kubernetes.default.svc"
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod finds its token, the authority of the API and its namespace."""
_PATIENCE_S = 10.0
_MERGE = "application/merge-patch+json"


def write_secrets(folders: Path, prefix: str, api: str = API, account: Path = ACCOUNT) -> None:
    """Writes the files of each folder in ``folders`` into the Secret ``<prefix>-<folder>`` of the pod's namespace.

    The Secrets have to exist: the account needs the right to patch them, and no other. Keys that are in a Secret and in
    no file stay. `ConfigError` if the account cannot be read, or the API does not take a Secret.
    """
    with _client(api, account) as http:
        path = f"/api/v1/namespaces/{_read(account / 'namespace')}/secrets"
        for folder in sorted(folders.iterdir()):
            content = {file.name: b64encode(file.read_bytes()).decode() for file in sorted(folder.iterdir())}
            _patch(http, f"{path}/{prefix}-{folder.name}", content)


def _client(api: str, account: Path) -> httpx.Client:
    authority = account / "ca.crt"
    try:
        trust = ssl.create_default_context(cafile=authority)
    except OSError as error:
        raise ConfigError(f"{authority} is not the authority of a cluster: {error.strerror}") from None
    headers = {"Authorization": f"Bearer {_read(account / 'token')}"}
    return httpx.Client(base_url=api, verify=trust, headers=headers, timeout=_PATIENCE_S, trust_env=False)


def _patch(http: httpx.Client, path: str, content: dict[str, str]) -> None:
    try:
        response = http.patch(path, json={"data": content}, headers={"Content-Type": _MERGE})
    except httpx.TransportError as error:
        raise ConfigError(f"the API of the cluster cannot be reached at {http.base_url}: {error}") from None
    if response.is_error:
        raise ConfigError(f"the API of the cluster refused {path} with status {response.status_code}")


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}; only pods have a service account") from None
