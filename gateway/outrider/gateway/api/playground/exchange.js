const ALLOWED = {
  ALLOWED_TAGS: "a b blockquote br code del em h1 h2 h3 h4 h5 h6 hr i li ol p pre s strong sub sup table tbody td th thead tr ul".split(" "),
  ALLOWED_ATTR: ["align", "href", "start", "title"],
};
const ESCAPED = { "&": "&amp;", "<": "&lt;", ">": "&gt;" };
marked.use({ breaks: true, gfm: true, renderer: { html: ({ text }) => text.replace(/[&<>]/g, (sign) => ESCAPED[sign]) } });

/** ``text``, which is Markdown, as elements; what looks like HTML is shown as it stands. */
function rendered(text) {
  const all = DOMPurify.sanitize(marked.parse(text), { ...ALLOWED, RETURN_DOM_FRAGMENT: true });
  for (const link of all.querySelectorAll("a")) Object.assign(link, { target: "_blank", rel: "noreferrer" });
  for (const code of all.querySelectorAll("pre")) {
    const block = made("div", "block");
    code.replaceWith(block);
    code.tabIndex = 0;
    block.append(code, button("Copy", "copy-code", () => copy(code.textContent)));
  }
  return all;
}

function button(text, className, act) {
  const element = made("button", className, text);
  element.type = "button";
  element.addEventListener("click", act);
  return element;
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text); // only where the page is at localhost, or came by HTTPS
  } catch {
    const area = document.body.appendChild(Object.assign(made("textarea"), { value: text }));
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  say("Copied.");
}

/** What was asked, and its answer: two elements of the conversation. */
class Exchange {
  /** ``saved``: mode, asked, and what of the answer is known: text, thought, facts, note, verdict. */
  constructor(saved) {
    Object.assign(this, { text: "", thought: "", facts: "", note: "", verdict: "" }, saved);
    this.question = made("li", "user", this.asked);
    this.item = made("li", "assistant");
    this.fold = made("details");
    this.fold.append(made("summary", "faint", "Thought"), (this.musing = made("div", "thought")));
    this.said = made("div", this.raw ? "raw" : "said");
    if (this.raw) this.said.append(made("span", "prompt", this.asked));
    this.foot = made("div", "foot");
    this.told = made("span", "facts");
    this.broken = made("span", "broken");
    this.guesses = button("Guesses", "guesses", () => inspect(this));
    this.compare = button("Compare", "compare", () => compare(this));
    this.tools = made("span", "bar");
    this.tools.append(button("Copy", "copy", () => copy(this.text)), this.guesses, this.compare, button("Again", "again", () => again(this)));
    this.foot.append(this.told, this.broken, this.tools);
    this.judged = made("p", "verdict faint");
    this.item.append(this.fold, this.said, this.foot, this.judged);
    this.drawn = 0;
    if (this.raw && !saved.answer) this.said.append(this.text);
    this.draw();
  }

  /** Whether a text is continued, and nothing is rendered. */
  get raw() {
    return this.mode === "completion";
  }

  get saved() {
    const { mode, asked, text, thought, facts, note, verdict } = this;
    return { mode, asked, text, thought, facts, note, verdict };
  }

  get elements() {
    return this.raw ? [this.item] : [this.question, this.item];
  }

  /** The turns of a chat that this is, for the requests that follow. */
  get messages() {
    return [{ role: "user", content: this.asked }, { role: "assistant", content: this.text }];
  }

  draw() {
    const { answer } = this;
    if (answer) {
      Object.assign(this, { text: answer.text, thought: answer.thought, facts: answer.facts });
      if (this.raw) for (; this.drawn < answer.steps.length; this.drawn += 1) this.said.append(...answer.steps[this.drawn].spans);
    }
    if (!this.raw) this.said.replaceChildren(rendered(this.text));
    this.musing.textContent = this.thought;
    this.fold.hidden = !this.thought;
    const grows = Boolean(answer) && answer === running?.answer;
    this.told.textContent = this.facts || (grows ? "waiting for the first token" : "");
    this.broken.textContent = this.note;
    this.tools.hidden = grows && !answer.tokens.length;
    this.judged.textContent = this.verdict;
    this.guesses.hidden = this.compare.hidden = !answer?.tokens.length;
  }
}
