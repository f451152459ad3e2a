/** What the gateway has against a request, or what became of the connection. */
class Refused extends Error {
  constructor(error, status, request) {
    super(error.message);
    this.param = error.param;
    this.about = [status && `HTTP ${status}`, error.code || error.type, request && `request ${request}`].filter(Boolean).join(", ");
  }
}

async function refusal(response, request) {
  const said = await response.json().catch(() => ({}));
  const error = { ...(said.error ?? { message: "The gateway did not say why." }) };
  const after = response.headers.get("retry-after");
  if (after) error.message += ` Try again in ${after} s.`;
  return new Refused(error, response.status, request);
}

/** Events of a stream, each as JSON; an error event is thrown. */
async function* events(body, key, signal) {
  const headers = { "content-type": "application/json" };
  if (key) headers.authorization = `Bearer ${key}`;
  const response = await fetch(body.messages ? "/v1/chat/completions" : "/v1/completions", { method: "POST", headers, body: JSON.stringify(body), signal });
  const request = response.headers.get("x-request-id");
  if (!response.ok) throw await refusal(response, request);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ""; ; ) {
    const { value, done } = await reader.read();
    if (done) throw new Refused({ message: "The connection ended before the answer did." }, 0, request);
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const data = part.split("\n").find((line) => line.startsWith("data: "))?.slice(6);
      if (data === "[DONE]") return;
      if (!data) continue;
      const event = JSON.parse(data);
      if (event.error) throw new Refused(event.error, 0, request);
      yield event;
    }
  }
}
