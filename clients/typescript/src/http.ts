/** One request at one gateway, by `fetch`. */

import type { Bounds } from "./bounds.js";
import { ConnectionFailedError, errorOfAnswer, ServerError } from "./errors.js";
import type { Body } from "./parameters.js";

export type Fetch = typeof globalThis.fetch;

/** One HTTP request, for whichever gateway. */
export interface Ask {
  readonly method: "GET" | "POST" | "DELETE";
  readonly path: string;
  readonly body?: Body;
  readonly headers?: Readonly<Record<string, string>>;
}

/** `ask` with what is left of its deadlines, if it has a body to say so in. */
export function within(ask: Ask, bounds: Bounds): Ask {
  return ask.body === undefined ? ask : { ...ask, body: { ...ask.body, ...bounds.left() } };
}

/** How gateways are asked. */
export interface Transport {
  readonly fetch: Fetch;
  readonly headers: Readonly<Record<string, string>>;
  readonly silenceMs: number;
}

/**
 * One connection. It fails with the reason of `signal` where that has fired, and otherwise with
 * `ConnectionFailedError`, also when nothing is heard for `silenceMs`. `close` must be called.
 */
export class Connection {
  readonly #controller = new AbortController();
  #timer: ReturnType<typeof setTimeout> | undefined;
  readonly #stop = () => this.#controller.abort();

  constructor(
    readonly transport: Transport,
    readonly address: string,
    readonly signal: AbortSignal,
  ) {
    signal.throwIfAborted();
    signal.addEventListener("abort", this.#stop);
  }

  /** The answer's head; throws the error that a gateway answers with. */
  async open({ method, path, body, headers }: Ask, keepalive = false): Promise<Response> {
    const { fetch } = this.transport;
    const all = { ...this.transport.headers, ...headers, ...(body && { "content-type": "application/json" }) };
    const told = body && { body: JSON.stringify(body) };
    const init = { method, headers: all, signal: this.#controller.signal, keepalive, ...told };
    const response = await this.#heard(fetch(this.address + path, init));
    if (response.ok) return response;
    const { headers: head, status } = response;
    throw errorOfAnswer(status, await this.text(response), head.get("x-request-id"), head.get("retry-after"));
  }

  /** The whole of a body. */
  async text(response: Response): Promise<string> {
    let whole = "";
    for await (const text of this.texts(response)) whole += text;
    return whole;
  }

  /** A body's text as it comes. */
  async *texts(response: Response): AsyncGenerator<string, void> {
    const reader = response.body?.getReader();
    const decoder = new TextDecoder();
    while (reader !== undefined) {
      const { done, value } = await this.#heard(reader.read());
      yield decoder.decode(value, { stream: !done });
      if (done) return;
    }
  }

  /** Breaks the connection off, if it is not at its end. */
  close(): void {
    clearTimeout(this.#timer);
    this.signal.removeEventListener("abort", this.#stop);
    this.#stop();
  }

  async #heard<T>(waiting: Promise<T>): Promise<T> {
    const { silenceMs } = this.transport;
    this.#timer = setTimeout(() => this.#controller.abort(new Error(`nothing heard for ${silenceMs} ms`)), silenceMs);
    try {
      return await waiting;
    } catch (error) {
      this.signal.throwIfAborted();
      throw new ConnectionFailedError(`${this.address}: ${reasonOf(error)}`, { cause: error });
    } finally {
      clearTimeout(this.#timer);
    }
  }
}

/** `text` as JSON; `ServerError` where it is none, which only a proxy's can be. */
export function decoded<T>(text: string): T {
  try {
    return JSON.parse(text) as T;
  } catch (error) {
    throw new ServerError(200, { message: `the answer is not JSON: ${(error as Error).message}` });
  }
}

/** Node hides why a request failed in the cause. */
function reasonOf(error: unknown): string {
  const { message, cause } = error as Error;
  return cause instanceof Error ? `${message}: ${cause.message || (cause as { code?: string }).code}` : message;
}
