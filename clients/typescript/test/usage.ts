/** Uses of the public types; the compiler checks this file, and it never runs. */

import { Client, RateLimitError } from "outrider-client";
import type { ChatAnswer, ChatChunk, CompletionChunk, ModelResponse, ResponseStream, Stream } from "outrider-client";

const client = new Client(["http://127.0.0.1:8080"], { apiKey: "sk-...", maxRetries: 3 });
const options = { signal: new AbortController().signal, ttftMs: 500, timeoutMs: 5000 };

export const answer: Promise<ChatAnswer> = client.chat([{ role: "user", content: "Hi." }], { max_tokens: 4 }, options);
export const texts: Stream<CompletionChunk> = client.stream({ prompt: [1, 2, 3], seed: null });
export const chats: Stream<ChatChunk> = client.stream({ messages: [{ role: "user", content: "Hi." }] }, options);

export const begun: Promise<ModelResponse> = client.responses.create("Hi.", { background: true }, options);
export const events: ResponseStream = client.responses.stream({ input: "Hi.", max_output_tokens: 4 }, options);

export async function wait(): Promise<number | null> {
  try {
    for await (const chunk of client.resume("id", "id:3")) console.log(chunk.text, chunk.choices[0]?.finish_reason);
  } catch (error) {
    if (error instanceof RateLimitError) return error.retryAfter;
  }
  return null;
}

// @ts-expect-error an unknown parameter
void client.complete("a", { max_token: 4 });
// @ts-expect-error `stream` is a method, not a parameter
void client.complete("a", { stream: true });
// @ts-expect-error a prompt or messages
void client.stream({ max_tokens: 4 });
// @ts-expect-error only chats have tools
void client.complete("a", { tools: [] });
// @ts-expect-error responses have max_output_tokens
void client.responses.create("a", { max_tokens: 4 });
