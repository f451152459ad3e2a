/** One stream across all its connections: the next request, and the chunks of events. */

import { type Chunk, opens, withText } from "./answers.js";
import { type ErrorBody, errorOfEvent, type GatewayError, NotFoundError, passes } from "./errors.js";
import { type Ask, decoded } from "./http.js";
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
  readonly #ask: Ask | null;
  #heard: boolean;
  #parser = new Parser();

  /** `ask` begins the stream; null if another process began it. */
  constructor(ask: Ask | null, { id, lastEventId }: Place = { id: "", lastEventId: "" }) {
    [this.#ask, this.#heard, this.id, this.lastEventId] = [ask, ask === null, id, lastEventId];
  }

  /** The request that continues the stream, or begins it. */
  get ask(): Ask {
    if (this.id === "" && this.#ask !== null) return this.#ask;
    const headers: Record<string, string> = this.lastEventId === "" ? {} : { "last-event-id": this.lastEventId };
    return { method: "GET", path: this.#path, headers };
  }

  /** The request that ends the stream. */
  get end(): Ask {
    return { method: "DELETE", path: this.#path };
  }

  /** Takes a gateway's answer; drops an incomplete event of the last connection. */
  connected(response: Response): void {
    this.id ||= response.headers.get("x-request-id") ?? "";
    this.done = response.status === 204;
    this.#parser = new Parser();
  }

  /** Does nothing: the event `[DONE]` ends the stream. */
  ended(): void {}

  /** Whether to begin again: no gateway knows the stream, and no event of it has arrived. */
  refused(error: unknown): boolean {
    if (!(error instanceof NotFoundError) || this.#heard || this.id === "") return false;
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
    this.done = !passes(error);
    throw error;
  }

  /** Takes the request's id from an event, in case a proxy hides the headers from a browser. */
  #note({ id }: ServerEvent): void {
    this.#heard = true;
    if (id === null) return;
    this.lastEventId = id;
    this.id ||= id.slice(0, Math.max(0, id.lastIndexOf(":")));
  }

  get #path(): string {
    return `/v1/streams/${encodeURIComponent(this.id)}`;
  }
}
