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
import { Asking } from "./asking.js";
import type { CallOptions } from "./bounds.js";
import type { Ask } from "./http.js";
import { type ClientOptions, type Manner, mannerOf } from "./manner.js";
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
import { Responses } from "./responding.js";
import { Stream } from "./stream.js";

const COMPLETIONS = "/v1/completions";
const CHATS = "/v1/chat/completions";

/** What to stream: a completion of a prompt, or an answer to messages. */
export type StreamedCompletion = { prompt: Prompt } & CompletionParameters;
export type StreamedChat = { messages: readonly Message[] } & ChatParameters;

/**
 * Asks gateways. Its methods throw the errors of errors.ts, and what the signal among their options was aborted with.
 *
 * `baseUrls` are of one gateway or of several of one mesh; where one fails, the next is asked.
 */
export class Client {
  /** OpenAI's Responses API. */
  readonly responses: Responses;
  readonly #manner: Manner;
  readonly #asking: Asking;

  constructor(baseUrls: string | readonly string[] = "http://127.0.0.1:8080", options: ClientOptions = {}) {
    this.#manner = mannerOf(baseUrls, options);
    this.#asking = new Asking(this.#manner);
    this.responses = new Responses(this.#manner, this.#asking);
  }

  /** A completion. */
  async complete(
    prompt: Prompt,
    parameters: CompletionParameters = {},
    options: CallOptions = {},
  ): Promise<Completion> {
    return withText(await this.#asking.call<Completion>(post(COMPLETIONS, { ...bodyOf(parameters), prompt }), options));
  }

  /** An answer to a chat. */
  async chat(
    messages: readonly Message[],
    parameters: ChatParameters = {},
    options: CallOptions = {},
  ): Promise<ChatAnswer> {
    return withText(await this.#asking.call<ChatAnswer>(post(CHATS, { ...bodyOf(parameters), messages }), options));
  }

  /** A completion or an answer to a chat, chunk by chunk as it is generated; nothing is asked before it is iterated. */
  stream(asked: StreamedCompletion, options?: CallOptions): Stream<CompletionChunk>;
  stream(asked: StreamedChat, options?: CallOptions): Stream<ChatChunk>;
  stream(asked: StreamedCompletion | StreamedChat, options: CallOptions = {}): Stream {
    if ("prompt" in asked === "messages" in asked) throw new TypeError("give either a prompt or messages");
    const body = { ...bodyOf(asked), stream: true };
    const ask = post("prompt" in asked ? COMPLETIONS : CHATS, body);
    return new Stream(this.#manner, new Reading({ ...ask, headers: CONTINUE }), options);
  }

  /** A stream that another process had begun, behind the event of that id, or from its beginning. */
  resume(id: string, lastEventId = "", options: CallOptions = {}): Stream<Chunk> {
    return new Stream(this.#manner, new Reading(null, { id, lastEventId }), options);
  }

  /** Ends a stream for all its readers. */
  async cancel(id: string, options: CallOptions = {}): Promise<void> {
    await this.#asking.send(new Reading(null, { id, lastEventId: "" }).end, options);
  }

  /** What is served. */
  async models(options: CallOptions = {}): Promise<Model[]> {
    return (await this.#asking.call<{ data: Model[] }>({ method: "GET", path: "/v1/models" }, options)).data;
  }
}

function post(path: string, body: Body): Ask {
  return { method: "POST", path, body };
}
