/** Calls of the Responses API. */

import type { Caller } from "./caller.js";
import type { CallOptions } from "./bounds.js";
import type { GatewayRequest } from "./http.js";
import type { ClientConfig } from "./config.js";
import { bodyOf, CONTINUE } from "./parameters.js";
import {
  responseRequest,
  responseCreation,
  type ModelResponse,
  type ResponseInput,
  type ResponseParameters,
  ResponseReading,
  withOutputText,
} from "./responses.js";
import { ResponseStream } from "./stream.js";

/** The attribute `responses` of a client. */
export class Responses {
  readonly #config: ClientConfig;
  readonly #caller: Caller;

  /** @internal */
  constructor(config: ClientConfig, caller: Caller) {
    [this.#config, this.#caller] = [config, caller];
  }

  /** A response; with `background`, its beginning. */
  create(
    input: ResponseInput,
    parameters: ResponseParameters = {},
    options: CallOptions = {},
  ): Promise<ModelResponse> {
    return this.#call(responseCreation({ ...bodyOf(parameters), input }), options);
  }

  /** Streams a response, event by event; iteration sends the request. */
  stream(request: { input: ResponseInput } & ResponseParameters, options: CallOptions = {}): ResponseStream {
    const creation = responseCreation({ ...bodyOf(request), stream: true });
    const first = request.store === false ? creation : { ...creation, headers: CONTINUE };
    return new ResponseStream(this.#config, new ResponseReading(first, !request.background), options);
  }

  /** A stored response in its present state; resumes a background response whose gateway has died. */
  retrieve(id: string, options: CallOptions = {}): Promise<ModelResponse> {
    return this.#call(responseRequest(id), options);
  }

  /**
   * Streams the events of a stored response after number `startingAfter`; an abandoned response continues. Leaving this
   * stream does not end the response.
   */
  resume(id: string, startingAfter = -1, options: CallOptions = {}): ResponseStream {
    return new ResponseStream(this.#config, new ResponseReading(null, false, id, startingAfter), options);
  }

  /** Ends a background response; returns the part that exists. */
  cancel(id: string, options: CallOptions = {}): Promise<ModelResponse> {
    return this.#call(responseRequest(id, "POST", "/cancel"), options);
  }

  /** Ends and deletes a response. */
  async delete(id: string, options: CallOptions = {}): Promise<void> {
    await this.#caller.send(responseRequest(id, "DELETE"), options);
  }

  async #call(request: GatewayRequest, options: CallOptions): Promise<ModelResponse> {
    return withOutputText(await this.#caller.call<ModelResponse>(request, options));
  }
}
