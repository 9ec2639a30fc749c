// The ways to the other pages, as the server lists them for whoever looks.

import { root } from "./root.js";

const menu = document.getElementById("ways");
const list = document.getElementById("ways-list");

/** Fills the menu; what the bot and its visitor are called, or nothing when it cannot be asked. */
export async function showWays() {
  const answer = await fetch(`${root}/api/ways`).catch(() => null);
  if (!answer?.ok) return null;
  const found = await answer.json();
  const shown = [];
  let group;
  for (const way of found.ways) {
    if (way.group !== group || !shown.length) shown.push(...begun(way.group, shown.length));
    group = way.group;
    shown.at(-1).append(entry(way));
  }
  list.replaceChildren(...shown);
  return found;
}

/** The list of a group, below its words if it has some. */
function begun(group, number) {
  const ways = document.createElement("ul");
  if (!group) return [ways];
  const words = document.createElement("p");
  words.id = `ways-${number}`;
  words.textContent = group;
  ways.setAttribute("aria-labelledby", words.id);
  return [words, ways];
}

function entry({ path, label }) {
  const item = document.createElement("li");
  const link = document.createElement("a");
  link.href = root + path;
  link.textContent = label;
  if (link.pathname === location.pathname) link.setAttribute("aria-current", "page");
  item.append(link);
  return item;
}

let isOpen = false;

menu.addEventListener("beforetoggle", ({ newState }) => {
  isOpen = newState === "open";
});

// Before anything else takes it: Esc would stop a reply as well.
document.addEventListener(
  "keydown",
  (event) => {
    // What is open within it, and a name that is being typed, come first.
    const inner = menu.querySelector(":popover-open, .talk-name");
    if (event.key !== "Escape" || !isOpen || inner) return;
    menu.hidePopover();
    event.preventDefault();
    event.stopPropagation();
  },
  { capture: true },
);
