const number = (value, digits = 1) => value.toLocaleString("en", { maximumFractionDigits: digits });
const several = (count, name) => `${number(count, 2)} ${name}${count === 1 ? "" : "s"}`;

/** One streamed answer: its tokens, the steps that decided them, and who guessed each. */
class Answer {
  tokens = [];
  steps = [];
  counts = new Map();
  finish = null;
  lossy = false;
  text = "";
  thought = "";
  first = 0;
  last = 0;
  began = performance.now();

  /** Tokens a second from the request on: what arrives together would make any shorter time a lie. */
  get rate() {
    return this.last > this.began ? (this.tokens.length * 1000) / (this.last - this.began) : 0;
  }

  get stride() {
    return `${several(Math.round((100 * this.tokens.length) / this.steps.length) / 100, "token")} a step`;
  }

  /** Whether the target took a guess. */
  get took() {
    return [...this.counts.keys()].some(Boolean);
  }

  get facts() {
    if (!this.tokens.length) return "";
    const steps = `${several(this.tokens.length, "token")} in ${several(this.steps.length, "step")}`;
    const facts = [`${number(this.rate)} tokens/s`, `first token after ${number(this.first - this.began, 0)} ms`, this.took ? `${steps}, ${this.stride}` : steps];
    if (this.finish === "length") facts.push("cut at the most tokens");
    return facts.join(" · ");
  }

  take(chunk) {
    const told = chunk.outrider ?? {}, choice = chunk.choices[0];
    this.lossy ||= Boolean(told.lossy);
    this.thought += choice?.delta?.reasoning_content ?? "";
    this.text += choice?.delta?.content ?? choice?.text ?? "";
    if (told.tokens?.length) this.#add(told);
    if (choice?.finish_reason) this.finish = choice.finish_reason;
  }

  #add(told) {
    this.last = performance.now();
    this.first ||= this.last;
    const place = this.steps.push({ draft: told.drafts?.[0], tokens: told.tokens, texts: told.texts, before: this.newest ?? "", spans: [] }) - 1;
    told.tokens.forEach((token, index) => {
      const drafter = told.guessed_by[index];
      const span = made("span", `told ${classOf(drafter)}${drafter ? " guess" : ""}`, told.texts[index]);
      span.title = `token ${token}, ${drafter ? `guessed by ${drafter}` : "the target's own"}, step ${place + 1}`;
      span.dataset.step = place;
      this.steps[place].spans.push(span);
      this.counts.set(drafter, (this.counts.get(drafter) ?? 0) + 1);
    });
    this.newest = told.texts.findLast(Boolean) ?? this.newest;
    this.tokens.push(...told.tokens);
  }

  /** Whether ``plain``, the answer without speculation, is the same, and which was quicker. */
  compared(plain, seed) {
    const place = this.tokens.findIndex((token, index) => token !== plain.tokens[index]);
    const same = place < 0 && this.tokens.length === plain.tokens.length;
    const ratio = this.rate && plain.rate ? `${number(this.rate / plain.rate, 2)} times the speed (${number(this.rate)} and ${number(plain.rate)} tokens/s), ` : "";
    const speed = this.took ? `${ratio}${this.stride}.` : "No guess was taken, so both are plain decoding.";
    if (same) return `Identical: the same ${several(plain.tokens.length, "token")} with speculation and without. ${speed} Seed ${seed}.`;
    const where = (place < 0 ? Math.min(this.tokens.length, plain.tokens.length) : place) + 1;
    const why = this.lossy ? "the verifier accepts guesses by a lossy rule" : "this verifier does not run in strict determinism, or another one took over";
    return `Different from token ${where} on: ${why}. ${speed} Seed ${seed}.`;
  }
}
