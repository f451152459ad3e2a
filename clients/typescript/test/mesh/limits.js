/** Keys and limits of a gateway with keys; the tenant may have one stream at a time. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { AuthenticationError, Client, RateLimitError } from "outrider-client";

const { KEYED, KEY } = process.env;
const LONG = { prompt: "def f(", max_tokens: 3000, ignore_eos: true };
const SHORT = { max_tokens: 4, seed: 3 };

/** A stream that has begun, and so uses the tenant's limit. */
async function held() {
  const stream = new Client(KEYED, { apiKey: KEY }).stream(LONG);
  await stream[Symbol.asyncIterator]().next();
  return stream;
}

test("a request without a key is refused", async () => {
  await assert.rejects(new Client(KEYED).models(), AuthenticationError);
});

test("a request that is refused with 429 and a Retry-After is sent again", async () => {
  const stream = await held();
  const seen = [];
  const fetch = async (url, init) => {
    const response = await globalThis.fetch(url, init);
    seen.push([response.status, response.headers.get("retry-after")]);
    if (response.status === 429) await stream.close();
    return response;
  };
  const answer = await new Client(KEYED, { apiKey: KEY, maxRetries: 9, fetch }).complete("def f(", SHORT);
  assert.equal(answer.usage.completion_tokens, 4);
  assert.deepEqual([seen[0], seen.at(-1)], [[429, "1"], [200, null]]);
});

test("without tries, or with a deadline before Retry-After, the error itself is thrown", async () => {
  const stream = await held();
  const busy = { name: "RateLimitError", status: 429, code: "rate_limit_exceeded", retryAfter: 1 };
  await assert.rejects(new Client(KEYED, { apiKey: KEY, maxRetries: 0 }).complete("def f(", SHORT), busy);
  const client = new Client(KEYED, { apiKey: KEY, maxRetries: 1e6 });
  await assert.rejects(client.complete("def f(", SHORT, { timeoutMs: 900 }), RateLimitError);
  await stream.close();
});
