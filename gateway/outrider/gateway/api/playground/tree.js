const $ = (id) => document.getElementById(id);
const WIDTH = 104, HEIGHT = 34, BOX = 88, TALL = 24, LETTERS = 9;
/** Drafters in the order in which they were first seen; each has a colour, some the same from the sixth on. */
const SEEN = [];
const COLOURS = 5;

const made = (tag, className, text) => {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
};
const classOf = (drafter) => {
  if (!drafter) return "own";
  if (!SEEN.includes(drafter)) SEEN.push(drafter);
  return `by-${drafter} guesser-${SEEN.indexOf(drafter) % COLOURS}`;
};
const shown = (text) => text.replaceAll(" ", "·").replaceAll("\n", "⏎").replaceAll("\t", "⇥");

/** A tree as SVG: from left to right, the path that was taken on the top line. */
function picture(draft, own, before) {
  const kept = new Set(draft.accepted), last = draft.accepted.at(-1) ?? -1;
  const nodes = draft.tokens.map((_, node) => ({ text: draft.texts[node], by: draft.guessed_by[node], parent: draft.parents[node], kept: kept.has(node), children: [] }));
  const root = { text: before, by: "", kept: true, children: [] };
  if (own) nodes.push({ text: own.text, by: "", parent: last, kept: true, children: [] });
  for (const node of nodes) (node.parent < 0 ? root : nodes[node.parent]).children.push(node);
  let lines = 0, depth = 0;
  const place = (node, column) => {
    depth = Math.max(depth, column);
    Object.assign(node, { x: column * WIDTH, y: lines * HEIGHT });
    node.children.sort((a, b) => b.kept - a.kept);
    node.children.forEach((child, index) => { if (index) lines += 1; place(child, column + 1); });
  };
  place(root, 0);
  const [width, height] = [depth * WIDTH + BOX + 4, lines * HEIGHT + TALL + 4];
  const svg = drawn("svg", { width, height, viewBox: `-2 -2 ${width} ${height}`, role: "img", "aria-labelledby": "told" });
  const edges = (node) => node.children.forEach((child) => {
    const [x, y, to] = [node.x + BOX, node.y + TALL / 2, child.y + TALL / 2], bend = (x + child.x) / 2;
    svg.append(drawn("path", { d: `M${x} ${y}C${bend} ${y} ${bend} ${to} ${child.x} ${to}`, class: child.kept ? "kept" : "" }));
    edges(child);
  });
  edges(root);
  for (const node of [root, ...nodes]) svg.append(box(node, node === root ? "before the step" : node.by ? `guessed by ${node.by}` : "the target's own"));
  return svg;
}

function box(node, role) {
  const group = drawn("g", { class: `node ${classOf(node.by)}${node.kept ? " kept" : ""}`, transform: `translate(${node.x} ${node.y})` });
  const text = shown(node.text) || "…", label = drawn("text", { x: BOX / 2, y: TALL / 2 });
  label.textContent = text.length > LETTERS ? `${text.slice(0, LETTERS - 1)}…` : text;
  const title = drawn("title", {});
  title.textContent = `${text}: ${role}${node.kept ? "" : ", not taken"}`;
  group.append(title, drawn("rect", { width: BOX, height: TALL, rx: node.by ? 6 : 0 }), label);
  return group;
}

function drawn(tag, attributes) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}
