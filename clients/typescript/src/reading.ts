/** One stream across all its connections: what to ask next, and what came. */

import { type Chunk, opens, withText } from "./answers.js";
import { errorOfEvent, type GatewayError, NotFoundError, passes, type Told } from "./errors.js";
import { type Ask, decoded } from "./http.js";
import type { Source } from "./source.js";
import { Parser, type ServerEvent } from "./sse.js";

/** What tells a stream's place, to whom wants to take it up elsewhere. */
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

  /** `ask` begins the stream; where it is null, another has begun it. */
  constructor(ask: Ask | null, { id, lastEventId }: Place = { id: "", lastEventId: "" }) {
    [this.#ask, this.#heard, this.id, this.lastEventId] = [ask, ask === null, id, lastEventId];
  }

  /** The request that goes on with the stream, or begins it. */
  get ask(): Ask {
    if (this.id === "" && this.#ask !== null) return this.#ask;
    const headers: Record<string, string> = this.lastEventId === "" ? {} : { "last-event-id": this.lastEventId };
    return { method: "GET", path: this.#path, headers };
  }

  /** The request that ends it. */
  get end(): Ask {
    return { method: "DELETE", path: this.#path };
  }

  /** A gateway has answered; what the last connection left half said is forgotten. */
  connected(response: Response): void {
    this.id ||= response.headers.get("x-request-id") ?? "";
    this.done = response.status === 204;
    this.#parser = new Parser();
  }

  /** The last of what a gateway says should have been `[DONE]`. */
  ended(): void {}

  /** Whether to begin again: the gateway died before it could note the stream, and nothing of it was heard. */
  refused(error: unknown): boolean {
    if (!(error instanceof NotFoundError) || this.#heard || this.id === "") return false;
    this.id = "";
    return true;
  }

  /** What `text` brings. Where an error may pass, the stream can be asked for again. */
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
    const told = decoded<Chunk | { error: Told }>(data);
    if (!("error" in told)) return withText(told);
    const error: GatewayError = errorOfEvent(told.error, this.id);
    this.done = !passes(error);
    throw error;
  }

  /** A request's id stands in its events' too, where a proxy between keeps a browser from reading headers. */
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
