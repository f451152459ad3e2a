/** What a stream reads. */

import type { Ask } from "./http.js";

/** One stream across all its connections, whatever it is of. */
export interface Source<T> {
  readonly id: string;
  readonly done: boolean;
  /** The request that goes on with the stream, or begins it. */
  readonly ask: Ask;
  /** The request that ends it, if it is to be ended. */
  readonly end: Ask | null;
  /** A gateway has answered; what the last connection left half said is forgotten. */
  connected(response: Response): void;
  /** The gateway has said all that it had to say. */
  ended(): void;
  /** Whether to begin again: the gateway died before it could note the stream, and nothing of it was heard. */
  refused(error: unknown): boolean;
  /** What `text` brings. Where an error may pass, the stream can be asked for again. */
  take(text: string): Generator<T, void>;
  /** Whether something is of what comes before there is a token. */
  opens(told: T): boolean;
}
