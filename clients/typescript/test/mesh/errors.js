/** The name that the client has for each error of a gateway; `CASES` are [status, body, name] and [body, name]. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { errorOfAnswer, errorOfEvent } from "../../dist/errors.js";

const { answers, events } = JSON.parse(process.env.CASES);

test("an answer is the error that the Python client makes of it", () => {
  for (const [status, body, name] of answers) {
    const { error } = JSON.parse(body);
    const told = errorOfAnswer(status, body, "r1", "7");
    assert.deepEqual([told.name, told.constructor.name], [name, name]);
    assert.deepEqual([told.status, told.type, told.requestId, told.retryAfter], [status, error.type, "r1", 7]);
    assert.deepEqual([told.message, told.param, told.code], [error.message, error.param, error.code]);
  }
});

test("an event is the error that the Python client makes of it", () => {
  for (const [body, name] of events) assert.equal(errorOfEvent(JSON.parse(body).error, "r1").name, name);
});
