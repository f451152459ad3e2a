"""The commands `outrider tenants` and `outrider keys`; their work is `outrider.cli.stores.records`."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from outrider.cli.commands.arguments import Config, NatsUrl

if TYPE_CHECKING:
    from outrider.cli.stores.records import Records

tenants_app = typer.Typer(help="Tenants: who may use a gateway with auth = keys, and how much.", no_args_is_help=True)
keys_app = typer.Typer(help="Keys of tenants; gateways notice a change within seconds.", no_args_is_help=True)

LimitOptions = Annotated[
    list[str] | None,
    typer.Option("--limit", metavar="NAME=VALUE", help="Such as tokens_per_minute=60000; none lifts it."),
]
TenantOption = Annotated[str | None, typer.Option(help="Keys of this tenant only.")]
KeyId = Annotated[str, typer.Argument(metavar="ID", help="ID of the key: the part between the dashes of sk-ID-...")]


@tenants_app.command("set")
def tenants_set(
    name: Annotated[str, typer.Argument(help="1 to 64 letters, digits, - and _.")],
    limits: LimitOptions = None,
    nats_url: NatsUrl = None,
    config: Config = None,
) -> None:
    """Create a tenant, or change its limits."""
    _run(lambda records: records.set_tenant(name, limits or []), nats_url, config)


@tenants_app.command("list")
def tenants_list(nats_url: NatsUrl = None, config: Config = None) -> None:
    """List the tenants."""
    _run(lambda records: records.list_tenants(), nats_url, config)


@tenants_app.command("show")
def tenants_show(name: str, nats_url: NatsUrl = None, config: Config = None) -> None:
    """Show a tenant's limits."""
    _run(lambda records: records.show_tenant(name), nats_url, config)


@tenants_app.command("disable")
def tenants_disable(name: str, nats_url: NatsUrl = None, config: Config = None) -> None:
    """Refuse a tenant's keys and tokens, and end its running requests."""
    _run(lambda records: records.switch_tenant(name, disabled=True), nats_url, config)


@tenants_app.command("enable")
def tenants_enable(name: str, nats_url: NatsUrl = None, config: Config = None) -> None:
    """Serve a disabled tenant again."""
    _run(lambda records: records.switch_tenant(name, disabled=False), nats_url, config)


@tenants_app.command("erase")
def tenants_erase(
    name: Annotated[str, typer.Argument(help="Tenant to erase.")],
    wait: Annotated[float, typer.Option(help="Seconds to wait for services that do not answer.", min=1)] = 15.0,
    nats_url: NatsUrl = None,
    config: Config = None,
) -> None:
    """End a tenant's streams, withdraw its keys, and erase all data of the tenant; exit code 1 if some may be left."""
    from outrider.cli.stores.erasure import run

    raise typer.Exit(run(name, wait, nats_url, config))


@keys_app.command("create")
def keys_create(
    tenant: Annotated[str, typer.Option(help="Tenant that owns the key.")],
    label: Annotated[str, typer.Option(help="Purpose of the key.")] = "",
    expires: Annotated[str | None, typer.Option(help="Lifetime of the key: 90d, 12h, 30m, 45s.")] = None,
    limits: LimitOptions = None,
    scopes: Annotated[
        list[str] | None,
        typer.Option("--scope", help="http, grpc, nats or admin, once for each; without, all APIs and no admin."),
    ] = None,
    nats_url: NatsUrl = None,
    config: Config = None,
) -> None:
    """Create a key and print it; it cannot be shown again."""
    _run(lambda records: records.create(tenant, label, expires, limits or [], scopes or []), nats_url, config)


@keys_app.command("list")
def keys_list(tenant: TenantOption = None, nats_url: NatsUrl = None, config: Config = None) -> None:
    """List keys and their states."""
    _run(lambda records: records.list_keys(tenant), nats_url, config)


@keys_app.command("show")
def keys_show(key: KeyId, nats_url: NatsUrl = None, config: Config = None) -> None:
    """Show a key's record."""
    _run(lambda records: records.show_key(key), nats_url, config)


@keys_app.command("rotate")
def keys_rotate(
    key: KeyId,
    grace: Annotated[str, typer.Option(help="How long the old key stays valid: 1d, 12h, 0s.")] = "1d",
    nats_url: NatsUrl = None,
    config: Config = None,
) -> None:
    """Create a key like an old one and print it; the old key expires."""
    _run(lambda records: records.rotate(key, grace), nats_url, config)


@keys_app.command("revoke")
def keys_revoke(
    key: Annotated[str | None, typer.Argument(metavar="[ID]", help="ID of the key.")] = None,
    tenant: Annotated[str | None, typer.Option(help="All keys of this tenant.")] = None,
    nats_url: NatsUrl = None,
    config: Config = None,
) -> None:
    """Revoke a key, or all keys of a tenant, for good."""
    if (key is None) == (tenant is None):
        raise typer.BadParameter("give the ID of a key, or --tenant for all of a tenant")
    _run(lambda records: records.revoke(key) if key else records.revoke_all(tenant or ""), nats_url, config)


def _run(work: Callable[[Records], Coroutine[Any, Any, None]], nats_url: str | None, config: Path | None) -> None:
    from outrider.cli.stores.records import run

    raise typer.Exit(run(work, nats_url, config))
