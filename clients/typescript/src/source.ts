/** The source of a stream's items. */

import type { GatewayRequest } from "./http.js";

/** One stream across all its connections, of chunks or of events. */
export interface Source<T> {
  readonly id: string;
  readonly done: boolean;
  /** The request that continues the stream, or begins it. */
  readonly request: GatewayRequest;
  /** The request that ends the stream; null if the stream survives its reader. */
  readonly end: GatewayRequest | null;
  /** Takes a gateway's answer; drops an incomplete event of the last connection. */
  connected(response: Response): void;
  /** Notes that the gateway's answer ended without an error. */
  ended(): void;
  /** Whether to begin again: no gateway knows the stream, and no event of it has arrived. */
  refused(error: unknown): boolean;
  /** The items in `text`. The stream can be resumed after a retryable error. */
  take(text: string): Generator<T, void>;
  /** Whether an item opens the stream, before any token. */
  opens(item: T): boolean;
}
