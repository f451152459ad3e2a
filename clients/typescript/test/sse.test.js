/** Server-sent events from pieces of text. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Parser } from "../dist/sse.js";

const TEXT =
  ": hello\n\ndata: {}\nid: r:1\nretry: 1000\n\n" +
  "data:a\r\ndata: b\r\n\r\nid: r:2\n\nevent: x\ndata:  last\n\ndata: c\rid: r:3\r\rdata\nid: a\0b\n\ndata: cut";
const EVENTS = [
  { data: "{}", id: "r:1" },
  { data: "a\nb", id: null },
  { data: " last", id: null },
  { data: "c", id: "r:3" },
  { data: "", id: null },
];

test("events do not depend on how the text was cut", () => {
  for (let first = 0; first <= TEXT.length; first += 1) {
    for (let second = first; second <= TEXT.length; second += 1) {
      const parser = new Parser();
      const pieces = [TEXT.slice(0, first), TEXT.slice(first, second), TEXT.slice(second)];
      assert.deepEqual(pieces.flatMap((piece) => parser.feed(piece)), EVENTS);
    }
  }
});
