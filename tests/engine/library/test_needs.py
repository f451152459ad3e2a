"""The engine works with torch, numpy and safetensors; what needs another package says so in one sentence."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

LACKING = (
    *("grpc", "nats", "msgspec", "structlog", "opentelemetry", "prometheus_client", "tokenizers", "jinja2"),
    *("llguidance", "cffi", "triton", "huggingface_hub", "httpx2"),
)
INSTALL = "pip install 'outrider[engine]'"
BLOCKS = "import os, sys\nsys.modules.update(dict.fromkeys(os.environ['LACKING'].split()))\n"
IMPORTS = """
import outrider.engine, outrider.engine.decode.engine_thread, outrider.engine.target
from outrider.engine import LLM, MissingPackage, SamplingParams
from outrider.engine.models.llama import LlamaModel
"""
LOADS = """
said = {}
try:
    LLM(folder)
except MissingPackage as error:
    said["texts"] = str(error)
said["forward"] = LlamaModel.load(Path(folder)).compiled is None
"""
ASKS = """
import logging
from io import StringIO
from outrider.engine import RequestError, SettingsError
FEW = SamplingParams(max_tokens=9, seed=1, ignore_eos=True)
logging.basicConfig(stream=(log := StringIO()))
with LLM(folder) as llm:
    said = {"tokens": [each.token_ids for each in llm.generate([[5, 6], [7]], FEW)]}
    said["text"] = llm.generate("def", FEW)[0].text
    for name, ask in {
        "chats": lambda: llm.chat([{"role": "user", "content": "a"}]),
        "grammars": lambda: llm.generate("a", SamplingParams(regex="a")),
        "hub": lambda: LLM("org/name"),
    }.items():
        try:
            ask()
        except (RequestError, SettingsError) as error:
            said[name] = str(error)
said["compiled"] = log.getvalue()
"""


def say(program: str, folder: Path, tmp_path: Path, lacking: tuple[str, ...]) -> Any:
    """What a process without the packages ``lacking`` has in its variable ``said``."""
    (tmp_path / "sitecustomize.py").write_text(BLOCKS)
    source = f"import json, sys\nfrom pathlib import Path\nfolder = sys.argv[1]\n{program}\nprint(json.dumps(said))"
    variables = os.environ | {"PYTHONPATH": str(tmp_path), "LACKING": " ".join(lacking)}
    command = [sys.executable, "-c", source, str(folder)]
    done = subprocess.run(command, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_without_tokenizers_everything_is_imported_and_texts_say_what_they_need(
    directory: Path, tmp_path: Path
) -> None:
    said = say(IMPORTS + LOADS, directory, tmp_path, LACKING)
    assert said == {"texts": f"tokenizers is not installed, and texts of models need it: {INSTALL}", "forward": True}


def test_with_tokenizers_alone_it_generates_and_all_else_says_what_it_needs(directory: Path, tmp_path: Path) -> None:
    said = say(IMPORTS + ASKS, directory, tmp_path, tuple(set(LACKING) - {"tokenizers"}))
    assert [len(tokens) for tokens in said.pop("tokens")] == [9, 9]
    assert said.pop("text")
    assert "cffi, which loads it, is not installed; decoding on the CPU runs in PyTorch" in said["compiled"]
    assert f"Try {INSTALL}." in said.pop("compiled")
    assert said == {
        "chats": f"jinja2 is not installed, and chat templates need it: {INSTALL}",
        "grammars": f"grammar needs llguidance, which is not installed: {INSTALL}",
        "hub": "models of the Hub need huggingface_hub: pip install 'outrider[tokenizer]'",
    }


@pytest.mark.parametrize("room", ["store", "text", "requests.grammars", "pages.page_names"])
def test_a_room_for_processes_without_torch_imports_none(room: str, tmp_path: Path) -> None:
    imports = f"import outrider.engine.{room}\nsaid = sorted(outrider.engine.__all__)"
    assert "LLM" in say(imports, tmp_path, tmp_path, ("torch", "numpy"))


def test_without_torch_an_llm_says_what_it_needs(tmp_path: Path) -> None:
    tries = "said = ''\ntry:\n    outrider.engine.LLM\nexcept ImportError as error:\n    said = str(error)"
    said = say(f"import outrider.engine\n{tries}", tmp_path, tmp_path, ("torch",))
    assert said == f"torch is not installed, and models in this process need it: {INSTALL}"
