/** Names of errors of a gateway; `CASES` are [status, body, name] and [body, name]. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { errorOfAnswer, errorOfEvent } from "../../dist/errors.js";

const { answers, events } = JSON.parse(process.env.CASES);

test("an answer is the error that the Python client makes of it", () => {
  for (const [status, body, name] of answers) {
    const { error } = JSON.parse(body);
    const raised = errorOfAnswer(status, body, "r1", "7");
    assert.deepEqual([raised.name, raised.constructor.name], [name, name]);
    assert.deepEqual([raised.status, raised.type, raised.requestId, raised.retryAfter], [status, error.type, "r1", 7]);
    assert.deepEqual([raised.message, raised.param, raised.code], [error.message, error.param, error.code]);
  }
});

test("an event is the error that the Python client makes of it", () => {
  for (const [body, name] of events) assert.equal(errorOfEvent(JSON.parse(body).error, "r1").name, name);
});
