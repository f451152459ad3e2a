/** The client against the gateways of a real mesh; environment variables hold their URLs. */

import assert from "node:assert/strict";
import { test } from "node:test";

import * as outrider from "outrider-client";

const { ONE, OTHER, NOWHERE } = process.env;
const MESSAGES = [{ role: "user", content: "def f(" }];
const SHORT = { seed: 7, max_tokens: 20, ignore_eos: true };
const LONG = { seed: 7, max_tokens: 3000, ignore_eos: true };
const client = new outrider.Client(ONE);

async function texts(stream) {
  let text = "";
  for await (const chunk of stream) text += chunk.text;
  return text;
}

test("answers are typed and chunks add up to them", async () => {
  const whole = await client.complete("def f(", SHORT);
  const chat = await client.chat(MESSAGES, { ...SHORT, n: 2 });
  assert.equal(whole.usage.completion_tokens, 20);
  assert.equal(whole.text, whole.choices[0].text);
  assert.equal(chat.text, outrider.contentOf(chat.choices[0]));
  assert.notEqual(chat.text, outrider.contentOf(chat.choices[1]));
  assert.deepEqual((await client.models()).map((model) => model.id), ["toy"]);
  assert.equal(await texts(client.stream({ prompt: "def f(", ...SHORT })), whole.text);
  assert.equal(await texts(client.stream({ messages: MESSAGES, ...SHORT })), chat.text);
});

test("a stream is read again from any place, at any gateway", async () => {
  const request = { prompt: "def f(", ...SHORT, speculation: "off", stream_options: { include_usage: true } };
  const stream = client.stream(request);
  const received = [];
  for await (const chunk of stream) received.push({ chunk, last: stream.lastEventId });
  const other = new outrider.Client([NOWHERE, `${OTHER}/v1/`]);
  for (const place of [0, 3, received.length - 1]) {
    const rest = [];
    for await (const chunk of other.resume(stream.id, received[place].last)) rest.push(chunk);
    assert.deepEqual(rest, received.slice(place + 1).map(({ chunk }) => chunk));
  }
  assert.equal(received.at(-1).chunk.usage.completion_tokens, 20);
  assert.deepEqual(await texts(other.resume(stream.id, stream.lastEventId)), "");
});

test("a place is known without the header that a browser may not read", async () => {
  const fetch = async (url, init) => {
    const { body, status } = await globalThis.fetch(url, init);
    return new Response(body, { status });
  };
  const stream = new outrider.Client(ONE, { fetch }).stream({ prompt: "def f(", ...SHORT });
  const text = await texts(stream);
  assert.equal(await texts(client.resume(stream.id)), text);
});

test("errors are those of the tree", async () => {
  const refused = await client.complete("a", { temperature: -1 }).catch((error) => error);
  assert(refused instanceof outrider.BadRequestError);
  assert.deepEqual([refused.name, refused.status, refused.param], ["BadRequestError", 400, "temperature"]);
  assert.match(refused.requestId, /^[0-9a-f]{32}$/);
  await assert.rejects(texts(client.stream({ prompt: "a", model: "no" })), outrider.NotFoundError);
  await assert.rejects(client.cancel("unheard-of"), outrider.NotFoundError);
  await assert.rejects(texts(client.resume("unheard-of")), outrider.NotFoundError);
  const nobody = new outrider.Client(NOWHERE, { maxRetries: 1 });
  await assert.rejects(nobody.models(), { name: "ConnectionFailedError", message: /ECONNREFUSED/ });
});

test("a loop that is left ends the generation", async () => {
  const stream = client.stream({ prompt: "def f(", ...LONG });
  for await (const _ of stream) break;
  await assert.rejects(client.cancel(stream.id), outrider.NotFoundError);
});

test("a stream can be closed while its loop waits for a chunk", async () => {
  const stream = client.stream({ prompt: "def f(", ...LONG });
  const chunks = stream[Symbol.asyncIterator]();
  await chunks.next();
  const waiting = texts(stream);
  await stream.close();
  await waiting;
  await assert.rejects(client.cancel(stream.id), outrider.NotFoundError);
});

test("a signal ends a call with its own reason, and the generation", async () => {
  const [stop, reason] = [new AbortController(), new Error("enough")];
  let report;
  const ended = new Promise((resolve) => (report = resolve));
  const fetch = async (url, init) => {
    const response = await globalThis.fetch(url, init);
    if (init.method === "DELETE") report(response.status);
    return response;
  };
  const stream = new outrider.Client(ONE, { fetch }).stream({ prompt: "def f(", ...LONG }, { signal: stop.signal });
  const reading = texts(stream);
  const whole = client.complete("def f(", { ...LONG, coalesce: false }, { signal: stop.signal });
  while (stream.lastEventId === "") await new Promise(setImmediate);
  stop.abort(reason);
  const calls = [reading, whole, client.models({ signal: stop.signal })];
  await Promise.all(calls.map((call) => assert.rejects(call, reason)));
  await assert.rejects(texts(client.stream({ prompt: "a" }, { signal: stop.signal })), reason);
  assert.equal(await ended, 204);
  await assert.rejects(texts(client.resume(stream.id)), outrider.NotFoundError);
});

test("a stream that another cancels ends in an error", async () => {
  const stream = client.stream({ prompt: "def f(", ...LONG });
  const reading = async () => {
    for await (const _ of stream) await client.cancel(stream.id).catch(() => undefined);
  };
  await assert.rejects(reading(), outrider.CancelledError);
});

test("a request that the gateway expects to be late is refused", async () => {
  const late = client.complete("def f(", { ...LONG, coalesce: false }, { timeoutMs: 20 });
  await assert.rejects(late, outrider.DeadlineError);
});
