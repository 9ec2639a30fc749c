// The message box: grows with its text, sends on Enter, completes commands.

import { session } from "./storage.js";

const DRAFT = "confidant.draft"; // what is written and not sent outlives a reload, in this tab alone
// A phone's keyboard has no Shift+Enter: there Enter starts a new line, and the button sends.
const TOUCH = matchMedia("(hover: none) and (pointer: coarse)");
const TALLEST = 0.4; // of the window

export class Composer extends EventTarget {
  #form = document.getElementById("composer");
  #box = document.getElementById("message");
  #button = document.getElementById("send");
  #completion;
  #attachments;
  #stop = document.getElementById("stop");
  #bar = document.getElementById("editing");
  #edited = null; // the message that is changed …
  #draft = ""; // … and what stood in the box before, which comes back behind it

  constructor(attachments) {
    super();
    this.#attachments = attachments;
    attachments.addEventListener("change", () => this.#look());
    this.#completion = new Completion(this.#box, (text) => this.#put(text));
    this.#form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#submit();
    });
    this.#box.addEventListener("input", () => this.#changed());
    this.#box.addEventListener("keydown", (event) => this.#key(event));
    this.#box.addEventListener("blur", () => this.#completion.close());
    document.getElementById("editing-end").addEventListener("click", () => this.#endEdit());
    this.#box.value = session.get(DRAFT);
    if (TOUCH.matches) this.#box.enterKeyHint = "enter";
    addEventListener("resize", () => this.#grow());
    this.#changed();
  }

  set commands(commands) {
    this.#completion.commands = commands;
  }

  get text() {
    return this.#box.value || this.#draft;
  }

  /** Puts a text into the box, ready to be changed or sent. */
  set(text) {
    this.#endEdit();
    this.#put(text);
  }

  /** Has a message changed; the one that was being written comes back afterwards. */
  edit(item) {
    this.#endEdit();
    this.#draft = this.#box.value;
    this.#edited = item;
    this.#bar.hidden = false;
    this.#box.setAttribute("aria-describedby", "editing-now hint");
    this.#put(item.text);
  }

  #endEdit() {
    if (!this.#edited) return;
    this.#edited = null;
    this.#bar.hidden = true;
    this.#box.setAttribute("aria-describedby", "hint");
    const draft = this.#draft;
    this.#draft = "";
    this.#put(draft);
  }

  #put(text) {
    this.#box.value = text;
    this.#box.focus();
    this.#box.setSelectionRange(text.length, text.length);
    this.#changed();
  }

  /** Puts a text where the cursor is. */
  insert(text) {
    const { selectionStart, selectionEnd } = this.#box;
    this.#box.setRangeText(text, selectionStart, selectionEnd, "end");
    this.#box.focus();
    this.#changed();
  }

  focus() {
    this.#box.focus();
  }

  #key(event) {
    // While an input method composes, Enter and arrows belong to it (229 is Safari's way to say so).
    if (event.isComposing || event.keyCode === 229) return;
    if (this.#completion.key(event)) {
      event.preventDefault();
    } else if (event.key === "Enter" && !event.shiftKey && !event.altKey && !TOUCH.matches) {
      event.preventDefault();
      this.#submit();
    } else if (event.key === "Escape" && this.#edited) {
      event.preventDefault(); // it stops no reply
      this.#endEdit();
    } else if ((event.key === "PageUp" || event.key === "PageDown") && !event.shiftKey) {
      event.preventDefault();
      const detail = event.key === "PageUp" ? -1 : 1;
      this.dispatchEvent(new CustomEvent("page", { detail }));
    }
  }

  #submit() {
    const text = this.#box.value.trim();
    if (!this.#canSend) return;
    const edited = this.#edited;
    this.#box.value = "";
    this.#changed();
    this.#endEdit();
    this.dispatchEvent(new CustomEvent("send", { detail: { text, edited } }));
  }

  #changed() {
    session.set(DRAFT, this.#edited ? this.#draft : this.#box.value);
    this.#look();
    this.#grow();
    this.#completion.update();
  }

  get #canSend() {
    if (this.#edited) return Boolean(this.#box.value.trim());
    const some = this.#box.value.trim() || this.#attachments.count;
    return Boolean(some) && this.#attachments.ready;
  }

  #look() {
    this.#button.disabled = !this.#canSend;
    this.#button.hidden = !this.#stop.hidden && !this.#canSend;
  }

  /** Offers to stop a reply while it is written. */
  writing(on) {
    this.#stop.hidden = !on;
    this.#look();
  }

  #grow() {
    this.#box.style.height = "auto";
    const height = Math.min(this.#box.scrollHeight, innerHeight * TALLEST);
    this.#box.style.height = `${height}px`;
    this.#box.style.overflowY = this.#box.scrollHeight > height ? "auto" : "hidden";
  }
}

class Completion {
  commands = [];
  #box;
  #list = document.getElementById("completion");
  #accept;
  #found = [];
  #chosen = 0;
  #closedAt = null;

  constructor(box, accept) {
    this.#box = box;
    this.#accept = accept;
    // mousedown, not click: the box must keep its focus.
    this.#list.addEventListener("mousedown", (event) => {
      event.preventDefault();
      const option = event.target.closest("[role=option]");
      if (option) this.#take(Number(option.dataset.index));
    });
  }

  get #open() {
    return !this.#list.hidden;
  }

  update() {
    const typed = /^\/(\S*)$/.exec(this.#box.value);
    if (!typed || this.#box.value === this.#closedAt) {
      this.close();
      return;
    }
    this.#closedAt = null;
    const word = typed[1].toLowerCase();
    const starts = this.commands.filter(({ name }) => name.startsWith(word));
    const within = this.commands.filter(({ name }) => name.indexOf(word) > 0);
    this.#found = [...starts, ...within];
    if (!this.#found.length) {
      this.close();
      return;
    }
    this.#chosen = 0;
    this.#show();
  }

  /** Handles a key while the list is open; true when the key is used up. */
  key(event) {
    if (!this.#open || event.ctrlKey || event.metaKey) return false;
    const last = this.#found.length - 1;
    switch (event.key) {
      case "ArrowDown":
        this.#choose(this.#chosen === last ? 0 : this.#chosen + 1);
        return true;
      case "ArrowUp":
        this.#choose(this.#chosen === 0 ? last : this.#chosen - 1);
        return true;
      case "Escape":
        this.#closedAt = this.#box.value;
        this.close();
        return true;
      case "Tab":
        if (event.shiftKey) return false;
        this.#take(this.#chosen);
        return true;
      case "Enter":
        // A command already written in full is sent.
        if (event.shiftKey || this.#box.value === `/${this.#found[this.#chosen].name}`) return false;
        this.#take(this.#chosen);
        return true;
      default:
        return false;
    }
  }

  close() {
    this.#list.hidden = true;
    this.#box.removeAttribute("aria-activedescendant");
  }

  #show() {
    this.#list.replaceChildren(
      ...this.#found.map((command, index) => {
        const option = document.createElement("li");
        option.id = `command-${index}`;
        option.dataset.index = index;
        option.setAttribute("role", "option");
        const name = document.createElement("span");
        name.className = "command";
        name.textContent = `/${command.name} ${command.usage}`.trim();
        const about = document.createElement("span");
        about.className = "about";
        about.textContent = command.description;
        option.append(name, about);
        return option;
      }),
    );
    this.#list.hidden = false;
    this.#choose(this.#chosen);
  }

  #choose(index) {
    this.#chosen = index;
    for (const [number, option] of [...this.#list.children].entries()) {
      option.setAttribute("aria-selected", String(number === index));
    }
    const chosen = this.#list.children[index];
    chosen.scrollIntoView({ block: "nearest" });
    this.#box.setAttribute("aria-activedescendant", chosen.id);
  }

  #take(index) {
    const { name, usage } = this.#found[index];
    const text = usage ? `/${name} ` : `/${name}`;
    this.#closedAt = text;
    this.#accept(text);
  }
}
