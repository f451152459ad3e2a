/** One request to one gateway, by `fetch`. */

import type { Bounds } from "./bounds.js";
import { ConnectionFailedError, errorOfAnswer, ServerError } from "./errors.js";
import type { Body } from "./parameters.js";

export type Fetch = typeof globalThis.fetch;

/** One HTTP request, for any gateway. */
export interface GatewayRequest {
  readonly method: "GET" | "POST" | "DELETE";
  readonly path: string;
  readonly body?: Body;
  readonly headers?: Readonly<Record<string, string>>;
}

/** `request` with the rest of its deadlines, if it has a body. */
export function withDeadlines(request: GatewayRequest, bounds: Bounds): GatewayRequest {
  return request.body === undefined ? request : { ...request, body: { ...request.body, ...bounds.left() } };
}

/** Settings of requests to gateways. */
export interface Transport {
  readonly fetch: Fetch;
  readonly headers: Readonly<Record<string, string>>;
  readonly silenceMs: number;
}

/**
 * One connection. It fails with the reason of an aborted `signal`, otherwise with `ConnectionFailedError`, also after
 * `silenceMs` without data. `close` must be called.
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

  /** The answer's head; throws the error of a gateway's answer. */
  async open({ method, path, body, headers }: GatewayRequest, keepalive = false): Promise<Response> {
    const { fetch } = this.transport;
    const all = { ...this.transport.headers, ...headers, ...(body && { "content-type": "application/json" }) };
    const content = body && { body: JSON.stringify(body) };
    const init = { method, headers: all, signal: this.#controller.signal, keepalive, ...content };
    const response = await this.#failAfterSilence(fetch(this.address + path, init));
    if (response.ok) return response;
    const { headers: head, status } = response;
    throw errorOfAnswer(status, await this.text(response), head.get("x-request-id"), head.get("retry-after"));
  }

  /** The whole body. */
  async text(response: Response): Promise<string> {
    let whole = "";
    for await (const text of this.texts(response)) whole += text;
    return whole;
  }

  /** A body's text as it arrives. */
  async *texts(response: Response): AsyncGenerator<string, void> {
    const reader = response.body?.getReader();
    const decoder = new TextDecoder();
    while (reader !== undefined) {
      const { done, value } = await this.#failAfterSilence(reader.read());
      yield decoder.decode(value, { stream: !done });
      if (done) return;
    }
  }

  /** Aborts the connection, unless it has ended. */
  close(): void {
    clearTimeout(this.#timer);
    this.signal.removeEventListener("abort", this.#stop);
    this.#stop();
  }

  async #failAfterSilence<T>(waiting: Promise<T>): Promise<T> {
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

/** `text` as JSON; `ServerError` for other text, which only a proxy can send. */
export function decoded<T>(text: string): T {
  try {
    return JSON.parse(text) as T;
  } catch (error) {
    throw new ServerError(200, { message: `the answer is not JSON: ${(error as Error).message}` });
  }
}

/** The reason of a failed request, which Node hides in the cause. */
function reasonOf(error: unknown): string {
  const { message, cause } = error as Error;
  return cause instanceof Error ? `${message}: ${cause.message || (cause as { code?: string }).code}` : message;
}
