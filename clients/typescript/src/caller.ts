/** Calls with one answer, with retries. */

import { Bounds, type CallOptions } from "./bounds.js";
import { Attempts } from "./gateways.js";
import { type GatewayRequest, Connection, decoded, withDeadlines } from "./http.js";
import type { ClientConfig } from "./config.js";

export class Caller {
  readonly #config: ClientConfig;

  constructor(config: ClientConfig) {
    this.#config = config;
  }

  /** The JSON of an answer. */
  async call<T>(request: GatewayRequest, options: CallOptions): Promise<T> {
    return decoded<T>(await this.send(request, options));
  }

  /** The body of an answer. */
  async send(request: GatewayRequest, options: CallOptions): Promise<string> {
    const [bounds, attempts] = [new Bounds(options, false), new Attempts(this.#config)];
    try {
      for (;;) {
        const { address } = this.#config.gateways;
        try {
          return await this.#once(request, address, bounds);
        } catch (error) {
          await bounds.pause(attempts.pause(error, address), error);
        }
      }
    } finally {
      bounds.end();
    }
  }

  async #once(request: GatewayRequest, address: string, bounds: Bounds): Promise<string> {
    const connection = new Connection(this.#config.transport, address, bounds.signal);
    try {
      return await connection.text(await connection.open(withDeadlines(request, bounds)));
    } finally {
      connection.close();
    }
  }
}
