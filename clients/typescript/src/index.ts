/** Outrider's client: `Client`, its results, and its errors (see errors.ts). */

export type * from "./answers.js";
export { contentOf } from "./answers.js";
export type { CallOptions } from "./bounds.js";
export { Client, type StreamedChat, type StreamedCompletion } from "./client.js";
export {
  AuthenticationError,
  BadRequestError,
  CancelledError,
  ConflictError,
  ConnectionFailedError,
  DeadlineError,
  GatewayError,
  NotFoundError,
  OutriderClientError,
  PermissionDeniedError,
  RateLimitError,
  ServerError,
  ServiceUnavailableError,
} from "./errors.js";
export type { Fetch } from "./http.js";
export type { ClientOptions } from "./config.js";
export type * from "./parameters.js";
export type {
  FunctionTool,
  ModelResponse,
  OutputItem,
  ResponseEvent,
  ResponseInput,
  ResponseParameters,
  ResponseUsage,
} from "./responses.js";
export type { Responses } from "./responseCalls.js";
export { ResponseStream, Stream } from "./stream.js";
