// What can be done with a message: copied, changed, answered anew; and where its sources stand.

import { pressedOn } from "./extras.js";
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

/** True for what is answered in its turn; commands are at once. */
export function isAsked({ id, role, text }) {
  return role === "user" && !text.startsWith("/") && !pressedOn(id);
}

/**
 * The buttons of a message; `tell` gets "edit", "again" or "switch" with what it is about. `asked`
 * is what a reply answers, if anything.
 */
export function actions(item, asked, tell) {
  const group = document.createElement("span");
  group.className = "actions";
  const copy = button("copy", () => {
    copyText(item.text, copy);
    copy.textContent = t("copied");
    setTimeout(() => (copy.textContent = t("copy")), 1500);
  });
  if (item.text) group.append(copy);
  if (isTemporary) return group; // of which the server keeps no turns
  if (isAsked(item) && item.text) group.append(button("edit", () => tell("edit", item)));
  if (asked && item.text && !item.failed) {
    group.append(button("try_again", () => tell("again", asked)));
  }
  return group;
}

/** Leads to the other versions of a message, such as ‹ 1/2 ›; nothing where there is but one. */
export function versions({ id, versions: all = [] }, tell) {
  const at = all.indexOf(id);
  if (at < 0 || all.length < 2) return [];
  const group = document.createElement("span");
  group.className = "versions";
  group.setAttribute("role", "group");
  group.setAttribute("aria-label", t("versions", { at: at + 1, count: all.length }));
  const count = document.createElement("span");
  count.textContent = `${at + 1}/${all.length}`;
  const lead = (sign, key, to) => {
    const made = button(key, () => tell("switch", to));
    made.textContent = sign;
    made.dataset.way = key;
    made.setAttribute("aria-label", t(key));
    made.disabled = !to;
    return made;
  };
  const back = lead("‹", "versions.before", all[at - 1]);
  group.append(back, count, lead("›", "versions.after", all[at + 1]));
  return [group];
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
