"""Messages in the form that templates are written for, however clients send them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from outrider.engine.text import TextError
from outrider.engine.text.chat import Chat
from transformers.utils.chat_template_utils import render_jinja_template

WRITTEN = (
    "{% for m in messages %}<{{ m.role }}>{% if m.reasoning_content %}({{ m.reasoning_content }}){% endif %}"
    "{{ m.content }}{% for c in m.tool_calls %}{{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %}"
    "{% endfor %}"
)
ITEMS = WRITTEN.replace(
    "{{ c.function.arguments | tojson }}",
    "{% for k, v in c.function.arguments.items() %}{{ k }}={{ v | tojson }};{% endfor %}",
)
ONE_CALL = (
    "{% for m in messages %}{% if 'tool_calls' in m %}{% if m.tool_calls | length != 1 %}"
    "{{ raise_exception('one call') }}{% endif %}"
    "CALL {{ m.tool_calls[0].function.name }}{% else %}<{{ m.role }}>{{ m.content }}{% endif %}{% endfor %}"
)
ONE_SYSTEM = (
    "{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
    "{{ raise_exception('system first') }}{% endif %}"
    "{% if m.role not in ['system', 'user', 'assistant'] %}{{ raise_exception('unknown role') }}{% endif %}"
    "<{{ m.role }}>{{ m.content }}{% endfor %}"
)
NULLS = (
    "{% for m in messages %}{% if m.content is none %}{% for c in m.tool_calls %}CALL {{ c.function.name }}"
    "{{ c.function.arguments }}{% endfor %}{% else %}<{{ m.role }}>{{ m.content }}{% endif %}{% endfor %}"
)
PARTS = "{% for m in messages %}<{{ m.role }}>{% for part in m.content %}{{ part.text }}{% endfor %}{% endfor %}"
USER = {"role": "user", "content": "Hi"}


def rendered(template: str, *messages: Any) -> str:
    return "".join(part.text for part in Chat(template, {}, []).parts(messages, None, True))


def calling(arguments: Any, content: Any = None) -> dict[str, Any]:
    call = {"id": "1", "type": "function", "function": {"name": "look", "arguments": arguments}}
    return {"role": "assistant", "content": content, "tool_calls": [call]}


def without_arguments() -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": [{"type": "function", "function": {"name": "look"}}]}


@pytest.mark.parametrize("message", [*map(calling, ["", " \n", None, "{}", {}, "null"]), without_arguments()], ids=repr)
def test_a_call_without_arguments_has_an_empty_object(message: dict[str, Any]) -> None:
    assert rendered(WRITTEN, message) == "<assistant>look{}"
    assert rendered(ITEMS, message) == "<assistant>look"


@pytest.mark.parametrize("arguments", ['{"a": 1}', {"a": 1}])
def test_arguments_are_an_object_and_for_templates_that_write_them_as_they_are_a_text(arguments: Any) -> None:
    assert rendered(WRITTEN, calling(arguments)) == '<assistant>look{"a": 1}'
    assert rendered(ITEMS, calling(arguments)) == "<assistant>looka=1;"
    as_they_are = WRITTEN.replace(" | tojson", "")
    assert rendered(as_they_are, calling(arguments)) == '<assistant>look{"a": 1}'
    assert rendered("{{ messages[0].tool_calls[0].function.arguments + '!' }}", calling(arguments)) == '{"a": 1}!'


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ("[1]", "a JSON object, not an array"),
        ([1], "a JSON object, not an array"),
        ("7", "a JSON object, not a number"),
        (7.5, "a JSON object, not a number"),
        ("true", "a JSON object, not a truth value"),
        ('"a"', "a JSON object, not a string"),
        ('{"a', "a JSON object, and is no JSON"),
        ('{"a": NaN}', "a JSON object, and is no JSON"),
        (r'{"a": "\ud83d"}', "a JSON object, and is no JSON"),
        ("[" * 100_000, "a JSON object, and is nested too deeply"),
    ],
    ids=lambda value: repr(value)[:12],
)
def test_arguments_that_are_no_object_are_refused_by_their_place(arguments: Any, why: str) -> None:
    place = r"^messages\[2\]\.tool_calls\[1\]\.function\.arguments must be "
    message = calling("{}")
    message["tool_calls"] += calling(arguments)["tool_calls"]
    with pytest.raises(TextError, match=place + why):
        rendered(WRITTEN, USER, calling("{}"), message)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        ({"tool_calls": "x"}, r"messages\[0\]\.tool_calls must be an array of calls, not a string"),
        ({"tool_calls": [None]}, r"messages\[0\]\.tool_calls\[0\] must be an object, not null"),
        ({"tool_calls": [{"id": "1"}]}, r"tool_calls\[0\]\.function must be an object with a name and arguments"),
        ({"tool_calls": [{"function": {}}]}, r"tool_calls\[0\]\.function\.name must be a string, not null"),
        ({"content": 7}, r"messages\[0\]\.content must be a string or an array of text parts, not a number"),
        ({"content": [{"type": "image"}]}, r"messages\[0\]\.content\[0\] must be a text part, not an object"),
    ],
)
def test_a_message_that_cannot_be_made_normal_is_refused_by_its_place(message: dict[str, Any], why: str) -> None:
    with pytest.raises(TextError, match=why):
        rendered(WRITTEN, {"role": "assistant", **message})


@pytest.mark.parametrize("calls", [None, []])
def test_an_answer_as_clients_dump_it_has_no_calls(calls: Any) -> None:
    dumped = {"role": "assistant", "content": "Hello", "refusal": None, "audio": None, "tool_calls": calls}
    assert rendered(ONE_CALL, USER, dumped, USER) == "<user>Hi<assistant>Hello<user>Hi"
    assert rendered("{{ messages[0] | tojson }}", dumped) == '{"role": "assistant", "content": "Hello"}'


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning", "thinking"])
def test_thoughts_are_found_by_each_of_their_names(name: str) -> None:
    message = {"role": "assistant", "content": "Hello", "reasoning_content": None} | {name: "hm"}
    for read in ("reasoning_content", "reasoning", "thinking"):
        assert rendered(WRITTEN.replace("reasoning_content", read), message) == "<assistant>(hm)Hello"


def test_a_developer_is_the_system_unless_the_template_knows_the_role() -> None:
    told = {"role": "developer", "content": "Be brief."}
    assert rendered(WRITTEN, told, USER) == "<system>Be brief.<user>Hi"
    assert rendered(ONE_SYSTEM, told, USER) == "<system>Be brief.<user>Hi"
    known = ONE_SYSTEM.replace("['system',", "['developer', 'system',")
    assert rendered(known, told, USER) == "<developer>Be brief.<user>Hi"
    refusing = ONE_SYSTEM.replace(
        "{% if", "{% if m.role == 'developer' %}{{ raise_exception('no') }}{% endif %}{% if", 1
    )
    assert rendered(refusing, told, USER) == "<system>Be brief.<user>Hi"


def test_messages_of_the_system_are_joined_where_the_template_takes_one() -> None:
    system, told = {"role": "system", "content": "Be kind."}, {"role": "developer", "content": "Be brief."}
    assert rendered(ONE_SYSTEM, system, told, USER) == "<system>Be kind.\n\nBe brief.<user>Hi"
    assert rendered(WRITTEN, system, told, USER) == "<system>Be kind.<system>Be brief.<user>Hi"
    with pytest.raises(TextError, match="system first"):
        rendered(ONE_SYSTEM, USER, told)


@pytest.mark.parametrize("content", [None, ""])
def test_calls_are_shown_by_a_template_that_knows_them_by_a_content_of_null(content: Any) -> None:
    assert rendered(NULLS, USER, calling('{"a":1}', content)) == '<user>HiCALL look{"a":1}'
    assert rendered(NULLS, USER, {"role": "assistant", "content": content}) == "<user>Hi<assistant>"


def test_a_content_of_null_is_an_empty_text_for_other_templates() -> None:
    assert rendered("{{ '<' + messages[0].content + '>' }}", calling("{}")) == "<>"
    asking = "{% if messages[0].reasoning_content is not none %}{{ messages[0].content + '!' }}{% endif %}"
    assert rendered(asking, calling("{}")) == "!"


def test_a_template_that_reads_lists_of_parts_only_gets_such_a_list() -> None:
    tool = {
        "role": "tool",
        "tool_call_id": "1",
        "content": [{"type": "text", "text": "1"}, {"type": "text", "text": "2"}],
    }
    assert rendered(PARTS, USER, tool) == "<user>Hi<tool>12"
    assert rendered(WRITTEN, USER, tool) == "<user>Hi<tool>12"
    both = PARTS.replace("{% for part", "{% if m.content is string %}text {{ m.content }}{% else %}{% for part", 1)
    assert rendered(both.replace("{% endfor %}", "{% endfor %}{% endif %}", 1), USER) == "<user>text Hi"


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4), lambda v: st.lists(v, max_size=2)
)
OBJECTS = st.dictionaries(st.text(max_size=3), VALUES, max_size=3)
ARGUMENTS = OBJECTS.map(lambda value: (value, json.dumps(value))) | st.just(({}, "")) | st.just(({}, None))


@st.composite
def chats(draw: st.DrawFn) -> tuple[list[Any], list[Any]]:
    """A chat as clients send it, and in the form of transformers."""
    sent, normal = [], []
    for _ in range(draw(st.integers(1, 4))):
        message: dict[str, Any] = {"role": draw(st.sampled_from(["user", "assistant", "system", "tool"]))}
        message["content"] = draw(st.text(max_size=5))
        thoughts = draw(st.none() | st.sampled_from(["reasoning", "reasoning_content", "thinking"]))
        if thoughts is not None:
            message[thoughts] = draw(st.text(max_size=4))
        calls = draw(st.lists(ARGUMENTS, max_size=2))
        made = [[calling(pair[place])["tool_calls"][0] for pair in calls] for place in (0, 1)]
        nulls = draw(st.sets(st.sampled_from(["refusal", "audio", "name", "function_call"])))
        normal.append(message | ({"tool_calls": made[0]} if calls else {}))
        sent.append(
            message | dict.fromkeys(nulls) | {"tool_calls": made[1] if calls else draw(st.sampled_from([None, []]))}
        )
    return sent, normal


@given(chats(), st.sampled_from([WRITTEN, ITEMS]))
def test_texts_are_those_of_transformers_for_messages_in_its_form(
    chat: tuple[list[Any], list[Any]], template: str
) -> None:
    sent, normal = chat
    (expected,), _ = render_jinja_template([normal], chat_template=template, add_generation_prompt=True)
    assert rendered(template, *sent) == expected
    assert rendered(template, *normal) == expected


KIMI = (
    "{% for m in messages %}{% for c in m.tool_calls %}<|tool_call_begin|>{{ c.id }}<|tool_call_argument_begin|>"
    "{{ c.function.arguments | tojson }}<|tool_call_end|>{% endfor %}"
    "{% if m.role == 'tool' %}## Return of {{ m.tool_call_id }}\n{% endif %}{{ m.content }}{% endfor %}"
)


def test_ids_of_calls_are_numbered_over_the_chat_for_kimis_template() -> None:
    """Kimi K2 knows ids such as functions.look:0 only; other templates get the client's own."""
    chat = [
        *(calling('{"a": 1}', ""), {"role": "tool", "tool_call_id": "1", "content": "x"}),
        *(calling({}, ""), {"role": "tool", "tool_call_id": "1", "content": "y"}),
        {"role": "tool", "tool_call_id": "lost", "content": "z"},
    ]
    begin, middle, end = "<|tool_call_begin|>functions.look:", "<|tool_call_argument_begin|>", "<|tool_call_end|>"
    assert rendered(KIMI, *chat) == (
        f'{begin}0{middle}{{"a": 1}}{end}## Return of functions.look:0\nx'
        f"{begin}1{middle}{{}}{end}## Return of functions.look:1\ny## Return of lost\nz"
    )
    assert chat[0]["tool_calls"][0]["id"] == "1"
    assert "## Return of 1\n" in rendered(KIMI.replace(middle, ""), *chat)
