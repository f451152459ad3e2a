/** The client. */

import {
  type ChatAnswer,
  type ChatChunk,
  type Chunk,
  type Completion,
  type CompletionChunk,
  type Model,
  withText,
} from "./answers.js";
import { Caller } from "./caller.js";
import type { CallOptions } from "./bounds.js";
import type { GatewayRequest } from "./http.js";
import { type ClientOptions, type ClientConfig, configOf } from "./config.js";
import {
  type Body,
  bodyOf,
  type ChatParameters,
  type CompletionParameters,
  CONTINUE,
  type Message,
  type Prompt,
} from "./parameters.js";
import { Reading } from "./reading.js";
import { Responses } from "./responseCalls.js";
import { Stream } from "./stream.js";

const COMPLETIONS = "/v1/completions";
const CHATS = "/v1/chat/completions";

/** A stream's request: a completion of a prompt, or an answer to messages. */
export type StreamedCompletion = { prompt: Prompt } & CompletionParameters;
export type StreamedChat = { messages: readonly Message[] } & ChatParameters;

/**
 * A client of gateways. Methods throw the errors of errors.ts, and the reason of an aborted `signal` option.
 *
 * `baseUrls` are URLs of one or several gateways of one mesh; if one fails, the client uses the next.
 */
export class Client {
  /** OpenAI's Responses API. */
  readonly responses: Responses;
  readonly #config: ClientConfig;
  readonly #caller: Caller;

  constructor(baseUrls: string | readonly string[] = "http://127.0.0.1:8080", options: ClientOptions = {}) {
    this.#config = configOf(baseUrls, options);
    this.#caller = new Caller(this.#config);
    this.responses = new Responses(this.#config, this.#caller);
  }

  /** A completion. */
  async complete(
    prompt: Prompt,
    parameters: CompletionParameters = {},
    options: CallOptions = {},
  ): Promise<Completion> {
    return withText(await this.#caller.call<Completion>(post(COMPLETIONS, { ...bodyOf(parameters), prompt }), options));
  }

  /** An answer to a chat. */
  async chat(
    messages: readonly Message[],
    parameters: ChatParameters = {},
    options: CallOptions = {},
  ): Promise<ChatAnswer> {
    return withText(await this.#caller.call<ChatAnswer>(post(CHATS, { ...bodyOf(parameters), messages }), options));
  }

  /** Streams a completion or an answer to a chat, chunk by chunk; iteration sends the request. */
  stream(request: StreamedCompletion, options?: CallOptions): Stream<CompletionChunk>;
  stream(request: StreamedChat, options?: CallOptions): Stream<ChatChunk>;
  stream(request: StreamedCompletion | StreamedChat, options: CallOptions = {}): Stream {
    if ("prompt" in request === "messages" in request) throw new TypeError("give either a prompt or messages");
    const body = { ...bodyOf(request), stream: true };
    const beginning = post("prompt" in request ? COMPLETIONS : CHATS, body);
    return new Stream(this.#config, new Reading({ ...beginning, headers: CONTINUE }), options);
  }

  /** Resumes a stream of another process after the event `lastEventId`, or from its beginning. */
  resume(id: string, lastEventId = "", options: CallOptions = {}): Stream<Chunk> {
    return new Stream(this.#config, new Reading(null, { id, lastEventId }), options);
  }

  /** Ends a stream for all its readers. */
  async cancel(id: string, options: CallOptions = {}): Promise<void> {
    await this.#caller.send(new Reading(null, { id, lastEventId: "" }).end, options);
  }

  /** The served models. */
  async models(options: CallOptions = {}): Promise<Model[]> {
    return (await this.#caller.call<{ data: Model[] }>({ method: "GET", path: "/v1/models" }, options)).data;
  }
}

function post(path: string, body: Body): GatewayRequest {
  return { method: "POST", path, body };
}
