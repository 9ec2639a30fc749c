// The menu's switches for theme and language, which the browser keeps.

import { cookie, local } from "./storage.js";
import { BOTS, language } from "./strings.js";

const form = document.getElementById("look");
const page = document.documentElement;

form.addEventListener("submit", (event) => {
  const { name, value } = event.submitter ?? {};
  if (name !== "theme") return; // the page is loaded again in the other language
  event.preventDefault();
  page.dataset.theme = value;
  show();
  const body = new URLSearchParams({ theme: value });
  fetch(form.action, { method: "POST", body, redirect: "manual" }).catch(() => null);
});

function show() {
  const now = { theme: page.dataset.theme ?? "system", language };
  for (const button of form.querySelectorAll("button")) {
    button.setAttribute("aria-pressed", String(now[button.name] === button.value));
  }
}

/** Speaks the bot's language, unless another was chosen here; "auto" is the browser's. */
export function follow(bots) {
  const known = local.get(BOTS) || "auto";
  if (bots === known) return;
  local.set(BOTS, bots === "auto" ? "" : bots);
  const isKept = (local.get(BOTS) || "auto") === bots;
  if (isKept && bots !== language && !cookie("language")) location.reload();
}

show();
