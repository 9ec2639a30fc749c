// Shows what is written as a Mermaid diagram as a picture. A frame without any rights draws it.

import { root } from "./root.js";
import { t } from "./strings.js";

const PATIENCE = 20_000; // ms until a diagram stays what it is: its text

const dark = matchMedia("(prefers-color-scheme: dark)");
const waiting = new Map(); // what takes the picture, by the number of its diagram
let frame = null; // the frame's promise, once there is something to draw
let count = 0;

/** Puts a picture in front of every diagram of a message, and a button to see its text. */
export function draw(body) {
  for (const code of body.querySelectorAll(".code code.language-mermaid")) {
    picture(code.textContent).then((svg) => svg && show(code.closest(".code"), svg));
  }
}

async function picture(text) {
  frame ??= open();
  const { contentWindow } = await frame;
  const id = (count += 1);
  const { theme: chosen } = document.documentElement.dataset;
  const isDark = chosen === "dark" || (chosen !== "light" && dark.matches);
  const svg = new Promise((resolve) => {
    waiting.set(id, resolve);
    setTimeout(resolve, PATIENCE);
  });
  contentWindow.postMessage({ id, text, theme: isDark ? "dark" : "neutral" }, "*");
  return svg.finally(() => waiting.delete(id));
}

function open() {
  const made = document.createElement("iframe");
  made.sandbox = "allow-scripts";
  made.className = "drawing";
  made.title = t("diagram");
  made.tabIndex = -1;
  made.setAttribute("aria-hidden", "true");
  made.src = `${root}/drawing/frame.html`;
  return new Promise((resolve) => {
    addEventListener("message", ({ source, data }) => {
      if (source !== made.contentWindow) return;
      if (data.ready) resolve(made);
      else waiting.get(data.id)?.(data.svg);
    });
    document.body.append(made);
  });
}

function show(code, svg) {
  const image = document.createElement("img");
  image.className = "diagram";
  image.alt = t("diagram");
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
  const text = code.querySelector("pre");
  const button = document.createElement("button");
  button.type = "button";
  const turn = (isDrawn) => {
    image.hidden = !isDrawn;
    text.hidden = isDrawn;
    button.textContent = t(isDrawn ? "diagram.text" : "diagram");
  };
  button.addEventListener("click", () => turn(image.hidden));
  image.addEventListener("error", () => turn(false));
  text.before(image);
  code.querySelector(".code-bar button").before(button);
  turn(true);
}
