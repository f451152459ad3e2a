/** OpenAI's Responses API: requests, answers, and streams of a response's events. */

import type { Detail } from "./answers.js";
import { errorOfEvent, type GatewayError, NotFoundError, isRetryable } from "./errors.js";
import { type GatewayRequest, decoded } from "./http.js";
import type { Common, Effort } from "./parameters.js";
import { Parser } from "./sse.js";
import type { Source } from "./source.js";

type Maybe<T> = { [K in keyof T]?: T[K] | null | undefined };

/** A function that the model may call; `parameters` is a JSON Schema. */
export interface FunctionTool {
  type: "function";
  name: string;
  description?: string;
  parameters?: Record<string, unknown>;
  strict?: boolean;
}

/** Text, or OpenAI's items: messages, function calls and their results. */
export type ResponseInput = string | readonly Record<string, unknown>[];

/** Parameters of `POST /v1/responses`. */
export type ResponseParameters = Maybe<
  Common & {
    instructions: string;
    previous_response_id: string;
    max_output_tokens: number;
    text: { format?: Record<string, unknown> };
    tools: FunctionTool[];
    tool_choice:
      | "auto"
      | "none"
      | "required"
      | { type: "function"; name: string }
      | { type: "allowed_tools"; mode: "auto" | "required"; tools: { type: "function"; name: string }[] };
    parallel_tool_calls: boolean;
    include: ("message.output_text.logprobs" | "reasoning.encrypted_content")[];
    top_logprobs: number;
    metadata: Record<string, string>;
    truncation: "auto" | "disabled";
    store: boolean;
    background: boolean;
    chat_template_kwargs: Record<string, unknown>;
    reasoning: { effort?: Effort };
  }
>;

/** A message, or a function call with JSON in `arguments`. */
export interface OutputItem {
  id: string;
  type: "message" | "function_call";
  status: "in_progress" | "completed" | "incomplete";
  content?: { type: "output_text"; text: string; logprobs: unknown[] }[];
  call_id?: string;
  name?: string;
  arguments?: string;
}

/** The cost of a response, in tokens. */
export interface ResponseUsage {
  input_tokens: number;
  output_tokens: number;
  total_tokens: number;
  input_tokens_details: { cached_tokens: number };
  output_tokens_details: { accepted_prediction_tokens: number; rejected_prediction_tokens: number };
}

/** A response in its present state; `created_at` is in seconds since 1970. */
export interface ModelResponse {
  id: string;
  created_at: number;
  model: string;
  status: "queued" | "in_progress" | "completed" | "incomplete" | "failed" | "cancelled";
  output: OutputItem[];
  error: { code: string; message: string } | null;
  incomplete_details: { reason: string } | null;
  previous_response_id: string | null;
  background: boolean;
  metadata: Record<string, string>;
  usage: ResponseUsage | null;
  outrider?: Detail;
  /** All text of the response's messages. Not on the wire. */
  text: string;
}

/** One of OpenAI's typed events; its `type` determines its fields. */
export interface ResponseEvent {
  type: string;
  sequence_number: number;
  response?: ModelResponse;
  output_index?: number;
  item?: OutputItem;
  delta?: string;
  arguments?: string;
  outrider?: Detail;
  /** The text that the event adds; empty in other events. Not on the wire. */
  text: string;
}

type WireEvent = Omit<ResponseEvent, "text">;
type Failure = { type: "error"; message: string; code: string | null; param: string | null };

const PATH = "/v1/responses";
const LAST = ["response.completed", "response.incomplete", "response.failed"];

/** The request for a response. */
export function responseCreation(body: Record<string, unknown>): GatewayRequest {
  return { method: "POST", path: PATH, body };
}

/** A request about a stored response. */
export function responseRequest(id: string, method: GatewayRequest["method"] = "GET", more = ""): GatewayRequest {
  return { method, path: `${PATH}/${encodeURIComponent(id)}${more}` };
}

/** A response with the field `text` for callers. */
export function withOutputText(response: Omit<ModelResponse, "text">): ModelResponse {
  const parts = response.output.flatMap((item) => item.content ?? []);
  return { ...response, text: parts.map((part) => part.text).join("") };
}

/** The events of one response across all connections. */
export class ResponseReading implements Source<ResponseEvent> {
  done = false;
  #hasBegun: boolean;
  #hasEvents = false;
  #parser = new Parser();

  /** `first` begins the response; null if another process began it. Only an `owned` response ends with its stream. */
  constructor(
    readonly first: GatewayRequest | null,
    readonly owned: boolean,
    public id = "",
    public sequenceNumber = -1,
  ) {
    this.#hasBegun = first === null;
  }

  get request(): GatewayRequest {
    if (this.id === "" && this.first !== null) return this.first;
    const place = this.sequenceNumber < 0 ? "" : `&starting_after=${this.sequenceNumber}`;
    return responseRequest(this.id, "GET", `?stream=true${place}`);
  }

  get end(): GatewayRequest | null {
    return this.owned ? responseRequest(this.id, "DELETE") : null;
  }

  connected(response: Response): void {
    const { headers } = response;
    const request = headers.get("x-outrider-request-id") ?? headers.get("x-request-id");
    if (request !== null) this.id ||= `resp_${request}`;
    [this.#parser, this.#hasEvents] = [new Parser(), false];
  }

  /** An answer without events means that the stream is done. */
  ended(): void {
    this.done ||= !this.#hasEvents;
  }

  refused(error: unknown): boolean {
    if (!(error instanceof NotFoundError) || this.#hasBegun || this.id === "") return false;
    this.id = "";
    return true;
  }

  *take(text: string): Generator<ResponseEvent, void> {
    for (const { data } of this.#parser.feed(text)) {
      this.#hasBegun = this.#hasEvents = true;
      const event = decoded<WireEvent | Failure>(data);
      if (!("sequence_number" in event) || event.type === "error") throw this.#failed(event as Failure);
      yield this.#noted(event);
    }
  }

  opens({ type }: ResponseEvent): boolean {
    return type === "response.created" || type === "response.in_progress";
  }

  #noted(event: WireEvent): ResponseEvent {
    if (event.response !== undefined) this.id ||= event.response.id;
    this.sequenceNumber = event.sequence_number;
    this.done = LAST.includes(event.type);
    const typed = { ...event, text: event.type === "response.output_text.delta" ? (event.delta ?? "") : "" };
    return event.response === undefined ? typed : { ...typed, response: withOutputText(event.response) };
  }

  #failed({ message, code, param }: Failure): GatewayError {
    const error = errorOfEvent({ message, type: code, param, code }, this.id.replace(/^resp_/, ""));
    this.done = !isRetryable(error);
    return error;
  }
}
