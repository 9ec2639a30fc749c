// One WebSocket that comes back by itself, more patiently each time.

import { root } from "./root.js";
import { zone } from "./strings.js";

const FIRST_DELAY = 500; // ms
const LONGEST_DELAY = 15_000; // ms
const VERSION = 1;

export class Connection extends EventTarget {
  #socket = null;
  #delay = FIRST_DELAY;
  #timer = 0;
  #locale;

  constructor(locale) {
    super();
    this.#locale = locale;
    addEventListener("online", () => this.retry());
    document.addEventListener("visibilitychange", () => document.hidden || this.retry());
  }

  get open() {
    return this.#socket?.readyState === WebSocket.OPEN;
  }

  /** Connects now, unless a connection is there or on its way. */
  retry() {
    if (this.#socket && this.#socket.readyState <= WebSocket.OPEN) return;
    clearTimeout(this.#timer);
    this.#connect();
  }

  /** Sends a frame; false when there is no connection. */
  send(frame) {
    if (!this.open) return false;
    this.#socket.send(JSON.stringify(frame));
    return true;
  }

  /** Drops a connection that no longer answers; another one follows. */
  drop() {
    this.#socket?.close();
  }

  /** Connects anew, which brings the conversation as it is now. */
  again() {
    const socket = this.#socket;
    this.#socket = null;
    socket?.close();
    this.retry();
  }

  /** The other side is well: the next trouble starts with short waits again. */
  settle() {
    this.#delay = FIRST_DELAY;
  }

  #connect() {
    this.#tell("state", { state: "connecting" });
    const scheme = location.protocol === "https:" ? "wss:" : "ws:";
    const socket = new WebSocket(`${scheme}//${location.host}${root}/chat/ws`);
    this.#socket = socket;
    let opened = false;
    socket.addEventListener("open", () => {
      opened = true;
      this.send({ type: "hello", version: VERSION, locale: this.#locale, zone: zone(), format: "html" });
    });
    socket.addEventListener("message", (event) => {
      if (socket === this.#socket) this.#tell("frame", JSON.parse(event.data));
    });
    socket.addEventListener("close", () => {
      if (socket !== this.#socket) return;
      if (!opened) this.#checkLogin();
      this.#later();
    });
  }

  #later() {
    const delay = this.#delay * (0.75 + Math.random() / 2); // so many pages do not come at once
    this.#delay = Math.min(this.#delay * 2, LONGEST_DELAY);
    this.#timer = setTimeout(() => this.#connect(), delay);
    this.#tell("state", { state: "closed", delay });
  }

  async #checkLogin() {
    // A WebSocket cannot say why it was refused; a page can.
    const answer = await fetch(`${root}/`, { method: "HEAD", cache: "no-store" }).catch(() => null);
    if (answer?.status === 401) location.assign(`${root}/login`);
  }

  #tell(name, detail) {
    this.dispatchEvent(new CustomEvent(name, { detail }));
  }
}
