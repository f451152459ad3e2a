/** A client's options, checked. */

import { milliseconds } from "./bounds.js";
import { Gateways, type RetryPolicy } from "./gateways.js";
import type { Fetch, Transport } from "./http.js";

/** Options of a client. */
export interface ClientOptions {
  /** Sent as a bearer token. */
  apiKey?: string | undefined;
  /**
   * Milliseconds that a gateway may stay silent, also in mid-stream (60000). Node's own `fetch` gives up after 300000;
   * another `fetch` may not.
   */
  silenceMs?: number | undefined;
  /** Retries after 429, 502, 503, 504 or a failed connection (2); the client waits for `Retry-After`. */
  maxRetries?: number | undefined;
  /** Longest `Retry-After` to wait for, in milliseconds (60000); with a longer one, the error is thrown. */
  maxPauseMs?: number | undefined;
  /** Milliseconds without success after which the client gives up a broken stream (30000). */
  resumeMs?: number | undefined;
  /** Replaces the global `fetch`, for example by one with a proxy. */
  fetch?: Fetch | undefined;
}

/** A client's options, checked and complete. */
export interface ClientConfig extends RetryPolicy {
  readonly transport: Transport;
  readonly resumeMs: number;
}

/** Checks and completes `options`; `RangeError` or `TypeError` for a wrong option. */
export function configOf(baseUrls: string | readonly string[], options: ClientOptions): ClientConfig {
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
