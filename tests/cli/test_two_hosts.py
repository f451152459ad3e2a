"""Two hosts with one broker, each with its own `outrider up`: two network namespaces that a cable joins."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import msgspec
import pytest

from tests.broker import NATS_SERVER
from tests.cli.running import READY, Up

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif("CLUSTER" not in os.environ, reason="takes half a minute: make cluster"),
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("ip") is None, reason="only root makes network namespaces"),
]

STREAMS, TOKENS = 8, 1500
ADDRESSES = ("10.231.7.1", "10.231.7.2")
BROKER = f"nats://{ADDRESSES[0]}:4222"


class Host:
    """A network namespace with one address."""

    def __init__(self, name: str, address: str) -> None:
        self.name, self.address = name, address

    @property
    def within(self) -> tuple[str, ...]:
        """The command that runs others here."""
        return "ip", "netns", "exec", self.name

    def enter(self) -> None:
        """Takes the calling thread here."""
        with Path(f"/run/netns/{self.name}").open() as namespace:
            if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), 0) != 0:
                raise OSError(ctypes.get_errno(), "setns")


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


@pytest.fixture(scope="module")
def hosts() -> Iterator[list[Host]]:
    made = [Host(f"outrider-{os.getpid()}-{number}", address) for number, address in enumerate(ADDRESSES)]
    try:
        for host in made:
            _ip("netns", "add", host.name)
            _ip("-n", host.name, "link", "set", "lo", "up")
        ends = [(f"o{os.getpid()}a", made[0]), (f"o{os.getpid()}b", made[1])]
        _ip("link", "add", ends[0][0], "type", "veth", "peer", "name", ends[1][0])
        for device, host in ends:
            _ip("link", "set", device, "netns", host.name)
            _ip("-n", host.name, "addr", "add", f"{host.address}/24", "dev", device)
            _ip("-n", host.name, "link", "set", device, "up")
        yield made
    finally:
        for host in made:
            subprocess.run(["ip", "netns", "del", host.name], check=False)


@pytest.fixture(scope="module")
def ups(hosts: list[Host], tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Up]]:
    """`outrider up` of each host; the broker is on the first."""
    folder = tmp_path_factory.mktemp("hosts")
    command = [str(NATS_SERVER), "--addr", ADDRESSES[0], "--jetstream", "--store_dir", str(folder)]
    broker = subprocess.Popen([*hosts[0].within, *command], stderr=subprocess.DEVNULL)
    started = [
        Up("--nats-url", BROKER, "--log-dir", str(folder / host.name), within=host.within, OMP_NUM_THREADS="1")
        for host in hosts
    ]
    try:
        for up in started:
            up.wait_for("Ctrl-C drains")
        yield started
    finally:
        for up in started:
            up.process.send_signal(signal.SIGTERM)
        for up in started:
            up.process.wait(120)
            up.kill()
        broker.kill()
        broker.wait()


class Answer(msgspec.Struct):
    """The text of a stream, and the verifier that ended it."""

    text: str
    verifier: str


def _stream(url: str, seed: int, begun: Callable[[], object]) -> Answer:
    body = {"prompt": "def parse_args(", "max_tokens": TOKENS, "seed": seed, "ignore_eos": True, "stream": True}
    text, verifier, first = "", "", True
    with (
        httpx.Client(trust_env=False, timeout=240) as client,
        client.stream("POST", f"{url}/v1/completions", json=body | {"speculation": "off"}) as response,
    ):
        for line in response.iter_lines():
            if not line.startswith("data: {"):
                continue
            event = msgspec.json.decode(line.removeprefix("data: "))
            assert "error" not in event, event
            text += "".join(choice["text"] for choice in event["choices"])
            verifier = event.get("outrider", {}).get("verifier") or verifier
            if first:
                begun()
            first = False
    return Answer(text, verifier)


def _streams(host: Host, up: Up, when_all_began: Callable[[], None]) -> list[Answer]:
    """Answers to clients on ``host`` by its gateway, all at once."""
    url = up.wait_for(r"serves at (\S+)")[0][1]
    together = threading.Barrier(STREAMS, when_all_began)
    with ThreadPoolExecutor(STREAMS, initializer=host.enter) as threads:
        return list(threads.map(lambda seed: _stream(url, seed, together.wait), range(STREAMS)))


def _instances(up: Up, kind: str) -> list[str]:
    return [match[2] for match in READY.finditer("".join(up.lines)) if match[1] == kind]


@pytest.fixture(scope="module")
def expected(hosts: list[Host], ups: list[Up]) -> list[Answer]:
    return _streams(hosts[0], ups[0], lambda: None)


def test_services_announce_the_address_towards_the_broker(hosts: list[Host], ups: list[Up]) -> None:
    for host, up in zip(hosts, ups, strict=True):
        addresses = {match[1]: match[3] for match in READY.finditer("".join(up.lines))}
        assert addresses["verifier"].startswith(f"{host.address}:")
        assert addresses["tokenizer"].startswith(f"{host.address}:")
        assert addresses["gateway"].startswith("127.0.0.1:")
        assert "another host" not in "".join(up.lines)


def test_both_gateways_use_the_verifiers_of_both_hosts(
    hosts: list[Host], ups: list[Up], expected: list[Answer]
) -> None:
    both = {_instances(up, "verifier")[0] for up in ups}
    assert {answer.verifier for answer in expected} == both
    other = _streams(hosts[1], ups[1], lambda: None)
    assert {answer.verifier for answer in other} == both
    assert [answer.text for answer in other] == [answer.text for answer in expected]


def test_a_verifier_that_is_killed_on_one_host_loses_no_stream_of_the_other(
    hosts: list[Host], ups: list[Up], expected: list[Answer]
) -> None:
    killed = _instances(ups[1], "verifier")[-1]
    log = Path(ups[0].wait_for(r"Logs: (\S+)")[0][1]) / "gateway-1.log"
    answers = _streams(hosts[0], ups[0], lambda: os.kill(ups[1].pids("verifier")[-1], signal.SIGKILL))
    assert [answer.text for answer in answers] == [answer.text for answer in expected]
    assert killed not in {answer.verifier for answer in answers}
    assert "a stream lost its verifier" in log.read_text()
    ups[1].wait_for(r"verifier +ended \(killed by SIGKILL\)")
    ups[1].wait_for("✓ verifier", count=2)


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("mesh.host=127.0.0.1", r"at 127\.0\.0\.1:\d+: set mesh\.host to an address of its machine"),
        ("mesh.advertise=10.231.7.9", r"at 10\.231\.7\.9:\d+: set mesh\.advertise to a host or address"),
    ],
)
def test_a_host_that_others_cannot_reach_is_told_so_once(
    hosts: list[Host], ups: list[Up], tmp_path: Path, setting: str, sentence: str
) -> None:
    options = ("--nats-url", BROKER, "--log-dir", str(tmp_path), "--set", setting)
    up = Up(*options, within=hosts[1].within, OMP_NUM_THREADS="1")
    try:
        up.wait_for(f"gateway-\\w+ on another host cannot connect to \\w+-\\w+ {sentence}")
        up.wait_for("✓ verifier")
    finally:
        up.process.send_signal(signal.SIGTERM)
        up.process.wait(120)
        up.kill()
    assert "".join(up.lines).count("on another host cannot connect") == 1
