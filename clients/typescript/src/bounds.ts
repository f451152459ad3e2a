/** The time bounds of a call: its caller's signal and its deadlines. */

import { DeadlineError } from "./errors.js";

/** Options of one call. */
export interface CallOptions {
  /** Ends the call, which throws the signal's reason; ends a stream's generation too. */
  signal?: AbortSignal | undefined;
  /** Milliseconds within which the first token has to arrive, retries included. */
  ttftMs?: number | undefined;
  /** Milliseconds within which the whole answer has to arrive, retries and resumptions included. */
  timeoutMs?: number | undefined;
}

/** Upper bound of options in milliseconds: a day. */
export const LONGEST_MS = 86_400_000;

/** Returns `value` from `least` to `LONGEST_MS`; `RangeError` otherwise. */
export function milliseconds(name: string, value: number, least: number): number {
  if (value >= least && value <= LONGEST_MS) return value;
  throw new RangeError(`${name} must be milliseconds from ${least} to ${LONGEST_MS}, not ${value}`);
}

const LATE = {
  ttft_ms: "the first token did not come within ttftMs",
  timeout_ms: "the answer did not end within timeoutMs",
};
type Deadline = keyof typeof LATE;

/**
 * Time counts from the constructor on. Requests carry the rest of each deadline; a missed deadline ends the call here
 * too, in case no gateway answers. `end` must be called.
 */
export class Bounds {
  readonly #controller = new AbortController();
  readonly #due = new Map<Deadline, number>();
  readonly #timers = new Map<Deadline, ReturnType<typeof setTimeout>>();
  readonly #outer: AbortSignal | undefined;
  readonly #forward = () => this.#controller.abort(this.#outer?.reason);

  /** If the answer is not `streamed`, only gateways can check the deadline of the first token. */
  constructor({ signal, ttftMs, timeoutMs }: CallOptions, streamed: boolean) {
    if (ttftMs !== undefined) this.#set("ttft_ms", milliseconds("ttftMs", ttftMs, 1), streamed);
    if (timeoutMs !== undefined) this.#set("timeout_ms", milliseconds("timeoutMs", timeoutMs, 1), true);
    this.#outer = signal;
    if (signal?.aborted) this.#forward();
    else signal?.addEventListener("abort", this.#forward);
  }

  /** Aborts when a bound ends the call; the reason is the error to throw. */
  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** Drops the first token's deadline, once the token has arrived. */
  begun(): void {
    clearTimeout(this.#timers.get("ttft_ms"));
    this.#due.delete("ttft_ms");
  }

  /** The deadlines as parameters, in whole milliseconds left. */
  left(): Partial<Record<Deadline, number>> {
    const now = performance.now();
    return Object.fromEntries([...this.#due].map(([name, due]) => [name, Math.max(1, Math.ceil(due - now))]));
  }

  /** Ends the call. */
  stop(): void {
    this.#controller.abort();
  }

  /** Waits between tries; throws `error`, the reason of the retry, if the wait would exceed a deadline. */
  async pause(ms: number, error: unknown): Promise<void> {
    if (Math.min(...this.#due.values()) <= performance.now() + ms) throw error;
    this.signal.throwIfAborted();
    await new Promise<void>((wake) => {
      const over = () => {
        clearTimeout(timer);
        this.signal.removeEventListener("abort", over);
        wake();
      };
      const timer = setTimeout(over, ms);
      this.signal.addEventListener("abort", over);
    });
    this.signal.throwIfAborted();
  }

  /** Releases timers and signals. */
  end(): void {
    for (const timer of this.#timers.values()) clearTimeout(timer);
    this.#outer?.removeEventListener("abort", this.#forward);
  }

  #set(name: Deadline, ms: number, kept: boolean): void {
    const error = { message: LATE[name], type: "timeout_error", param: name, code: "deadline_exceeded" };
    this.#due.set(name, performance.now() + ms);
    if (kept) this.#timers.set(name, setTimeout(() => this.#controller.abort(new DeadlineError(504, error)), ms));
  }
}
