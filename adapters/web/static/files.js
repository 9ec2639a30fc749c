// Files to send along: chosen, pasted or dropped; each goes to the bot at once, in parts.

import { bytes } from "./extras.js";
import { root } from "./root.js";
import { t } from "./strings.js";

const PART = 1_000_000; // bytes of one request
const LARGEST = 20_000_000; // bytes of a file
const MOST = 10; // files of one message
const TRIES = 3; // of each part

export const addressOf = (id) => `${root}/chat/files/${id}`;

export class Attachments extends EventTarget {
  #list = document.getElementById("attached");
  #input = document.getElementById("files");
  #items = new Map(); // by id, in their order

  constructor(box) {
    super();
    document.getElementById("attach").addEventListener("click", () => this.#input.click());
    this.#input.addEventListener("change", () => {
      this.add(this.#input.files);
      this.#input.value = "";
    });
    box.addEventListener("paste", (event) => {
      const files = event.clipboardData?.files;
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

  /** Takes files along, as far as a message holds them. */
  add(files) {
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
        const item = { id, name: file.name, size: file.size, picture: isPicture(file), file };
        item.state = "going";
        this.#items.set(id, item);
        this.#show(item);
        this.#upload(item);
      }
    }
    this.#changed();
  }

  /** What goes with the message that is sent now; the list begins anew. */
  take() {
    const taken = [...this.#items.values()];
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
    remove.addEventListener("click", () => {
      this.#remove(item);
      fetch(addressOf(item.id), { method: "DELETE" }).catch(() => null);
      this.#changed();
      document.getElementById("message").focus();
    });
    node.append(name, size, progress, remove);
    item.node = node;
    this.#list.append(node);
  }

  #remove({ id, node }) {
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
