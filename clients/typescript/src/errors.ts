/**
 * Errors of the client, as one tree.
 *
 *     OutriderClientError
 *     ├── ConnectionFailedError              no gateway can be reached
 *     └── GatewayError                       a gateway answered with an error, or a stream ended with one
 *         ├── BadRequestError           400  and other 4xx: 405, 408, 412, 413, 422, ...
 *         ├── AuthenticationError       401
 *         ├── PermissionDeniedError     403
 *         ├── NotFoundError             404  a model, or a stream that is too old or was cancelled
 *         ├── ConflictError             409
 *         ├── RateLimitError            429  `retryAfter` says when to retry
 *         ├── DeadlineError             429, 504  by code: `timeoutMs` or `ttftMs` was missed or will be
 *         ├── CancelledError            499  `DELETE /v1/streams/<id>` ended the stream
 *         └── ServerError               5xx  or an answer that is not a gateway's
 *             └── ServiceUnavailableError  502, 503, 504
 *
 * Clients retry 429, 502, 503 and 504 up to `maxRetries` times, unless a deadline was missed; other errors are thrown
 * at once. An aborted `signal` of the caller throws its reason, which is outside this tree.
 */

/** Base of all errors of this package about requests. */
export class OutriderClientError extends Error {
  override readonly name: string = "OutriderClientError";
}

/** No gateway can be reached. */
export class ConnectionFailedError extends OutriderClientError {
  override readonly name: string = "ConnectionFailedError";
}

/** OpenAI's error object. */
export interface ErrorBody {
  message?: string | null;
  type?: string | null;
  param?: string | null;
  code?: string | number | null;
}

/**
 * An error that a gateway answered.
 *
 * `status` is the HTTP status, also for an error in mid-stream; `type`, `param` and `code` are the fields of OpenAI's
 * error object; `retryAfter` is in seconds.
 */
export class GatewayError extends OutriderClientError {
  override readonly name: string = "GatewayError";
  readonly type: string;
  readonly param: string | null;
  readonly code: string | null;

  constructor(
    readonly status: number,
    body: ErrorBody,
    readonly requestId: string | null = null,
    readonly retryAfter: number | null = null,
  ) {
    super(body.message || `the gateway answered ${status}`);
    this.type = body.type ?? "";
    this.param = body.param ?? null;
    this.code = body.code == null ? null : String(body.code);
  }
}

/** The request is invalid. */
export class BadRequestError extends GatewayError {
  override readonly name: string = "BadRequestError";
}

/** The key is missing or invalid. */
export class AuthenticationError extends GatewayError {
  override readonly name: string = "AuthenticationError";
}

/** The key does not allow this. */
export class PermissionDeniedError extends GatewayError {
  override readonly name: string = "PermissionDeniedError";
}

/** The model, stream or path does not exist. */
export class NotFoundError extends GatewayError {
  override readonly name: string = "NotFoundError";
}

/** The object exists already. */
export class ConflictError extends GatewayError {
  override readonly name: string = "ConflictError";
}

/** A queue or a limit is full. */
export class RateLimitError extends GatewayError {
  override readonly name: string = "RateLimitError";
}

/** The answer missed `timeoutMs`, or its first token `ttftMs`, or would have. */
export class DeadlineError extends GatewayError {
  override readonly name: string = "DeadlineError";
}

/** A client cancelled the stream. */
export class CancelledError extends GatewayError {
  override readonly name: string = "CancelledError";
}

/** A fault of the service. */
export class ServerError extends GatewayError {
  override readonly name: string = "ServerError";
}

/** No service can answer at present. */
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

/** Whether a request may be retried after an error. */
export function isRetryable(error: GatewayError): boolean {
  return error instanceof RateLimitError || error instanceof ServiceUnavailableError;
}

/** The error of an answer with `status`; its body may be a proxy's. */
export function errorOfAnswer(
  status: number,
  body: string,
  requestId: string | null = null,
  retryAfter: string | null = null,
): GatewayError {
  return make(status, errorIn(body), requestId, seconds(retryAfter));
}

/** The error that ended a stream. */
export function errorOfEvent(body: ErrorBody, requestId: string | null): GatewayError {
  return make(STATUS_OF_TYPE.get(body.type ?? "") ?? 500, body, requestId, null);
}

function make(status: number, body: ErrorBody, requestId: string | null, retryAfter: number | null): GatewayError {
  const byStatus = BY_STATUS.get(status) ?? (status >= 500 ? ServerError : BadRequestError);
  const Kind = DEADLINES.includes(String(body.code)) ? DeadlineError : byStatus;
  return new Kind(status, body, requestId, retryAfter);
}

function errorIn(body: string): ErrorBody {
  try {
    const { error } = JSON.parse(body) as { error?: unknown };
    return typeof error === "object" && error !== null ? error : {};
  } catch {
    return {};
  }
}

/** `Retry-After` in seconds; null for a date, which gateways never send. */
function seconds(retryAfter: string | null): number | null {
  const value = retryAfter === null || retryAfter.trim() === "" ? Number.NaN : Number(retryAfter);
  return Number.isFinite(value) ? Math.max(0, value) : null;
}
