/** Responses at the gateways of a real mesh, one of which dies. */

import assert from "node:assert/strict";
import { test } from "node:test";

import * as outrider from "outrider-client";

const { VICTIM, VICTIM_PID, OTHER } = process.env;
const ASKED = { seed: 7, max_output_tokens: 400, ignore_eos: true };
const ENDLESS = { ...ASKED, max_output_tokens: 3900 };
const client = new outrider.Client(OTHER);
const { responses } = client;
const whole = await responses.create("def f(", ASKED);

/** The text of events; no event may be missing or repeated. */
async function read(stream, midway = () => undefined) {
  let [text, count, last] = ["", 0, undefined];
  for await (const event of stream) {
    assert.equal(event.sequence_number, count);
    [text, count, last] = [text + event.text, count + 1, event];
    if (count === 10) midway();
  }
  assert.equal(last.response.text, text);
  return text;
}

test("events make up the response, which is read again from any place", async () => {
  const stream = responses.stream({ input: "def f(", ...ASKED });
  assert.equal(await read(stream), whole.text);
  assert.equal((await responses.retrieve(stream.id)).text, whole.text);
  for (const place of [4, stream.sequenceNumber]) {
    const rest = [];
    for await (const event of responses.resume(stream.id, place)) rest.push(event.sequence_number);
    assert.deepEqual(rest, [...Array(stream.sequenceNumber - place).keys()].map((index) => place + 1 + index));
  }
  assert.equal(await read(responses.stream({ input: "def f(", ...ASKED, store: false })), whole.text);
});

test("a response in the background goes on until it is cancelled", async () => {
  const begun = await responses.create("def f(", { ...ENDLESS, background: true });
  assert.match(begun.status, /queued|in_progress/);
  const stream = responses.resume(begun.id, 4);
  for await (const event of stream) if (event.sequence_number === 7) break;
  assert.equal(stream.sequenceNumber, 7);
  assert.equal((await responses.retrieve(begun.id)).status, "in_progress");
  assert.equal((await responses.cancel(begun.id)).status, "cancelled");
  await assert.rejects(responses.cancel(whole.id), { name: "BadRequestError", param: "id" });
});

test("a loop that is left ends the response", async () => {
  const stream = responses.stream({ input: "def f(", ...ENDLESS });
  for await (const event of stream) if (event.text) break;
  await assert.rejects(responses.retrieve(stream.id), outrider.NotFoundError);
});

test("a killed gateway goes unnoticed", async () => {
  const both = new outrider.Client([VICTIM, OTHER]).responses;
  const kill = () => process.kill(Number(VICTIM_PID), "SIGKILL");
  assert.equal(await read(both.stream({ input: "def f(", ...ASKED }), kill), whole.text);
});
