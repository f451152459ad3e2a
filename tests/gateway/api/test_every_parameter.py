"""Every parameter that an API takes changes what the engine does, or is named in `outrider.ignored`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from outrider.gateway.api.openai.bodies import ChatBody, CompletionBody
from outrider.gateway.api.openapi import parameter_table
from outrider.gateway.api.responses.body import ResponseBody
from outrider.gateway.api.responses.json_types import Echo
from outrider.gateway.api.schema.parameters import ALIASES
from tokenizers.processors import TemplateProcessing

from tests.engine.text.makers import CHATML, byte_level, write
from tests.gateway import noting
from tests.gateway.parameters import (
    CHAT,
    COMPLETION,
    END,
    EXTRA,
    INFILLING,
    RESPONSE,
    VARIABLE,
    Effect,
    Said,
    Shows,
    functions_of,
    paths,
)
from tests.gateway.stack import stack
from tests.toy_model import save_toy

pytestmark = pytest.mark.timeout(300)

ASKED = [{"role": "user", "content": "def f("}]
LENGTH = 24
APIS: dict[str, tuple[type[msgspec.Struct], dict[str, Effect], dict[str, Any]]] = {
    "/v1/completions": (CompletionBody, COMPLETION, {"prompt": "def f(", "max_tokens": LENGTH}),
    "/v1/chat/completions": (ChatBody, CHAT, {"messages": ASKED, "max_tokens": LENGTH}),
    "/v1/responses": (ResponseBody, RESPONSE, {"input": "def f(", "max_output_tokens": LENGTH}),
}
TRIED = [(api, name) for api, (body, _, _) in APIS.items() for name in paths(body)]
OPENING = (
    "{{ reasoning_effort }}{% if enable_thinking %}<think>\n"
    "{% elif enable_thinking is defined %}<think>\n\n</think>\n\n{% endif %}"
)
TOLD = "{{ documents or '' }}{% if tools %}{{ tools | tojson }}{% endif %}"
TEMPLATE = f"{{{{ {VARIABLE} }}}}{TOLD}{CHATML}{OPENING}"
EACH_DIFFERS = {"id", "item_id", "call_id", "created", "created_at", "seed"}
COSTS = {"steps", "verifier", "guessed_by"} | {
    f"{of}_tokens_details" for of in ("prompt", "completion", "input", "output")
}
SHORT = {api: {"max_output_tokens" if api == "responses" else "max_tokens": 1} for api in parameter_table.APIS}
SESSIONS = [f"session {number}" for number in range(8)]


class Answer:
    """An answer over HTTP, and the requests that engines took for it."""

    def __init__(self, response: httpx.Response, taken: list[str]) -> None:
        self.status, self.taken = response.status_code, taken
        self.streamed = response.headers["content-type"].startswith("text/event-stream")
        lines = response.text.splitlines() if self.streamed else [f"data: {response.text}"]
        data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ") and "[DONE]" not in line]
        self.parts: list[dict[str, Any]] = [json.loads(each) for each in data]

    @property
    def whole(self) -> dict[str, Any]:
        """The answer's JSON; of a stream, the last event."""
        return self.parts[-1]

    @property
    def runs(self) -> bool:
        """Whether this is a response in the background that has not ended."""
        return self.whole.get("status") in ("queued", "in_progress")

    @property
    def ignored(self) -> list[str]:
        """Names of the parameters without effect."""
        return list(self.whole.get("outrider", {}).get("ignored", []))

    @property
    def said(self) -> Said:
        """The tokens of an answer with ``return_tokens``."""
        return Said(self.whole["outrider"]["tokens"], self.whole["outrider"]["texts"], self.whole["id"])

    @property
    def told(self) -> Any:
        """What the model said, in the form of the answer; not what the answer repeats of its request."""
        if not self.streamed:
            return _told({name: value for name, value in self.whole.items() if name not in Echo.__struct_fields__})
        usages = sum(part.get("usage") is not None for part in self.parts)
        return "".join(map(_text, self.parts)), min(usages, 2)


def _told(value: Any) -> Any:
    if isinstance(value, list):
        return [_told(each) for each in value]
    if not isinstance(value, dict):
        return value
    shown = {name: _told(each) for name, each in value.items() if name not in EACH_DIFFERS | COSTS}
    return shown | ({"drafts": bool(value["drafts"])} if "drafts" in value else {})


def _text(part: dict[str, Any]) -> str:
    return "".join(each.get("text") or each["delta"].get("content", "") for each in part.get("choices", [])) or str(
        part.get("delta", "")
    )


class Apis:
    """A mesh of two verifiers that note what their engines take."""

    def __init__(self, http: httpx.Client, logs: list[Path]) -> None:
        self.http = http
        self._logs, self._plain = logs, dict[str, tuple[dict[str, Any], Said]]()

    def ask(self, api: str, body: dict[str, Any]) -> Answer:
        """The answer of a ``api``."""
        ends = [log.stat().st_size for log in self._logs]
        response = self.http.post(api, json=body)
        response.read()
        news = b"".join(log.read_bytes()[end:] for log, end in zip(self._logs, ends, strict=True)).decode()
        answer = Answer(response, [line for line in news.splitlines() if line.startswith(noting.MARK)])
        ended = answer
        while ended.runs:  # a request like the one that runs would share its answer
            time.sleep(0.05)
            ended = Answer(self.http.get(f"{api}/{answer.whole['id']}"), [])
        return answer

    def plain(self, api: str) -> tuple[dict[str, Any], Said]:
        """A body whose answer is long and has a word, and what that answer says."""
        if api not in self._plain:
            bodies = [APIS[api][2] | {"seed": seed} for seed in range(50)]
            saids = ((body, self.ask(api, body | {"return_tokens": True}).said) for body in bodies)
            self._plain[api] = next((body, said) for body, said in saids if said.word and len(said.tokens) == LENGTH)
        return self._plain[api]


@pytest.fixture(scope="module")
def apis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apis]:
    """The APIs of a mesh whose model has special tokens around texts, and variables in its template."""
    directory, made = tmp_path_factory.mktemp("models") / "toy", byte_level()
    made.add_tokens(INFILLING)
    made.post_processor = TemplateProcessing(single=f"{EXTRA} $A", special_tokens=[(EXTRA, END)])
    save_toy(directory, made.get_vocab_size(), context=1024)
    config = json.loads((directory / "config.json").read_text()) | {"eos_token_id": END}
    write(directory, made, chat_template=TEMPLATE)
    (directory / "config.json").write_text(json.dumps(config))
    with stack(directory, tmp_path_factory.mktemp("logs"), stores=True) as mesh:
        mesh.add("gateway", port=mesh.port, nats_door="false", chat_templates="true", router_options='{"sticky": true}')
        mesh.add_model("tokenizer")
        noted = [
            mesh.add_model("verifier", instance=name, drafters='["ngram"]', latch=None, program=noting.PROGRAM)
            for name in ("one", "two")
        ]
        for verifier in noted:
            verifier.wait_ready()
        mesh.wait_ready()
        with httpx.Client(base_url=mesh.url, timeout=60) as http:
            yield Apis(http, [verifier.log for verifier in noted])


@pytest.mark.parametrize("api", APIS)
def test_every_parameter_has_an_effect_to_be_tried(api: str) -> None:
    body, effects, _ = APIS[api]
    assert set(paths(body)) == set(effects)


@pytest.mark.parametrize(("api", "name"), TRIED)
def test_a_parameter_changes_what_the_engine_does_or_is_named(apis: Apis, api: str, name: str) -> None:
    effect = APIS[api][1][name]
    if effect.test:
        assert effect.test.partition("::")[2] in functions_of(effect.test.partition("::")[0])
        return
    base, said = apis.plain(api)
    if effect.shows is Shows.PLACE:
        each = [{_verifier(apis, api, base | {name: value}) for _ in range(4)} for value in SESSIONS]
        assert {len(verifiers) for verifiers in each} == {1}
        assert len(set.union(*each)) > 1
        return
    plain, changed = effect.bodies(name, base, said)
    without, again, answer = apis.ask(api, plain), apis.ask(api, plain), apis.ask(api, changed)
    assert (without.status, answer.status) == (200, effect.refused or 200), answer.parts
    assert (again.told, again.taken) == (without.told, without.taken)
    assert (name in answer.ignored) is (effect.shows is Shows.IGNORED)
    if effect.shows is Shows.ANSWER:
        assert answer.told != without.told
    elif effect.shows is Shows.REQUEST:
        assert answer.taken != without.taken
    elif effect.shows is Shows.REPEATED:
        first = name.partition(".")[0]
        assert answer.whole[first] != without.whole[first]


@pytest.mark.parametrize("api", parameter_table.APIS)
def test_every_parameter_of_the_table_is_refused_or_named_as_it_says(apis: Apis, api: str) -> None:
    body = (dict[str, Any](messages=ASKED) if api == "messages" else APIS[parameter_table.APIS[api]][2]) | SHORT[api]
    for name, fate in parameter_table.fates(api).items():
        if fate.kind == "honoured":
            continue
        answer = apis.http.post(parameter_table.APIS[api], json=body | {name: "unusual"})
        if fate.kind == "refused":
            assert answer.status_code == 400, (name, answer.text)
            assert answer.json()["error"]["message"].startswith(f"{name} is not supported: leave it out, ")
        else:
            assert (answer.status_code, answer.headers.get("x-outrider-ignored")) == (200, name), (name, answer.text)


@pytest.mark.parametrize("api", [api for api in APIS if api != "/v1/responses"])
def test_other_names_of_parameters_do_what_those_do(apis: Apis, api: str) -> None:
    base, _ = apis.plain(api)
    for alias, own in ALIASES.items():
        value = 50.0 if own == "repetition_penalty" else 3
        plain = {name: given for name, given in base.items() if name != own}
        asked, other = apis.ask(api, plain | {own: value}), apis.ask(api, plain | {alias: value})
        assert (other.status, other.told, other.taken) == (200, asked.told, asked.taken)
        assert asked.told != apis.ask(api, base).told


def _verifier(apis: Apis, api: str, body: dict[str, Any]) -> str:
    return str(apis.ask(api, body).whole["outrider"]["verifier"])
