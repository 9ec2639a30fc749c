// The form that connects a model, in an empty chat: that of Quick setup, with what it answers.

import { root } from "./root.js";

const FORM = "/settings/start";
const STYLES = ["base", "page", "settings"]; // those of the settings, which touch nothing else here

/** Tells "connected" once a model was chosen. */
export class ConnectModel extends EventTarget {
  #place = document.getElementById("connect");
  #card = null;
  #isOffered = false;

  /** Shows the form once it is there, or takes it away. */
  async offer(isOffered) {
    this.#isOffered = isOffered;
    this.#place.hidden = !isOffered || !this.#card?.childElementCount;
    if (!isOffered || this.#card) return;
    this.#card = document.createElement("div");
    const within = this.#place.attachShadow({ mode: "open" });
    for (const name of STYLES) {
      const link = document.createElement("link");
      link.rel = "stylesheet";
      link.href = `${root}/assets/${name}.css`;
      within.append(link);
    }
    within.append(this.#card);
    this.#card.addEventListener("submit", (event) => this.#send(event));
    const isThere = await this.#take(await fetch(root + FORM).catch(() => null));
    this.#place.hidden = !this.#isOffered || !isThere;
  }

  async #send(event) {
    event.preventDefault();
    const form = event.target;
    const button = form.querySelector("button");
    if (button.getAttribute("aria-disabled")) return;
    button.setAttribute("aria-disabled", "true");
    const body = new URLSearchParams(new FormData(form));
    const answer = await fetch(form.action, { method: "POST", body }).catch(() => null);
    if (!(await this.#take(answer))) form.submit(); // the browser itself says what is wrong
    else if (form.getAttribute("action").endsWith("/use")) {
      this.dispatchEvent(new CustomEvent("connected"));
    }
  }

  /** Shows what the server answered; false if that is no form. */
  async #take(answer) {
    const text = answer ? await answer.text() : "";
    const found = new DOMParser().parseFromString(text, "text/html").getElementById("model");
    if (!found) return false;
    const isAnswer = this.#card.childElementCount > 0;
    this.#card.replaceChildren(found);
    const next = found.querySelector("[role=alert], select, [role=status]");
    if (isAnswer && next) {
      if (!next.matches("select")) next.tabIndex = -1;
      next.focus();
    }
    return true;
  }
}
