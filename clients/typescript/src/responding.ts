/** Calls of the Responses API. */

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

/** The attribute `responses` of a client. */
export class Responses {
  readonly #manner: Manner;
  readonly #asking: Asking;

  /** @internal */
  constructor(manner: Manner, asking: Asking) {
    [this.#manner, this.#asking] = [manner, asking];
  }

  /** A response; with `background`, its beginning. */
  create(
    input: ResponseInput,
    parameters: ResponseParameters = {},
    options: CallOptions = {},
  ): Promise<ModelResponse> {
    return this.#call(creation({ ...bodyOf(parameters), input }), options);
  }

  /** Streams a response, event by event; iteration sends the request. */
  stream(request: { input: ResponseInput } & ResponseParameters, options: CallOptions = {}): ResponseStream {
    const ask = creation({ ...bodyOf(request), stream: true });
    const first = request.store === false ? ask : { ...ask, headers: CONTINUE };
    return new ResponseStream(this.#manner, new ResponseReading(first, !request.background), options);
  }

  /** A stored response in its present state; resumes a background response whose gateway has died. */
  retrieve(id: string, options: CallOptions = {}): Promise<ModelResponse> {
    return this.#call(about(id), options);
  }

  /**
   * Streams the events of a stored response after number `startingAfter`; an abandoned response continues. Leaving this
   * stream does not end the response.
   */
  resume(id: string, startingAfter = -1, options: CallOptions = {}): ResponseStream {
    return new ResponseStream(this.#manner, new ResponseReading(null, false, id, startingAfter), options);
  }

  /** Ends a background response; returns the part that exists. */
  cancel(id: string, options: CallOptions = {}): Promise<ModelResponse> {
    return this.#call(about(id, "POST", "/cancel"), options);
  }

  /** Ends and deletes a response. */
  async delete(id: string, options: CallOptions = {}): Promise<void> {
    await this.#asking.send(about(id, "DELETE"), options);
  }

  async #call(ask: Ask, options: CallOptions): Promise<ModelResponse> {
    return withOutputText(await this.#asking.call<ModelResponse>(ask, options));
  }
}
