"""Templates of each format of calls, a vocabulary for it, and calls to be written in it.

The templates are written anew after the published formats; those of whole models say more, and turns otherwise.
"""

from __future__ import annotations

import random
from typing import Any

import msgspec
import tokenizers
from outrider.engine.text.chat import Chat
from outrider.engine.text.template import ChatTemplate
from outrider.gateway.request.generation import CallableFunction, CallRules
from outrider.gateway.schemas.enforced import enforced
from outrider.wire.calls import FORMATS, CallStyle, Mark
from tokenizers import AddedToken

from tests.engine.text.makers import byte_level

START, END = "<|im_start|>", "<|im_end|>"
_EACH = "{% for call in m.tool_calls or [] %}{% set f = call.function %}"
_HERMES = '<tool_call>\n{"name": "{{ f.name }}", "arguments": {{ f.arguments | tojson }}}\n</tool_call>'
_LINE = "{% if m.content or not loop.first %}{{ '\n' }}{% endif %}"
_COMMA = "{% if not loop.last %}, {% endif %}"
_SECTION = "{% if m.tool_calls %}{{ '@' }}{% endif %}"
_FENCED = (
    "{% if not loop.first %}{{ '\n' }}{% endif %}<｜tool▁call▁begin｜>function<｜tool▁sep｜>{{ f.name }}\n"
    "```json\n{{ f.arguments | tojson }}\n```<｜tool▁call▁end｜>"
)
_JSON_CALL = '{"name": "{{ f.name }}", "arguments": {{ f.arguments | tojson }}'
_QWEN_CODER = (
    "<tool_call>\n<function={{ f.name }}>\n{% for name, value in f.arguments | items %}<parameter={{ name }}>\n"
    "{{ value | tojson if value is mapping or (value is sequence and value is not string) else value | string }}\n"
    "</parameter>\n{% endfor %}</function>\n</tool_call>"
)
_GLM = (
    "<tool_call>{{ f.name }}\n{% for name, value in f.arguments | items %}<arg_key>{{ name }}</arg_key>\n"
    "<arg_value>{{ value if value is string else value | tojson }}</arg_value>\n{% endfor %}</tool_call>"
)
_GLM_47 = (
    "<tool_call>{{ f.name }}{% for name, value in f.arguments | items %}<arg_key>{{ name }}</arg_key>"
    "<arg_value>{{ value if value is string else value | tojson }}</arg_value>{% endfor %}</tool_call>"
)
_DSML = (
    "{{ '\n' }}<｜DSML｜invoke name=\"{{ f.name }}\">{{ '\n' }}{% for name, value in f.arguments | items %}"
    "{% if not loop.first %}{{ '\n' }}{% endif %}<｜DSML｜parameter name=\"{{ name }}\" "
    "string=\"{{ 'true' if value is string else 'false' }}\">"
    "{{ value if value is string else value | tojson }}</｜DSML｜parameter>{% endfor %}"
    "{{ '\n' }}</｜DSML｜invoke>"
)
_PYTHON = (
    "{{ f.name }}({% for name, value in f.arguments | items %}{{ name }}=@"
    "{% if not loop.last %}, {% endif %}{% endfor %})"
)


def _list(opening: str, call: str, closing: str) -> str:
    return f"{{% if m.tool_calls %}}{opening}{_EACH}{call}{_COMMA}{{% endfor %}}{closing}{{% endif %}}"


CALLS = {
    "hermes": f"{_EACH}{_LINE}{_HERMES}{{% endfor %}}",
    "llama3": f'{_EACH}{{"name": "{{{{ f.name }}}}", "parameters": {{{{ f.arguments | tojson }}}}}}{{% endfor %}}',
    "pythonic": _list("[", _PYTHON.replace("@", "{{ value | tojson }}"), "]"),
    "mistral": _list("[TOOL_CALLS] [", _JSON_CALL + ', "id": "{{ call.id }}"}', "]"),
    "mistral_v11": f"{_EACH}[TOOL_CALLS]{{{{ f.name }}}}[ARGS]{{{{ f.arguments | tojson }}}}{{% endfor %}}",
    "qwen3_coder": f"{_EACH}{_LINE}{_QWEN_CODER}{{% endfor %}}",
    "glm45": f"{_EACH}{_LINE}{_GLM}{{% endfor %}}",
    "glm47": f"{_EACH}{_GLM_47}{{% endfor %}}",
    "deepseek_v3": (
        _SECTION.replace("@", "<｜tool▁calls▁begin｜>")
        + f"{_EACH}{_FENCED}{{% endfor %}}"
        + _SECTION.replace("@", "<｜tool▁calls▁end｜>")
    ),
    "deepseek_v31": (
        _SECTION.replace("@", "<｜tool▁calls▁begin｜>")
        + _EACH
        + "<｜tool▁call▁begin｜>{{ f.name }}<｜tool▁sep｜>{{ f.arguments | tojson }}<｜tool▁call▁end｜>{% endfor %}"
        + _SECTION.replace("@", "<｜tool▁calls▁end｜>")
    ),
    "deepseek_v32": (
        _SECTION.replace("'@'", "'\n\n<｜DSML｜function_calls>'")
        + f"{_EACH}{_DSML}{{% endfor %}}"
        + _SECTION.replace("'@'", "'\n</｜DSML｜function_calls>'")
    ),
    "kimi_k2": (
        _SECTION.replace("@", "<|tool_calls_section_begin|>")
        + _EACH
        + "<|tool_call_begin|>functions.{{ f.name }}:{{ loop.index0 }}<|tool_call_argument_begin|>"
        + "{{ f.arguments | tojson }}<|tool_call_end|>{% endfor %}"
        + _SECTION.replace("@", "<|tool_calls_section_end|>")
    ),
    "granite": _list("<|tool_call|>[", _JSON_CALL + "}", "]"),
    "harmony": (
        "{% if m.content %}<|channel|>{{ 'commentary' if m.tool_calls else 'final' }}<|message|>{{ m.content }}"
        "{% if m.tool_calls %}<|end|><|start|>assistant{% endif %}{% endif %}"
        f"{_EACH} to=functions.{{{{ f.name }}}}<|channel|>commentary json<|message|>{{{{ f.arguments | tojson }}}}"
        "{% endfor %}"
    ),
}
"""How an assistant's message ``m`` is rendered, without the text before its calls where that stands as it is."""

PYTHON_REPR = _list("[", _PYTHON.replace("@", "{{ '%r' | format(value) }}"), "]")
"""As Llama 3.2's own examples write values."""

PROMPTS = {
    "hermes": 'Say <tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>',
    "llama3": 'Respond in the format {"name": function name, "parameters": dictionary}',
    "pythonic": "Respond in the format [func_name1(name1=value1), func_name2(name=value)]",
    "qwen3_coder": "<tool_call>\n<function=f>\n<parameter=a>\nvalue\n</parameter>\n</function>\n</tool_call>",
    "glm45": "<tool_call>{function-name}\n<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n</tool_call>",
    "glm47": "<tool_call>{function-name}<arg_key>{key}</arg_key><arg_value>{value}</arg_value>...</tool_call>",
}


def template(form: str, calls: str | None = None) -> str:
    """A chat template whose prompts for answers begin the text of the answer."""
    said = "" if form == "harmony" else "{{ m.content }}"
    prompt = PROMPTS.get(form, "")
    return (
        f"{{% if tools %}}{{{{ tools | tojson }}}}{{% raw %}}{prompt}{{% endraw %}}{{% endif %}}"
        f"{{% for m in messages %}}{START}{{{{ m.role }}}}\n"
        f"{{% if m.role == 'assistant' %}}{said}{calls or CALLS[form]}{{% else %}}{{{{ m.content }}}}{{% endif %}}{END}"
        f"{{% endfor %}}{{% if add_generation_prompt %}}{START}assistant\n{{% endif %}}"
    )


ASKED = [{"role": "user", "content": "go"}]


def _answer(text: str, calls: list[tuple[str, Any]]) -> dict[str, Any]:
    told = [
        {"type": "function", "id": f"abcdefgh{place}", "function": {"name": name, "arguments": arguments}}
        for place, (name, arguments) in enumerate(calls)
    ]
    return {"role": "assistant", "content": text, "tool_calls": told}


def rendered(form: str, text: str, calls: list[tuple[str, Any]], written: str | None = None) -> str:
    """An answer of ``text`` and ``calls``, as the format's template writes it into the history of a chat."""
    made = ChatTemplate(template(form, written), {})
    whole = made.render([*ASKED, _answer(text, calls)], None, False)
    return whole.removeprefix(made.render(ASKED, None, True)).removesuffix(END)


def encoded(form: str, text: str, calls: list[tuple[str, Any]], made: tokenizers.Tokenizer) -> list[int]:
    """The tokens of what is `rendered`; marks inside of arguments are no tokens."""
    source, plain = template(form), tokenizers.Tokenizer.from_str(made.to_str())
    plain.encode_special_tokens = True
    marks = FORMATS[form].marks
    before = len(ChatTemplate(source, {}).render(ASKED, None, True))
    after = before + len(rendered(form, text, calls))
    ids: list[int] = []
    for part in Chat(source, {}, marks).parts([*ASKED, _answer(text, calls)], None, False):
        kept = part.text[before:after] if before < len(part.text) else ""
        before, after = max(0, before - len(part.text)), max(0, after - len(part.text))
        ids += (made if part.trusted else plain).encode(kept).ids
    return ids


def vocabulary(form: str) -> tokenizers.Tokenizer:
    """A byte-level vocabulary in which the marks of the format are special tokens."""
    made = byte_level()
    made.add_special_tokens([AddedToken(mark, special=True) for mark in FORMATS[form].marks])
    return made


def style(form: str, made: tokenizers.Tokenizer | None = None) -> CallStyle:
    """The style of a model with this format; without a vocabulary, its marks are no tokens."""
    marks = [] if made is None else [(mark, made.token_to_id(mark)) for mark in FORMATS[form].marks]
    return CallStyle(form, tuple(Mark(mark, token, True) for mark, token in marks if token is not None))


ODD = [
    "",
    " a",
    "Привет, 👩‍👩‍👧\u2028ё",
    '{"a": [1, "}]"]}',
    'it\'s "so"',
    "back\\slash \\n \\u0041",
    "two\nlines\n\nand\ttab",
    "</tool_call>",
    "<tool_call>\n",
    "12",
    "null",
    "True",
    "]) }",
    "```json",
    "</parameter>",
    "x</",
    "$NAME $ID",
]
"""Strings that mean something to a format, to JSON or to Python."""

SCHEMAS: dict[str, Any] = {
    "text": {"type": "string"},
    "count": {"type": "integer"},
    "share": {"type": "number"},
    "sure": {"type": "boolean"},
    "nothing": {"type": "null"},
    "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    "colour": {"enum": ["red", "light green", 3, None]},
    "list": {"type": "array", "items": {"anyOf": [{"type": "integer"}, {"type": "string"}, {"type": "boolean"}]}},
    "inner": {"type": "object", "properties": {"a": {"type": ["string", "null"]}, "b": {"$ref": "#/$defs/tree"}}},
    "max-size": {"type": "integer", "minimum": 0},
}
DEFINITIONS = {"tree": {"type": "array", "items": {"$ref": "#/$defs/tree"}}}
NAMES = ("look_up", "shop.paint/wall:v2", "f", "getID")


def _value(name: str, rng: random.Random) -> Any:
    match name:
        case "text":
            return rng.choice(ODD) + rng.choice(["", *ODD])
        case "count":
            return rng.choice([0, -7, 10**20, 42])
        case "share":
            return rng.choice([0.5, -1e-7, 3, 1e22])
        case "sure":
            return rng.random() < 0.5
        case "nothing":
            return None
        case "note":
            return rng.choice([None, "hello", "a\nb", "5", "truth", '{"a": 1}', "nul"])
        case "colour":
            return rng.choice(["red", "light green", 3, None])
        case "list":
            return [rng.choice([1, "two", "}", True, False, "3", "é\n"]) for _ in range(rng.randrange(4))]
        case "inner":
            made = {"a": rng.choice([None, *ODD]), "b": rng.choice([[], [[]], [[], [[]]]])}
            return {key: made[key] for key in made if rng.random() < 0.7}
    return rng.randrange(100)


class Case(msgspec.Struct):
    """An answer of ``text`` and ``calls``, and the functions that may be called."""

    functions: tuple[CallableFunction, ...]
    text: str
    calls: list[tuple[str, dict[str, Any]]]

    def rules(self, *, may_talk: bool = False) -> CallRules:
        """The rules of a request that leads to the answer."""
        return CallRules(self.functions, may_talk, 16, "tools")


def case(form: str, seed: int) -> Case:
    """An answer with 1 to 4 calls; with text before them where the format has it."""
    rng = random.Random(seed)
    functions: list[CallableFunction] = []
    required: dict[str, dict[str, bool]] = {}
    for name in NAMES[: rng.randrange(1, len(NAMES) + 1)]:
        chosen = [key for key in SCHEMAS if rng.random() < 0.6]
        required[name] = {key: rng.random() < 0.5 for key in chosen}
        schema: dict[str, Any] = {
            "type": "object",
            "properties": {key: SCHEMAS[key] for key in chosen},
            "$defs": DEFINITIONS,
        }
        schema |= {"required": [key for key in chosen if required[name][key]]}
        schema |= {"additionalProperties": False} if rng.random() < 0.5 else {}
        functions.append(CallableFunction(name, enforced(schema).schema))
    calls = []
    for _ in range(min(FORMATS[form].most, rng.randrange(1, 5))):
        name = rng.choice(list(required))
        kept = [key for key, needed in required[name].items() if needed or rng.random() < 0.6]
        calls.append((name, {key: _value(key, rng) for key in kept}))
    text = rng.choice(["", "Let me see.", "a < b\n\nand [x]( {"]) if FORMATS[form].anywhere else ""
    return Case(tuple(functions), text, calls)


def tokens(answer: str, marks: CallStyle, rng: random.Random) -> list[tuple[int, str]]:
    """``answer`` as tokens of up to 6 characters, each with its id and text; silent marks have no text."""
    found: list[tuple[int, str]] = []
    while answer:
        mark = next((mark for mark in marks.marks if answer.startswith(mark.text)), None)
        if mark is not None:
            found.append((mark.token, ""))
            answer = answer[len(mark.text) :]
            continue
        starts = [place for mark in marks.marks if (place := answer.find(mark.text)) > 0]
        size = min([rng.randrange(1, 7), *starts])
        found.append((1, answer[:size]))
        answer = answer[size:]
    return found
