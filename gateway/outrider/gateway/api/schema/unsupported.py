"""Known parameters of OpenAI, vLLM, llama-server and Ollama that are not supported: refused, or named and ignored.

`outrider.gateway.api.openapi.parameter_table` lists them with those that are honoured (docs/parameters.md).
"""

from __future__ import annotations

from typing import Any

from outrider.gateway.api.schema.parameters import ANY, UnsupportedParameters

_NULL = (None,)
_OFF = (False,)
_ZERO = (0,)
_ONE = (1,)

_DRAWS: dict[str, tuple[Any, ...]] = {
    "best_of": _ONE,
    "use_beam_search": _OFF,
    "length_penalty": _ONE,
    "typical_p": _ONE,
    "tfs_z": _ONE,
    "top_a": _ZERO,
    "top_n_sigma": (-1, 0),
    "min_keep": (0, 1),
    "mirostat": _ZERO,
    "dry_multiplier": _ZERO,
    "xtc_probability": _ZERO,
    "dynatemp_range": _ZERO,
    "adaptive_target": (-1,),
    "samplers": _NULL,
    "penalize_nl": (True,),
    "penalize_newline": (True,),
    "n_indent": _ZERO,
    "lora": ([],),
    "logits_processors": ([],),
    "watermarking": _OFF,
    "repetition_detection": _NULL,
    "vllm_xargs": ({},),
}
_OUTPUTS: dict[str, tuple[Any, ...]] = {
    "n_cmpl": _ONE,
    "t_max_predict_ms": (0, -1),
    "n_probs": _ZERO,
    "post_sampling_probs": _OFF,
    "response_fields": ([],),
    "reasoning_format": ("auto", "deepseek"),
    "reasoning_in_content": _OFF,
    "reasoning_budget_tokens": (-1,),
    "reasoning_budget_message": ("",),
    "reasoning_budget_start_tag": ("",),
    "reasoning_budget_end_tag": ("",),
    "reasoning_budget_end_tags": ([],),
    "thinking_forced_open": _OFF,
    "parse_tool_calls": (True,),
    "chat_format": _NULL,
    "chat_parser": ("",),
    "think": _NULL,
    "logprob_token_ids": _NULL,
    "return_tokens_as_token_ids": _OFF,
    "return_prompt_text": _OFF,
    "enable_response_messages": _OFF,
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
    "guided_whitespace_pattern": _NULL,
    "grammar_lazy": _OFF,
    "grammar_type": _NULL,
    "grammar_triggers": ([],),
    "preserved_tokens": ([],),
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
    "truncation_side": ("left",),
    "chat_template": ("",),
    "documents": ([],),
    "web_search": _OFF,
    "web_search_options": ({},),
    "plugins": ([],),
    "system": ("",),
    "template": ("",),
    "generation_prompt": ("",),
    "previous_response": _NULL,
    "previous_input_messages": ([],),
    "continue_final_message": _OFF,
    "add_generation_prompt": (True,),
    "media_io_kwargs": ({},),
    "options": ({},),
    "raw": _OFF,
    "context": ([],),
}
_OF_SOME_API: dict[str, tuple[Any, ...]] = {
    "max_output_tokens": _NULL,
    "stop_sequences": ([],),
    "text": ({},),
    "output_config": ({},),
    "include": ([],),
    "return_token_ids": _OFF,
    "background": _OFF,
    "previous_response_id": _NULL,
    "truncation": ("disabled",),
    "chat_template_kwargs": ({},),
    "reasoning": _NULL,
    "reasoning_effort": _NULL,
    "enable_thinking": _NULL,
    "include_reasoning": (True,),
    "thinking": _NULL,
    "thinking_token_budget": (-1,),
}
"""Those that one API has under a name that clients use at others, too."""
_ALTERING = _DRAWS | _OUTPUTS | _FORMS | _PROMPTS | _OF_SOME_API
_OF_OPENAI: dict[str, tuple[Any, ...]] = {"prompt_logprobs": _NULL, "timings_per_token": _OFF}
_IN_OPENAIS = {
    *("grammar", "json_schema", "guided_json", "guided_regex", "guided_choice", "guided_grammar"),
    *("truncate_prompt_tokens", "return_token_ids"),
}
"""Those of `_ALTERING` that completions and chats honour."""
_IN_CHATS_ALONE = {
    *("chat_template", "documents", "continue_final_message", "add_generation_prompt", "chat_template_kwargs"),
    *("reasoning_effort", "enable_thinking", "include_reasoning", "thinking", "thinking_token_budget"),
}
_IN_RESPONSES = {
    *("max_output_tokens", "text", "include", "background", "previous_response_id", "truncation"),
    *("chat_template_kwargs", "reasoning"),
}
_IN_MESSAGES = {"system", "stop_sequences", "output_config", "thinking"}
_OF_COMPLETIONS: dict[str, tuple[Any, ...]] = {"add_special_tokens": _OFF, "parse_special_tokens": _OFF}
_OF_RESPONSES: dict[str, tuple[Any, ...]] = {"input": _NULL, "instructions": ("",)}
_WITHOUT_EFFECT: dict[str, tuple[Any, ...]] = {
    "mirostat_tau": (5,),
    "mirostat_eta": (0.1,),
    "dry_base": (1.75,),
    "dry_allowed_length": (2,),
    "dry_penalty_last_n": (-1, 64),
    "dry_sequence_breakers": (["\n", ":", '"', "*"],),
    "xtc_threshold": (0.1,),
    "dynatemp_exponent": _ONE,
    "adaptive_decay": (0.9,),
    "spaces_between_special_tokens": (True,),
    "return_progress": _OFF,
    "return_token_offsets": _OFF,
    "return_mm_kwargs": (True,),
    "routed_experts_prompt_start": _ZERO,
    "verbose": _OFF,
    "sse_ping_interval": ANY,
    "backend_sampling": ANY,
    "reasoning_control": _OFF,
    "guided_decoding_backend": ANY,
    "stream_interval": _ONE,
    "cache_prompt": (True,),
    "id_slot": (-1,),
    "n_keep": ANY,
    "n_discard": ANY,
    "num_ctx": ANY,
    "num_keep": ANY,
    "keep_alive": ANY,
    "request_id": ANY,
    "session_id": ANY,
    "kv_transfer_params": ANY,
    "ec_transfer_params": ANY,
    "n_cache_reuse": ANY,
}
"""Of sampling that is refused, of tokenizers' slow form, and of how a server works."""
_IDLE: dict[str, tuple[Any, ...]] = _WITHOUT_EFFECT | {
    "cache_control": ANY,
    "metadata": ANY,
    "safety_identifier": ANY,
    "store": _OFF,
    "service_tier": ("auto", "default"),
}
_INSTEAD: dict[str, str] = {
    "max_output_tokens": "max_tokens",
    "stop_sequences": "stop",
    "text": "response_format",
    "output_config": "response_format",
    "return_token_ids": "return_tokens",
    "truncation": "truncate_prompt_tokens",
    "reasoning": "reasoning_effort",
    "reasoning_effort": "reasoning",
    "enable_thinking": "chat_template_kwargs",
    "thinking": "reasoning",
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "n_predict": "max_output_tokens",
    "num_predict": "max_output_tokens",
    "n_cmpl": "n",
    "t_max_predict_ms": "timeout_ms",
    "n_probs": "logprobs",
    "logprob_token_ids": "logprobs",
    "reasoning_format": "include_reasoning",
    "reasoning_budget_tokens": "thinking_token_budget",
    "think": "enable_thinking",
    "return_tokens_as_token_ids": "return_tokens",
    "options": "its members as parameters of the request",
}
"""What a client may give in the place of a refused parameter."""


def _without(honoured: set[str]) -> dict[str, tuple[Any, ...]]:
    return {name: values for name, values in _ALTERING.items() if name not in honoured}


COMPLETION = UnsupportedParameters(
    altering=_without(_IN_OPENAIS | {"best_of"})
    | _OF_RESPONSES
    | {
        "messages": ([],),
        "tools": ([],),
        "tool_choice": ("none", "auto"),
        "functions": ([],),
        "top_logprobs": _ZERO,
    },
    idle=_IDLE | {"parallel_tool_calls": ANY},
    instead=_INSTEAD,
)
CHAT = UnsupportedParameters(
    altering=_without(_IN_OPENAIS | _IN_CHATS_ALONE)
    | _OF_RESPONSES
    | {
        **_OF_COMPLETIONS,
        "prompt": _NULL,
        "echo": _OFF,
        "suffix": ("",),
        "functions": ([],),
        "function_call": ("none", "auto"),
    },
    idle=_IDLE | {"verbosity": ("medium",)},
    instead=_INSTEAD,
)
RESPONSE = UnsupportedParameters(
    altering=_without(_IN_RESPONSES)
    | {
        **_OF_COMPLETIONS,
        **_OF_OPENAI,
        "messages": ([],),
        "response_format": ({"type": "text"},),
        "max_tokens": _NULL,
        "max_completion_tokens": _NULL,
        "n_predict": (-1,),
        "num_predict": (-1,),
        "n": _ONE,
        "logprobs": _OFF,
        "echo": _OFF,
        "suffix": ("",),
        "functions": ([],),
        "conversation": _NULL,
        "moderation": _NULL,
        "prompt": _NULL,
    },
    idle=_WITHOUT_EFFECT
    | {
        "cache_control": ANY,
        "safety_identifier": ANY,
        "prompt_cache_retention": ANY,
        "service_tier": ("auto", "default"),
        "client_metadata": ANY,
        "context_management": ([],),
        "max_tool_calls": ANY,
    },
    instead=_INSTEAD,
)
MESSAGES = UnsupportedParameters(
    altering={
        **_without(_IN_MESSAGES),
        **_OF_OPENAI,
        **_OF_RESPONSES,
        **_OF_COMPLETIONS,
        "prompt": _NULL,
        "suffix": ("",),
        "echo": _OFF,
        "logprobs": _OFF,
        "top_logprobs": _ZERO,
        "functions": ([],),
        "parallel_tool_calls": (True,),
        "stream_options": ({}, {"include_usage": True}, {"include_usage": False}),
        "max_completion_tokens": _NULL,
        "response_format": _NULL,
        "output_format": _NULL,
        "n": _ONE,
        "container": _NULL,
        "mcp_servers": ([],),
    },
    idle=_WITHOUT_EFFECT
    | {
        "store": _OFF,
        "context_management": ANY,
        "diagnostics": ANY,
        "inference_geo": ANY,
        "service_tier": ("auto", "standard_only"),
        "speed": ("standard",),
    },
    instead=_INSTEAD,
)
TOKENIZE = UnsupportedParameters(
    altering={
        "return_token_strs": _OFF,
        "continue_final_message": _OFF,
        "chat_template": ("",),
        "mm_processor_kwargs": ({},),
    }
)
