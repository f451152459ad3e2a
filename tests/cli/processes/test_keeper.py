from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from pathlib import Path

import pytest
from outrider.cli.processes.child import Child, ProcessSpec
from outrider.cli.processes.keeper import ProcessKeeper, StartError
from outrider.cli.processes.silence import tell_of_starts

FOREVER = "import time; time.sleep(60)"


class Recorder:
    """Records the events of processes."""

    def __init__(self) -> None:
        self.deaths: list[tuple[int, int]] = []
        self.ready_instances: list[str] = []
        self.lines: list[str] = []

    def ready(self, child: Child, address: str) -> None:
        self.ready_instances.append(child.instance)

    def report(self, line: str) -> None:
        self.lines.append(line)

    def died(self, child: Child, code: int, again_in_s: float) -> None:
        self.deaths.append((child.pid, code))


def python(code: str, log: Path) -> ProcessSpec:
    return ProcessSpec("sleeper", [sys.executable, "-c", code], log)


async def until(condition) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return not Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].startswith(" Z")


async def test_a_process_that_is_killed_is_started_again_under_another_name(tmp_path):
    events = Recorder()
    keeper = ProcessKeeper(python(FOREVER, tmp_path / "log"), events)
    await until(lambda: keeper.child and keeper.child.pid)
    first = keeper.child
    os.kill(first.pid, signal.SIGKILL)
    await until(lambda: keeper.child is not first and keeper.child.pid)
    assert events.deaths == [(first.pid, -signal.SIGKILL)]
    assert keeper.child.instance != first.instance
    await keeper.stop(5)
    assert not alive(keeper.child.pid)


async def test_a_process_that_cannot_start_is_given_up_with_its_own_sentence_and_code(tmp_path):
    code = "import sys; print('{}'); print('outrider sleeper: no bed', file=sys.stderr); sys.exit(3)"
    events = Recorder()
    keeper = ProcessKeeper(python(code, tmp_path / "log"), events)
    with pytest.raises(StartError, match="sleeper: no bed") as failure:
        await asyncio.wait_for(keeper.task, 20)
    assert failure.value.exit_code == 3
    assert len(events.deaths) == 2


async def test_a_process_that_ends_well_before_it_is_ready_is_given_up_too(tmp_path):
    events = Recorder()
    keeper = ProcessKeeper(python("print('bye')", tmp_path / "log"), events)
    with pytest.raises(StartError) as failure:
        await asyncio.wait_for(keeper.task, 20)
    assert failure.value.exit_code == 1
    assert len(events.deaths) == 2


async def test_the_reason_of_a_crash_is_its_exception(tmp_path):
    log = '{"event": "crashed", "exception": "Traceback\\n  File\\nValueError: odd"}\n{"event": "stopped"}'
    child = Child(python(f"print({log!r})", tmp_path / "log"), "a")
    await child.start()
    await child.wait()
    assert child.end_reason() == f"ValueError: odd (log: {tmp_path / 'log'})"


async def test_a_process_is_ready_once_and_only_under_its_own_name(tmp_path):
    events = Recorder()
    keeper = ProcessKeeper(python(FOREVER, tmp_path / "log"), events)
    await until(lambda: keeper.child and keeper.child.pid)
    for name in ("another", keeper.child.instance, keeper.child.instance):
        keeper.note_ready(name, "127.0.0.1:1")
    assert events.ready_instances == [keeper.child.instance]
    await keeper.stop(5)


async def test_a_process_that_takes_long_to_get_ready_is_told_of_until_it_is(tmp_path):
    events = Recorder()
    keeper = ProcessKeeper(python(FOREVER, tmp_path / "sleeper-1.log"), events)
    keepers = [keeper]
    telling = asyncio.create_task(tell_of_starts(lambda: keepers, events, every_s=0.01))
    await until(lambda: len(events.lines) > 1)
    assert re.fullmatch(rf"Waiting for {keeper.child.instance} for \d+ s \(log: sleeper-1\.log\)", events.lines[0])
    keeper.note_ready(keeper.child.instance, "127.0.0.1:1")
    told = len(events.lines)
    keepers.append(ProcessKeeper(python(FOREVER, tmp_path / "sleeper-2.log"), events))
    await until(lambda: len(events.lines) > told)
    assert keeper.child.instance not in events.lines[told]
    telling.cancel()
    await asyncio.gather(*(each.stop(5) for each in keepers))


async def test_a_process_that_will_not_stop_is_killed(tmp_path):
    code = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); {FOREVER}"
    log = tmp_path / "log"
    keeper = ProcessKeeper(python(code, log), Recorder())
    await until(lambda: log.exists() and "deaf" in log.read_text())
    await keeper.stop(0.1)
    assert not alive(keeper.child.pid)


async def test_a_process_dies_with_the_one_that_keeps_it(tmp_path):
    code = f"""
import asyncio, os, sys
from pathlib import Path
from outrider.cli.processes.child import Child, ProcessSpec
async def main():
    child = Child(ProcessSpec("sleeper", [sys.executable, "-c", {FOREVER!r}], Path({str(tmp_path / "log")!r})), "a")
    await child.start()
    print(child.pid, flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""
    keeper = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE)
    pid = int(await keeper.stdout.readline())
    assert alive(pid)
    keeper.kill()
    await keeper.wait()
    await until(lambda: not alive(pid))
