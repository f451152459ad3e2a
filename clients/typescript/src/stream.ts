/** A streamed answer as an async iterable. */

import type { Chunk } from "./answers.js";
import { Bounds, type CallOptions } from "./bounds.js";
import { ConnectionFailedError } from "./errors.js";
import { Attempts } from "./gateways.js";
import { type GatewayRequest, Connection, withDeadlines } from "./http.js";
import type { ClientConfig } from "./config.js";
import type { Reading } from "./reading.js";
import type { ResponseEvent, ResponseReading } from "./responses.js";
import type { Source } from "./source.js";

const ENDING_MS = 2000;

/**
 * Items of a stream across connections and gateways; iterate once.
 *
 * Leaving the loop, `close`, or the call's signal ends an unfinished generation.
 */
export class StreamOf<T, S extends Source<T>> implements AsyncIterable<T> {
  /** @internal */
  protected readonly source: S;
  readonly #config: ClientConfig;
  readonly #options: CallOptions;
  readonly #attempts: Attempts;
  readonly #items: AsyncGenerator<T, void>;
  #bounds: Bounds | undefined;
  #ending: Promise<void> | undefined;
  #closed = false;

  /** @internal */
  constructor(config: ClientConfig, source: S, options: CallOptions) {
    [this.#config, this.source, this.#options] = [config, source, options];
    this.#attempts = new Attempts(config);
    this.#items = this.#read();
  }

  /** The stream's id; empty before the first answer. */
  get id(): string {
    return this.source.id;
  }

  [Symbol.asyncIterator](): AsyncGenerator<T, void> {
    return this.#items;
  }

  /** Stops reading, and ends the generation if a gateway can be reached; a loop that waits for an item ends. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#bounds?.stop();
    await this.#items.return();
    await this.#end();
  }

  async *#read(): AsyncGenerator<T, void> {
    const bounds = (this.#bounds = new Bounds(this.#options, true));
    const end = () => void this.#end();
    bounds.signal.addEventListener("abort", end);
    try {
      while (!this.source.done) yield* this.#try(bounds);
    } catch (error) {
      if (!this.#closed) throw error;
    } finally {
      bounds.end();
      if (!bounds.signal.aborted) await this.#end();
    }
  }

  async *#try(bounds: Bounds): AsyncGenerator<T, void> {
    const { address } = this.#config.gateways;
    try {
      yield* this.#connection(address, bounds);
    } catch (error) {
      if (!this.source.refused(error)) await bounds.pause(this.#attempts.pause(error, address), error);
    }
  }

  async *#connection(address: string, bounds: Bounds): AsyncGenerator<T, void> {
    const connection = new Connection(this.#config.transport, address, bounds.signal);
    try {
      const response = await connection.open(withDeadlines(this.source.request, bounds));
      this.source.connected(response);
      for await (const text of connection.texts(response)) yield* this.#take(text, bounds);
      this.source.ended();
      if (!this.source.done) throw new ConnectionFailedError(`${address}: the stream broke off`);
    } finally {
      connection.close();
    }
  }

  *#take(text: string, bounds: Bounds): Generator<T, void> {
    for (const item of this.source.take(text)) {
      this.#attempts.succeeded(this.#config.resumeMs);
      if (!this.source.opens(item)) bounds.begun();
      yield item;
    }
  }

  /** Asks a gateway once to end an unfinished generation; ignores failures. */
  #end(): Promise<void> {
    const { id, done, end } = this.source;
    return (this.#ending ??= id !== "" && !done && end !== null ? this.#cancel(end) : Promise.resolve());
  }

  async #cancel(end: GatewayRequest): Promise<void> {
    const { transport, gateways } = this.#config;
    const connection = new Connection(transport, gateways.address, AbortSignal.timeout(ENDING_MS));
    await connection.open(end, true).catch(() => undefined);
    connection.close();
  }
}

/** Chunks of one answer; another process can `Client.resume` the stream by `id` and `lastEventId`. */
export class Stream<C extends Chunk = Chunk> extends StreamOf<C, Reading & Source<C>> {
  /** Id of the last event read. */
  get lastEventId(): string {
    return this.source.lastEventId;
  }
}

/** Events of one response; another process can `Responses.resume` the stream by `id` and `sequenceNumber`. */
export class ResponseStream extends StreamOf<ResponseEvent, ResponseReading> {
  /** Number of the last event read. */
  get sequenceNumber(): number {
    return this.source.sequenceNumber;
  }
}
