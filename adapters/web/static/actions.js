// What can be done with a message: copied, changed, asked again; and where its sources stand.

import { root } from "./root.js";
import { isTemporary } from "./storage.js";
import { t } from "./strings.js";

const SOURCE = /([^\s`"'“”‘’()[\]<>,;:#]+\.md)(?::|#L)(\d+)(?:-\d+)?/gu;

/** Puts a text into the clipboard. */
export async function copyText(text, button) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Plain http away from this machine has no clipboard: the old way still works.
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
    button.focus();
  }
}

/** The buttons of a message; `tell` gets "edit" or "again" with what it is about. */
export function actions(item, tell) {
  const group = document.createElement("span");
  group.className = "actions";
  const copy = button("copy", () => {
    copyText(item.text, copy);
    copy.textContent = t("copied");
    setTimeout(() => (copy.textContent = t("copy")), 1500);
  });
  if (item.text) group.append(copy);
  const asks = !isTemporary && item.role === "user" && !item.id.startsWith("press-") && !item.text.startsWith("/");
  if (asks) {
    if (item.text) group.append(button("edit", () => tell("edit", item)));
    group.append(button("again", () => tell("again", item)));
  }
  return group;
}

/** Lets places in memory, such as "MEMORY.md:7", lead there. */
export function linkSources(body) {
  const walker = document.createTreeWalker(body, NodeFilter.SHOW_TEXT);
  const found = [];
  while (walker.nextNode()) {
    const node = walker.currentNode;
    if (!node.parentElement.closest("a, pre") && node.data.includes(".md")) found.push(node);
  }
  for (const node of found) {
    const parts = [];
    let end = 0;
    for (const match of node.data.matchAll(SOURCE)) {
      const link = document.createElement("a");
      link.href = `${root}/memory/file?path=${encodeURIComponent(match[1])}#L${match[2]}`;
      link.textContent = match[0];
      parts.push(node.data.slice(end, match.index), link);
      end = match.index + match[0].length;
    }
    if (parts.length) node.replaceWith(...parts, node.data.slice(end));
  }
}

/** A button below a message: "try_again" for what was not answered, "continue" what was stopped. */
export function offer(key, press) {
  const group = document.createElement("div");
  group.className = "choices";
  group.append(button(key, press));
  return group;
}

function button(key, action) {
  const made = document.createElement("button");
  made.type = "button";
  made.textContent = t(key);
  made.addEventListener("click", action);
  return made;
}
