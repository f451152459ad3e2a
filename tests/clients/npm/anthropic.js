/** Anthropic's published package, against a gateway. */

import assert from "node:assert/strict";
import { test } from "node:test";

import Anthropic, { BadRequestError } from "@anthropic-ai/sdk";

const client = new Anthropic({ baseURL: process.env.ONE, apiKey: "none", maxRetries: 0 });
const ASKED = { model: "toy", seed: 3, max_tokens: 12, messages: [{ role: "user", content: "def parse(" }] };
const TOOL = {
  name: "paint",
  input_schema: {
    type: "object",
    properties: { colour: { enum: ["red", "green"] } },
    required: ["colour"],
    additionalProperties: false,
  },
};

test("messages have the same text when streamed", async () => {
  const whole = await client.messages.create(ASKED);
  const streamed = await client.messages.stream(ASKED).finalMessage();
  assert.deepEqual(streamed.content, whole.content);
  assert.equal(streamed.stop_reason, whole.stop_reason);
  assert.equal(streamed.usage.output_tokens, whole.usage.output_tokens);
});

test("a tool is called with the same input when streamed", async () => {
  const asked = { ...ASKED, max_tokens: 200, tools: [TOOL], tool_choice: { type: "tool", name: "paint" } };
  const [call] = (await client.messages.create(asked)).content;
  const [again] = (await client.messages.stream(asked).finalMessage()).content;
  assert.equal(call.name, "paint");
  assert(["red", "green"].includes(call.input.colour));
  assert.deepEqual(again.input, call.input);
});

test("tokens are counted and models are listed", async () => {
  const { input_tokens: count } = await client.messages.countTokens({ model: "toy", messages: ASKED.messages });
  assert(count > 0);
  const models = [];
  for await (const model of client.models.list()) models.push(model.id);
  assert.deepEqual(models, ["toy"]);
});

test("errors are those of Anthropic's package", async () => {
  const refused = await client.messages.create({ ...ASKED, temperature: -1 }).catch((error) => error);
  assert(refused instanceof BadRequestError);
  assert.equal(refused.error.error.type, "invalid_request_error");
  assert(refused.requestID);
});
