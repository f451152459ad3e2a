"""Models by the names that users give them: folders, GGUF files, and names of the Hub."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

from outrider.engine import LLM, SamplingParams

from tests.engine.models.checkpoints import save
from tests.engine.models.gguf.files import write_model
from tests.engine.models.gguf.words import NORMAL, add_words_of
from tests.hub import Repository, environment, python, running_hub

PARAMS = SamplingParams(max_tokens=12, seed=4, ignore_eos=True)
WORDS = [f"<{number}>" for number in range(49)]
ASKS = """
import json
from functools import partial
from outrider.engine import LLM, SamplingParams
with LLM("org/toy", drafters=[]) as llm:
    params = SamplingParams(max_tokens=12, seed=4, ignore_eos=True)
    print(json.dumps([each.token_ids for each in llm.generate(["def f(", "class"], params)]))
"""


def test_a_model_of_the_hub_answers_as_its_folder(llm: LLM, directory: Path, tmp_path: Path) -> None:
    with running_hub() as hub:
        hub.repositories["org/toy"] = Repository.of(directory)
        done = python(environment(hub, tmp_path), ASKS)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [each.token_ids for each in llm.generate(["def f(", "class"], PARAMS)]


def test_a_gguf_file_answers_as_the_folder_with_its_weights(tmp_path: Path) -> None:
    folder, file = tmp_path / "folder", tmp_path / "toy.gguf"
    made = save("qwen 3", folder)
    write_model(file, made, words=partial(add_words_of, tokens=WORDS, types=[NORMAL] * len(WORDS)))
    with LLM(file, drafters=[], dtype="float32") as llm:
        definition = llm.tokenizer.definition()
        from_file = llm.generate([[5, 6, 7], [8]], PARAMS)
    (folder / "tokenizer.json").write_bytes(definition)
    with LLM(folder, drafters=[], dtype="float32") as llm:
        from_folder = llm.generate([[5, 6, 7], [8]], PARAMS)
    assert [each.token_ids for each in from_file] == [each.token_ids for each in from_folder]
