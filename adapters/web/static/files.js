// Files to send along: chosen, pasted or dropped; each goes to the bot at once, in parts.

import { bytes } from "./extras.js";
import { root } from "./root.js";
import { isTemporary, session, unsent } from "./storage.js";
import { t } from "./strings.js";

const PART = 1_000_000; // bytes of one request
const LARGEST = 20_000_000; // bytes of a file
const MOST = 10; // files of one message
const TRIES = 3; // of each part
const LONG_TEXT = 4_000; // characters that are pasted as a file, …
const LONG_LINES = 60; // … or lines
const KEPT = 24 * 3600 * 1000; // ms a file stays with the bot
const TAB = "confidant.tab"; // whose unsent files are kept in this browser: another tab has its own

export const addressOf = (id) => `${root}/chat/files/${id}`;

export class Attachments extends EventTarget {
  #list = document.getElementById("attached");
  #input = document.getElementById("files");
  #items = new Map(); // by id, in their order
  #whose = ""; // who looks, once that is known
  #tab = session.get(TAB) || newId();

  constructor(box) {
    super();
    session.set(TAB, this.#tab);
    document.getElementById("attach").addEventListener("click", () => this.#input.click());
    this.#input.addEventListener("change", () => {
      this.add(this.#input.files);
      this.#input.value = "";
    });
    if (isTemporary) {
      // The server would keep them; and a browser that opens one leaves the chat.
      const refuse = (event) => event.dataTransfer.types.includes("Files") && event.preventDefault();
      for (const type of ["dragover", "drop"]) addEventListener(type, refuse);
      return;
    }
    box.addEventListener("paste", (event) => {
      const files = event.clipboardData?.files;
      const text = event.clipboardData?.getData("text/plain") ?? "";
      if (isLong(text) && this.count < MOST) {
        event.preventDefault();
        this.add([new File([text], `${t("files.pasted")}.txt`, { type: "text/plain" })], { text });
        return;
      }
      // Office programs bring a picture of the text they bring: the text is meant.
      if (!files?.length || event.clipboardData.types.includes("text/plain")) return;
      event.preventDefault();
      this.add(files);
    });
    addEventListener("dragover", (event) => {
      if (!event.dataTransfer.types.includes("Files")) return;
      event.preventDefault(); // else the browser opens the file in place of the page
      document.body.classList.add("dropping");
    });
    addEventListener("dragleave", (event) => {
      if (!event.relatedTarget) document.body.classList.remove("dropping");
    });
    addEventListener("drop", (event) => {
      document.body.classList.remove("dropping");
      if (!event.dataTransfer.types.includes("Files")) return;
      event.preventDefault();
      this.add(event.dataTransfer.files);
      box.focus();
    });
  }

  get count() {
    return this.#items.size;
  }

  /** Whether all of them are at the bot. */
  get ready() {
    return [...this.#items.values()].every(({ state }) => state === "there");
  }

  /** Brings back what was not sent in this tab before a reload, by the same person. */
  async restore(whose) {
    this.#whose = whose;
    for (const item of this.#items.values()) this.#keep(item);
    const kept = (await unsent.all()).sort((one, other) => one.number - other.number);
    for (const { id, at, tab, whose: owner, file, text, voice } of kept) {
      if (this.#items.has(id) || (tab !== this.#tab && at > Date.now() - KEPT)) continue;
      unsent.remove(id);
      if (tab !== this.#tab || owner !== whose) continue;
      fetch(addressOf(id), { method: "DELETE" }).catch(() => null); // it goes there once more
      this.add([file], { text, voice });
    }
  }

  /**
   * Takes files along, as far as a message holds them; `text` is that of one that was pasted, and
   * a `voice` message is what its person says, not something they pass on.
   */
  add(files, { text = "", voice = false } = {}) {
    for (const file of files) {
      const problem =
        this.count >= MOST ? t("files.many", { count: MOST })
        : file.size > LARGEST ? t("files.large", { name: file.name, size: bytes(LARGEST) })
        : file.size === 0 ? t("files.empty", { name: file.name })
        : "";
      if (problem) {
        this.#tell("problem", problem);
      } else {
        const id = newId();
        const item = { id, name: file.name, size: file.size, picture: isPicture(file), file, text, voice };
        item.state = "going";
        this.#items.set(id, item);
        this.#keep(item);
        this.#show(item);
        this.#upload(item);
      }
    }
    this.#changed();
  }

  /** What goes with the message that is sent now; the list begins anew. */
  take() {
    const taken = [...this.#items.values()];
    for (const { id } of taken) unsent.remove(id);
    this.#items.clear();
    this.#list.replaceChildren();
    this.#changed();
    return taken.map(({ id, name, size, picture }) => ({ id, name, size, picture }));
  }

  async #upload(item) {
    const { id, file } = item;
    try {
      for (let part = 0; part * PART < file.size; part += 1) {
        if (!this.#items.has(id)) return;
        const said = new URLSearchParams({ part, size: file.size, name: file.name });
        if (item.voice) said.set("voice", "1");
        await post(`${addressOf(id)}?${said}`, file.slice(part * PART, (part + 1) * PART, file.type));
        item.node.querySelector("progress").value = Math.min((part + 1) * PART, file.size);
      }
      item.state = "there";
      item.node.classList.add("there");
      if (item.picture) item.node.prepend(picture(item, ""));
    } catch (error) {
      item.state = "failed";
      this.#remove(item);
      this.#tell("problem", t(error.message === "413" ? "files.full" : "files.failed", item));
    }
    this.#changed();
    if (item.voice && item.state === "there") this.#tell("spoken");
  }

  #show(item) {
    const node = document.createElement("li");
    const progress = document.createElement("progress");
    progress.max = item.size;
    progress.value = 0;
    progress.setAttribute("aria-label", item.name);
    const name = document.createElement("span");
    name.className = "name";
    name.textContent = item.name;
    const size = document.createElement("span");
    size.className = "size";
    size.textContent = bytes(item.size);
    const remove = document.createElement("button");
    remove.type = "button";
    remove.textContent = "×";
    remove.setAttribute("aria-label", t("files.remove", { name: item.name }));
    remove.addEventListener("click", () => this.#withdraw(item));
    node.append(name, size, progress, ...(item.text ? [this.#asText(item)] : []), remove);
    item.node = node;
    this.#list.append(node);
  }

  /** The button that turns what was pasted into text again. */
  #asText(item) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "as-text";
    button.textContent = t("files.as_text");
    button.addEventListener("click", () => {
      this.#withdraw(item);
      this.#tell("text", item.text);
    });
    return button;
  }

  #withdraw(item) {
    this.#remove(item);
    fetch(addressOf(item.id), { method: "DELETE" }).catch(() => null);
    this.#changed();
    document.getElementById("message").focus();
  }

  #keep({ id, file, text, voice }) {
    if (!this.#whose) return;
    const number = [...this.#items.keys()].indexOf(id);
    unsent.put({ id, number, at: Date.now(), tab: this.#tab, whose: this.#whose, file, text, voice });
  }

  #remove({ id, node }) {
    unsent.remove(id);
    this.#items.delete(id);
    node.remove();
  }

  #changed() {
    this.#list.hidden = !this.count;
    this.#tell("change");
  }

  #tell(name, detail) {
    this.dispatchEvent(new CustomEvent(name, { detail }));
  }
}

/** Files below a message of one's own: pictures to look at, others to save; some are gone. */
export function sent(items) {
  const list = document.createElement("div");
  list.className = "files sent";
  list.append(
    ...items.map((item) => {
      const figure = document.createElement("figure");
      const caption = document.createElement("figcaption");
      const label = document.createElement(item.gone ? "span" : "a");
      label.textContent = item.name || t("file");
      const about = document.createElement("span");
      about.textContent = item.gone ? t("files.gone") : bytes(item.size);
      if (!item.gone) {
        label.href = addressOf(item.id);
        label.download = item.name || t("file");
        if (item.picture) figure.append(picture(item, t("picture", item)));
      }
      caption.append(label, about);
      figure.append(caption);
      return figure;
    }),
  );
  return list;
}

function picture({ id }, alt) {
  const image = document.createElement("img");
  image.alt = alt;
  image.addEventListener("error", () => image.remove()); // none that a browser shows
  image.src = addressOf(id);
  return image;
}

function isLong(text) {
  return text.length > LONG_TEXT || text.split("\n", LONG_LINES + 1).length > LONG_LINES;
}

function isPicture({ type }) {
  return /^image\/(jpeg|png|webp|gif|bmp|tiff)$/.test(type);
}

async function post(address, body) {
  for (let tried = 1; ; tried += 1) {
    const answer = await fetch(address, { method: "POST", body }).catch(() => null);
    if (answer?.ok) return;
    if (tried === TRIES || (answer && answer.status < 500)) throw new Error(answer?.status ?? "");
    await new Promise((done) => setTimeout(done, 1_000 * tried));
  }
}

function newId() {
  // crypto.randomUUID is missing on plain http; random bytes are not.
  const random = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(random, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
