/** Asking for responses. */

import type { Asking } from "./asking.js";
import type { CallOptions } from "./bounds.js";
import type { Ask } from "./http.js";
import type { Manner } from "./manner.js";
import { bodyOf, CONTINUE } from "./parameters.js";
import {
  about,
  creation,
  type ModelResponse,
  type ResponseInput,
  type ResponseParameters,
  ResponseReading,
  withOutputText,
} from "./responses.js";
import { ResponseStream } from "./stream.js";

/** `responses` of a client. */
export class Responses {
  readonly #manner: Manner;
  readonly #asking: Asking;

  /** @internal */
  constructor(manner: Manner, asking: Asking) {
    [this.#manner, this.#asking] = [manner, asking];
  }

  /** A response, or with `background` its beginning. */
  create(
    input: ResponseInput,
    parameters: ResponseParameters = {},
    options: CallOptions = {},
  ): Promise<ModelResponse> {
    return this.#call(creation({ ...bodyOf(parameters), input }), options);
  }

  /** A response event by event, as it is generated; nothing is asked before it is iterated. */
  stream(asked: { input: ResponseInput } & ResponseParameters, options: CallOptions = {}): ResponseStream {
    const ask = creation({ ...bodyOf(asked), stream: true });
    const first = asked.store === false ? ask : { ...ask, headers: CONTINUE };
    return new ResponseStream(this.#manner, new ResponseReading(first, !asked.background), options);
  }

  /** A stored response as it stands; asking has one in the background go on whose gateway has died. */
  retrieve(id: string, options: CallOptions = {}): Promise<ModelResponse> {
    return this.#call(about(id), options);
  }

  /**
   * The events of a stored response behind the one of that number, or all; a response that was left goes on. Leaving
   * this stream does not end it.
   */
  resume(id: string, startingAfter = -1, options: CallOptions = {}): ResponseStream {
    return new ResponseStream(this.#manner, new ResponseReading(null, false, id, startingAfter), options);
  }

  /** Ends a response in the background; what there is of it. */
  cancel(id: string, options: CallOptions = {}): Promise<ModelResponse> {
    return this.#call(about(id, "POST", "/cancel"), options);
  }

  /** Ends a response and forgets it. */
  async delete(id: string, options: CallOptions = {}): Promise<void> {
    await this.#asking.send(about(id, "DELETE"), options);
  }

  async #call(ask: Ask, options: CallOptions): Promise<ModelResponse> {
    return withOutputText(await this.#asking.call<ModelResponse>(ask, options));
  }
}
