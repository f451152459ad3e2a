const NUMBERS = ["max_tokens", "temperature", "top_p", "top_k", "min_p", "seed"];
const KEPT = [...NUMBERS, "system", "stop_text"];
const KEY = "outrider-key", CHAT = "outrider-chat";
/** Most tokens of a completion if the form does not say. */
const CONTINUED = "256";
/** Milliseconds between two drawings of a growing answer. */
const PAUSE = 60;
/** A keyboard with an Enter key of its own sends by it; a phone's makes a new line. */
const KEYS = matchMedia("(pointer: fine)");

let exchanges = [];
/** The request under way: its abort controller, and the answer that grows. */
let running = null;
let painting = 0, follows = true, top_ = 0;

const chats = () => $("as-chat").checked;

/** The form as parameters; what is no number is left for the gateway to refuse. */
function asked(text) {
  const body = { stream: true, return_tokens: true, coalesce: false };
  if (chats()) body.messages = messages(text);
  else body.prompt = text;
  for (const name of NUMBERS) {
    const value = $(name).value.trim() || (name === "max_tokens" && !chats() ? CONTINUED : "");
    if (value) body[name] = Number.isNaN(Number(value)) ? value : Number(value);
  }
  if (Math.abs(body.seed) > Number.MAX_SAFE_INTEGER) throw new Refused({ message: `seed must be at most ${Number.MAX_SAFE_INTEGER} here`, param: "seed" });
  body.seed ??= Math.floor(Math.random() * 2 ** 53);
  if ($("model").value) body.model = $("model").value;
  if ($("stop_text").value) body.stop = [$("stop_text").value];
  return body;
}

function messages(text) {
  const system = $("system").value.trim() ? [{ role: "system", content: $("system").value }] : [];
  const before = exchanges.filter(({ mode, text }) => mode === "chat" && text).flatMap((exchange) => exchange.messages);
  return [...system, ...before, { role: "user", content: text }];
}

/** Sends what is in the box. */
async function run() {
  const text = $("message").value;
  if (running || !text.trim()) return $("message").focus();
  clear();
  let body;
  try {
    body = asked(text);
  } catch (error) {
    return fail(error);
  }
  const exchange = new Exchange({ mode: chats() ? "chat" : "completion", asked: text, answer: new Answer() });
  exchanges.push(exchange);
  exchange.body = body;
  $("turns").append(...exchange.elements);
  $("hello").hidden = follows = true;
  $("message").value = "";
  const whole = await stream(exchange, exchange.answer, { ...body, return_drafts: true });
  if (!exchange.text && !exchange.thought && !whole) {
    drop(exchange);
    $("message").value = text;
  } else if (whole && $("compare").checked) await compare(exchange);
  save();
}

/** Reads ``answer`` to its end; returns whether it has one. What there is stays if it breaks off or is stopped. */
async function stream(exchange, answer, body) {
  const mine = (running = { stop: new AbortController(), answer });
  busy(true);
  try {
    answer.began = performance.now();
    for await (const event of events(body, $("key").value.trim(), mine.stop.signal)) {
      answer.take(event);
      painting ||= setTimeout(paint, PAUSE, exchange);
    }
    return true;
  } catch (error) {
    const stopped = mine.stop.signal.aborted;
    if (answer === exchange.answer) exchange.note = stopped ? "stopped" : "broke off";
    if (stopped) say("Stopped.");
    else fail(error);
    return false;
  } finally {
    running = null;
    paint(exchange);
    busy(false);
  }
}

/** Asks for the answer of ``exchange`` once more, without speculation. */
async function compare(exchange) {
  const plain = new Answer();
  exchange.verdict = "The same once more, without speculation ...";
  if (await stream(exchange, plain, { ...exchange.body, speculation: "off" })) exchange.verdict = exchange.answer.compared(plain, exchange.body.seed);
  else exchange.verdict = "";
  paint(exchange);
  save();
}

/** Asks the last question again. */
async function again(exchange) {
  if (running) return;
  drop(exchange);
  $(exchange.raw ? "as-completion" : "as-chat").checked = true;
  $("message").value = exchange.asked;
  await run();
}

function drop(exchange) {
  if (inspected === exchange) inspect(exchange);
  exchanges = exchanges.filter((other) => other !== exchange);
  for (const element of exchange.elements) element.remove();
  $("hello").hidden = exchanges.length > 0;
  save();
}

function paint(exchange) {
  clearTimeout(painting);
  painting = 0;
  scrolled(); // the event of a scroll may come after what is drawn now
  exchange.draw();
  if (inspected === exchange) follow();
  keepEnd();
}

/** Shows the end of the log to who follows, also when a phone's keyboard makes the log smaller. */
function keepEnd() {
  if (follows) $("log").scrollTop = $("log").scrollHeight;
  top_ = $("log").scrollTop;
}

/** Who scrolls up reads on there; who scrolls to the end follows what comes. */
function scrolled() {
  const { scrollTop, scrollHeight, clientHeight } = $("log");
  if (scrollTop < top_) follows = false;
  else if (scrollHeight - scrollTop - clientHeight <= 2) follows = true;
  top_ = scrollTop;
}

/** Keeps the chat in this tab, until the tab is closed. */
function save() {
  const fields = Object.fromEntries(KEPT.map((name) => [name, $(name).value]).filter(([, value]) => value));
  const kept = { chat: chats(), fields, exchanges: exchanges.map(({ saved }) => saved) };
  if (exchanges.length || Object.keys(fields).length || !chats()) sessionStorage.setItem(CHAT, JSON.stringify(kept));
  else sessionStorage.removeItem(CHAT);
}

function restore() {
  const kept = JSON.parse(sessionStorage.getItem(CHAT) ?? "null");
  if (!kept) return;
  for (const [name, value] of Object.entries(kept.fields)) $(name).value = value;
  $(kept.chat ? "as-chat" : "as-completion").checked = true;
  exchanges = kept.exchanges.map((saved) => new Exchange(saved));
  $("turns").append(...exchanges.flatMap(({ elements }) => elements));
  $("hello").hidden = exchanges.length > 0;
  $("log").scrollTop = $("log").scrollHeight;
}

function say(text) { $("verdict").textContent = text; }

function fail(error) {
  const known = error instanceof Refused;
  $("error").replaceChildren(made("strong", "", known ? error.message : "The gateway cannot be reached."), made("div", "faint", known ? error.about : String(error.message)));
  $("error").hidden = false;
  const wantsKey = error.about?.includes("401") || error.about?.includes("invalid_api_key");
  const name = wantsKey ? "key" : error.param === "stop" ? "stop_text" : error.param;
  const field = name && document.querySelector(`#settings #${CSS.escape(name)}`);
  if (!field) return;
  $("settings").querySelector("h2").after($("error"));
  if (!$("settings").open) $("settings").showModal();
  field.setAttribute("aria-invalid", "true");
  field.focus();
}

function clear() {
  $("form").before($("error"));
  $("error").hidden = true;
  for (const field of document.querySelectorAll("[aria-invalid]")) field.removeAttribute("aria-invalid");
  say("");
}

function busy(is) {
  const focused = [$("run"), $("stop")].includes(document.activeElement);
  $("run").hidden = is;
  $("stop").hidden = !is;
  for (const tool of document.querySelectorAll(".compare, .again")) tool.disabled = is;
  if (focused) $(is ? "stop" : "message").focus();
}

function chooseMode() {
  $("message").placeholder = chats() ? "Message" : "Text to continue";
  $("message").setAttribute("aria-label", $("message").placeholder);
  $("run").textContent = chats() ? "Send" : "Continue";
  $("max_tokens").placeholder = chats() ? "to the end" : CONTINUED;
  save();
}

/** Fills in the models that there are for this key. */
async function models() {
  const key = $("key").value.trim();
  try {
    const response = await fetch("/v1/models", { headers: key ? { authorization: `Bearer ${key}` } : {} });
    if (!response.ok) throw await refusal(response, response.headers.get("x-request-id"));
    const names = (await response.json()).data.map((model) => model.id);
    if (names.length) $("model").replaceChildren(...names.map((name) => Object.assign(made("option", "", name), { value: name })));
    if ($("key").hasAttribute("aria-invalid")) clear();
  } catch (error) {
    fail(error);
  }
}

$("form").addEventListener("submit", (event) => { event.preventDefault(); run(); });
$("stop").addEventListener("click", () => running?.stop.abort());
$("message").addEventListener("keydown", (event) => {
  const sends = event.ctrlKey || event.metaKey || (KEYS.matches && !event.shiftKey);
  if (event.key !== "Enter" || event.isComposing || !sends) return;
  event.preventDefault();
  run();
});
addEventListener("keydown", (event) => { if (event.key === "Escape" && !$("settings").open) running?.stop.abort(); });
$("log").addEventListener("scroll", scrolled);
new ResizeObserver(keepEnd).observe($("log"));
$("hello").addEventListener("click", ({ target }) => {
  if (!target.dataset.mode) return;
  $(`as-${target.dataset.mode}`).checked = true;
  chooseMode();
  $("message").value = target.textContent;
  run();
});
$("open-settings").addEventListener("click", () => $("settings").showModal());
$("settings").addEventListener("click", ({ target }) => { if (target === $("settings")) target.close(); });
$("settings").addEventListener("close", () => { save(); $("message").focus(); });
$("key").addEventListener("change", () => { sessionStorage.setItem(KEY, $("key").value); models(); });
for (const mode of ["as-completion", "as-chat"]) $(mode).addEventListener("change", chooseMode);
$("anew").addEventListener("click", () => {
  running?.stop.abort();
  for (const exchange of exchanges) drop(exchange);
  clear();
  $("message").focus();
});
$("key").value = sessionStorage.getItem(KEY) ?? "";
restore();
chooseMode();
models();
