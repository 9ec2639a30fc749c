// The person's conversations beside the chat: listed by day, searched, and opened in the chat.

import { root } from "./root.js";
import { dates, t } from "./strings.js";

const TYPED = 250; // ms after the last key before a search begins
const CHANGED = 1_500; // ms after the last message before the list is asked for again
const DAY = 24 * 3600 * 1000; // ms

const month = dates({ month: "long", year: "numeric" });

/**
 * Tells "open" with what is to be shown of an earlier conversation, and "current" to go back to
 * the one that goes on.
 */
export class Talks extends EventTarget {
  #part = document.getElementById("talks");
  #words = document.getElementById("talks-words");
  #list = document.getElementById("talks-list");
  #state = document.getElementById("talks-state");
  #more = document.getElementById("talks-more");
  #older = "";
  #items = [];
  #shown = ""; // the id of the conversation that is shown, where it is not the current one
  #asked = 0; // the number of the newest question: what others ask meanwhile is out of date
  #timer = 0;

  constructor() {
    super();
    this.#words.addEventListener("input", () => this.#later(TYPED));
    document.getElementById("talks-find").addEventListener("submit", (event) => {
      event.preventDefault();
      this.refresh();
    });
    this.#more.addEventListener("click", () => this.#load(this.#older));
    document.addEventListener("keydown", (event) => {
      const isFind = event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey);
      if (!isFind || event.shiftKey || event.altKey || this.#part.hidden) return;
      event.preventDefault();
      const menu = document.getElementById("ways");
      if (!this.#part.checkVisibility()) menu.showPopover();
      this.#words.focus();
    });
  }

  /** Asks for the list again, after a while in which nothing more changes. */
  changed() {
    this.#later(CHANGED);
  }

  /** Asks for the list as it is now. */
  refresh() {
    clearTimeout(this.#timer);
    return this.#load("");
  }

  /** Marks which conversation is shown: one by its id, or the current one. */
  mark(id) {
    this.#shown = id;
    for (const link of this.#list.querySelectorAll("a[data-id]")) this.#markOne(link);
  }

  /** What stands before the lines of an earlier conversation that are shown. */
  async before(id, place) {
    const found = await read(`/api/conversations/${id}?before=${place}`);
    return found && { items: found.items, before: found.before };
  }

  #later(pause) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.refresh(), pause);
  }

  async #load(after) {
    const number = ++this.#asked;
    const words = this.#words.value.trim();
    const asked = words ? { q: words } : { after };
    const found = await read(`/api/conversations?${new URLSearchParams(asked)}`);
    if (number !== this.#asked) return;
    if (!found) {
      this.#tell(this.#part.hidden ? "" : t("talks.failed"));
      return;
    }
    this.#items = after && !words ? [...this.#items, ...found.items] : found.items;
    this.#older = found.older;
    this.#more.hidden = !found.older;
    this.#tell(words && !found.items.length ? t("talks.nothing") : "");
    this.#draw(words);
    this.#part.hidden = !this.#items.length && !words;
  }

  #tell(words) {
    this.#state.textContent = words;
    this.#state.hidden = !words;
  }

  #draw(words) {
    const focused = document.activeElement?.dataset?.id;
    const parts = [];
    let name = null;
    for (const item of this.#items) {
      const group = words ? t("talks.found") : groupOf(item.at);
      if (group !== name) {
        name = group;
        const heading = document.createElement("p");
        heading.id = `talks-${parts.length}`;
        heading.textContent = group;
        const listed = document.createElement("ul");
        listed.setAttribute("aria-labelledby", heading.id);
        parts.push(heading, listed);
      }
      parts.at(-1).append(this.#entry(item));
    }
    this.#list.replaceChildren(...parts);
    if (focused) this.#list.querySelector(`a[data-id="${focused}"]`)?.focus();
  }

  #entry({ id, title, place, current }) {
    const item = document.createElement("li");
    const link = document.createElement("a");
    link.href = `${root}/conversations/${id}#end`; // in a tab of its own, and to rename or export
    link.dataset.id = id;
    link.dataset.current = current ? "1" : "";
    link.dir = "auto";
    const name = document.createElement("span"); // its first two lines
    name.textContent = title;
    link.append(name);
    link.title = `${title} · ${place}`;
    this.#markOne(link);
    link.addEventListener("click", (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
      event.preventDefault();
      this.#open(id, current);
    });
    const more = document.createElement("a");
    more.className = "talk-more";
    more.href = `${root}/conversations/${id}`;
    more.textContent = "⋯";
    more.setAttribute("aria-label", t("talks.manage", { title }));
    item.append(link, more);
    return item;
  }

  #markOne(link) {
    const isShown = this.#shown ? link.dataset.id === this.#shown : Boolean(link.dataset.current);
    if (isShown) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  }

  async #open(id, current) {
    const menu = document.getElementById("ways");
    if (current) {
      this.dispatchEvent(new CustomEvent("current"));
    } else {
      const found = await read(`/api/conversations/${id}`);
      if (!found) {
        this.#tell(t("talks.failed"));
        return;
      }
      this.dispatchEvent(new CustomEvent("open", { detail: { id, ...found } }));
    }
    if (menu.matches(":popover-open")) menu.hidePopover();
  }
}

function groupOf(at) {
  const midnight = new Date().setHours(0, 0, 0, 0);
  if (at >= midnight) return t("today");
  if (at >= midnight - DAY) return t("yesterday");
  if (at >= midnight - 7 * DAY) return t("talks.week");
  if (at >= midnight - 30 * DAY) return t("talks.month");
  return month.format(new Date(at));
}

/** What the server answers, or null when it cannot be asked just now. */
async function read(path) {
  try {
    const answer = await fetch(root + path, { cache: "no-store" });
    return answer.ok ? await answer.json() : null;
  } catch {
    return null;
  }
}
