/** What a gateway answers. Names are those of the wire. */

/** A served model. `created` is in seconds since 1970. */
export interface Model {
  id: string;
  object: "model";
  created: number;
  owned_by: string;
}

/** What an answer cost, in tokens. */
export interface Usage {
  prompt_tokens: number;
  completion_tokens: number;
  total_tokens: number;
  /** Of the prompt's tokens, those that were not computed again. */
  prompt_tokens_details: { cached_tokens: number };
  /** Guesses of drafters: those that became the answer's tokens, and those that did not. */
  completion_tokens_details: { accepted_prediction_tokens: number; rejected_prediction_tokens: number };
}

/** What OpenAI's API has no place for; the first four are there with `return_tokens`, the others at the end. */
export interface Detail {
  first_index?: number;
  tokens?: number[];
  texts?: string[];
  guessed_by?: string[];
  steps?: number;
  seed?: number;
  verifier?: string;
  lossy?: boolean;
  choices?: Detail[];
}

/** One call of a function, whole or what a chunk adds to it. Only chunks have an `index`. */
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
  refusal: null;
  tool_calls?: ToolCall[];
}

/** What a chunk adds to a chat's message. */
export interface Delta {
  role?: "assistant";
  content?: string;
  tool_calls?: ToolCall[];
}

/** Log-probabilities in completions: one entry a token in each list. */
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

export type FinishReason = "stop" | "length" | "tool_calls";

interface ChoiceOf<L> {
  index: number;
  finish_reason: FinishReason | null;
  logprobs: L | null;
}

/** A completion's choice, whole or in a chunk. */
export interface TextChoice extends ChoiceOf<TextLogprobs> {
  text: string;
}

/** A chat's choice as a whole. */
export interface MessageChoice extends ChoiceOf<ChatLogprobs> {
  message: AssistantMessage;
}

/** A chat's choice in a chunk. */
export interface DeltaChoice extends ChoiceOf<ChatLogprobs> {
  delta: Delta;
}

export type Choice = TextChoice | MessageChoice | DeltaChoice;

/** A completion or a chat's answer, whole or, in a stream, in part. */
export interface AnswerOf<C extends Choice> {
  id: string;
  object: string;
  created: number;
  model: string;
  system_fingerprint: string;
  choices: C[];
  usage?: Usage | null;
  outrider?: Detail;
  /** The first choice's text; nothing in a chunk that has no choice. Not on the wire. */
  text: string;
}

export type Completion = AnswerOf<TextChoice>;
export type ChatAnswer = AnswerOf<MessageChoice>;
export type CompletionChunk = AnswerOf<TextChoice>;
export type ChatChunk = AnswerOf<DeltaChoice>;
export type Chunk = CompletionChunk | ChatChunk;

/** A choice's text, wherever it stands. */
export function contentOf(choice: Choice): string {
  if ("text" in choice) return choice.text;
  return ("message" in choice ? choice.message : choice.delta).content ?? "";
}

/** An answer as a caller gets it. */
export function withText<A extends { choices: Choice[] }>(told: A): A & { text: string } {
  const [first] = told.choices;
  return { ...told, text: first === undefined ? "" : contentOf(first) };
}

/** Whether a chunk is of those that a chat's stream begins with, before there is a token. */
export function opens(chunk: Chunk): boolean {
  return chunk.choices.some((choice) => "delta" in choice && choice.delta.role !== undefined);
}
