/** A client's options, checked. */

import { milliseconds } from "./bounds.js";
import { Gateways, type Patience } from "./gateways.js";
import type { Fetch, Transport } from "./http.js";

/** Options of a client. */
export interface ClientOptions {
  /** Sent as a bearer token. */
  apiKey?: string | undefined;
  /**
   * Milliseconds that a gateway may stay silent, in the middle of a stream too (60000). Node's own `fetch` gives up
   * after 300000, unless `fetch` is another.
   */
  silenceMs?: number | undefined;
  /** Further attempts after 429, 502, 503, 504 or a connection that failed (2); `Retry-After` is kept to. */
  maxRetries?: number | undefined;
  /** Milliseconds of the longest `Retry-After` that is waited for (60000); an error with a longer one is thrown. */
  maxPauseMs?: number | undefined;
  /** Milliseconds without any success after which a stream that broke is given up (30000). */
  resumeMs?: number | undefined;
  /** Asks instead of the global `fetch`: through a proxy, say. */
  fetch?: Fetch | undefined;
}

/** How a client asks: its options, all given. */
export interface Manner extends Patience {
  readonly transport: Transport;
  readonly resumeMs: number;
}

/** The manner that `options` ask for; `RangeError` or `TypeError` says what is wrong with them. */
export function mannerOf(baseUrls: string | readonly string[], options: ClientOptions): Manner {
  const { apiKey, silenceMs = 60_000, maxRetries = 2, maxPauseMs = 60_000, resumeMs = 30_000 } = options;
  if (!Number.isInteger(maxRetries) || maxRetries < 0) {
    throw new RangeError(`maxRetries must be an integer of at least 0, not ${maxRetries}`);
  }
  return {
    gateways: new Gateways(baseUrls),
    transport: {
      fetch: options.fetch ?? ((input, init) => globalThis.fetch(input, init)),
      headers: Object.fromEntries(new Headers(apiKey ? { authorization: `Bearer ${apiKey}` } : {})),
      silenceMs: milliseconds("silenceMs", silenceMs, 1),
    },
    maxRetries,
    maxPauseMs: milliseconds("maxPauseMs", maxPauseMs, 0),
    resumeMs: milliseconds("resumeMs", resumeMs, 0),
  };
}
