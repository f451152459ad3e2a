/** Gateways that freeze and die while the client reads. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Client, ConnectionFailedError, DeadlineError } from "outrider-client";

const { VICTIM, VICTIM_PID, OTHER } = process.env;
const ASKED = { prompt: "def f(", seed: 7, max_tokens: 400, ignore_eos: true, return_tokens: true };
const signal = (name) => process.kill(Number(VICTIM_PID), name);
const { prompt, ...parameters } = ASKED;
const whole = await new Client(OTHER).complete(prompt, parameters);

/** Tokens of a stream; calls `midway` after five chunks. */
async function read(stream, midway = () => undefined) {
  const tokens = [];
  let chunks = 0;
  for await (const chunk of stream) {
    assert.equal(chunk.outrider.first_index, tokens.length);
    tokens.push(...chunk.outrider.tokens);
    chunks += 1;
    if (chunks === 5) midway();
  }
  assert(chunks > 5);
  return tokens;
}

test("a deadline holds while the gateway is frozen", async () => {
  const client = new Client(VICTIM);
  signal("SIGSTOP");
  try {
    await assert.rejects(client.complete(prompt, parameters, { timeoutMs: 100 }), DeadlineError);
    await assert.rejects(read(client.stream(ASKED, { ttftMs: 100 })), { code: "deadline_exceeded", param: "ttft_ms" });
  } finally {
    signal("SIGCONT");
  }
});

test("a deadline passes while a stream is read", async () => {
  const client = new Client(VICTIM);
  const stream = client.stream({ ...ASKED, max_tokens: 3000 });
  await stream[Symbol.asyncIterator]().next();
  await assert.rejects(read(client.resume(stream.id, "", { timeoutMs: 50 })), DeadlineError);
  await stream.close();
});

test("a gateway that is silent in mid-stream gives way to another", async () => {
  const stream = new Client([VICTIM, OTHER], { silenceMs: 3000 }).stream(ASKED);
  try {
    assert.deepEqual(await read(stream, () => signal("SIGSTOP")), whole.outrider.tokens);
  } finally {
    signal("SIGCONT");
  }
});

test("a gateway that is killed in mid-stream goes unnoticed", async () => {
  const client = new Client([VICTIM, OTHER]);
  assert.deepEqual(await read(client.stream(ASKED), () => signal("SIGKILL")), whole.outrider.tokens);
  assert.deepEqual(await read(client.stream(ASKED)), whole.outrider.tokens);
  const alone = new Client(VICTIM, { resumeMs: 0, maxRetries: 0 });
  await assert.rejects(read(alone.stream(ASKED)), ConnectionFailedError);
});
