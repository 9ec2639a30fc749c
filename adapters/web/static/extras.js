// What stands below a message: pictures, files, sources, buttons.

import { root } from "./root.js";
import { t } from "./strings.js";

const REDO = "redo-";
const PRESS = "press-"; // a press is a message with the id of what it was pressed on

export const pressId = (id) => PRESS + id;

/** The message that asks once more what one of the bot's says was not answered. */
export const againId = (id) => `again-${id}`;

/** The message that has another one answered once more, as its next version. */
export const redoId = ({ id, versions = [id] }) => `${REDO}${versions[0]}-${versions.length}`;
export const isRedone = (id) => id.startsWith(REDO);

/** The message a press was made on, or empty when a message is no press. */
export const pressedOn = (id) => (id.startsWith(PRESS) ? id.slice(PRESS.length) : "");

/** Pictures to look at, and everything else to take along. */
export function files(items) {
  const list = document.createElement("div");
  list.className = "files";
  list.append(...items.map(file));
  return list;
}

/** Buttons that give their command to `press`, once. */
export function choices(items, press) {
  const group = document.createElement("div");
  group.className = "choices";
  group.setAttribute("role", "group");
  group.setAttribute("aria-label", t("choices"));
  for (const { label, command } of items) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = label;
    button.dataset.command = command;
    button.addEventListener("click", () => {
      if (button.ariaDisabled !== "true") press(command);
    });
    group.append(button);
  }
  return group;
}

const LONG_TEXT = 1_200; // characters of one's own message that are shown whole, …
const LONG_LINES = 15; // … and lines

/** The button that shows all of a long message, and folds it again; nothing for a short one. */
export function folds(body) {
  const text = body.textContent;
  if (text.length <= LONG_TEXT && text.split("\n", LONG_LINES + 1).length <= LONG_LINES) return [];
  const button = document.createElement("button");
  button.type = "button";
  button.className = "unfold";
  const show = (isFolded) => {
    body.classList.toggle("folded", isFolded);
    button.textContent = t(isFolded ? "unfold" : "fold");
    button.setAttribute("aria-expanded", String(!isFolded));
  };
  button.addEventListener("click", () => show(!body.classList.contains("folded")));
  show(true);
  return [button];
}

/** Takes no more presses, and shows which one it was. */
export function settle(group, command) {
  for (const button of group.querySelectorAll("button")) {
    // Not `disabled`: the keyboard would lose its place in the page.
    button.setAttribute("aria-disabled", "true");
    if (button.dataset.command !== command || group.querySelector(".chosen")) continue;
    button.classList.add("chosen");
    const said = document.createElement("span");
    said.className = "unseen";
    said.textContent = ` (${t("chosen")})`;
    button.append(said);
  }
}

/** Takes presses again, after one that the bot will never have. */
export function unsettle(group) {
  for (const button of group.querySelectorAll("button")) {
    button.removeAttribute("aria-disabled");
    button.classList.remove("chosen");
    button.querySelector(".unseen")?.remove();
  }
}

/** What a reply was given of memory: so many quotes, which are asked for when this is opened. */
export function sources(id, count) {
  const line = document.createElement("details");
  line.className = "sources";
  const summary = document.createElement("summary");
  summary.textContent = t("sources", { count });
  const list = document.createElement("ol");
  line.append(summary, list);
  line.addEventListener("toggle", async () => {
    if (!line.open) return;
    let found = null;
    try {
      const answer = await fetch(`${root}/api/sources?message=${encodeURIComponent(id)}`);
      if (answer.ok) found = await answer.json();
    } catch {
      // The server is away; opening it again asks again.
    }
    if (found?.length) summary.textContent = t("sources", { count: found.length });
    if (found?.length) list.replaceChildren(...found.map(source));
    else list.replaceChildren(listed(t(found ? "sources.none" : "sources.failed")));
  });
  return line;
}

function listed(...parts) {
  const made = document.createElement("li");
  made.append(...parts);
  return made;
}

function source({ text, where, link }) {
  const place = document.createElement(link ? "a" : "span");
  if (link) place.href = root + link;
  place.textContent = where;
  const words = document.createElement("q");
  words.textContent = text;
  return listed(place, " ", words);
}

function file({ name, size, picture, data }) {
  const figure = document.createElement("figure");
  const caption = document.createElement("figcaption");
  const label = document.createElement(data ? "a" : "span");
  label.textContent = name || t("file");
  if (data) {
    label.href = data;
    label.download = name || t("file");
  }
  const about = document.createElement("span");
  about.textContent = data ? bytes(size) : `${bytes(size)}, ${t("too_large")}`;
  caption.append(label, about);
  if (picture && data.startsWith("data:image/")) {
    const image = document.createElement("img");
    image.alt = t("picture", { name });
    image.src = data;
    figure.append(image);
  }
  if (data.startsWith("data:audio/")) {
    const player = document.createElement("audio");
    player.controls = true;
    player.src = data;
    figure.append(player);
  }
  figure.append(caption);
  return figure;
}

/** A size in words. */
export function bytes(size) {
  if (size < 1_000) return `${size} B`;
  return size < 1_000_000 ? `${Math.round(size / 1_000)} kB` : `${(size / 1_000_000).toFixed(1)} MB`;
}
