// What goes on on the way to a reply: one quiet line that opens, and what is left of it above.

import { t } from "./strings.js";

export class Doing extends EventTarget {
  #line = document.getElementById("doing");
  #now = document.getElementById("doing-now");
  #list = document.getElementById("steps");
  #thought = document.getElementById("thought");
  #told = document.getElementById("doing-told");
  #steps = new Map(); // by id
  draft = ""; // what they lead to
  #isThinking = false;

  /** True while something goes on. */
  get on() {
    return this.#isThinking || [...this.#steps.values()].some(({ state }) => state === "begun");
  }

  /** Takes up what the model thinks, or another step of it. */
  take({ id, what, state, text, found, draft = "" }) {
    if (draft !== this.draft) this.clear();
    this.draft = draft;
    if (what === "thinking") {
      this.#think(state === "begun", text);
    } else {
      this.#steps.set(id, { what, state, text, found });
      this.#told.textContent = words(this.#steps.get(id));
    }
    this.#show();
  }

  /** Its reply is there, or will never be: nothing of it goes on. */
  end(draft) {
    if (draft === this.draft) this.clear();
  }

  clear() {
    this.#steps.clear();
    this.#think(false);
    this.#told.textContent = "";
    this.#show();
  }

  /** True when the keyboard is at the line, which `folded` takes it from. */
  get isFocused() {
    return this.#line.contains(document.activeElement);
  }

  /** What the model thinks stands there until it thinks no more; nothing keeps it. */
  #think(on, text = "") {
    this.#isThinking = on;
    this.#thought.hidden = !text;
    this.#thought.textContent = text;
    this.#thought.scrollTop = this.#thought.scrollHeight;
  }

  #show() {
    const steps = [...this.#steps.values()];
    const running = steps.filter(({ state }) => state === "begun").at(-1);
    const newest = running ?? (this.#isThinking ? null : steps.at(-1));
    this.#now.textContent = newest ? words(newest) : t("thinking");
    this.#list.replaceChildren(...steps.map(item));
    this.#list.hidden = !steps.length;
    this.#line.hidden = !steps.length && !this.#isThinking;
    this.dispatchEvent(new Event("change"));
  }
}

/** The steps on the way to a reply that is there. */
export function folded(steps) {
  const line = document.createElement("details");
  line.className = "doing";
  const summary = document.createElement("summary");
  summary.textContent = steps.length === 1 ? t("steps.one") : t("steps.many", { count: steps.length });
  const list = document.createElement("ol");
  list.className = "steps";
  list.append(...steps.map(item));
  line.append(summary, list);
  return line;
}

function item(step) {
  const made = document.createElement("li");
  made.textContent = words(step);
  return made;
}

function words({ what, state, text, found }) {
  return t(`step.${what}.${state}`, { what: text, count: found });
}
