"""EleutherAI's published package lm-eval, against the gateway at $ONE, with tasks of its own."""

from __future__ import annotations

import json
import os

os.environ["HF_HUB_OFFLINE"] = "1"

from pathlib import Path
from typing import Any

import lm_eval
import pytest
from lm_eval.tasks import TaskManager

NAME, URL = os.environ.get("MODEL", "toy"), os.environ["ONE"]
COMMON = """
task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
doc_to_text: "{{{{question}}}}"
"""
CHOICE = (
    "output_type: multiple_choice\ndoc_to_choice: [' red', ' blue']\ndoc_to_target: answer\n"
    "metric_list: [{metric: acc}]\n"
)
TEXT = (
    "output_type: generate_until\ndoc_to_target: ' red'\n"
    'generation_kwargs: {until: ["\\n\\n"], max_gen_toks: 8, do_sample: false}\nmetric_list: [{metric: exact_match}]\n'
)
DOCS = [{"question": f"Question {number}: the colour of a rose is", "answer": number % 2} for number in range(4)]


def run(directory: Path, task: str, kind: str, path: str, **more: Any) -> dict[str, float]:
    """The task's metrics."""
    data = directory / "docs.jsonl"
    data.write_text("".join(json.dumps(doc) + "\n" for doc in DOCS))
    (directory / "task.yaml").write_text(COMMON.format(name="colours", data=data) + task)
    asked = f"model={NAME},base_url={URL}{path},tokenizer_backend=remote,num_concurrent=2,max_retries=1,max_length=2048"
    tasks = TaskManager(include_path=str(directory), include_defaults=False)
    told = lm_eval.simple_evaluate(kind, asked, ["colours"], task_manager=tasks, **more)
    return dict(told["results"]["colours"])


def test_likelihoods_are_those_of_prompts(tmp_path: Path) -> None:
    assert 0.0 <= run(tmp_path, CHOICE, "local-completions", "/v1/completions")["acc,none"] <= 1.0


@pytest.mark.parametrize(
    ("kind", "path", "more"),
    [
        ("local-completions", "/v1/completions", {}),
        ("local-chat-completions", "/v1/chat/completions", {"apply_chat_template": True}),
    ],
)
def test_answers_are_generated(tmp_path: Path, kind: str, path: str, more: dict[str, bool]) -> None:
    assert 0.0 <= run(tmp_path, TEXT, kind, path, **more)["exact_match,none"] <= 1.0
