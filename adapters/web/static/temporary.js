// A temporary chat: kept in this page alone, and sent to the server whole with each message. It
// stands in for the connection, and speaks as that does.

import { root } from "./root.js";
import { t } from "./strings.js";

const IDLE = 24 * 3600 * 1000; // ms without a message after which it is gone as well
const WRITES = 4_000; // ms between two signs that a reply is on its way

export class Temporary extends EventTarget {
  open = true;
  #lines = []; // what was said and answered, in turn
  #waiting = new Map(); // what is still to be answered, by id
  #stop = null; // ends the reply that is being written
  #isBusy = false;
  #idle = 0;

  constructor() {
    super();
    // The browser may keep a page to go back to: what was closed is gone.
    addEventListener("pageshow", ({ persisted }) => persisted && location.reload());
  }

  /** Begins: there is nothing to connect to, and nothing was said. */
  retry() {
    this.#tell("state", { state: "open" });
    this.#frame("history", { items: [], before: "" });
    this.retry = () => {};
  }

  again() {}

  drop() {}

  settle() {}

  send({ type, id, text }) {
    if (type === "withdraw" && this.#waiting.delete(id)) queueMicrotask(() => this.#frame("withdrawn", { id }));
    if (type !== "send") return true;
    queueMicrotask(() => {
      this.#frame("ack", { id });
      if (text === "/stop") this.#stop?.abort(id);
      else if (text.startsWith("/")) this.#note(id, "temporary.commands");
      else {
        this.#waiting.set(id, text);
        this.#answer();
      }
    });
    return true;
  }

  /** Answers what waits, one after the other. */
  async #answer() {
    if (this.#isBusy) return;
    this.#isBusy = true;
    try {
      for (const [id, text] of this.#waiting) {
        this.#waiting.delete(id);
        await this.#reply(id, text);
      }
    } finally {
      this.#isBusy = false;
    }
  }

  async #reply(id, text) {
    const { signal } = (this.#stop = new AbortController());
    const draft = `draft-${id}`;
    const writes = () => this.#frame("typing", {});
    const timer = setInterval(writes, WRITES);
    writes();
    let found = { text: "", html: "", error: "", cut: false, ended: false };
    try {
      const body = JSON.stringify({ lines: [...this.#lines, text] });
      const answer = await fetch(`${root}/api/temporary`, { method: "POST", body, signal });
      if (!answer.ok) found.error = await why(answer);
      else {
        for await (const news of values(answer.body)) {
          found = { ...found, ...news };
          if (found.html && !found.ended) this.#frame("draft", { id: draft, html: found.html });
        }
        if (!found.ended && !found.error) found.error = t("temporary.failed");
      }
    } catch {
      if (!signal.aborted) found.error = t("temporary.failed");
    }
    clearInterval(timer);
    this.#stop = null;
    this.#frame("draft", { id: draft, html: "" });
    const stopped = found.cut || signal.aborted || Boolean(found.error);
    if (found.text) {
      this.#lines.push(text, found.text);
      if (stopped) found.html += paragraph(t("temporary.stopped"));
      this.#say(`re-${id}`, found, { replaces: [draft], answers: [id], stopped });
    }
    if (found.error) this.#fail(id, found, draft);
    else if (signal.aborted && !found.text) this.#note(signal.reason, "temporary.stopped");
  }

  /** Says why there is no answer; what was asked can be tried again. */
  #fail(id, { error, text }, draft) {
    const more = { replaces: [draft], answers: [id], ...(text ? {} : { failed: [id] }) };
    this.#say(`no-${id}`, { text: error, html: paragraph(error) }, more);
  }

  /** A sentence between the lines, in place of a command. */
  #note(aside, key) {
    this.#say(`note-${aside}`, { text: t(key), html: "" }, { aside, replaces: [] });
  }

  #say(id, { text, html }, more) {
    this.#frame("message", { id, role: "bot", at: Date.now(), text, html, ...more });
  }

  #frame(type, fields) {
    clearTimeout(this.#idle);
    this.#idle = setTimeout(() => location.reload(), IDLE);
    this.#tell("frame", { type, ...fields });
  }

  #tell(name, detail) {
    this.dispatchEvent(new CustomEvent(name, { detail }));
  }
}

function paragraph(words) {
  const made = document.createElement("p");
  made.textContent = words;
  return made.outerHTML;
}

/** Why the server gave no answer. */
async function why(answer) {
  const said = await answer.json().catch(() => ({}));
  return answer.status === 413 ? t("temporary.full") : (said.error ?? t("temporary.failed"));
}

/** The values of a body that has one on each line. */
async function* values(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    const lines = (rest + part.value).split("\n");
    rest = lines.pop();
    for (const line of lines) if (line) yield JSON.parse(line);
  }
}
