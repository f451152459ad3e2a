/** The exchange whose guesses are shown, and the place of the step. */
let inspected = null, chosen = 0;

/** Opens the guesses of ``exchange`` below its answer, at the step ``place``; closes them if they are open. */
function inspect(exchange, place) {
  const closes = inspected === exchange && place === undefined;
  inspected?.guesses.setAttribute("aria-expanded", "false");
  inspected = closes ? null : exchange;
  (inspected?.item ?? document.body).append($("inspector"));
  if (!inspected) return;
  exchange.guesses.setAttribute("aria-expanded", "true");
  $("tokens").hidden = exchange.raw;
  $("tokens").replaceChildren();
  $("newest").checked = place === undefined;
  follow(place);
  $("inspector").scrollIntoView({ block: "nearest" });
}

/** Shows what there is of the answer by now. */
function follow(place) {
  const { answer, raw } = inspected, count = answer.steps.length;
  $("step").max = count;
  if (!raw) for (let step = $("tokens").childElementCount && $("tokens").shown; step < count; step += 1) $("tokens").append(...answer.steps[step].spans);
  $("tokens").shown = count;
  document.querySelector("#inspector .legend").replaceChildren(...[...answer.counts].sort().map(([drafter, tokens]) => {
    const item = made("li", classOf(drafter));
    item.append(made("b", "", drafter || "the target"), ` ${tokens}`);
    return item;
  }));
  show($("newest").checked ? count - 1 : place ?? chosen);
}

/** Draws the guesses of one step, and marks its tokens. */
function show(place) {
  const { steps } = inspected.answer;
  for (const span of document.querySelectorAll(".now")) span.classList.remove("now");
  chosen = Math.max(0, Math.min(place, steps.length - 1));
  $("step").value = chosen + 1;
  const step = steps[chosen], { draft, tokens, texts } = step;
  for (const span of step.spans) span.classList.add("now");
  const kept = draft?.accepted.length ?? 0, guesses = draft?.tokens.length ?? 0;
  const own = tokens.length > kept ? { text: texts[kept] || `#${tokens[kept]}` } : null;
  $("step").setAttribute("aria-valuetext", `step ${chosen + 1} of ${steps.length}`);
  $("told").textContent = `Step ${chosen + 1} of ${steps.length}: ${guesses} guesses, ${kept} taken` +
    (kept ? ` (${draft.accepted.map((node) => shown(draft.texts[node])).join(" ")})` : "") + (own ? `; the target added ${shown(own.text)}` : "");
  $("tree").replaceChildren(picture(draft ?? { tokens: [], texts: [], parents: [], guessed_by: [], accepted: [] }, own, step.before));
}

const choose = (place) => { $("newest").checked = false; show(place); };
$("step").addEventListener("input", () => choose($("step").value - 1));
$("before").addEventListener("click", () => choose(chosen - 1));
$("after").addEventListener("click", () => choose(chosen + 1));
$("newest").addEventListener("change", () => follow());
$("turns").addEventListener("click", ({ target }) => {
  if (target.dataset.step === undefined) return;
  const place = Number(target.dataset.step), exchange = exchanges.find(({ item }) => item.contains(target));
  if (inspected === exchange) choose(place);
  else inspect(exchange, place);
});
