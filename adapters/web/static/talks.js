// The person's conversations beside the chat: listed by day, searched, and opened in the chat.

import { isStep, move } from "./menu.js";
import { root } from "./root.js";
import { isTemporary } from "./storage.js";
import { dates, t } from "./strings.js";

const TYPED = 250; // ms after the last key before a search begins
const CHANGED = 1_500; // ms after the last message before the list is asked for again
const TITLED = 15_000; // … and once more: a model may have named a conversation by then
const DAY = 24 * 3600 * 1000; // ms
const LONGEST_NAME = 120; // characters, as the server has it
const UNDO = 30_000; // ms in which the last thing can be undone here

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
  #undo = document.getElementById("talks-undo");
  #more = document.getElementById("talks-more");
  #menu = document.getElementById("talk-menu");
  #dialog = document.getElementById("talk-delete");
  #of = ""; // the id of the conversation whose menu is open
  #naming = ""; // … and of the one that is being named: the list stands still meanwhile
  #older = "";
  #pinned = [];
  #items = [];
  #last = null; // the group at the end of the list, and its entries
  #shown = ""; // the id of the conversation that is shown, where it is not the current one
  #asked = 0; // the number of the newest question: what others ask meanwhile is out of date
  #timer = 0;
  #titleTimer = 0;
  #undoTimer = 0;
  #takeBack = null;

  constructor() {
    super();
    this.#words.addEventListener("input", () => this.#later(TYPED));
    document.getElementById("talks-find").addEventListener("submit", (event) => {
      event.preventDefault();
      this.refresh();
    });
    this.#more.addEventListener("click", () => this.#load(this.#older));
    this.#menu.addEventListener("keydown", (event) => this.#key(event));
    this.#menu.addEventListener("toggle", ({ newState }) => {
      if (newState === "closed") this.#shut();
    });
    this.#list.addEventListener("scroll", () => this.#menu.hidePopover(), { passive: true });
    this.#dialog.addEventListener("keydown", (event) => {
      if (event.key === "Escape") event.stopPropagation(); // it closes this, and stops no reply
    });
    this.#undo.addEventListener("click", () => this.#takeBack?.());
    document.addEventListener("visibilitychange", () => document.hidden || this.refresh());
    document.addEventListener("keydown", (event) => {
      const isFind = event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey);
      if (!isFind || event.shiftKey || event.altKey || this.#part.hidden) return;
      event.preventDefault();
      const menu = document.getElementById("ways");
      if (!this.#part.checkVisibility()) menu.showPopover();
      this.#words.focus();
    });
  }

  /** Asks for the list again, after a while in which nothing more changes, and for its titles. */
  changed() {
    this.#later(CHANGED);
    clearTimeout(this.#titleTimer);
    this.#titleTimer = setTimeout(() => this.refresh(), TITLED);
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

  /** An earlier conversation as it is now; null when it cannot be read, "gone" when it is deleted. */
  async again(id) {
    const answer = await fetch(`${root}/api/conversations/${id}`).catch(() => null);
    if (answer?.status === 404) return "gone";
    return answer?.ok ? { id, ...(await answer.json()) } : null;
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
    if (isTemporary) return;
    const number = ++this.#asked;
    const words = this.#words.value.trim();
    const asked = words ? { q: words } : { after };
    const found = await read(`/api/conversations?${new URLSearchParams(asked)}`);
    if (number !== this.#asked) return;
    if (!found) {
      this.#tell(this.#part.hidden ? "" : t("talks.failed"));
      return;
    }
    const goesOn = after && !words;
    this.#pinned = goesOn ? this.#pinned : found.pinned;
    this.#items = goesOn ? [...this.#items, ...found.items] : found.items;
    this.#older = found.older;
    this.#more.hidden = !found.older;
    if (words && !found.items.length) this.#tell(t("talks.nothing"));
    else if (!this.#takeBack) this.#tell("");
    if (!this.#naming) this.#draw(words, goesOn ? found.items : null);
    const isEmpty = !this.#items.length && !this.#pinned.length && !words;
    this.#part.hidden = isEmpty && !this.#takeBack;
  }

  /** Says something below the list; with `takeBack`, that what was done can be undone. */
  #tell(words, takeBack = null) {
    this.#state.textContent = words;
    this.#state.hidden = !words;
    this.#undo.hidden = !takeBack;
    this.#takeBack = takeBack;
    clearTimeout(this.#undoTimer);
    if (takeBack) this.#undoTimer = setTimeout(() => this.#tell(""), UNDO);
  }

  /** Draws the list anew, or behind it what was loaded `more`. */
  #draw(words, more = null) {
    const { id: focused, of } = document.activeElement?.dataset ?? {};
    const parts = [];
    if (!more) this.#last = null;
    for (const [number, item] of (more ?? [...this.#pinned, ...this.#items]).entries()) {
      const isFirst = !more && number < this.#pinned.length;
      const group = words ? t("talks.found") : isFirst ? t("talks.pinned") : groupOf(item.at);
      if (group !== this.#last?.group) {
        const heading = document.createElement("p");
        heading.id = `talks-${(more ? this.#list.childElementCount : 0) + parts.length}`;
        heading.textContent = group;
        const listed = document.createElement("ul");
        listed.setAttribute("aria-labelledby", heading.id);
        parts.push(heading, listed);
        this.#last = { group, listed };
      }
      this.#last.listed.append(this.#entry(item));
    }
    if (more) {
      this.#list.append(...parts);
      return;
    }
    this.#list.replaceChildren(...parts);
    if (focused) this.#list.querySelector(`a[data-id="${focused}"]`)?.focus();
    if (of) this.#button(of)?.focus();
  }

  #entry(talk) {
    const { id, title, place, current } = talk;
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
    const more = document.createElement("button");
    more.type = "button";
    more.className = "talk-more";
    more.dataset.of = id;
    more.textContent = "⋯";
    more.setAttribute("aria-label", t("talks.manage", { title }));
    more.setAttribute("aria-haspopup", "menu");
    more.setAttribute("aria-expanded", "false");
    more.addEventListener("click", () => this.#show(talk, more));
    more.addEventListener("keydown", (event) => {
      if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
      event.preventDefault();
      this.#show(talk, more, event.key === "ArrowUp" ? -1 : 0);
    });
    item.append(link, more);
    return item;
  }

  // --- the menu of one of them ---

  #button(id) {
    return this.#list.querySelector(`button[data-of="${id}"]`);
  }

  #show(talk, button, place = 0) {
    const { id, shelf } = talk;
    this.#menu.setAttribute("aria-label", button.getAttribute("aria-label"));
    this.#menu.replaceChildren(
      this.#choice("talks.rename", () => this.#rename(talk)),
      shelf === "pinned"
        ? this.#choice("talks.unpin", () => this.#shelve(talk, ""))
        : this.#choice("talks.pin", () => this.#shelve(talk, "pinned")),
      shelf === "archived"
        ? this.#choice("talks.unarchive", () => this.#shelve(talk, ""))
        : this.#choice("talks.archive", () => this.#shelve(talk, "archived")),
      this.#download(id, "md", "talks.markdown"),
      this.#download(id, "jsonl", "talks.jsonl"),
      this.#choice("talks.delete", () => this.#ask(talk)),
    );
    this.#of = id;
    button.setAttribute("aria-expanded", "true");
    this.#menu.showPopover();
    const { left, right, top, bottom } = button.getBoundingClientRect();
    const { offsetWidth, offsetHeight } = this.#menu;
    const isBelow = bottom + offsetHeight < innerHeight;
    this.#menu.style.top = `${Math.max(0, isBelow ? bottom : top - offsetHeight)}px`;
    const isBeside = left + offsetWidth < innerWidth;
    this.#menu.style.left = `${Math.max(0, isBeside ? left : right - offsetWidth)}px`;
    this.#choices.at(place).focus();
  }

  get #choices() {
    return [...this.#menu.querySelectorAll("[role=menuitem]")];
  }

  #choice(key, act) {
    const item = document.createElement("button");
    item.type = "button";
    item.addEventListener("click", () => {
      this.#menu.hidePopover();
      act();
    });
    return asChoice(item, key);
  }

  #download(id, kind, key) {
    const item = document.createElement("a");
    item.href = `${root}/conversations/${id}.${kind}`;
    item.download = "";
    item.addEventListener("click", () => this.#menu.hidePopover());
    return asChoice(item, key);
  }

  #key(event) {
    if (event.key === "Escape" || event.key === "Tab") this.#menu.hidePopover();
    else if (!isStep(event)) return;
    else move(event, this.#choices);
    event.preventDefault();
  }

  #shut() {
    const button = this.#button(this.#of);
    button?.setAttribute("aria-expanded", "false");
    const { activeElement } = document;
    if (activeElement === document.body || this.#menu.contains(activeElement)) button?.focus();
    this.#of = "";
  }

  /** Puts a conversation first, away, or back to where it was. */
  async #shelve(talk, shelf) {
    const isDone = await change(`/conversations/${talk.id}/shelf`, { shelf });
    if (!isDone) {
      this.#tell(t("talks.not_changed"));
      return;
    }
    if (shelf === "archived") {
      this.#tell(t("talks.archived", talk), () => this.#shelve(talk, talk.shelf));
      if (this.#shown === talk.id) this.dispatchEvent(new CustomEvent("current"));
    } else this.#tell("");
    await this.refresh();
  }

  /** Asks whether a conversation is to be deleted, and which of its notes with it. */
  async #ask(talk) {
    const found = await read(`/api/conversations/${talk.id}/notes`);
    if (!found) {
      this.#tell(t("talks.not_changed"));
      return;
    }
    document.getElementById("talk-delete-name").textContent = talk.title;
    const notes = document.getElementById("talk-delete-notes");
    notes.hidden = !found.notes.length;
    notes.replaceChildren(notes.firstElementChild, ...found.notes.map(asBox));
    this.#dialog.returnValue = "";
    this.#dialog.showModal();
    this.#dialog.onclose = () => {
      const ticked = [...notes.querySelectorAll(":checked")].map(({ name }) => [name, "1"]);
      if (this.#dialog.returnValue) this.#delete(talk, ticked);
      else this.#button(talk.id)?.focus();
    };
  }

  async #delete(talk, ticked) {
    if (!(await change(`/conversations/${talk.id}/delete`, ticked))) {
      this.#tell(t("talks.not_changed"));
      return;
    }
    this.#tell(t("talks.deleted", talk), () => this.#restore(talk));
    if (this.#shown === talk.id) this.dispatchEvent(new CustomEvent("current"));
    await this.refresh();
    this.#undo.focus();
  }

  async #restore(talk) {
    const isDone = await change(`/conversations/${talk.id}/restore`, {});
    if (isDone) this.#tell("");
    else this.#tell(t("talks.not_restored"), () => this.#restore(talk));
    await this.refresh();
    if (isDone) this.#button(talk.id)?.focus();
  }

  /** Has a conversation named in its place: Enter does it, Esc leaves it as it was. */
  #rename({ id, title, named }) {
    const row = this.#button(id)?.parentElement;
    if (!row) return;
    const form = document.createElement("form");
    const input = document.createElement("input");
    input.maxLength = LONGEST_NAME;
    input.value = title;
    input.dir = "auto";
    input.autocomplete = "off";
    input.setAttribute("aria-label", t("talks.name"));
    form.className = "talk-name";
    form.append(input);
    const link = row.firstElementChild;
    row.replaceChild(form, link);
    this.#naming = id;
    input.select();
    const end = () => {
      if (this.#naming !== id) return;
      const hadFocus = form.contains(document.activeElement);
      this.#naming = "";
      row.replaceChild(link, form);
      if (hadFocus) link.focus();
      this.refresh();
    };
    const save = async () => {
      const words = input.value.trim();
      if (this.#naming !== id || input.readOnly) return;
      if (words === (named || title)) return end();
      input.readOnly = true;
      const isDone = await change(`/conversations/${id}/title`, { title: words });
      input.readOnly = false;
      if (!isDone) return this.#tell(t("talks.not_changed")); // what was typed stays
      if (words) link.firstElementChild.textContent = words;
      this.#tell("");
      end();
    };
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      save();
    });
    input.addEventListener("blur", save);
    input.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || event.isComposing) return;
      event.preventDefault();
      end();
    });
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

/** A note that can be ticked, as text. */
function asBox({ path, line, text, digest }) {
  const label = document.createElement("label");
  const box = document.createElement("input");
  const words = document.createElement("span");
  const place = document.createElement("small");
  box.type = "checkbox";
  box.name = `note-${digest}`;
  words.textContent = text;
  words.dir = "auto";
  place.textContent = `${path}:${line}`;
  label.append(box, words, place);
  return label;
}

function asChoice(item, key) {
  item.tabIndex = -1;
  item.textContent = t(key);
  item.setAttribute("role", "menuitem");
  return item;
}

/** Has the server change something; whether it did. */
async function change(path, fields) {
  try {
    const body = new URLSearchParams(fields);
    const answer = await fetch(root + path, { method: "POST", body, redirect: "manual" });
    return answer.type === "opaqueredirect"; // it leads on to where that is seen
  } catch {
    return false;
  }
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
