// The ways to the other pages, as the server lists them for whoever looks.

import { root } from "./root.js";

const menu = document.getElementById("ways");
const list = document.getElementById("ways-list");

/** Fills the menu; what the bot and its visitor are called, or nothing when it cannot be asked. */
export async function showWays() {
  const answer = await fetch(`${root}/api/ways`).catch(() => null);
  if (!answer?.ok) return null;
  const found = await answer.json();
  const plain = found.ways.filter(({ behind }) => !behind);
  const owners = found.ways.filter(({ behind }) => behind);
  list.replaceChildren(listOf(plain));
  if (owners.length) list.append(gear(owners));
  return found;
}

function listOf(ways) {
  const listed = document.createElement("ul");
  listed.append(...ways.map(entry));
  return listed;
}

/** The owner's pages, behind what they are called together. */
function gear(ways) {
  const part = document.createElement("details");
  const words = document.createElement("summary");
  part.className = "gear";
  words.textContent = ways[0].behind;
  const waiting = ways.reduce((sum, { badge }) => sum + Number(badge), 0);
  if (waiting) words.append(" ", sign(waiting));
  part.append(words, listOf(ways));
  return part;
}

function entry({ path, label, badge }) {
  const item = document.createElement("li");
  const link = document.createElement("a");
  link.href = root + path;
  link.textContent = label;
  if (badge) link.append(" ", sign(badge));
  if (link.pathname === location.pathname) link.setAttribute("aria-current", "page");
  item.append(link);
  return item;
}

/** How many wait there. */
function sign(count) {
  const badge = document.createElement("span");
  badge.className = "badge";
  badge.textContent = count;
  return badge;
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
    const inner = menu.querySelector(":popover-open, .talk-name, dialog[open]");
    if (event.key !== "Escape" || !isOpen || inner) return;
    menu.hidePopover();
    event.preventDefault();
    event.stopPropagation();
  },
  { capture: true },
);
