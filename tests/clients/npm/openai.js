/** OpenAI's published package, against a gateway. */

import assert from "node:assert/strict";
import { test } from "node:test";

import OpenAI, { BadRequestError } from "openai";

const client = new OpenAI({ baseURL: `${process.env.ONE}/v1`, apiKey: "none", maxRetries: 0 });
const ASKED = { model: "toy", seed: 3, max_tokens: 12 };
const MESSAGES = [{ role: "user", content: "def parse(" }];

test("completions have the same text when streamed", async () => {
  const whole = await client.completions.create({ ...ASKED, prompt: "def parse(" });
  let text = "";
  for await (const chunk of await client.completions.create({ ...ASKED, prompt: "def parse(", stream: true })) {
    text += chunk.choices[0].text;
  }
  assert.equal(text, whole.choices[0].text);
  assert.equal(whole.usage.completion_tokens, 12);
});

test("chats have the same text when streamed", async () => {
  const whole = await client.chat.completions.create({ ...ASKED, messages: MESSAGES });
  const streamed = client.chat.completions.stream({ ...ASKED, messages: MESSAGES });
  const final = await streamed.finalChatCompletion();
  assert.deepEqual(final.choices[0].message.content, whole.choices[0].message.content);
  assert.equal(final.choices[0].finish_reason, whole.choices[0].finish_reason);
});

test("errors are those of OpenAI's package", async () => {
  const refused = await client.completions.create({ ...ASKED, prompt: "a", temperature: -1 }).catch((error) => error);
  assert(refused instanceof BadRequestError);
  assert.equal(refused.param, "temperature");
});
