"""Known parameters of OpenAI's API, and of other servers, that are not supported."""

from __future__ import annotations

from typing import Any

from outrider.gateway.api.schema.parameters import ANY, UnsupportedParameters

_NULL = (None,)
_OFF = (False,)
_ONE = (1,)

_DRAWS: dict[str, tuple[Any, ...]] = {
    "best_of": _ONE,
    "use_beam_search": _OFF,
    "length_penalty": _ONE,
    "typical_p": _ONE,
    "tfs_z": _ONE,
    "top_a": (0,),
    "mirostat": (0,),
    "dry_multiplier": (0,),
    "xtc_probability": (0,),
    "dynatemp_range": (0,),
    "allowed_token_ids": _NULL,
    "logits_processors": ([],),
}
_FORMS: dict[str, tuple[Any, ...]] = {
    "guided_json": _NULL,
    "guided_regex": _NULL,
    "guided_choice": _NULL,
    "guided_grammar": _NULL,
    "json_schema": _NULL,
    "grammar": ("",),
    "grammar_string": ("",),
    "regex": _NULL,
    "ebnf": _NULL,
    "structural_tag": _NULL,
    "format": ("",),
}
_PROMPTS: dict[str, tuple[Any, ...]] = {
    "images": ([],),
    "image_data": ([],),
    "audio": ({},),
    "modalities": (["text"],),
    "prompt_embeds": _NULL,
    "multi_modal_data": ({},),
    "mm_processor_kwargs": ({},),
    "truncate_prompt_tokens": _NULL,
    "chat_template": ("",),
    "documents": ([],),
    "web_search": _OFF,
    "web_search_options": ({},),
    "plugins": ([],),
    "system": ("",),
    "template": ("",),
    "continue_final_message": _OFF,
    "add_generation_prompt": (True,),
    "include_stop_str_in_output": _OFF,
    "skip_special_tokens": (True,),
    "prompt_logprobs": _NULL,
}
_ALTERING = _DRAWS | _FORMS | _PROMPTS
_IN_CHATS: dict[str, tuple[Any, ...]] = {"add_special_tokens": _OFF, "parse_special_tokens": _OFF}
_OF_RESPONSES: dict[str, tuple[Any, ...]] = {"input": _NULL, "instructions": ("",)}
_IDLE: dict[str, tuple[Any, ...]] = {
    "metadata": ANY,
    "safety_identifier": ANY,
    "store": _OFF,
    "service_tier": ("auto", "default"),
}

COMPLETION = UnsupportedParameters(
    altering=_ALTERING
    | _OF_RESPONSES
    | {"suffix": ("",), "messages": ([],), "tools": ([],), "functions": ([],), "top_logprobs": (0,)},
    idle=_IDLE,
)
CHAT = UnsupportedParameters(
    altering=_ALTERING
    | _OF_RESPONSES
    | {
        **_IN_CHATS,
        "prompt": _NULL,
        "echo": _OFF,
        "suffix": ("",),
        "functions": ([],),
        "function_call": ("none", "auto"),
    },
    idle=_IDLE | {"verbosity": ("medium",)},
)
RESPONSE = UnsupportedParameters(
    altering=_ALTERING
    | {
        **_IN_CHATS,
        "messages": ([],),
        "response_format": ({"type": "text"},),
        "max_tokens": _NULL,
        "max_completion_tokens": _NULL,
        "n": _ONE,
        "logprobs": _OFF,
        "echo": _OFF,
        "suffix": ("",),
        "functions": ([],),
        "conversation": _NULL,
        "moderation": _NULL,
        "prompt": _NULL,
    },
    idle={
        "safety_identifier": ANY,
        "prompt_cache_retention": ANY,
        "service_tier": ("auto", "default"),
        "client_metadata": ANY,
        "context_management": ([],),
        "max_tool_calls": ANY,
        "stream_options": ({}, {"include_obfuscation": False}),
    },
)
MESSAGES = UnsupportedParameters(
    altering={
        **{name: values for name, values in _ALTERING.items() if name != "system"},
        "max_completion_tokens": _NULL,
        "response_format": _NULL,
        "output_format": _NULL,
        "n": _ONE,
        "container": _NULL,
        "mcp_servers": ([],),
    },
    idle={
        "context_management": ANY,
        "diagnostics": ANY,
        "inference_geo": ANY,
        "service_tier": ("auto", "standard_only"),
        "speed": ("standard",),
    },
)
TOKENIZE = UnsupportedParameters(
    altering={
        "return_token_strs": _OFF,
        "continue_final_message": _OFF,
        "chat_template": ("",),
        "mm_processor_kwargs": ({},),
    }
)
