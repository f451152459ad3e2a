// The published package ollama, against the gateway at $ONE.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Ollama } from "ollama";

const client = new Ollama({ host: process.env.ONE });
const options = { seed: 7, num_predict: 20, temperature: 0.8 };
const asked = { model: "toy", messages: [{ role: "user", content: "def f(" }], options };

test("a chat is the same whole and in pieces", async () => {
  const whole = await client.chat(asked);
  let text = "";
  for await (const part of await client.chat({ ...asked, stream: true })) text += part.message.content;
  assert.equal(text, whole.message.content);
  assert.equal(whole.eval_count, 20);
});

test("texts are embedded, and models listed", async () => {
  const { embeddings } = await client.embed({ model: "toy", input: ["a", "b"] });
  assert.deepEqual(embeddings.map((each) => each.length), [32, 32]);
  assert.deepEqual((await client.list()).models.map((each) => each.model), ["toy"]);
});

test("errors are sentences", async () => {
  await assert.rejects(client.chat({ ...asked, model: "other" }), /other/);
});
