/** Calls with one answer, with retries. */

import { Bounds, type CallOptions } from "./bounds.js";
import { Attempts } from "./gateways.js";
import { type Ask, Connection, decoded, within } from "./http.js";
import type { Manner } from "./manner.js";

export class Asking {
  readonly #manner: Manner;

  constructor(manner: Manner) {
    this.#manner = manner;
  }

  /** The JSON of an answer. */
  async call<T>(ask: Ask, options: CallOptions): Promise<T> {
    return decoded<T>(await this.send(ask, options));
  }

  /** The body of an answer. */
  async send(ask: Ask, options: CallOptions): Promise<string> {
    const [bounds, attempts] = [new Bounds(options, false), new Attempts(this.#manner)];
    try {
      for (;;) {
        const { address } = this.#manner.gateways;
        try {
          return await this.#once(ask, address, bounds);
        } catch (error) {
          await bounds.pause(attempts.pause(error, address), error);
        }
      }
    } finally {
      bounds.end();
    }
  }

  async #once(ask: Ask, address: string, bounds: Bounds): Promise<string> {
    const connection = new Connection(this.#manner.transport, address, bounds.signal);
    try {
      return await connection.text(await connection.open(within(ask, bounds)));
    } finally {
      connection.close();
    }
  }
}
