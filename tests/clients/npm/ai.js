/** Vercel's published AI SDK, against a gateway. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { APICallError, generateObject, generateText, stepCountIs, streamObject, streamText, tool } from "ai";
import { z } from "zod";

const provider = createOpenAICompatible({
  name: "outrider",
  baseURL: `${process.env.ONE}/v1`,
  includeUsage: true,
  supportsStructuredOutputs: true,
});
const HOW = { model: provider("toy"), prompt: "def f(", maxRetries: 0 };
const ASKED = { ...HOW, seed: 3, maxOutputTokens: 20, providerOptions: { outrider: { ignore_eos: true } } };
const schema = z.object({ colour: z.enum(["red", "green", "blue"]), coats: z.literal([1, 2, 3]) });
const tools = { paint: tool({ inputSchema: schema, execute: async ({ colour }) => `painted ${colour}` }) };
const toolChoice = { type: "tool", toolName: "paint" };

test("a stream has the text and usage of the answer", async () => {
  const whole = await generateText(ASKED);
  const streamed = streamText(ASKED);
  let text = "";
  for await (const part of streamed.textStream) text += part;
  assert.equal(text, whole.text);
  assert.equal((await streamed.usage).outputTokens, 20);
  assert.deepEqual((await streamed.usage).inputTokens, whole.usage.inputTokens);
  assert.equal(await streamed.finishReason, "length");
});

test("objects are of their schema, streamed or not", async () => {
  schema.parse((await generateObject({ ...HOW, schema })).object);
  const streamed = streamObject({ ...HOW, schema });
  let last;
  for await (last of streamed.partialObjectStream);
  assert.deepEqual(schema.parse(last), await streamed.object);
});

test("a tool is called, and the chat goes on with its result", async () => {
  const { steps, text } = await generateText({
    ...ASKED,
    maxOutputTokens: 400,
    tools,
    toolChoice,
    stopWhen: stepCountIs(2),
    prepareStep: ({ stepNumber }) => (stepNumber === 0 ? {} : { toolChoice: "none" }),
    providerOptions: {},
  });
  assert.match(steps[0].toolResults[0].output, /^painted (red|green|blue)$/);
  assert.equal(steps.length, 2);
  assert.equal(text, steps[1].text);
});

test("a call of a tool is streamed", async () => {
  const streamed = streamText({ ...HOW, tools, toolChoice });
  schema.parse((await streamed.toolCalls)[0].input);
  assert.equal(await streamed.finishReason, "tool-calls");
});

test("errors have a status and a reason", async () => {
  const refused = await generateText({ ...HOW, temperature: -1 }).catch((error) => error);
  assert(APICallError.isInstance(refused));
  assert.equal(refused.statusCode, 400);
  assert.equal(refused.isRetryable, false);
  assert.match(refused.message, /temperature must be a number from 0 to 100/);
});
