/** One stream across all its connections: the next request, and the chunks of events. */

import { type Chunk, opens, withText } from "./answers.js";
import { type ErrorBody, errorOfEvent, type GatewayError, NotFoundError, isRetryable } from "./errors.js";
import { type GatewayRequest, decoded } from "./http.js";
import type { Source } from "./source.js";
import { Parser, type ServerEvent } from "./sse.js";

/** The place of a reader in a stream, by which another process can resume. */
export interface Place {
  id: string;
  lastEventId: string;
}

export class Reading implements Place, Source<Chunk> {
  id: string;
  lastEventId: string;
  done = false;
  readonly #request: GatewayRequest | null;
  #hasBegun: boolean;
  #parser = new Parser();

  /** `request` begins the stream; null if another process began it. */
  constructor(request: GatewayRequest | null, { id, lastEventId }: Place = { id: "", lastEventId: "" }) {
    [this.#request, this.#hasBegun, this.id, this.lastEventId] = [request, request === null, id, lastEventId];
  }

  /** The request that continues the stream, or begins it. */
  get request(): GatewayRequest {
    if (this.id === "" && this.#request !== null) return this.#request;
    const headers: Record<string, string> = this.lastEventId === "" ? {} : { "last-event-id": this.lastEventId };
    return { method: "GET", path: this.#path, headers };
  }

  /** The request that ends the stream. */
  get end(): GatewayRequest {
    return { method: "DELETE", path: this.#path };
  }

  /** Takes a gateway's answer; drops an incomplete event of the last connection. */
  connected(response: Response): void {
    const { headers } = response;
    this.id ||= headers.get("x-outrider-request-id") ?? headers.get("x-request-id") ?? "";
    this.done = response.status === 204;
    this.#parser = new Parser();
  }

  /** Does nothing: the event `[DONE]` ends the stream. */
  ended(): void {}

  /** Whether to begin again: no gateway knows the stream, and no event of it has arrived. */
  refused(error: unknown): boolean {
    if (!(error instanceof NotFoundError) || this.#hasBegun || this.id === "") return false;
    this.id = "";
    return true;
  }

  /** The chunks in `text`. The stream can be resumed after a retryable error. */
  *take(text: string): Generator<Chunk, void> {
    for (const event of this.#parser.feed(text)) {
      this.#note(event);
      if (event.data === "[DONE]") this.done = true;
      else yield this.#chunk(event);
      if (this.done) return;
    }
  }

  opens(chunk: Chunk): boolean {
    return opens(chunk);
  }

  #chunk({ data }: ServerEvent): Chunk {
    const chunk = decoded<Chunk | { error: ErrorBody }>(data);
    if (!("error" in chunk)) return withText(chunk);
    const error: GatewayError = errorOfEvent(chunk.error, this.id);
    this.done = !isRetryable(error);
    throw error;
  }

  /** Takes the request's id from an event, in case a proxy hides the headers from a browser. */
  #note({ id }: ServerEvent): void {
    this.#hasBegun = true;
    if (id === null) return;
    this.lastEventId = id;
    this.id ||= id.slice(0, Math.max(0, id.lastIndexOf(":")));
  }

  get #path(): string {
    return `/v1/streams/${encodeURIComponent(this.id)}`;
  }
}
