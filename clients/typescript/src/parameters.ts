/** Parameters of requests, with the names of the HTTP API (docs/http-api.md); null and undefined mean absent. */

type Maybe<T> = { [K in keyof T]?: T[K] | null | undefined };

/** Text, or its token ids. */
export type Prompt = string | number[];

/** A message of a chat; other keys go to the model's template. */
export interface Message {
  role: string;
  content?: string | { type: "text"; text: string }[] | null;
  [key: string]: unknown;
}

/** A function that the model may call; `parameters` is a JSON Schema. */
export interface Tool {
  type: "function";
  function: { name: string; description?: string; parameters?: Record<string, unknown>; strict?: boolean };
}

export type ResponseFormat =
  | { type: "text" }
  | { type: "json_object"; schema?: Record<string, unknown> }
  | {
      type: "json_schema";
      json_schema: { name: string; schema: Record<string, unknown>; description?: string; strict?: boolean };
    };

/** Exactly one kind of structure. */
export type StructuredOutputs =
  | { json: Record<string, unknown> | string }
  | { json_object: true }
  | { regex: string }
  | { choice: string[] }
  | { grammar: string };

/** Text that the answer is expected to be, in whole or in part: it changes the speed, and no token. */
export interface Prediction {
  type: "content";
  content: string | { type: "text"; text: string }[];
}

/** Parameters common to completions, chats and responses. */
export interface Common {
  model: string;
  temperature: number;
  top_p: number;
  top_k: number;
  min_p: number;
  repetition_penalty: number;
  frequency_penalty: number;
  presence_penalty: number;
  repeat_last_n: number;
  logit_bias: Record<string, number> | [number | string, number | false][];
  allowed_token_ids: number[];
  bad_words: (string | number[])[];
  min_tokens: number;
  /** Up to 2^53 - 1, the largest safe integer of JavaScript. */
  seed: number;
  stop: string | string[];
  stop_token_ids: number[];
  ignore_eos: boolean;
  include_stop_str_in_output: boolean;
  skip_special_tokens: boolean;
  structured_outputs: StructuredOutputs;
  speculation: "off" | { drafters?: string[]; max_nodes?: number; private?: boolean };
  priority: number;
  coalesce: boolean;
  prediction: Prediction;
  user: string;
  prompt_cache_key: string;
  cache_salt: string;
  return_tokens: boolean;
  return_drafts: boolean;
}

/** Parameters common to completions and chats. */
export interface Generating extends Common {
  max_tokens: number;
  max_completion_tokens: number;
  n: number;
  prompt_logprobs: number;
  timings_per_token: boolean;
  response_format: ResponseFormat;
  stream_options: { include_usage?: boolean; include_obfuscation?: boolean };
  grammar: string;
  json_schema: Record<string, unknown> | string;
  guided_json: Record<string, unknown> | string;
  guided_regex: string;
  guided_choice: string[];
  guided_grammar: string;
  truncate_prompt_tokens: number;
  return_token_ids: boolean;
}

/** Parameters of `POST /v1/completions`. */
export type CompletionParameters = Maybe<
  Generating & {
    logprobs: number;
    echo: boolean;
    suffix: string;
    best_of: number;
    add_special_tokens: boolean;
    parse_special_tokens: boolean;
  }
>;

/** How much a model thinks, if its template reads that. */
export type Effort = "none" | "minimal" | "low" | "medium" | "high" | "xhigh";

/** Parameters of `POST /v1/chat/completions`. */
export type ChatParameters = Maybe<
  Generating & {
    logprobs: boolean;
    top_logprobs: number;
    tools: Tool[];
    tool_choice:
      | "auto"
      | "none"
      | "required"
      | { type: "function"; function: { name: string } }
      | {
          type: "allowed_tools";
          allowed_tools: { mode: "auto" | "required"; tools: { type: "function"; function: { name: string } }[] };
        };
    parallel_tool_calls: boolean;
    chat_template_kwargs: Record<string, unknown>;
    chat_template: string;
    documents: Record<string, unknown>[];
    add_generation_prompt: boolean;
    continue_final_message: boolean;
    reasoning_effort: Effort;
    enable_thinking: boolean;
    thinking: { type: "enabled" | "disabled"; budget_tokens?: number };
    thinking_token_budget: number;
    include_reasoning: boolean;
  }
>;

/** Header that makes a gateway continue a stream after its connection breaks. */
export const CONTINUE = { "x-outrider-on-disconnect": "continue" };

/** A request's body. */
export type Body = Record<string, unknown>;

const ELSEWHERE = new Map([
  ["stream", "call the method for streams"],
  ["ttft_ms", "give ttftMs among the options"],
  ["timeout_ms", "give timeoutMs among the options"],
]);

/** The body of `parameters`; `TypeError` for a parameter of another place, and for an unsafe integer as seed. */
export function bodyOf(parameters: object): Body {
  const body: Body = { ...parameters };
  for (const [name, instead] of ELSEWHERE) {
    if (body[name] != null) throw new TypeError(`${name} is no parameter here: ${instead}`);
  }
  if (typeof body["seed"] === "number" && !Number.isSafeInteger(body["seed"])) {
    throw new TypeError(`seed must be an integer of at most 2^53 - 1 either way, not ${body["seed"]}`);
  }
  return body;
}
