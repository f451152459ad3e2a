/** Errors of gateways as the client throws them, and its retries. */

import assert from "node:assert/strict";
import { test } from "node:test";

import * as client from "outrider-client";
import { Bounds } from "../dist/bounds.js";
import { errorOfAnswer } from "../dist/errors.js";
import { Attempts, Gateways } from "../dist/gateways.js";

const attempts = (urls, maxRetries = 2) => {
  const gateways = new Gateways(urls);
  return [gateways, new Attempts({ gateways, maxRetries, maxPauseMs: 10_000 })];
};
const full = errorOfAnswer(429, "", null, "3");
const broken = new client.ConnectionFailedError("no");

test("an answer of a proxy is an error too", () => {
  for (const [status, body] of [[502, "<html>"], [503, "null"], [418, "{}"], [599, ""], [400, '{"error": "no"}']]) {
    const error = errorOfAnswer(status, body);
    assert.equal(error.message, `the gateway answered ${status}`);
    assert(error instanceof (status < 500 ? client.BadRequestError : client.ServerError));
  }
});

test("Retry-After is kept to, and retries are counted", () => {
  const [, trying] = attempts("http://a");
  assert.equal(trying.pause(full, "http://a"), 3000);
  assert.equal(trying.pause(errorOfAnswer(503, "", null, "0"), "http://a"), 0);
  assert.throws(() => trying.pause(full, "http://a"), client.RateLimitError);
  trying.succeeded(0);
  assert.equal(trying.pause(full, "http://a"), 3000);
  const dated = errorOfAnswer(429, "", null, "Wed, 21 Oct 2026 07:28:00 GMT");
  assert(trying.pause(dated, "http://a") <= 2000);
});

test("a Retry-After that is too long is thrown at once", () => {
  const [, trying] = attempts("http://a");
  assert.throws(() => trying.pause(errorOfAnswer(429, "", null, "11"), "http://a"), { retryAfter: 11 });
});

test("an error that no retry can mend is thrown at once", () => {
  for (const status of [400, 401, 403, 404, 409, 499, 500]) {
    const error = errorOfAnswer(status, "");
    assert.throws(() => attempts("http://a", 5)[1].pause(error, "http://a"), error);
  }
  const late = errorOfAnswer(429, '{"error": {"code": "deadline_unmeetable"}}', null, "0");
  assert(late instanceof client.DeadlineError);
  assert.throws(() => attempts("http://a", 5)[1].pause(late, "http://a"), late);
});

test("a gateway that cannot be reached gives way to the next, once", () => {
  const [gateways, trying] = attempts(["http://a/v1/", "http://b"]);
  assert.equal(gateways.address, "http://a");
  assert.equal(trying.pause(broken, "http://a"), 0);
  assert.equal(gateways.address, "http://b");
  gateways.leave("http://a");
  assert.equal(gateways.address, "http://b");
  assert(trying.pause(broken, "http://b") > 0);
  assert.throws(() => trying.pause(broken, "http://a"), broken);
  trying.succeeded(60_000);
  for (let count = 0; count < 9; count += 1) trying.pause(broken, "http://a");
});

test("no wait begins that would exceed a deadline", async () => {
  const bounds = new Bounds({ timeoutMs: 1000, ttftMs: 60_000 }, true);
  await bounds.pause(0, full);
  await assert.rejects(bounds.pause(1001, full), full);
  const { ttft_ms, timeout_ms } = bounds.left();
  assert(ttft_ms <= 60_000 && ttft_ms > 1000 && timeout_ms <= 1000);
  bounds.begun();
  assert.deepEqual(Object.keys(bounds.left()), ["timeout_ms"]);
  bounds.end();
});

test("options and parameters that cannot be honoured are refused", async () => {
  assert.throws(() => new client.Client([]), /at least one base URL/);
  assert.throws(() => new client.Client("localhost:8080"), /must be one of http or https, not "localhost:8080"/);
  assert.throws(() => new client.Client(undefined, { maxRetries: 0.5 }), /maxRetries must be an integer/);
  assert.throws(() => new client.Client(undefined, { resumeMs: Infinity }), /resumeMs must be milliseconds from 0/);
  assert.throws(() => new client.Client(undefined, { apiKey: "a\nb" }), TypeError);
  const made = new client.Client();
  assert.throws(() => made.stream({ max_tokens: 4 }), /either a prompt or messages/);
  assert.throws(() => made.stream({ prompt: "a", messages: [] }), /either a prompt or messages/);
  await assert.rejects(made.complete("a", { stream: true }), /stream is no parameter here/);
  await assert.rejects(made.chat([], { timeout_ms: 5 }), /timeoutMs among the options/);
  await assert.rejects(made.complete("a", { seed: 2 ** 60 }), /seed must be an integer/);
  await assert.rejects(made.complete("a", {}, { ttftMs: 0 }), /ttftMs must be milliseconds from 1/);
});
