/** A streamed answer as an async iterable. */

import { type Chunk, opens } from "./answers.js";
import { Bounds, type CallOptions } from "./bounds.js";
import { ConnectionFailedError } from "./errors.js";
import { Attempts } from "./gateways.js";
import { Connection, within } from "./http.js";
import type { Manner } from "./manner.js";
import type { Reading } from "./reading.js";

const ENDING_MS = 2000;

/**
 * Chunks of one answer, whichever connections and gateways bring them; to be iterated once.
 *
 * `id` and `lastEventId` are what another process needs to `Client.resume`. Leaving the loop, `close`, or the call's
 * signal ends a generation that is not done.
 */
export class Stream<C extends Chunk = Chunk> implements AsyncIterable<C> {
  readonly #manner: Manner;
  readonly #reading: Reading;
  readonly #options: CallOptions;
  readonly #attempts: Attempts;
  readonly #chunks: AsyncGenerator<C, void>;
  #bounds: Bounds | undefined;
  #ending: Promise<void> | undefined;
  #closed = false;

  /** @internal */
  constructor(manner: Manner, reading: Reading, options: CallOptions) {
    [this.#manner, this.#reading, this.#options] = [manner, reading, options];
    this.#attempts = new Attempts(manner);
    this.#chunks = this.#read();
  }

  /** The request's id; empty before the first chunk. */
  get id(): string {
    return this.#reading.id;
  }

  /** Where the reader stands. */
  get lastEventId(): string {
    return this.#reading.lastEventId;
  }

  [Symbol.asyncIterator](): AsyncGenerator<C, void> {
    return this.#chunks;
  }

  /** Stops reading, and has the gateway stop generating, if it can be reached; a loop that waits for a chunk ends. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#bounds?.stop();
    await this.#chunks.return();
    await this.#end();
  }

  async *#read(): AsyncGenerator<C, void> {
    const bounds = (this.#bounds = new Bounds(this.#options, true));
    const end = () => void this.#end();
    bounds.signal.addEventListener("abort", end);
    try {
      while (!this.#reading.done) yield* this.#try(bounds);
    } catch (error) {
      if (!this.#closed) throw error;
    } finally {
      bounds.end();
      if (!bounds.signal.aborted) await this.#end();
    }
  }

  async *#try(bounds: Bounds): AsyncGenerator<C, void> {
    const { address } = this.#manner.gateways;
    try {
      yield* this.#connection(address, bounds);
    } catch (error) {
      if (!this.#reading.refused(error)) await bounds.pause(this.#attempts.pause(error, address), error);
    }
  }

  async *#connection(address: string, bounds: Bounds): AsyncGenerator<C, void> {
    const connection = new Connection(this.#manner.transport, address, bounds.signal);
    try {
      const response = await connection.open(within(this.#reading.ask, bounds));
      this.#reading.connected(response);
      for await (const text of connection.texts(response)) yield* this.#take(text, bounds);
      if (!this.#reading.done) throw new ConnectionFailedError(`${address}: the stream broke off`);
    } finally {
      connection.close();
    }
  }

  *#take(text: string, bounds: Bounds): Generator<C, void> {
    for (const chunk of this.#reading.take(text)) {
      this.#attempts.succeeded(this.#manner.resumeMs);
      if (!opens(chunk)) bounds.begun();
      yield chunk as C;
    }
  }

  /** Has the gateway end what is not done, once; whether that succeeds is of no matter. */
  #end(): Promise<void> {
    return (this.#ending ??= this.#reading.id && !this.#reading.done ? this.#cancel() : Promise.resolve());
  }

  async #cancel(): Promise<void> {
    const { transport, gateways } = this.#manner;
    const connection = new Connection(transport, gateways.address, AbortSignal.timeout(ENDING_MS));
    await connection.open(this.#reading.end, true).catch(() => undefined);
    connection.close();
  }
}
