"""Starts the other ranks of a model, and notices the end of one."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

import torch
from outrider.engine.errors import ModelError, RankLost
from outrider.engine.models.config import ModelConfig
from outrider.engine.models.llama import LlamaModel, open_weights
from outrider.engine.models.sharding.group import Group
from outrider.engine.models.sharding.shard import Shard, shard_config

T = TypeVar("T")

_NAMED_S = 2.0
"""Seconds that a broken connection waits to be reported: the exit code of the rank, heard meanwhile, says more."""


@dataclass(frozen=True, slots=True)
class RankTask:
    """What a process needs to be a rank.

    Attributes:
        rank: its number; 0 has requests, all others follow it.
        ranks: number of ranks.
        file: where they meet.
        directory: of the model.
        threads: CPU threads.
        arguments: further arguments of `LlamaModel.load`.
    """

    rank: int
    ranks: int
    file: Path
    directory: Path
    threads: int
    arguments: dict[str, Any]

    @property
    def device(self) -> torch.device:
        """The rank's device: GPU r for rank r."""
        kind: str = self.arguments["device"]
        return torch.device(kind, self.rank) if kind == "cuda" else torch.device(kind)

    def load(self, group: Group, say: Callable[[tuple[str, Any]], None] | None = None) -> LlamaModel:
        """Loads the rank's share."""
        arguments = self.arguments | {"device": str(self.device)}
        return LlamaModel.load(self.directory, **arguments, group=group, say=say)

    def join(self) -> Group:
        """Meets the other ranks."""
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
        return Group.join(
            self.rank, self.ranks, self.file, self.device, fixed=self.arguments["determinism"] == "strict"
        )


class Ranks:
    """The processes of all ranks but 0, which is this one. They end with it, and with `stop`.

    Args:
        directory: of the model.
        ranks: number of ranks, at least 2.
        threads: CPU threads of each.
        arguments: further arguments of `LlamaModel.load`.

    Attributes:
        model: rank 0's share, whose steps run on all ranks.

    Raises:
        ModelError: the model cannot be shared out so, or a rank cannot load its share.
    """

    def __init__(self, directory: Path, ranks: int, threads: int, **arguments: Any) -> None:
        _check(directory, ranks, **arguments)
        self._lost: RankLost | None = None
        self._on_loss: Callable[[RankLost], None] | None = None
        self._children: list[subprocess.Popen[bytes]] = []
        self._lines: list[Connection[Any, Any]] = []
        self._messages: SimpleQueue[RankLost | None] = SimpleQueue()
        self._group: Group | None = None
        self._ready = self._stopped = False
        self._lock = threading.Lock()
        self._folder = Path(tempfile.mkdtemp(prefix="outrider-ranks-"))
        tasks = [RankTask(rank, ranks, self._folder / "meet", directory, threads, arguments) for rank in range(ranks)]
        try:
            for task in tasks[1:]:
                self._start(task)
            self.model = self.attend(partial(self._load, tasks[0]))
        except RankLost as error:
            self.stop()
            raise ModelError(str(error)) from None
        except BaseException:
            self.stop()
            raise

    @property
    def pids(self) -> list[int]:
        """Process ids of ranks 1 and up."""
        return [child.pid for child in self._children]

    def watch(self, on_loss: Callable[[RankLost], None]) -> None:
        """Calls ``on_loss``, in a thread of its own, once a rank has ended though it should not."""
        with self._lock:
            self._on_loss, lost = on_loss, self._lost
        if lost is not None:
            on_loss(lost)

    def attend(self, work: Callable[[], T]) -> T:
        """What ``work`` returns; `RankLost` at once if a rank ends meanwhile.

        ``work`` runs in a thread of its own. The thread may outlive this call, since nothing interrupts a thread that
        waits for a rank.
        """
        done: Future[T] = Future()

        def run() -> None:
            with suppress(InvalidStateError):
                try:
                    done.set_result(work())
                except RankLost as error:
                    time.sleep(_NAMED_S)
                    done.set_exception(error)
                except BaseException as error:
                    done.set_exception(error)

        def lose(lost: RankLost) -> None:
            with suppress(InvalidStateError):
                done.set_exception(lost)

        self.watch(lose)
        threading.Thread(target=run, name="rank 0", daemon=True).start()
        return done.result()

    def stop(self) -> None:
        """Ends all ranks but this one."""
        self._stopped = True
        for child in self._children:
            child.kill()
            child.wait()
        for line in self._lines:
            line.close()
        if self._group is not None:
            self._group.leave()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self, task: RankTask) -> None:
        ours, theirs = Pipe()
        with theirs:
            command = [sys.executable, "-m", "outrider.engine.models.sharding.follow", str(theirs.fileno())]
            child = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()])
        self._children.append(child)
        self._lines.append(ours)
        ours.send(task)
        name = f"rank {task.rank} of {task.ranks}"
        threading.Thread(target=self._listen, args=(name, child, ours), name=name, daemon=True).start()

    def _load(self, task: RankTask) -> LlamaModel:
        self._await_ready()
        self._group = task.join()
        return task.load(self._group, self._say)

    def _listen(self, name: str, child: subprocess.Popen[bytes], line: Connection[Any, Any]) -> None:
        """Reads a rank's messages until the rank ends. An empty message means ready, a text why the rank gives up."""
        try:
            while not (why := line.recv()):
                self._messages.put(None)
            lost = RankLost(f"{name}: {why}")
        except (EOFError, OSError):
            lost = RankLost(f"{name} ended with code {child.wait()}")
        with self._lock:
            if self._stopped or self._lost is not None:
                return
            self._lost, on_loss = lost, self._on_loss
        self._messages.put(lost)
        if on_loss is not None:
            on_loss(lost)

    def _await_ready(self) -> None:
        """Waits until each rank is ready; `RankLost` if one ends instead."""
        for _ in self._children:
            if (lost := self._messages.get()) is not None:
                raise lost

    def _say(self, message: tuple[str, Any]) -> None:
        if not self._ready:
            self._await_ready()
            self._ready = True
        for rank, line in enumerate(self._lines, 1):
            try:
                line.send(message)
            except OSError:
                raise RankLost(f"rank {rank} of the model has ended") from None


def _check(directory: Path, ranks: int, *, device: str, quantization: str | None, **_: object) -> None:
    """Finds what would fail on every rank before any is started."""
    Group.check_free()
    shard_config(ModelConfig.load(directory), ranks)
    if quantization is not None:
        raise ModelError(f"tensor_parallel must be 1 for quantization = {quantization}")
    Shard(open_weights(directory), 0, ranks)
    if device not in ("cpu", "cuda"):
        raise ModelError(f"device is {device!r}, which must be cpu or cuda with tensor_parallel: rank r takes cuda:r")
    if device == "cuda" and (there := torch.cuda.device_count()) < ranks:
        raise ModelError(f"tensor_parallel = {ranks} needs {ranks} GPUs, and torch sees {there}")
