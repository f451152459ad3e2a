/**
 * What can go wrong, as one tree.
 *
 *     OutriderClientError
 *     ├── ConnectionFailedError              no gateway could be reached, or none any more
 *     └── GatewayError                       a gateway answered with an error, or a stream ended in one
 *         ├── BadRequestError           400  and other 4xx: 405, 408, 412, 413, 422, ...
 *         ├── AuthenticationError       401
 *         ├── PermissionDeniedError     403
 *         ├── NotFoundError             404  a model, or a stream that is too old or was cancelled
 *         ├── ConflictError             409
 *         ├── RateLimitError            429  `retryAfter` says when to come back
 *         ├── DeadlineError             429, 504  by its code: `timeoutMs` or `ttftMs` was or will be missed
 *         ├── CancelledError            499  the stream was ended by `DELETE /v1/streams/<id>`
 *         └── ServerError               5xx  or an answer that is none of a gateway
 *             └── ServiceUnavailableError  502, 503, 504
 *
 * 429, 502, 503 and 504 are tried again, as often as the client's `maxRetries` says, unless a deadline was missed; the
 * others are thrown at once. A caller's own `signal` throws what it was aborted with, which is not of this tree.
 */

/** Anything that this package throws about a request. */
export class OutriderClientError extends Error {
  override readonly name: string = "OutriderClientError";
}

/** No gateway could be reached. */
export class ConnectionFailedError extends OutriderClientError {
  override readonly name: string = "ConnectionFailedError";
}

/** OpenAI's error object, as far as it is told. */
export interface Told {
  message?: string | null;
  type?: string | null;
  param?: string | null;
  code?: string | number | null;
}

/**
 * A gateway's own error.
 *
 * `status` is that of HTTP, also for an error in mid-stream; `type`, `param` and `code` are as in OpenAI's error
 * objects; `retryAfter` is in seconds.
 */
export class GatewayError extends OutriderClientError {
  override readonly name: string = "GatewayError";
  readonly type: string;
  readonly param: string | null;
  readonly code: string | null;

  constructor(
    readonly status: number,
    told: Told,
    readonly requestId: string | null = null,
    readonly retryAfter: number | null = null,
  ) {
    super(told.message || `the gateway answered ${status}`);
    this.type = told.type ?? "";
    this.param = told.param ?? null;
    this.code = told.code == null ? null : String(told.code);
  }
}

/** The request can never succeed as it is. */
export class BadRequestError extends GatewayError {
  override readonly name: string = "BadRequestError";
}

/** No key, or one that is not valid. */
export class AuthenticationError extends GatewayError {
  override readonly name: string = "AuthenticationError";
}

/** The key does not allow this. */
export class PermissionDeniedError extends GatewayError {
  override readonly name: string = "PermissionDeniedError";
}

/** There is no such model, stream or path. */
export class NotFoundError extends GatewayError {
  override readonly name: string = "NotFoundError";
}

/** It is there already. */
export class ConflictError extends GatewayError {
  override readonly name: string = "ConflictError";
}

/** A queue or a limit is full. */
export class RateLimitError extends GatewayError {
  override readonly name: string = "RateLimitError";
}

/** The answer was not there by `timeoutMs`, or its first token by `ttftMs`, or could not have been. */
export class DeadlineError extends GatewayError {
  override readonly name: string = "DeadlineError";
}

/** Somebody ended the stream. */
export class CancelledError extends GatewayError {
  override readonly name: string = "CancelledError";
}

/** A fault of the service. */
export class ServerError extends GatewayError {
  override readonly name: string = "ServerError";
}

/** Nobody can answer at the moment. */
export class ServiceUnavailableError extends ServerError {
  override readonly name: string = "ServiceUnavailableError";
}

const BY_STATUS = new Map<number, typeof GatewayError>([
  [401, AuthenticationError],
  [403, PermissionDeniedError],
  [404, NotFoundError],
  [409, ConflictError],
  [429, RateLimitError],
  [499, CancelledError],
  [502, ServiceUnavailableError],
  [503, ServiceUnavailableError],
  [504, ServiceUnavailableError],
]);
const STATUS_OF_TYPE = new Map<string, number>([
  ["invalid_request_error", 400],
  ["authentication_error", 401],
  ["permission_error", 403],
  ["not_found_error", 404],
  ["conflict_error", 409],
  ["failed_precondition_error", 412],
  ["rate_limit_error", 429],
  ["cancelled_error", 499],
  ["service_unavailable_error", 503],
  ["timeout_error", 504],
]);
const DEADLINES = ["deadline_exceeded", "deadline_unmeetable"];

/** Whether another try may help. */
export function passes(error: GatewayError): boolean {
  return error instanceof RateLimitError || error instanceof ServiceUnavailableError;
}

/** The error that an answer of `status` tells, whatever proxy may have written its body. */
export function errorOfAnswer(
  status: number,
  body: string,
  requestId: string | null = null,
  retryAfter: string | null = null,
): GatewayError {
  return make(status, toldIn(body), requestId, seconds(retryAfter));
}

/** The error that ended a stream. */
export function errorOfEvent(told: Told, requestId: string | null): GatewayError {
  return make(STATUS_OF_TYPE.get(told.type ?? "") ?? 500, told, requestId, null);
}

function make(status: number, told: Told, requestId: string | null, retryAfter: number | null): GatewayError {
  const byStatus = BY_STATUS.get(status) ?? (status >= 500 ? ServerError : BadRequestError);
  const Kind = DEADLINES.includes(String(told.code)) ? DeadlineError : byStatus;
  return new Kind(status, told, requestId, retryAfter);
}

function toldIn(body: string): Told {
  try {
    const { error } = JSON.parse(body) as { error?: unknown };
    return typeof error === "object" && error !== null ? error : {};
  } catch {
    return {};
  }
}

/** `Retry-After` in seconds; its other form, a date, is not told by gateways and taken for none. */
function seconds(retryAfter: string | null): number | null {
  const told = retryAfter === null || retryAfter.trim() === "" ? Number.NaN : Number(retryAfter);
  return Number.isFinite(told) ? Math.max(0, told) : null;
}
