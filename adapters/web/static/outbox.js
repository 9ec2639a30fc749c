// Messages the bot has not confirmed yet. They outlive a reload and go out in order, one at a time.

import { local } from "./storage.js";

const PREFIX = "confidant.outbox.";
const ANSWER_TIME = 20_000; // ms without an answer before the connection counts as dead
const FIRST_PAUSE = 2_000; // ms before a message that could not be stored is tried again
const LONGEST_PAUSE = 30_000; // ms

export class Outbox {
  #items = new Map();
  #connection;
  #sending = null;
  #timer = 0;
  #pause = FIRST_PAUSE;
  #ready = false;
  #locale;

  constructor(connection, locale) {
    this.#connection = connection;
    this.#locale = locale;
    for (const item of stored()) this.#items.set(item.id, item);
  }

  get items() {
    return [...this.#items.values()];
  }

  has(id) {
    return this.#items.has(id);
  }

  add(text, { id = newId(), files = [], isQuiet = false, replaces = "" } = {}) {
    const item = { id, text, files, isQuiet, replaces, at: Date.now() };
    this.#items.set(item.id, item);
    local.set(PREFIX + item.id, JSON.stringify(item));
    return item;
  }

  /** The bot has it, or never will: forget it and go on with the next. */
  remove(id) {
    this.#items.delete(id);
    local.set(PREFIX + id, "");
    if (this.#sending === id) this.#sending = null;
    this.#pause = FIRST_PAUSE;
    this.pump();
  }

  /** Sends the oldest message, unless one is on its way. */
  pump() {
    if (!this.#ready || this.#sending !== null) return;
    const item = this.items[0];
    if (!item) return;
    const { id, text, files = [], replaces = "" } = item;
    const frame = { type: "send", id, text, replaces, files: files.map((file) => file.id) };
    if (!this.#connection.send({ ...frame, locale: this.#locale })) return;
    this.#sending = id;
    this.#after(ANSWER_TIME, () => this.#connection.drop());
  }

  /** The bot could not store it just now: try again, more patiently each time. */
  retryLater(id) {
    if (this.#sending !== id) return;
    this.#after(this.#pause, () => this.restart());
    this.#pause = Math.min(this.#pause * 2, LONGEST_PAUSE);
  }

  /** Nothing is on its way any more: begin again with the oldest message. */
  restart() {
    this.stop();
    this.#ready = true;
    this.pump();
  }

  /** The connection is gone: hold everything until `restart`. */
  stop() {
    clearTimeout(this.#timer);
    this.#sending = null;
    this.#ready = false;
  }

  #after(delay, action) {
    clearTimeout(this.#timer);
    const id = this.#sending;
    this.#timer = setTimeout(() => this.#sending === id && action(), delay);
  }
}

function stored() {
  const items = local
    .keys()
    .filter((key) => key.startsWith(PREFIX))
    .map((key) => read(local.get(key)));
  return items.filter((item) => item?.id && (item.text || item.files?.length)).sort((a, b) => a.at - b.at);
}

function read(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null; // cut short, or somebody else's
  }
}

function newId() {
  // crypto.randomUUID is missing on plain http; random bytes are not.
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
