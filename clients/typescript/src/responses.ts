/** OpenAI's Responses API: what is asked, what is answered, and a stream of a response's events. */

import type { Detail } from "./answers.js";
import { errorOfEvent, type GatewayError, NotFoundError, passes } from "./errors.js";
import { type Ask, decoded } from "./http.js";
import type { Common } from "./parameters.js";
import { Parser } from "./sse.js";
import type { Source } from "./source.js";

type Maybe<T> = { [K in keyof T]?: T[K] | null | undefined };

/** A function that may be called; `parameters` is a JSON Schema. */
export interface FunctionTool {
  type: "function";
  name: string;
  description?: string;
  parameters?: Record<string, unknown>;
  strict?: boolean;
}

/** Text, or items of OpenAI's: messages, calls of functions and what those returned. */
export type ResponseInput = string | readonly Record<string, unknown>[];

/** Parameters of `POST /v1/responses`. */
export type ResponseParameters = Maybe<
  Common & {
    instructions: string;
    previous_response_id: string;
    max_output_tokens: number;
    text: { format?: Record<string, unknown> };
    tools: FunctionTool[];
    tool_choice: "auto" | "none" | "required" | { type: "function"; name: string };
    parallel_tool_calls: boolean;
    include: "message.output_text.logprobs"[];
    top_logprobs: number;
    metadata: Record<string, string>;
    store: boolean;
    background: boolean;
  }
>;

/** A message, or a call of a function with JSON as its `arguments`. */
export interface OutputItem {
  id: string;
  type: "message" | "function_call";
  status: "in_progress" | "completed" | "incomplete";
  content?: { type: "output_text"; text: string; logprobs: unknown[] }[];
  call_id?: string;
  name?: string;
  arguments?: string;
}

/** What a response cost, in tokens. */
export interface ResponseUsage {
  input_tokens: number;
  output_tokens: number;
  total_tokens: number;
  input_tokens_details: { cached_tokens: number };
  output_tokens_details: { accepted_prediction_tokens: number; rejected_prediction_tokens: number };
}

/** A response as it stands; `created_at` is in seconds since 1970. */
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
  /** All text of its messages. Not on the wire. */
  text: string;
}

/** One of OpenAI's typed events; which fields it has says its `type`. */
export interface ResponseEvent {
  type: string;
  sequence_number: number;
  response?: ModelResponse;
  output_index?: number;
  item?: OutputItem;
  delta?: string;
  arguments?: string;
  outrider?: Detail;
  /** The text that it adds; nothing in an event that adds none. Not on the wire. */
  text: string;
}

type Told = Omit<ResponseEvent, "text">;
type Failure = { type: "error"; message: string; code: string | null; param: string | null };

const PATH = "/v1/responses";
const LAST = ["response.completed", "response.incomplete", "response.failed"];

/** The request for a response. */
export function creation(body: Record<string, unknown>): Ask {
  return { method: "POST", path: PATH, body };
}

/** A request about a stored response. */
export function about(id: string, method: Ask["method"] = "GET", more = ""): Ask {
  return { method, path: `${PATH}/${encodeURIComponent(id)}${more}` };
}

/** A response as a caller gets it. */
export function withOutputText(told: Omit<ModelResponse, "text">): ModelResponse {
  const parts = told.output.flatMap((item) => item.content ?? []);
  return { ...told, text: parts.map((part) => part.text).join("") };
}

/** One response's events across all connections. */
export class ResponseReading implements Source<ResponseEvent> {
  done = false;
  #heard: boolean;
  #came = false;
  #parser = new Parser();

  /** `ask` begins the response; where it is null, another has begun it. Only one that is `owned` ends with its stream. */
  constructor(
    readonly first: Ask | null,
    readonly owned: boolean,
    public id = "",
    public sequenceNumber = -1,
  ) {
    this.#heard = first === null;
  }

  get ask(): Ask {
    if (this.id === "" && this.first !== null) return this.first;
    const place = this.sequenceNumber < 0 ? "" : `&starting_after=${this.sequenceNumber}`;
    return about(this.id, "GET", `?stream=true${place}`);
  }

  get end(): Ask | null {
    return this.owned ? about(this.id, "DELETE") : null;
  }

  connected(response: Response): void {
    const request = response.headers.get("x-request-id");
    if (request !== null) this.id ||= `resp_${request}`;
    [this.#parser, this.#came] = [new Parser(), false];
  }

  /** Behind the last event there is nothing more to say. */
  ended(): void {
    this.done ||= !this.#came;
  }

  refused(error: unknown): boolean {
    if (!(error instanceof NotFoundError) || this.#heard || this.id === "") return false;
    this.id = "";
    return true;
  }

  *take(text: string): Generator<ResponseEvent, void> {
    for (const { data } of this.#parser.feed(text)) {
      this.#heard = this.#came = true;
      const told = decoded<Told | Failure>(data);
      if (!("sequence_number" in told) || told.type === "error") throw this.#failed(told as Failure);
      yield this.#noted(told);
    }
  }

  opens({ type }: ResponseEvent): boolean {
    return type === "response.created" || type === "response.in_progress";
  }

  #noted(told: Told): ResponseEvent {
    if (told.response !== undefined) this.id ||= told.response.id;
    this.sequenceNumber = told.sequence_number;
    this.done = LAST.includes(told.type);
    const event = { ...told, text: told.type === "response.output_text.delta" ? (told.delta ?? "") : "" };
    return told.response === undefined ? event : { ...event, response: withOutputText(told.response) };
  }

  #failed({ message, code, param }: Failure): GatewayError {
    const error = errorOfEvent({ message, type: code, param, code }, this.id.replace(/^resp_/, ""));
    this.done = !passes(error);
    return error;
  }
}
