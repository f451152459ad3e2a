/** Gateways and retries. Nothing here touches the network. */

import { ConnectionFailedError, GatewayError, isRetryable } from "./errors.js";

const FIRST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 2000;

/** The base URLs, and which of them is in use. */
export class Gateways {
  readonly #urls: string[];
  #place = 0;

  constructor(baseUrls: string | readonly string[]) {
    this.#urls = (typeof baseUrls === "string" ? [baseUrls] : [...baseUrls]).map(checked);
    if (this.#urls.length === 0) throw new TypeError("at least one base URL is needed");
  }

  get count(): number {
    return this.#urls.length;
  }

  /** The base URL in use. */
  get address(): string {
    return this.#urls[this.#place]!;
  }

  /** Moves from `address` to the next gateway, unless another call has done so. */
  leave(address: string): void {
    if (address === this.address) this.#place = (this.#place + 1) % this.#urls.length;
  }
}

function checked(url: string): string {
  if (!URL.canParse(url) || !/^https?:$/.test(new URL(url).protocol)) {
    throw new TypeError(`a base URL must be one of http or https, not ${JSON.stringify(url)}`);
  }
  return url.replace(/\/+$/, "").replace(/\/v1$/, "");
}

/** Gateways, the number of retries, and the longest wait for one. */
export interface RetryPolicy {
  readonly gateways: Gateways;
  readonly maxRetries: number;
  readonly maxPauseMs: number;
}

/**
 * Decides after each failure whether and when to retry, up to `maxRetries` times.
 *
 * After a failure the next gateway is in use. A failed connection is retried at once while a gateway is untried.
 */
export class Attempts {
  readonly #policy: RetryPolicy;
  #failures = 0;
  #until = 0;

  constructor(policy: RetryPolicy) {
    this.#policy = policy;
  }

  /** Forgets all failures, and allows any number of retries in the next `ms` milliseconds. */
  succeeded(ms: number): void {
    [this.#failures, this.#until] = [0, performance.now() + ms];
  }

  /** Milliseconds to wait before the next try, after `error` at `address`; throws `error` if there is none. */
  pause(error: unknown, address: string): number {
    this.#failures += 1;
    const { gateways, maxRetries } = this.#policy;
    const final = this.#failures > maxRetries && performance.now() >= this.#until;
    if (final || !this.#isRetryable(error)) throw error;
    gateways.leave(address);
    if (error instanceof GatewayError) return error.retryAfter === null ? this.#backoff() : error.retryAfter * 1000;
    return this.#failures < gateways.count ? 0 : this.#backoff();
  }

  #isRetryable(error: unknown): boolean {
    if (!(error instanceof GatewayError)) return error instanceof ConnectionFailedError;
    return isRetryable(error) && (error.retryAfter ?? 0) * 1000 <= this.#policy.maxPauseMs;
  }

  #backoff(): number {
    const longest = Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** Math.min(this.#failures, 10));
    return longest * (0.5 + Math.random() / 2);
  }
}
