// The model that answers, by name, and a menu of those it can be changed for.

import { isStep, move } from "./menu.js";
import { t } from "./strings.js";

export class ModelMenu extends EventTarget {
  #button = document.getElementById("model");
  #name = document.getElementById("model-name");
  #menu = document.getElementById("models");
  #list = document.getElementById("models-list");
  #more = document.getElementById("models-more");
  #temporary = document.getElementById("temporary-open");
  #chosen = "";
  #answers = "";
  #may = null; // until that is known

  constructor() {
    super();
    this.#button.addEventListener("click", () => (this.#isOpen ? this.#close() : this.#open()));
    this.#button.addEventListener("keydown", (event) => {
      if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
      event.preventDefault();
      this.#open(event.key === "ArrowUp" ? -1 : undefined);
    });
    this.#menu.addEventListener("keydown", (event) => this.#key(event));
    this.#menu.addEventListener("focusout", ({ relatedTarget }) => {
      if (relatedTarget !== this.#button && !this.#menu.contains(relatedTarget)) this.#close();
    });
    this.#more.addEventListener("click", () => {
      this.#close();
      this.dispatchEvent(new CustomEvent("more"));
    });
  }

  /** Whether whoever looks may connect a model. */
  set settings(may) {
    this.#may = may;
    this.#offer();
  }

  #offer() {
    const isOffline = this.#answers === "offline";
    document.getElementById("no-model").hidden = !this.#may || !isOffline;
    document.getElementById("no-model-told").hidden = this.#may !== false || !isOffline;
    this.#temporary.hidden = isOffline; // it needs a model
    this.#temporary.title = t("temporary.open");
    this.dispatchEvent(new CustomEvent("offer", { detail: Boolean(this.#may) && isOffline }));
  }

  /** Shows what answers and what is offered; an open menu keeps its place. */
  show({ chosen, stand_in, offered, more }) {
    const answers = stand_in || chosen;
    this.#chosen = chosen;
    this.#answers = answers;
    this.#offer();
    this.#button.hidden = false;
    this.#name.textContent = answers.slice(answers.indexOf("/") + 1);
    this.#button.setAttribute("aria-label", t("model", { name: answers }));
    this.#button.title = answers;
    const focused = document.activeElement?.dataset?.model;
    const names = offered.includes(chosen) ? offered : [chosen, ...offered];
    this.#list.replaceChildren(...names.map((name) => this.#item(name)));
    this.#more.hidden = !more;
    this.#more.textContent = t("models.more", { count: more });
    if (focused) (this.#items.find((item) => item.dataset.model === focused) ?? this.#items[0]).focus();
  }

  get #isOpen() {
    return !this.#menu.hidden;
  }

  get #items() {
    return [...this.#menu.querySelectorAll("[role^=menuitem]")].filter((item) => !item.hidden);
  }

  #item(name) {
    const item = document.createElement("button");
    item.type = "button";
    item.tabIndex = -1;
    item.dataset.model = name;
    item.textContent = name;
    item.setAttribute("role", "menuitemradio");
    item.setAttribute("aria-checked", String(name === this.#chosen));
    item.addEventListener("click", () => {
      this.#close();
      this.#button.focus();
      if (name !== this.#chosen) this.dispatchEvent(new CustomEvent("choose", { detail: name }));
    });
    return item;
  }

  /** Opens it at the model that was chosen, or at the place given. */
  #open(place) {
    this.#menu.hidden = false;
    this.#button.setAttribute("aria-expanded", "true");
    const items = this.#items;
    const chosen = items.find((item) => item.ariaChecked === "true");
    (place === undefined ? (chosen ?? items[0]) : items.at(place)).focus();
  }

  #close() {
    this.#menu.hidden = true;
    this.#button.setAttribute("aria-expanded", "false");
  }

  #key(event) {
    if (event.key === "Escape") {
      this.#close();
      this.#button.focus();
    } else if (!isStep(event)) return;
    else move(event, this.#items);
    event.preventDefault();
  }
}
