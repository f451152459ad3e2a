/** Parses server-sent events by the HTML standard. */

/** One event; `id` is null for an event without one. */
export interface ServerEvent {
  readonly data: string;
  readonly id: string | null;
}

/** Parses a stream's text as it arrives; drops an event that the connection cut off. */
export class Parser {
  #waiting = "";
  #data: string[] = [];
  #id: string | null = null;

  /** The events that `text` completes. */
  feed(text: string): ServerEvent[] {
    const lines = this.#lines(text);
    return lines.map((line) => this.#take(line)).filter((event) => event !== null);
  }

  /** Whole lines; a CR at the end of the text waits, since it may be half of a CR LF. */
  #lines(text: string): string[] {
    const all = this.#waiting + text;
    const half = all.endsWith("\r") ? "\r" : "";
    const lines = all.slice(0, all.length - half.length).split(/\r\n|\n|\r/);
    this.#waiting = (lines.pop() ?? "") + half;
    return lines;
  }

  #take(line: string): ServerEvent | null {
    if (line === "") return this.#event();
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "data") this.#data.push(value);
    else if (name === "id" && !value.includes("\0")) this.#id = value;
    return null;
  }

  #event(): ServerEvent | null {
    const [data, id] = [this.#data, this.#id];
    [this.#data, this.#id] = [[], null];
    return data.length > 0 ? { data: data.join("\n"), id } : null;
  }
}
