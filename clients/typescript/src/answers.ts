/** Types of a gateway's answers, with the names on the wire. */

/** A served model. `created` is in seconds since 1970. */
export interface Model {
  id: string;
  object: "model";
  created: number;
  owned_by: string;
}

/** The cost of an answer, in tokens. */
export interface Usage {
  prompt_tokens: number;
  completion_tokens: number;
  total_tokens: number;
  /** Tokens of the prompt that were cached. */
  prompt_tokens_details: { cached_tokens: number };
  /** Accepted and rejected guesses of drafters. */
  completion_tokens_details: { accepted_prediction_tokens: number; rejected_prediction_tokens: number };
}

/** Outrider's extension; `return_tokens` adds the first four fields, the other fields come at the end. */
export interface Detail {
  first_index?: number;
  tokens?: number[];
  texts?: string[];
  guessed_by?: string[];
  /** With `return_drafts`, the guesses of each step that decided tokens. */
  drafts?: Draft[];
  steps?: number;
  seed?: number;
  verifier?: string;
  lossy?: boolean;
  /** Names of parameters without effect. */
  ignored?: string[];
  choices?: Detail[];
}

/** The tree of guesses that one step verified; the parent -1 is the token before `first_index`. */
export interface Draft {
  first_index: number;
  tokens: number[];
  texts: string[];
  parents: number[];
  guessed_by: string[];
  accepted: number[];
}

/** A function call, or a chunk's addition to one. Only chunks have an `index`. */
export interface ToolCall {
  function: { name?: string; arguments: string };
  id?: string;
  type?: "function";
  index?: number;
}

/** A chat's answer. */
export interface AssistantMessage {
  role: "assistant";
  content: string | null;
  /** The thought in front of the answer, of models that think. */
  reasoning_content?: string;
  refusal: null;
  tool_calls?: ToolCall[];
}

/** A chunk's addition to a chat's message. */
export interface Delta {
  role?: "assistant";
  content?: string;
  reasoning_content?: string;
  tool_calls?: ToolCall[];
}

/** Log-probabilities in completions: each list has one entry for each token. */
export interface TextLogprobs {
  text_offset: number[];
  token_logprobs: (number | null)[];
  tokens: string[];
  top_logprobs: (Record<string, number> | null)[];
}

/** One of the likeliest tokens, in chats. */
export interface TopLogprob {
  token: string;
  logprob: number;
  bytes: number[];
}

/** Log-probabilities in chats. */
export interface ChatLogprobs {
  content: (TopLogprob & { top_logprobs: TopLogprob[] })[];
  refusal: null;
}

/** For each token of a prompt, itself and the likeliest ones by id; null for the first. */
export type PromptLogprobs = (Record<string, { logprob: number; rank: number; decoded_token: string }> | null)[];

export type FinishReason = "stop" | "length" | "tool_calls" | "content_filter";

interface ChoiceOf<L> {
  index: number;
  finish_reason: FinishReason | null;
  logprobs: L | null;
}

/** A completion's choice, whole or in a chunk. */
export interface TextChoice extends ChoiceOf<TextLogprobs> {
  text: string;
  prompt_logprobs?: PromptLogprobs;
}

/** A chat's whole choice. */
export interface MessageChoice extends ChoiceOf<ChatLogprobs> {
  message: AssistantMessage;
}

/** A chat's choice in a chunk. */
export interface DeltaChoice extends ChoiceOf<ChatLogprobs> {
  delta: Delta;
}

export type Choice = TextChoice | MessageChoice | DeltaChoice;

/** A completion or a chat's answer, or a part of one in a stream. */
export interface AnswerOf<C extends Choice> {
  id: string;
  object: string;
  created: number;
  model: string;
  system_fingerprint: string;
  choices: C[];
  usage?: Usage | null;
  outrider?: Detail;
  /** Of a chat. */
  prompt_logprobs?: PromptLogprobs;
  /** With `timings_per_token`: tokens, milliseconds and rates, by llama-server's names. */
  timings?: Record<string, number>;
  /** Text of the first choice; empty in a chunk without choices. Not on the wire. */
  text: string;
}

export type Completion = AnswerOf<TextChoice>;
export type ChatAnswer = AnswerOf<MessageChoice>;
export type CompletionChunk = AnswerOf<TextChoice>;
export type ChatChunk = AnswerOf<DeltaChoice>;
export type Chunk = CompletionChunk | ChatChunk;

/** The text of a choice, of its message or of its delta. */
export function contentOf(choice: Choice): string {
  if ("text" in choice) return choice.text;
  return ("message" in choice ? choice.message : choice.delta).content ?? "";
}

/** An answer with the field `text` for callers. */
export function withText<A extends { choices: Choice[] }>(answer: A): A & { text: string } {
  const [first] = answer.choices;
  return { ...answer, text: first === undefined ? "" : contentOf(first) };
}

/** Whether a chunk opens a chat's stream, before any token. */
export function opens(chunk: Chunk): boolean {
  return chunk.choices.some((choice) => "delta" in choice && choice.delta.role !== undefined);
}
